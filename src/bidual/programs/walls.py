r"""The convex program on patterns that were found, with those walls of their cones alone that matter.

Of the N constraints :math:`(2 D_i - I) M z \ge 0` of a cone (003 eq. 8) few touch the solution. The nearest walls of a
direction inside are there from the start; those that a solution crosses join, until none is crossed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bidual._util.typing import BoolArray, FloatArray
from bidual._util.watch import checkpoint
from bidual.arrangements import Patterns
from bidual.atoms import Neurons, Relu
from bidual.problem import Problem
from bidual.programs.conic import ConicProgram, ConicResult, FiniteProgram

#: Walls of a cone at first, for each dimension.
_NEAREST = 3
#: What a neuron may be on the wrong side of a wall by, for rounding to be the reason; and the share of the largest one
#: below which a block is not used.
_CROSSED, _UNUSED = 1e-9, 1e-7
#: Solutions at most: walls that still join are below the accuracy of the solver.
_MOST = 20


class Walls:
    """Patterns of one output, with the walls that are known to matter; directions are in reduced coordinates."""

    def __init__(self, problem: Problem[Relu]) -> None:
        self.problem = problem
        X = problem.atoms.reduced
        self.rows = X / np.where(problem.atoms.row_norms > 0, problem.atoms.row_norms, 1.0)[:, None]
        self.active: BoolArray = np.zeros((0, len(X)), dtype=bool)
        self.inside: FloatArray = np.zeros((0, X.shape[1]))
        self.walls: BoolArray = np.zeros((0, len(X)), dtype=bool)

    def add(self, U: FloatArray) -> int:
        """The patterns of these directions; how many of them are new."""
        heights = U @ self.rows.T
        known = {pattern.tobytes() for pattern in self.active}
        new = []
        for k, pattern in enumerate(heights >= 0):
            if pattern.tobytes() not in known:
                known.add(pattern.tobytes())
                new.append(k)
        near: BoolArray = np.zeros((len(new), len(self.rows)), dtype=bool)
        nearest = np.argsort(np.abs(heights[new]), axis=1)[:, : _NEAREST * self.rows.shape[1]]
        near[np.arange(len(new))[:, None], nearest] = True
        self.active = np.concatenate([self.active, heights[new] >= 0])
        self.inside = np.concatenate([self.inside, U[new]])
        self.walls = np.concatenate([self.walls, near])
        return len(new)

    def solve(self, solve: Callable[[ConicProgram], ConicResult]) -> tuple[Neurons, FloatArray]:
        """The smallest network on these patterns, and V; patterns that it does not use leave."""
        atoms = self.problem.atoms
        for _ in range(_MOST):
            checkpoint()
            counts = np.concatenate([[0], np.cumsum(self.walls.sum(axis=1))])
            patterns = Patterns(self.active, self.inside @ atoms.basis.T, cone_rows=(counts, np.nonzero(self.walls)[1]))
            program = FiniteProgram(self.problem, atoms.blocks(patterns))
            result = solve(program)
            Z = result.Z[:, 0]
            sizes = np.linalg.norm(Z, axis=-1)
            used = sizes > _UNUSED * sizes.max(initial=0.0)
            below = np.where(self.active, -1.0, 1.0) * (Z @ self.rows.T) > _CROSSED * sizes[:, :, None]
            crossed = (below & used[:, :, None]).any(axis=0) & ~self.walls
            if not crossed.any():
                break
            self.walls |= crossed
        kept = used.any(axis=0)
        self.active, self.inside, self.walls = self.active[kept], self.inside[kept], self.walls[kept]
        U = np.concatenate([Z[0][used[0]], Z[1][used[1]]])
        signs = np.repeat([1.0, -1.0], used.sum(axis=1))
        return Neurons(U, signs[:, None], result.intercept), result.V
