"""Training neurons with free biases (004) by the engine of ordinary ones, which knows what a weight costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bidual._util.tuning import tuning
from bidual.atoms import FreeBias
from bidual.closed_form import ClosedForm
from bidual.solvers.base import Options, Solution
from bidual.solvers.engine import ReluSteps
from bidual.solvers.finite import solve_finite
from bidual.solvers.steps import Steps

if TYPE_CHECKING:
    from bidual.solvers.free_bias.pricing import FreePricer


class FreeBiasSteps(ReluSteps):
    """Neurons with free biases: the moves of ordinary ones, with a search of their own."""

    kind = FreeBias

    def formula(self) -> ClosedForm:
        """None is known."""
        return Steps.formula(self)

    def generate(self, options: Options) -> Solution:
        """All patterns of one output where they are few; else by moving, correcting, pricing."""
        if self.problem.n_outputs == 1 and options.max_neurons is None:
            every = self.problem.atoms.few_cells(tuning().free_patterns)
            if every is not None:
                return solve_finite(self.problem, every, options)
        return self.engine(options)

    def pricer(self, rng: np.random.Generator) -> FreePricer:
        """See :mod:`bidual.solvers.free_bias.pricing`."""
        from bidual.solvers.free_bias.pricing import FreePricer  # numba takes a moment to load: only when it is needed

        free = self.problem.of(FreeBias)
        assert free is not None
        return FreePricer(free, rng)

    def several(self, options: Options) -> Solution:
        """Column generation, and then a proof."""
        return Steps.several(self, options)
