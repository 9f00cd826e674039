r"""The best output weights of given hidden directions that all outputs share, as one cone program.

.. math:: \min_{\alpha, b} \; L\Big(\sum_k A (M u_k)_+ \alpha_k^T + 1 b^T\Big) + \beta \sum_k \|\alpha_k\|

over :math:`\alpha_k \in R^C`, for unit vectors :math:`u_k`: a group lasso. Its dual point satisfies
:math:`\|V^T A (M u_k)_+\| \le \beta` at every direction, used or not. Directions that violate that elsewhere enter, and
with all of them this is training itself (000 Theorem 2.3, 004 A.7).
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from bidual._util.memory import require_memory
from bidual._util.typing import FloatArray
from bidual.atoms import Directional, Neurons
from bidual.problem import Problem
from bidual.programs.conic import ConicProgram, ConicResult


class SharedProgram(ConicProgram):
    """The program of directions ``U (K, r)``, unit vectors in reduced coordinates."""

    what: ClassVar[str] = "hidden directions"
    problem: Problem[Directional]

    def __init__(self, problem: Problem[Directional], U: FloatArray) -> None:
        super().__init__(problem)
        self.U = U

    @property
    def shape(self) -> tuple[int, int]:
        """Directions and output weights of each."""
        return len(self.U), self.problem.n_coefficients

    @cached_property
    def _design(self) -> FloatArray:
        """What output weight q of direction k adds to the outputs, ``(n C, q K)``, column ``q K + k``."""
        atoms, (K, q) = self.problem.atoms, self.shape
        activations = atoms.activations(self.U)
        columns = [atoms.contributions(activations, np.tile(one, (K, 1))) for one in np.eye(q)]
        return np.concatenate([c.reshape(self.problem.Y.size, K) for c in columns], axis=1)

    def fit(self) -> sp.csc_array:
        """See :class:`ConicProgram`."""
        return sp.csc_array(self._design)

    def cone_rows(self) -> sp.csc_array:
        """None."""
        return sp.csc_array((0, len(self.U) * self.problem.n_coefficients))

    def outputs(self, Z: FloatArray, intercept: FloatArray) -> FloatArray:
        """``(n, C)``."""
        return (self._design @ Z.T.ravel()).reshape(self.problem.Y.shape) + intercept

    def check_memory(self, available: int | None = None) -> None:
        """Refuse, with the numbers, a program that will not fit."""
        K, q = self.shape
        n, C = self.problem.Y.shape
        # the design and its copies, and the dense triangle of the output rows
        require_memory(
            16 * (5 * n * K * q + (n * C) ** 2 // 2),
            f"the convex program on {K:,} hidden directions ({K * q:,} variables, {n * C:,} outputs)",
            "Use method='adaptive', or fewer rows",
            available,
        )

    def neurons(self, result: ConicResult) -> Neurons:
        """The directions in use, in reduced coordinates."""
        return Neurons(self.U, result.Z, result.intercept).take(np.asarray(result.Z.any(axis=1)))
