r"""Training neurons that are normalised after the ReLU (000 sec. 6).

The convex program is that of 000 Theorem 6.1 in the coordinates of :mod:`bidual.atoms.white_blocks`; the methods
"exact" and "sampled" are those of ordinary neurons with this program. Where the patterns are too many,
:mod:`~bidual.solvers.normalised.generation` looks for the ones that matter.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bidual._util.typing import FloatArray
from bidual.atoms import Normalised
from bidual.closed_form import ClosedForm, one_neuron
from bidual.solvers.base import Options, Solution
from bidual.solvers.normalised.generation import solve_normalised
from bidual.solvers.normalised.pricing import search_normalised
from bidual.solvers.sampled import solve_all_patterns
from bidual.solvers.steps import Steps

#: The gap from which on several outputs are trained on all patterns.
FIRST = 1e-2


class NormalisedSteps(Steps[Normalised]):
    """Neurons that are normalised after the ReLU."""

    kind = Normalised

    def formula(self) -> ClosedForm:
        """One neuron may do (000 Theorem 6.2)."""
        return one_neuron(self.problem)

    def generate(self, options: Options) -> Solution:
        """See :mod:`bidual.solvers.normalised.generation`."""
        return solve_normalised(self.problem, options)

    def several(self, options: Options) -> Solution:
        """On all patterns; a proof over them and over directions of the outputs."""
        return solve_all_patterns(
            self.problem, options, lambda half: self.generate(replace(half, tol=FIRST, audit=False, max_neurons=None))
        )

    def search(self, V: FloatArray, random_state: int | np.random.RandomState | None, audit: bool = True) -> float:
        """See :mod:`bidual.solvers.normalised.pricing`."""
        return search_normalised(self.problem, V, random_state)
