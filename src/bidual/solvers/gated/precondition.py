r"""Preconditioners of the Newton system :math:`I + \sigma E (K J K^T + \rho 1 1^T) E`.

With :math:`J_i = s_i I + (1 - s_i) \hat z_i \hat z_i^T` the matrix has a part that is the same for all outputs, and one
rank for each active block. For dense layers the first part is cheap, whatever the number of features:

.. math:: \sum_i s_i D_i M M^T D_i = (D^T \mathrm{diag}(s) D) \circ (M M^T).

It is factorised in the rows or in the coordinates of the active gates, whichever are fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sl

from bidual._util.typing import Array, FloatArray
from bidual.programs.gated.design import GatedDesign
from bidual.solvers.gated.prox import Prox

#: Largest system that is factorised.
LARGEST = 4000
#: The same for the outputs of all rows together, which takes longer to build.
LARGEST_COUPLED = 2000

#: What is added to a diagonal, in units of the precision: rounding may cost an ill-conditioned matrix its definiteness.
JITTER = (0.0, 1e2, 1e4)

#: From a vector of outputs ``(n, C)`` to another one.
Operator = Callable[[FloatArray], FloatArray]
#: The same in the precision of a factor.
Solver = Callable[[Array], Array]


@dataclass(frozen=True)
class Preconditioner:
    """An inverse of the system, exact up to rounding for one output or few rows.

    Otherwise that of the system with one curvature for all outputs of a row.

    Attributes
    ----------
    active : GatedDesign
        The gates whose blocks the prox keeps.
    prox : Prox
    E : ndarray, shape (n, C) or (n, C, C)
        Root of the curvature.
    sigma, rho : float
    dtype : type
        Precision of the factors.
    """

    active: GatedDesign
    prox: Prox
    E: FloatArray
    sigma: float
    rho: float
    dtype: Any = np.float32

    def build(self) -> Operator:
        """The inverse, or the identity where nothing can be factorised."""
        problem = self.active.problem
        n, C = problem.Y.shape
        if C > 1 and n * C <= LARGEST_COUPLED and problem.atoms.A is None:
            return self._in_double(self._all_outputs())
        squares = (self.E**2).sum(axis=tuple(range(1, self.E.ndim)))
        scale = np.sqrt(self.sigma * squares / (C - problem.loss.coupled))
        base = self._one_output(scale.astype(self.dtype))
        if base is None or C == 1 or not len(self.active):
            return self._in_double(base)
        return self._with_ranks(base, scale)

    def _in_double(self, solver: Solver | None) -> Operator:
        """A solver for vectors in double precision; the identity if there is none."""
        if solver is None:
            return lambda r: r
        return lambda r: solver(r.astype(self.dtype)).astype(np.float64)

    def _with_ranks(self, base: Solver, scale: FloatArray) -> Operator:
        """Add the ranks of the blocks' directions to ``base`` by Woodbury's formula."""
        n, C = self.E.shape[:2]
        along = self._along() * scale[:, None, None]
        if self.E.ndim == 3:  # equal shifts of all outputs are not seen by a coupled loss
            along -= along.mean(axis=1, keepdims=True)
        U = along.reshape(n * C, -1)
        solved = self._in_double(base)(along.reshape(n, -1)).reshape(n * C, -1)
        inner = U.T @ solved
        inner = 0.5 * (inner + inner.T) + np.eye(len(inner))
        try:
            factor = sl.cho_factor(inner, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return self._in_double(base)

        def apply(r: FloatArray) -> FloatArray:
            y = self._in_double(base)(r)
            return y - (solved @ sl.cho_solve(factor, U.T @ y.ravel(), check_finite=False)).reshape(n, C)

        return apply

    def _along(self) -> FloatArray:
        r""":math:`\sqrt{1 - s_i}\, A D_i M \hat z_i` for all blocks, ``(n, C, S)``."""
        active, prox = self.active, self.prox
        N, S, (_, p, C) = len(active.rows), len(active), prox.direction.shape  # S may be zero
        directions = prox.direction * np.sqrt(1.0 - prox.shrink)[:, None, None]
        values = active.rows @ directions.transpose(1, 2, 0).reshape(p, C * S)
        values = values.reshape(N, C, S) * active.gates().T[:, None, :]
        return active.problem.atoms.pool(values.reshape(N, C * S)).reshape(len(active.problem.Y), C, S)

    def _kernel(self) -> Array:
        """``sum_i s_i D_i M M^T D_i + rho 11^T``."""
        D = self.active.gates(self.dtype)
        rows = self.active.rows.astype(self.dtype)
        S = (D * self.prox.shrink.astype(self.dtype)[:, None]).T @ D
        S *= rows @ rows.T
        S += self.dtype(self.rho)
        return S

    def _all_outputs(self) -> Solver | None:
        """The whole system, factorised."""
        n, C = self.E.shape[:2]
        along = self._along().astype(self.dtype).reshape(n * C, -1)
        B = (along @ along.T).reshape(n, C, n, C)
        kernel = self._kernel()
        for c in range(C):
            B[:, c, :, c] += kernel
        left = (np.sqrt(self.sigma) * self.E).astype(self.dtype)
        if left.ndim == 2:
            B *= left[:, :, None, None]
            B *= left
        else:
            B = np.matmul(left, B.reshape(n, C, n * C)).reshape(n * C, n, C)
            B = np.ascontiguousarray(np.matmul(B.transpose(1, 0, 2), left).transpose(1, 0, 2))
        solve = _inverse(B.reshape(n * C, n * C))
        return None if solve is None else lambda v: solve(v.reshape(-1)).reshape(n, C)

    def _one_output(self, scale: Array) -> Solver | None:
        """The system of one output, without the ranks of the blocks if there are several.

        None if neither the rows nor the coordinates of the active gates are few enough.
        """
        problem, S = self.active.problem, len(self.active)
        n, k = len(problem.Y), S * self.active.rows.shape[1]
        if not k and not self.rho:
            return lambda v: v
        by_rows = float(n) ** 2 * (2 * S + n / 3) if problem.atoms.A is None and n <= LARGEST else np.inf
        by_gates = float(k) ** 2 * (n + k / 3) if k <= LARGEST else np.inf
        if not np.isfinite(min(by_rows, by_gates)):
            return None
        return self._by_rows(scale) if by_rows <= by_gates else self._by_gates(scale)

    def _by_rows(self, scale: Array) -> Solver | None:
        S = self._kernel()
        if self.active.problem.n_outputs == 1:
            along = self._along()[:, 0].astype(self.dtype)
            S += along @ along.T
        S *= scale[:, None]
        S *= scale
        return _inverse(S)

    def _by_gates(self, scale: Array) -> Solver | None:
        P, N = self.active.active.shape
        rows = self.active.rows.astype(self.dtype)
        blocks = self.active.gates(self.dtype).T[:, :, None] * rows[:, None, :]  # (N, S, r)
        root = np.sqrt(self.prox.shrink).astype(self.dtype)[:, None]
        if self.active.problem.n_outputs == 1:
            direction = self.prox.direction[:, :, 0].astype(self.dtype)
            along = np.einsum("npr,pr->np", blocks, direction)
            blocks = root * blocks + along[:, :, None] * ((1 - root) * direction)
        else:
            blocks = root * blocks
        G = self.active.problem.atoms.pool(blocks.reshape(N, P * rows.shape[1])).astype(self.dtype, copy=False)
        if self.rho:
            G = np.column_stack([G, np.full(len(G), np.sqrt(self.rho), dtype=self.dtype)])
        G = G * scale[:, None]
        inner = _inverse(G.T @ G)
        return None if inner is None else lambda v: v - G @ inner(G.T @ v)


def _inverse(S: Array) -> Solver | None:
    """``(I + S)^-1`` by a Cholesky factor; S is overwritten."""
    diagonal = np.diagonal(S) + S.dtype.type(1.0)
    eps = float(np.finfo(S.dtype).eps)
    for jitter in JITTER:
        S.flat[:: len(S) + 1] = diagonal * S.dtype.type(1.0 + jitter * eps)
        try:
            factor = sl.cho_factor(S, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue
        return lambda v: sl.cho_solve(factor, v, check_finite=False)
    return None
