r"""Convex and conic approximation of many targets by the same points.

For targets :math:`t_i` and points :math:`p_1, \ldots, p_k` (rows), the two problems are

.. math:: \min_{\lambda} \Big\| t_i - \sum_j \lambda_j p_j \Big\|_2 \quad \text{s.t. } \lambda \ge 0
          \; (\text{and } 1^T \lambda = 1),

the projection of a target on the convex hull (or the cone) of the points; 004 eq. 10 and 28 with the other samples as
points.

Both are one problem. With :math:`q_j = p_j - t` and any :math:`\kappa > 0`, minimising
:math:`\|\sum_j w_j (q_j, \kappa) - (0, \kappa)\|^2` over :math:`w \ge 0` and putting :math:`w = s \lambda` gives
:math:`s^2 \|\sum_j \lambda_j q_j\|^2 + \kappa^2 (s - 1)^2`, which is smallest for the :math:`\lambda` of the simplex
problem. So non-negative least squares by an active set solves both.

Supports are small (at most d + 1 points), points are many. Every target therefore works on a list of candidates: one
matrix product prices all points for all targets, the most violating ones join the candidates, and an active-set method
(compiled, each target by itself) is exact on these; a handful of rounds suffices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from bidual._util.cores import over_pieces
from bidual._util.typing import Array, FloatArray, IntArray

#: Points that may join the candidates of a target in one round.
_JOIN = 48
#: Entries of the largest table of prices.
_TABLE = 4_000_000
#: Rounds after which the answer is what it is; its ``gap`` tells how good.
_ROUNDS = 100


@dataclass(frozen=True)
class Projections:
    """Projections of targets on the convex hull, or on the cone, of points.

    Attributes
    ----------
    weights : sparse array, shape (n_targets, n_points)
        The :math:`\\lambda` of each target; at most d + 1 (cone: d) entries are not zero.
    residuals : ndarray, shape (n_targets, d)
        Target minus projection.
    distances : ndarray, shape (n_targets,)
        Their lengths; zero for a target that lies in the set, up to rounding.
    gaps : ndarray, shape (n_targets,)
        How accurate: distance minus a lower bound on it that holds for every convex combination. (For a cone,
        with r the residual: the largest :math:`r^T p_j / (\\|r\\| \\|p_j\\|)`, in the units of the target.)
    """

    weights: sp.csr_array
    residuals: FloatArray
    distances: FloatArray
    gaps: FloatArray


def project_on_hull(points: Array, targets: Array, exclude: Array | None = None, *, tol: float = 1e-8) -> Projections:
    r"""Solve :math:`\min_\lambda \|t_i - \sum_j \lambda_j p_j\|` over the simplex, for all targets at once.

    Parameters
    ----------
    points : array of shape (k, d)
    targets : array of shape (n, d)
    exclude : array of n ints or None
        Index of a point that the target must not use (-1: none): its own, if the targets are the points.
    tol : float
        Accuracy of the distances, relative to the distance of the farthest point.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual.geometry import project_on_hull
    >>> found = project_on_hull(np.eye(2), np.array([[0.0, 0.0], [0.2, 0.8], [3.0, 1.0]]))
    >>> found.distances.round(6).tolist()
    [0.707107, 0.0, 2.236068]
    >>> found.weights.toarray().round(6).tolist()
    [[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]]
    """
    return _project(points, targets, exclude, tol, simplex=True)


def project_on_cone(points: Array, targets: Array, exclude: Array | None = None, *, tol: float = 1e-8) -> Projections:
    r"""Solve :math:`\min_{\lambda \ge 0} \|t_i - \sum_j \lambda_j p_j\|`, for all targets at once.

    Parameters as in :func:`project_on_hull`; distances are accurate to ``tol`` times the length of the target.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual.geometry import project_on_cone
    >>> project_on_cone(np.eye(2), np.array([[-3.0, 2.0]])).residuals.round(6).tolist()
    [[-3.0, 0.0]]
    """
    return _project(points, targets, exclude, tol, simplex=False)


def _project(points: Array, targets: Array, exclude: Array | None, tol: float, simplex: bool) -> Projections:
    P, T, out = _checked(points, targets, exclude, simplex)
    n, k = len(T), len(P)
    # only differences matter on the simplex, only directions on a cone
    lengths = np.ones(k)
    if simplex:
        centre = P.mean(axis=0) if k else 0.0
        P, T = P - centre, T - centre
        scale = max(float(np.abs(P).max(initial=0.0)), float(np.abs(T).max(initial=0.0))) or 1.0
        P = P / scale
    else:
        scale = float(np.abs(T).max(initial=0.0)) or 1.0
        largest = np.abs(P).max(axis=1, initial=0.0)
        lengths = np.where(largest > 0, largest, 1.0)
        P = P / lengths[:, None]
        norms = np.linalg.norm(P, axis=1)
        norms[norms == 0] = 1.0
        P, lengths = P / norms[:, None], lengths * norms / scale
    P, T = np.ascontiguousarray(P), np.ascontiguousarray(T / scale)
    chunk = max(1, min(_TABLE // max(k, 1), 1024))
    parts = [_Batch(P, T[i : i + chunk], out[i : i + chunk], simplex, tol).run() for i in range(0, max(n, 1), chunk)]
    W, R, gaps = zip(*parts, strict=True)
    weights = sp.csr_array(sp.vstack(W, format="csr") / lengths)
    residuals = np.vstack(R) * scale
    return Projections(weights, residuals, np.linalg.norm(residuals, axis=1), np.concatenate(gaps) * scale)


def _checked(
    points: Array, targets: Array, exclude: Array | None, simplex: bool
) -> tuple[FloatArray, FloatArray, IntArray]:
    P, T = np.asarray(points, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    if P.ndim != 2 or T.ndim != 2 or P.shape[1] != T.shape[1]:
        raise ValueError(f"points (k, d) and targets (n, d) must agree in d, got shapes {P.shape} and {T.shape}")
    if not (np.isfinite(P).all() and np.isfinite(T).all()):
        raise ValueError("points and targets must be finite: there are NaN or infinite entries")
    out = np.full(len(T), -1) if exclude is None else np.asarray(exclude)
    if out.shape != (len(T),) or not np.issubdtype(out.dtype, np.integer) or (out >= len(P)).any():
        raise ValueError(f"exclude must hold one index of a point (or -1) for each of the {len(T)} targets")
    if simplex and len(T) and len(P) - int((out >= 0).any()) < 1:
        raise ValueError("a convex hull needs at least one point that is not excluded")
    return P, T, out.astype(np.int64)


class _Batch:
    """Some targets: candidates (padded by -1), weights on them, and what follows from these."""

    def __init__(self, P: FloatArray, T: FloatArray, out: IntArray, simplex: bool, tol: float) -> None:
        self.P, self.T, self.out, self.simplex, self.tol = P, T, out, simplex, tol
        size = np.einsum("id,id->i", T, T)
        prices = T @ P.T
        if simplex:  # the nearest points first; kappa is the distance of the farthest, so that columns are balanced
            prices = 2.0 * prices - np.einsum("jd,jd->j", P, P)
            size = size - prices.min(axis=1, initial=0.0)
        self.scale = np.sqrt(np.maximum(size, np.finfo(float).tiny))
        self.kappa = self.scale if simplex else np.zeros(len(T))
        self.candidates = np.empty((len(T), 0), dtype=np.int64)
        self.weights = np.empty((len(T), 0))
        everything = np.arange(len(T))
        self._exclude(prices, everything)
        self._join(everything, prices, -np.inf)

    def run(self) -> tuple[sp.csr_array, FloatArray, FloatArray]:
        """Weights, residuals and gaps."""
        gaps = np.zeros(len(self.T))
        rows = np.arange(len(self.T))
        for _ in range(_ROUNDS):
            self._solve(rows)
            R = self._combine()[1][rows]
            size = np.einsum("id,id->i", R, R)
            # At the optimum the residual r separates: r'p <= r'(t - r) for all points (on a cone: r'p <= 0).
            prices = R @ self.P.T
            if self.simplex:
                prices -= (np.einsum("id,id->i", R, self.T[rows]) - size)[:, None]
            self._exclude(prices, rows)
            root = np.sqrt(size)
            violation = np.maximum(prices.max(axis=1, initial=0.0), 0.0)
            gaps[rows] = np.minimum(root, violation / np.where(root > 0, root, 1.0))
            # the active set is exact on its candidates, up to rounding: there is nothing to gain from them
            i, a = np.nonzero(self.candidates[rows] >= 0)
            prices[i, self.candidates[rows][i, a]] = -np.inf
            left = (gaps[rows] > self.tol * self.scale[rows]) & (prices.max(axis=1, initial=-np.inf) > 0)
            rows = rows[left]
            if not len(rows):
                break
            self._join(rows, prices[left], 0.0)
        return *self._combine(), gaps

    def _exclude(self, prices: FloatArray, rows: IntArray) -> None:
        own = self.out[rows]
        prices[np.flatnonzero(own >= 0), own[own >= 0]] = -np.inf

    def _join(self, rows: IntArray, prices: FloatArray, threshold: float) -> None:
        """Candidates without weight leave, the best points above ``threshold`` join."""
        count = min(_JOIN, prices.shape[1])
        best = (
            np.argpartition(-prices, max(count - 1, 0), axis=1)[:, :count] if count else np.empty((len(rows), 0), int)
        )
        joined = np.full((len(self.T), count), -1)
        joined[rows] = np.where(np.take_along_axis(prices, best, axis=1) > threshold, best, -1)
        candidates = np.hstack([np.where(self.weights > 0, self.candidates, -1), joined])
        weights = np.hstack([self.weights, np.zeros(joined.shape)])
        order = np.argsort(candidates < 0, axis=1, kind="stable")
        order = order[:, : int((candidates >= 0).sum(axis=1).max(initial=0))]
        self.candidates = np.ascontiguousarray(np.take_along_axis(candidates, order, axis=1))
        self.weights = np.where(self.candidates >= 0, np.take_along_axis(weights, order, axis=1), 0.0)

    def _solve(self, rows: IntArray) -> None:
        """The exact answer on the candidates of ``rows``."""
        from bidual.geometry._kernels import solve_some  # numba takes a moment to load

        T, kappa, tol = self.T[rows], self.kappa[rows], 1e-15 * self.scale[rows] ** 2
        candidates, weights = self.candidates[rows], self.weights[rows]
        over_pieces(lambda a, b: solve_some(self.P, T, kappa, candidates, weights, tol, a, b), len(rows), 16)
        self.weights[rows] = weights

    def _combine(self) -> tuple[sp.csr_array, FloatArray]:
        """Weights as a sparse array, and the residuals."""
        used = self.weights > 0
        indptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        shape = (len(self.T), len(self.P))
        weights = self.weights / self.weights.sum(axis=1, keepdims=True) if self.simplex else self.weights
        W = sp.csr_array((weights[used], self.candidates[used], indptr), shape=shape)
        return W, self.T - W @ self.P
