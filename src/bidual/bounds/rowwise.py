r"""The dual constraint over activation patterns of very many rows.

The cone of a pattern of N rows has N constraints, of which its maximiser touches fewer than r. They are used as they
are needed: the maximiser over the cone of the rows in use, a larger cone, shows which others it violates; its value is
an upper bound all the while. From one dual point to the next the rows in use hardly change.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bidual._util.typing import FloatArray, IntArray
from bidual.arrangements import Patterns
from bidual.arrangements.cones import TOL, cone_multipliers
from bidual.arrangements.patterns import Cells
from bidual.bounds.dual import Bound
from bidual.bounds.patterns import ConeBounds, cone_value
from bidual.problem import Problem

#: Rounds of rows after which a value is left as the bound it is (about twenty are common).
_ROUNDS = 200


class RowwiseBounds(ConeBounds):
    """See :class:`~bidual.bounds.patterns.ConeBounds`.

    Attributes
    ----------
    directions : dict
        The unit maximiser of every block (sign, output, pattern) whose value is exact and not zero, in reduced
        coordinates.
    """

    def __init__(self, problem: Problem, patterns: Patterns) -> None:
        super().__init__(problem, patterns)
        self._units = (
            problem.atoms.reduced / np.where(problem.atoms.row_norms > 0, problem.atoms.row_norms, 1.0)[:, None]
        )
        self._in_use: dict[tuple[int, ...], IntArray] = {}
        self.directions: dict[tuple[int, ...], FloatArray] = {}

    def start(self, V: FloatArray, known: FloatArray | None = None) -> None:
        """See :meth:`ConeBounds.start`."""
        super().start(V, known)
        self.directions = {}

    def bound(self, V: FloatArray, stop: Callable[[], bool]) -> Bound:
        """The lower bound from ``V`` on the program of the patterns, in which a neuron feeds one output.

        All values above beta become exact, unless ``stop`` says True: then they are bounds.
        """
        self.start(V)
        for block in zip(*np.nonzero(self.values > self.problem.beta), strict=True):
            if stop():
                break
            self._project(block, self.problem.beta)
        return self._bound(V, float(self.values.max(initial=0.0)))

    def _solve(self, block: tuple[np.intp, ...]) -> float:
        if not self._exact[block]:
            self._project(block, 0.0)
        return float(self.values[block])

    def _project(self, block: tuple[np.intp, ...], enough: float) -> None:
        r"""Project the gradient c of a block onto its cone: :math:`u = c + \sum_k \lambda_k n_k`, the value its norm.

        Ends early when the bound is at most ``enough``.
        """
        c = self._gradients[block]
        scale = float(np.linalg.norm(c))
        key = tuple(map(int, block))
        signs = np.where(self.patterns.active[key[-1]], 1.0, -1.0)
        rows = self._in_use.get(key, np.zeros(0, dtype=np.int64))
        u, least = c / scale if scale > 0 else c, np.inf
        for _ in range(_ROUNDS):
            normals = signs[rows, None] * self._units[rows]
            found = cone_multipliers(c / scale, normals) if len(rows) else np.zeros(0)
            if found is None:  # what there is holds
                break
            u = c / scale + normals.T @ found
            norm = float(np.linalg.norm(u))
            rows = rows[found > 0]
            if not norm < least:  # rounding is all that is left
                break
            least = norm
            self.values[block] = min(self.values[block], cone_value(c, normals, scale * found))
            if self.values[block] <= enough or norm <= TOL:
                break
            margins = signs * (self._units @ u)
            violated = np.flatnonzero(margins < -TOL * norm)
            if not len(violated):
                self._exact[block] = True
                self.directions[key] = u / norm
                break
            most = len(c)
            if len(violated) > most:
                violated = violated[np.argpartition(margins[violated], most)[:most]]
            rows = np.concatenate([rows, violated])
        self._in_use[key] = rows


def cone_bounds(problem: Problem, cells: Cells) -> ConeBounds:
    """The bounds over ``cells`` of the atoms of a problem; row by row where these are many and nobody knows facets."""
    atoms = problem.atoms
    bounds = ConeBounds.registry.of(atoms)
    unknown = isinstance(cells, Patterns) and cells.cone_rows is None
    many = bounds is ConeBounds and unknown and atoms.reduced.shape[0] > 4 * atoms.reduced.shape[1]
    return (RowwiseBounds if many else bounds)(problem, cells)
