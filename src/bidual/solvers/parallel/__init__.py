r"""Training parallel networks with the path regulariser (002).

The convex program is that of 002 Theorem 1 on cells of :mod:`bidual.atoms.branch_cells`; the methods "exact" and
"sampled" are those of ordinary neurons with this program. Where the cells are too many,
:mod:`~bidual.solvers.parallel.generation` looks for the ones that matter.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bidual._util.typing import FloatArray
from bidual.atoms import Branches
from bidual.solvers.base import Options, Solution
from bidual.solvers.parallel.generation import solve_parallel, solve_several_outputs
from bidual.solvers.parallel.pricing import search_parallel
from bidual.solvers.steps import Steps

#: The gap to reach where it is left to the method.
_TOL = 1e-4


class BranchSteps(Steps[Branches]):
    """Branches of parallel networks."""

    kind = Branches

    def generate(self, options: Options) -> Solution:
        """See :mod:`bidual.solvers.parallel.generation`; searches miss too much to end at a gap that seems enough."""
        if options.enough is not None:
            options = replace(options, tol=min(options.tol, _TOL), enough=None)
        return solve_parallel(self.problem, options)

    def search(self, V: FloatArray, random_state: int | np.random.RandomState | None, audit: bool = True) -> float:
        """See :mod:`bidual.solvers.parallel.pricing`."""
        return search_parallel(self.problem, V, random_state)

    def several(self, options: Options) -> Solution:
        """With spectral norms over all cells."""
        return solve_several_outputs(self.problem, options)
