"""The searches of the loop: those of its rounds, and the audits at its end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint, last_look
from bidual.atoms import Neurons, Relu
from bidual.bounds import Bound, lower_bound
from bidual.problem import Problem
from bidual.solvers.base import Options
from bidual.solvers.engine.candidates import Candidates, unit_rows
from bidual.solvers.engine.pricing import Pricer
from bidual.solvers.generation import Generation
from bidual.solvers.run import Status
from bidual.solvers.steps import Steps

#: Seconds for a last audit after Ctrl-C.
_LAST_LOOK = 0.5
#: A gap above this is mostly that of a poor dual point: it says little about the network.
_TELLING = 0.01
#: Cuts that may enter from a search of the audit.
_CUTS_AUDIT = 200
#: Cosine from which on two cuts are one.
SAME = 0.9995
#: Starts of each family in a search of a round: this over the gap (or over the smallest that counts), within bounds.
_EFFORT, _SMALLEST_GAP, _EFFORT_RANGE = 0.25, 1e-4, (32, 64)
#: Entries of the features times starts that the final search can afford, and their range: a missed narrow maximum makes
#: the gap a lie. Few dimensions have few maxima: at most so many starts for each.
_FINAL_ENTRIES, _FINAL_RANGE, _FINAL_EACH = 4_000_000, (128, 1024), 40
#: The fewest where a training may end at a gap that is merely enough.
_FINAL_ENOUGH = 32
#: Small rounds of the audit of a network that was given, and what finds nothing new in one, relative to the tolerance.
_WARM_ROUNDS, _NOTHING_NEW = 5, 0.02

#: A method of :class:`Pricer`: dual point, neurons, effort, value known to be attained.
Search = Callable[[FloatArray, FloatArray, int, float], Candidates]


class Searching(Generation):
    """A run that searches with a :class:`Pricer`, in reduced coordinates; what violates the constraint are its cuts."""

    problem: Problem[Relu]

    def __init__(self, problem: Problem[Relu], options: Options, neurons: Neurons, began: float) -> None:
        super().__init__(problem, options, neurons, began=began)
        rank = problem.atoms.reduced.shape[1]
        self.cuts = Candidates.none(rank, problem.n_coefficients)
        self.pricer: Pricer = Steps.of(problem).pricer(self.rng)
        if options.directions is not None:
            self.pricer.pool = unit_rows(options.directions @ problem.atoms.basis)
        fewest, most = _FINAL_RANGE if options.enough is None else (_FINAL_ENOUGH, _FINAL_RANGE[1])
        final = int(np.clip(_FINAL_ENTRIES / max(problem.atoms.reduced.size, 1), fewest, most))
        final = min(final, _FINAL_EACH * max(rank, 1))
        self.given = options.start if isinstance(options.start, Neurons) and len(options.start) else None
        self.efforts = (final // 4, final) if self.given is None else (final // 4,) * _WARM_ROUNDS

    def evaluate(self, neurons: Neurons) -> float:
        """The objective, in reduced coordinates."""
        return self.problem.loss_value(self.outputs(neurons)) + self.problem.beta * float(neurons.costs.sum())

    def outputs(self, neurons: Neurons) -> FloatArray:
        """Outputs of neurons in reduced coordinates."""
        activations = np.maximum(self.problem.atoms.reduced @ neurons.U.T, 0.0)
        return self.problem.atoms.combine(activations, neurons.alpha) + neurons.intercept

    def predictions(self) -> FloatArray:
        """Outputs of the best network."""
        return self.outputs(self.neurons)

    @property
    def resolution(self) -> float:
        """What is worth telling apart, relative to the objective."""
        return max(min(self.gap, _TELLING), self.options.tol)

    def price(self, V: FloatArray, directions: FloatArray, enough: float) -> Candidates:
        """Quick search first; a wider one if it finds no violation above ``enough``."""
        effort = int(np.clip(_EFFORT / max(self.gap, self.options.tol, _SMALLEST_GAP), *_EFFORT_RANGE))
        found = self.pricer.quick(V, directions, effort)
        if found.best <= self.problem.beta * (1.0 + enough):
            found = found.joined(self.pricer.strong(V, directions, effort // 2))
        checkpoint()  # a search that was cut short says nothing about the bound
        return found

    def confirm(self, efforts: tuple[int, ...]) -> bool:
        """Price the best dual point again, from ever more starts and from other families; True if the gap stands.

        A run that was given a good network to start from makes small rounds, until one finds nothing new.
        """
        for effort in efforts:
            before = self.bound.attained  # finding less than the tolerance can tell is finding nothing
            for search in self.searches:
                self.reprice(search, effort)
                checkpoint()
                if not self.closed:
                    return False
            if self.given is not None and self.bound.attained <= before * (1.0 + _NOTHING_NEW * self.options.tol):
                break
        return True

    @property
    def searches(self) -> tuple[Search, ...]:
        """What an audit consists of."""
        return self.pricer.audit, self.pricer.strong

    def reprice(self, search: Search, effort: int) -> None:
        """Search again at the best dual point, and lower its bound by what is found."""
        p, V = self.problem, self.bound.V
        found = search(V, self.neurons.U, effort, self.bound.attained)
        if found.best > self.bound.attained:
            fallen = lower_bound(p, V, found.best, found.best)
            self.bound = max(Bound.nothing(p), fallen, key=lambda b: b.value)
            self.cuts = self.cuts.joined(found.take(found.values > p.beta).distinct(_CUTS_AUDIT, SAME))

    def last_audit(self) -> bool:
        """Audit a run that was stopped, whatever its gap; True if there was time for all of it."""
        with last_look(_LAST_LOOK) if self.status == Status.INTERRUPTED else self.going():
            for search in self.searches:
                self.reprice(search, self.efforts[0])
            return not self.late()
