r"""The linear system of one Newton step.

The outputs F of a proximal step solve :math:`F = K \, \mathrm{prox}(W^k - \sigma K^T \nabla L(F)) + 1 b(F)^T`. With
the curvature :math:`H = E^2` of the loss and the derivative J of the prox, a Newton step reads

.. math:: (I + \sigma B H)\, \Delta = -R, \qquad B = K J K^T + \rho \, 1 1^T,

that is :math:`(I + \sigma E B E) u = -E R` and :math:`\Delta = -R - \sigma B E u`: symmetric, positive definite, no
inverse of a curvature that may vanish, and of the size of the outputs, however many gates there are. It is solved by
conjugate gradients. The preconditioner is a Cholesky factor in single precision. For dense layers its matrix is cheap:

.. math:: \sum_i s_i D_i M M^T D_i = (D^T \mathrm{diag}(s) D) \circ (M M^T).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg as sl

from bidual._typing import Array, FloatArray
from bidual.problem import Problem
from bidual.solvers.gated.design import GatedDesign

#: Largest system that is factorised.
LARGEST = 4000
#: The same for the outputs of all rows together, which takes longer to build.
LARGEST_COUPLED = 2000
#: Iterations of conjugate gradients: any of them gives a descent direction.
MAX_CG = 50
#: Their accuracy for one output, where the preconditioner is exact, and for several.
CG_TOL = (1e-3, 1e-2)

#: From a vector of outputs ``(n, C)`` to another one.
Operator = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Prox:
    r"""The prox of :math:`\sigma \beta \sum_i \|W_i\|_F` at Z, and its derivative.

    On blocks that stay, with :math:`s = 1 - \sigma\beta / \|Z_i\|` and :math:`\hat z = Z_i / \|Z_i\|`, the value is
    :math:`s Z_i` and the derivative :math:`J_i = s I + (1 - s) \hat z \hat z^T`; elsewhere both are zero.
    """

    value: FloatArray
    active: Array
    shrink: FloatArray
    direction: FloatArray
    norms: FloatArray

    @classmethod
    def at(cls, Z: FloatArray, threshold: float) -> Prox:
        """The prox of ``threshold * sum of norms``."""
        norms = np.sqrt(np.einsum("prc,prc->p", Z, Z))
        active = np.flatnonzero(norms > threshold)
        shrink = 1.0 - threshold / norms[active]
        value = np.zeros_like(Z)
        value[active] = shrink[:, None, None] * Z[active]
        return cls(value, active, shrink, Z[active] / norms[active, None, None], np.maximum(norms - threshold, 0.0))

    def derivative(self, Y: FloatArray) -> FloatArray:
        """``J Y`` on the active blocks."""
        along = np.einsum("prc,prc->p", self.direction, Y) * (1.0 - self.shrink)
        return self.shrink[:, None, None] * Y + along[:, None, None] * self.direction


def newton_direction(
    problem: Problem, design: GatedDesign, prox: Prox, F: FloatArray, R: FloatArray, sigma: float, rho: float
) -> FloatArray:
    r"""The step :math:`\Delta` of the outputs; ``rho`` is zero without an intercept."""
    active = design.take(prox.active)
    root = Root.at(problem, F)

    def B(V: FloatArray) -> FloatArray:
        result = active.outputs(prox.derivative(active.correlations(V)))
        return result + rho * V.sum(axis=0) if rho else result

    def system(u: FloatArray) -> FloatArray:
        return u + sigma * root.times(B(root.times(u)))

    precondition = _preconditioner(problem, active, prox, root.E, sigma, rho)
    u, residual = _conjugate_gradients(system, -root.times(R), precondition, tol=CG_TOL[problem.n_outputs > 1])
    # With the residual taken back, E times the step is u: a direction of descent however early the iteration ended.
    return -R - sigma * B(root.times(u)) - _times(root.inverse, residual)


@dataclass(frozen=True)
class Root:
    """The symmetric root E of the curvature, as a diagonal or with one matrix for each row, and its pseudo-inverse.

    A symmetric root shares its null space with the curvature (equal shifts of all outputs, for softmax), which a
    preconditioner with one number for each row respects.
    """

    E: FloatArray
    inverse: FloatArray

    @classmethod
    def at(cls, problem: Problem, F: FloatArray) -> Root:
        """The root at outputs ``F``."""
        loss, Y, w = problem.loss, problem.Y, problem.w
        if not loss.coupled:
            E = np.sqrt(np.maximum(loss.curvature(F, Y, w), 0.0))
            return cls(E, _reciprocal(E))
        values, vectors = np.linalg.eigh(loss.row_hessians(F, Y))
        roots = np.sqrt(w[:, None] * np.maximum(values, 0.0))
        return cls(*((vectors * x[:, None, :]) @ vectors.swapaxes(1, 2) for x in (roots, _reciprocal(roots))))

    def times(self, u: FloatArray) -> FloatArray:
        """``E u``."""
        return _times(self.E, u)


def _reciprocal(x: FloatArray) -> FloatArray:
    """``1 / x``, zero where x is."""
    large = x > 1e-6 * x.max(initial=0.0)
    return np.where(large, 1.0 / np.where(large, x, 1.0), 0.0)


def _times(E: FloatArray, u: FloatArray) -> FloatArray:
    return E * u if E.ndim == 2 else np.matmul(E, u[:, :, None])[:, :, 0]


def _preconditioner(
    problem: Problem, active: GatedDesign, prox: Prox, E: FloatArray, sigma: float, rho: float
) -> Operator:
    """The inverse of the system, exact up to rounding for one output or few rows.

    Otherwise that of the system with one curvature for all outputs of a row.
    """
    n, C = problem.Y.shape
    squares = (E**2).sum(axis=tuple(range(1, E.ndim)))
    scale = np.sqrt(squares / (C - problem.loss.coupled))
    if C > 1 and n * C <= LARGEST_COUPLED and problem.A is None:
        return _in_double(_coupled_solver(active, prox, E, sigma, rho))
    base = _base_solver(problem, active, prox, scale.astype(np.float32), sigma, rho)
    if base is None or C == 1 or not len(active):
        return _in_double(base)
    # Along a block's direction the prox does not shrink: one rank more for each block, by Woodbury's formula.
    along = _along(active, prox) * (np.sqrt(sigma) * scale)[:, None, None]
    if problem.loss.coupled:
        along -= along.mean(axis=1, keepdims=True)
    solved = base(along.astype(np.float32).reshape(n, -1)).astype(np.float64).reshape(n * C, -1)
    U = along.reshape(n * C, -1)
    inner = U.T @ solved
    inner = 0.5 * (inner + inner.T) + np.eye(len(inner))
    try:
        factor = sl.cho_factor(inner, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return _in_double(base)

    def apply(r: FloatArray) -> FloatArray:
        y = base(r.astype(np.float32)).astype(np.float64)
        return y - (solved @ sl.cho_solve(factor, U.T @ y.ravel(), check_finite=False)).reshape(n, C)

    return apply


def _in_double(solver: Callable[[Array], Array] | None) -> Operator:
    """A solver in single precision for vectors in double; the identity if there is none."""
    return (lambda r: r) if solver is None else lambda r: solver(r.astype(np.float32)).astype(np.float64)


def _along(active: GatedDesign, prox: Prox) -> FloatArray:
    r""":math:`\sqrt{1 - s_i}\, A D_i M \hat z_i` for all blocks, ``(n, C, S)``."""
    N, S, C = len(active.rows), len(active), prox.direction.shape[2]
    directions = prox.direction * np.sqrt(1.0 - prox.shrink)[:, None, None]
    values = active.rows @ directions.transpose(1, 2, 0).reshape(-1, C * S)
    values = values.reshape(N, C, S) * active.gates().T[:, None, :]
    return active.problem.pool(values.reshape(N, C * S)).reshape(-1, C, S)


def _kernel(active: GatedDesign, prox: Prox, rho: float) -> Array:
    """``sum_i s_i D_i M M^T D_i + rho 11^T``."""
    D = active.gates(np.float32)
    rows = active.rows.astype(np.float32)
    S = (D * prox.shrink.astype(np.float32)[:, None]).T @ D
    S *= rows @ rows.T
    S += np.float32(rho)
    return S


def _coupled_solver(
    active: GatedDesign, prox: Prox, E: FloatArray, sigma: float, rho: float
) -> Callable[[Array], Array] | None:
    """The whole system of all outputs, factorised."""
    n, C = E.shape[:2]
    kernel = _kernel(active, prox, rho)
    along = _along(active, prox).astype(np.float32).reshape(n * C, -1)
    B = (along @ along.T).reshape(n, C, n, C)
    for c in range(C):
        B[:, c, :, c] += kernel
    left = (np.sqrt(sigma) * E).astype(np.float32)
    if E.ndim == 2:
        B *= left[:, :, None, None]
        B *= left
    else:
        B = np.matmul(left, B.reshape(n, C, n * C)).reshape(n * C, n, C)
        B = np.matmul(B.transpose(1, 0, 2), left)  # (n, n C, C)
        B = np.ascontiguousarray(B.transpose(1, 0, 2))
    solve = _inverse(B.reshape(n * C, n * C))
    return None if solve is None else lambda v: solve(v.reshape(-1)).reshape(n, C)


def _base_solver(
    problem: Problem, active: GatedDesign, prox: Prox, scale: Array, sigma: float, rho: float
) -> Callable[[Array], Array] | None:
    """Inverse of ``I + sigma scale (sum_i s_i K_i K_i^T + rho 11^T) scale``, with J in place of s for one output.

    None if neither the rows nor the coordinates of the active gates are few enough.
    """
    n = len(problem.Y)
    k = len(active) * active.rows.shape[1]
    by_rows = float(n) ** 2 * (2 * len(active) + n / 3) if problem.A is None and n <= LARGEST else np.inf
    by_gates = float(k) ** 2 * (n + k / 3) if k <= LARGEST else np.inf
    if not k and not rho:
        return lambda v: v
    if not np.isfinite(min(by_rows, by_gates)):
        return None
    return (_by_rows if by_rows <= by_gates else _by_gates)(problem, active, prox, scale, sigma, rho)


def _by_rows(
    problem: Problem, active: GatedDesign, prox: Prox, scale: Array, sigma: float, rho: float
) -> Callable[[Array], Array] | None:
    S = _kernel(active, prox, rho)
    if problem.n_outputs == 1:
        along = _along(active, prox)[:, 0].astype(np.float32)
        S += along @ along.T
    left = np.float32(np.sqrt(sigma)) * scale
    S *= left[:, None]
    S *= left
    return _inverse(S)


def _by_gates(
    problem: Problem, active: GatedDesign, prox: Prox, scale: Array, sigma: float, rho: float
) -> Callable[[Array], Array] | None:
    P, N = active.active.shape
    rows = active.rows.astype(np.float32)
    r = rows.shape[1]
    blocks = active.gates(np.float32).T[:, :, None] * rows[:, None, :]  # (N, S, r)
    root = np.sqrt(prox.shrink).astype(np.float32)[:, None]
    if problem.n_outputs == 1:
        direction = prox.direction[:, :, 0].astype(np.float32)
        along = np.einsum("npr,pr->np", blocks, direction)
        blocks = root * blocks + along[:, :, None] * ((1 - root) * direction)
    else:
        blocks = root * blocks
    G = blocks.reshape(N, P * r)
    if problem.A is not None:
        G = np.asarray(problem.A @ G, dtype=np.float32)
    if rho:
        G = np.column_stack([G, np.full(len(G), np.sqrt(rho), dtype=np.float32)])
    G = G * (np.float32(np.sqrt(sigma)) * scale)[:, None]
    inner = _inverse(G.T @ G)
    return None if inner is None else lambda v: v - G @ inner(G.T @ v)


def _inverse(S: Array) -> Callable[[Array], Array] | None:
    """``(I + S)^-1`` by a Cholesky factor; S is overwritten."""
    diagonal = np.diagonal(S) + np.float32(1.0)
    jitter = np.float32(0.0)
    for _ in range(3):  # single precision may lose the definiteness of an ill-conditioned matrix
        S.flat[:: len(S) + 1] = diagonal * (1 + jitter)
        factor, info = sl.lapack.spotrf(S, lower=1, clean=0)
        if info == 0:
            return lambda v: sl.cho_solve((factor, True), v, check_finite=False)
        jitter = max(np.float32(1e-5), 30 * jitter)
    return None


def _conjugate_gradients(
    system: Operator, b: FloatArray, precondition: Operator, tol: float
) -> tuple[FloatArray, FloatArray]:
    """Solve ``system(x) = b`` to a relative residual of ``tol`` in the preconditioner's norm; x and the residual."""
    x = np.zeros_like(b)
    r = b
    z = precondition(r)
    p = z
    rz = first = float((r * z).sum())
    for _ in range(MAX_CG):
        if not rz > tol**2 * first:
            break
        q = system(p)
        alpha = rz / float((p * q).sum())
        x = x + alpha * p
        r = r - alpha * q
        z = precondition(r)
        rz, previous = float((r * z).sum()), rz
        p = z + (rz / previous) * p
    return x, r
