r"""Linear networks of the squared loss, as problems in the matrix W they multiply by (001 sec. 2 and 3).

A linear network of L layers is one matrix :math:`W = W_1 \cdots W_L`, and the cheapest layers for it cost
:math:`\tfrac L2 \sum_j \sigma_j(W)^{2/L}`: training is

.. math:: \min_W \; \tfrac12 \| X W - Y \|_F^2 + \tfrac{\beta L}{2} \sum_j \sigma_j(W)^{2/L},

the nuclear norm for L = 2. The same holds for 001's parallel networks, because no sum of rank-one matrices is cheaper
than the singular value decomposition (Rotfel'd's inequality). Here X and Y are centred (for a free intercept) and
their rows scaled by the square roots of the sample weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidual._util.typing import FloatArray
from bidual._util.watch import current
from bidual.closed_form.scalar import chain_cost, reach, shrink

#: Singular values that differ by less, relatively, count as equal.
WHITE = 1e-10

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class LinearProblem:
    r""":math:`\tfrac12 \|S Z - B\|^2 + c + \tfrac{\beta L}2 \sum_j \sigma_j(Z)^{2/L}` with :math:`W = V Z`.

    In the singular basis of X the row space is all there is; its other directions only cost.

    Attributes
    ----------
    S : ndarray, shape (r, 1)
        Singular values of X, as a column.
    V : ndarray, shape (d, r)
    B : ndarray, shape (r, C)
        Y in the left singular basis.
    constant : float
        Half the squared norm of what no W can fit (001 Prop. 2.1).
    lost : float
        Largest singular value of X that counts as zero.
    error : float
        By how much rounding may have moved X, in norm: that of its entries, and that of the decomposition.
    blur : float
        The same for Y.
    certain : bool
        Whether X has exactly this rank, and not only up to rounding.
    """

    S: FloatArray
    V: FloatArray
    B: FloatArray
    constant: float
    lost: float
    error: float = 0.0
    blur: float = 0.0
    certain: bool = True

    @classmethod
    def of(cls, X: FloatArray, Y: FloatArray, error: float = 0.0, blur: float = 0.0) -> LinearProblem:
        """The problem of these rows, which rounding may have moved by ``error`` and ``blur``."""
        U, S, Vt = np.linalg.svd(X, full_matrices=False)
        r = int((S / S.max(initial=np.finfo(float).tiny) > max(X.shape) * np.finfo(float).eps).sum())
        B = U[:, :r].T @ Y
        constant = 0.5 * float(((Y - U[:, :r] @ B) ** 2).sum())
        stable = 4 * max(X.shape) * _EPS
        error, blur = error + stable * float(np.linalg.norm(X)), blur + stable * float(np.linalg.norm(Y))
        return cls(S[:r, None], Vt[:r].T, B, constant, float(S[r:].max(initial=0.0)), error, blur)

    @property
    def white(self) -> bool:
        """Whether all singular values of X are equal."""
        return bool(np.ptp(self.S) <= WHITE * self.S.max()) if self.S.size else True

    def loss(self, Z: FloatArray) -> float:
        """The squared loss."""
        return 0.5 * float(((self.S * Z - self.B) ** 2).sum()) + self.constant

    def objective(self, Z: FloatArray, beta: float, depth: int) -> float:
        """Loss and penalty."""
        return self.loss(Z) + beta * chain_cost(singular_values(Z), depth)

    def dual_bound(self, Z: FloatArray, beta: float) -> float:
        r"""Lower bound on the optimum at L = 2, from the residual of Z made feasible (001 sec. 2.2.1).

        The dual is :math:`\max_\Lambda -\tfrac12 \|\Lambda - Y\|^2 + \tfrac12 \|Y\|^2` subject to
        :math:`\sigma_{max}(X^T \Lambda) \le \beta`.
        """
        R = self.B - self.S * Z
        size = float((R**2).sum())
        if size == 0.0:
            return self.constant
        along = float((R * self.B).sum())
        c_max = beta / max(float(np.linalg.norm(self.S * R, 2)), float(np.finfo(float).tiny))
        c = min(max(along / size, -c_max), c_max)
        terms = c * along, -0.5 * c**2 * size, self.constant
        return sum(terms) - 32 * float(np.finfo(float).eps) * sum(map(abs, terms))

    def slack(self, Z: FloatArray, beta: float, depth: int) -> float:
        """What rounding and the lost singular values of X could gain for any W no worse than ``V Z``."""
        best = self.objective(Z, beta, depth)
        change = (self.lost + self.error) * self.reach(Z, beta, depth) + self.blur
        return change * (float(np.sqrt(2.0 * best)) + 0.5 * change)

    def reach(self, Z: FloatArray, beta: float, depth: int) -> float:
        """The largest singular value that a W no worse than ``V Z`` may have, rounding included."""
        best, zero = self.objective(Z, beta, depth), self.loss(0.0 * self.B)
        # no W has less loss than what no W can fit
        return reach(max(best - self.constant, 0.0) + 8 * max(self.V.shape) * _EPS * zero, beta, depth)

    def uncertainty(self, Z: FloatArray) -> float:
        r"""How far, in norm, :math:`V Z` may be from the W of smallest norm that minimises the loss.

        That is :math:`X^+ Y`, which differs from any W in the row space by :math:`X^+ R = (X^T X)^+ X^T R` with the
        residual R = Y - X W: by at most :math:`\|R\| / \sigma_r` and :math:`\|X^T R\| / \sigma_r^2`. Infinite if X
        may have singular values below those that count.
        """
        smallest = float(self.S.min(initial=np.inf)) - self.error
        if not self.certain or smallest <= 0:
            return np.inf
        largest, size = float(self.S.max(initial=0.0)), float(np.linalg.norm(Z))
        inside = self.S * Z - self.B
        moved = self.error * size + self.blur
        residual = float(np.linalg.norm(inside)) + moved
        whole = float(np.sqrt(2.0 * self.constant)) + residual
        slope = float(np.linalg.norm(self.S * inside)) + largest * moved + self.error * whole
        tilted = 4 * max(self.V.shape) * _EPS * size  # columns of V are orthonormal up to rounding
        return min(whole / smallest, slope / smallest**2) + tilted


def separable(problem: LinearProblem, beta: float, depth: int) -> tuple[FloatArray, FloatArray]:
    r"""The global optimum for a white X, by :func:`shrink` of every singular value (001 Thm 3.6, Remark 2.1).

    For :math:`S = s I` the loss is :math:`\tfrac{s^2}2 \|Z - B/s\|^2`, and by von Neumann's trace inequality the best Z
    has the singular vectors of B.

    Returns Z and its singular values.
    """
    s = float(problem.S.mean()) if problem.S.size else 1.0
    return schatten_shrink(problem.B / s, beta / s**2, depth)


def singular_values(Z: FloatArray) -> FloatArray:
    r"""Singular values, with zeros for those lost in rounding: their powers :math:`\sigma^{2/L}` are not small."""
    sigma = np.linalg.svd(Z, compute_uv=False).astype(np.float64)
    return np.where(sigma > sigma.max(initial=0.0) * max(Z.shape) * np.finfo(float).eps, sigma, 0.0)


def schatten_shrink(G: FloatArray, beta: float, depth: int) -> tuple[FloatArray, FloatArray]:
    r"""The Z that minimises :math:`\tfrac12 \|Z - G\|_F^2 + \tfrac{\beta L}2 \sum_j \sigma_j(Z)^{2/L}`.

    Returns Z and its singular values.
    """
    P, sigma, Qt = np.linalg.svd(G, full_matrices=False)
    sigma = shrink(sigma, beta, depth)
    return (P * sigma) @ Qt, sigma


def proximal_gradient(
    problem: LinearProblem, beta: float, depth: int, start: FloatArray, tol: float, max_iter: int
) -> tuple[FloatArray, int]:
    """Accelerated proximal gradient steps from ``start``, each as if X were white: :func:`schatten_shrink`.

    Momentum starts anew whenever the objective would rise. For L = 2 this converges to the global optimum and stops at
    the relative gap ``tol``; for more layers it stops near a stationary point, when a step is far below ``tol``. Ctrl-C
    ends it where it is.

    Returns
    -------
    Z : ndarray, shape (r, C)
    n_iter : int
    """
    step = 1.0 / float(problem.S.max(initial=0.0)) ** 2 if problem.S.size else 1.0
    still = 4 * np.finfo(float).eps if depth == 2 else 1e-3 * tol
    Z, before, momentum = start, start, 1.0
    value = problem.objective(Z, beta, depth)
    watch = current()
    for k in range(max_iter):
        if watch.late():
            return Z, k
        faster = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = Z + (momentum - 1.0) / faster * (Z - before)
        new, sigma = schatten_shrink(ahead - step * problem.S * (problem.S * ahead - problem.B), step * beta, depth)
        new_value = problem.loss(new) + beta * chain_cost(sigma, depth)
        if new_value > value and momentum > 1.0:
            before, momentum = Z, 1.0
            continue
        moved = float(np.linalg.norm(new - Z))
        before, Z, value, momentum = Z, new, min(value, new_value), faster
        if moved <= still * np.linalg.norm(Z):
            return Z, k + 1
        if depth == 2 and k % 5 == 4 and value - problem.dual_bound(Z, beta) <= tol * value:
            return Z, k + 1
    return Z, max_iter


def dual_projection(X: FloatArray, Y: FloatArray, beta: float, *, tol: float = 1e-12) -> FloatArray:
    r""":math:`P_{X,\beta}(Y)`: the point nearest to Y with :math:`\sigma_{max}(X^T U) \le \beta` (001 sec. 2.1, 2.2.1).

    It is the optimal dual variable of a two-layer linear network of the *sum* of squares, hence its residual
    :math:`Y - X W`. Optimal hidden neurons are right singular vectors of :math:`P_{X,\beta}(Y)^T X` with singular value
    :math:`\beta`.
    """
    Y = Y.reshape(len(X), -1)
    problem = LinearProblem.of(X, Y)
    start, _ = separable(problem, beta, 2)
    Z, _ = proximal_gradient(problem, beta, 2, start, tol, 100_000)
    return Y - X @ (problem.V @ Z)
