"""Column generation with moving neurons, for ordinary neurons."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bidual._util.clock import clock
from bidual._util.progress import note
from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint
from bidual.arrangements.faces import few_faces
from bidual.atoms import Relu, SparseRelu
from bidual.closed_form import ClosedForm, ConditionError, white_features
from bidual.solvers.base import Options, Solution
from bidual.solvers.finite import solve_separate
from bidual.solvers.formula import solve_closed_form
from bidual.solvers.run import generator
from bidual.solvers.shared import solve_on_faces, solve_several
from bidual.solvers.steps import Steps

if TYPE_CHECKING:
    from bidual.solvers.engine.pricing import Pricer

#: Starts of each family in the search for the most violating neuron.
_EFFORT, _LITTLE = 64, 8
#: Up to so many faces of cells several outputs are trained by all of them: in less time than neurons take to move.
_FACES = 2000


class SparseSteps(Steps[SparseRelu]):
    """Ordinary neurons on sparse rows: see :mod:`bidual.solvers.engine.many_rows`."""

    kind = SparseRelu

    def generate(self, options: Options) -> Solution:
        """By moving and pricing, which take products with the rows only."""
        from bidual.solvers.engine.many_rows import run_many_rows  # numba takes a moment to load: only when needed

        return run_many_rows(self.problem, options)

    def rough(self, options: Options) -> Solution:
        """The first moves alone, whatever the network before."""
        from bidual.solvers.engine.many_rows import start_many_rows  # numba takes a moment to load: only when needed

        return start_many_rows(self.problem, replace(options, start=None))

    def search(self, V: FloatArray, random_state: int | np.random.RandomState | None, audit: bool = True) -> float:
        """As in a round of training."""
        from bidual.solvers.engine.many_rows import search  # numba takes a moment to load: only when needed

        return search(self.problem, V, generator(random_state))


class ReluSteps(Steps[Relu]):
    """Ordinary neurons, with or without heads; see :mod:`bidual.solvers.engine.loop`."""

    kind = Relu

    def formula(self) -> ClosedForm:
        """Whitened rows."""
        return white_features(self.problem)

    def generate(self, options: Options) -> Solution:
        """By a formula where there is one, by all faces where they are few; else by moving, correcting, pricing."""
        self._check_steps()
        with suppress(ConditionError):
            formula = solve_closed_form(self.problem, options)
            if options.max_neurons is None or len(formula.neurons) <= options.max_neurons:
                return formula
        if self.problem.n_coefficients > 1 and options.max_neurons is None:
            faces = few_faces(self.problem.atoms.reduced, _FACES)
            if faces is not None:
                return solve_on_faces(self.problem, faces, options)
        return self.engine(options)

    def _check_steps(self) -> None:
        """The engine steps by the curvature of a smooth loss; whoever trains a tiny problem is told, too."""
        loss = self.problem.loss
        if loss.smooth and not np.isfinite(loss.lipschitz):
            raise TypeError(
                f"the loss {loss.name!r} is smooth but states no lipschitz constant, which sets the steps of "
                "method='adaptive': give it lipschitz, or use method='exact' or 'sampled'"
            )

    def engine(self, options: Options) -> Solution:
        """Moving, correcting, pricing."""
        self._check_steps()
        loss, began = self.problem.loss, clock()
        from bidual.solvers.engine.exact_fit import solve_exact_fit  # numba takes a moment to load: only when needed
        from bidual.solvers.engine.loop import Engine, run
        from bidual.solvers.engine.many_rows import run_many_rows, suits
        from bidual.solvers.engine.several import SeveralOutputs

        loading = clock() - began
        if options.verbose and loading > 1.0:
            note(f"{loading:.1f} s to load or compile the kernels, once, not counted below")
        if not loss.finite:
            return solve_exact_fit(self.problem, options)
        if loss.smooth and suits(self.problem):
            return run_many_rows(self.problem, options)
        return run(SeveralOutputs if self.problem.n_coefficients > 1 else Engine, self.problem, options)

    def pricer(self, rng: np.random.Generator) -> Pricer:
        """See :mod:`bidual.solvers.engine.pricing`."""
        from bidual.solvers.engine.pricing import Pricer  # numba takes a moment to load: only when it is needed

        return Pricer(self.problem, rng)

    def rough(self, options: Options) -> Solution:
        """The fast start alone, whatever the network before."""
        from bidual.solvers.engine.loop import Engine, run_start  # numba takes a moment to load: only when needed
        from bidual.solvers.engine.several import SeveralOutputs

        options = replace(options, start=None)
        return run_start(SeveralOutputs if self.problem.n_coefficients > 1 else Engine, self.problem, options)

    def several(self, options: Options) -> Solution:
        """Shared directions, to a proven gap: see :mod:`bidual.solvers.shared`."""
        if self.problem.loss.finite:
            return solve_several(self.problem, options, self.generate)
        return solve_several(self.problem, options, partial(solve_separate, self.problem))

    def search(self, V: FloatArray, random_state: int | np.random.RandomState | None, audit: bool = True) -> float:
        """All families of starts, then an audit."""
        pricer = self.pricer(generator(random_state))
        nothing = np.zeros((0, self.problem.atoms.reduced.shape[1]))
        if not audit:
            return pricer.quick(V, nothing, _LITTLE).best
        found = pricer.quick(V, nothing, _EFFORT).joined(pricer.strong(V, nothing, _EFFORT))
        value = max(found.best, pricer.audit(V, found.directions[:_EFFORT], _EFFORT, floor=found.best).best)
        checkpoint()  # a search that was cut short says nothing about the bound
        return value
