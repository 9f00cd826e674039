r"""Spike-free matrices (004 sec. 2.2).

X is spike-free if :math:`\{(Xu)_+ : \|u\| \le 1\} = \{Xu : \|u\| \le 1, Xu \ge 0\}`: rectified neurons compute nothing
that neurons without an inactive row do not, and training is one convex program.

004 has an optimisation problem as the criterion (Lemma 2.3) and sufficient conditions (Lemma 2.4, 2.5). In fact the
property can be read off a matrix:

    Leave out zero rows and take rows that are positive multiples of one another together. X is spike-free if and only
    if the rows that remain, C, are linearly independent and :math:`K = (C C^T)^{-1}` has no positive entry off its
    diagonal.

*Independence.* :math:`(Xu)_+` must lie in the range of X for all u. If C has a basis of rows B and another row
:math:`c = \sum_{i \in B} a_i c_i`, this asks that :math:`(a^T t)_+ = a^T t_+` for all t. With :math:`a_i < 0` it fails
at :math:`t = -e_i`, with :math:`a_i, a_j > 0` at :math:`t = e_i / a_i - e_j / (2 a_j)`; and if a has a single entry,
which is positive, c is a positive multiple of another row. *Sign.* For independent rows :math:`t = Cu` is arbitrary,
and the smallest z with :math:`Cz = t` has :math:`\|z\|^2 = t^T K t`. So :math:`p^T K p \le (p - q)^T K (p - q)`, or
:math:`2 p^T K q \le q^T K q`, must hold for all :math:`p, q \ge 0` with disjoint supports. Scaling p up,
:math:`p^T K q \le 0` is necessary, and as K is positive definite it suffices. If :math:`K_{ij} > 0`, then

.. math:: t = \frac{K_{jj}}{K_{ij}} e_i - e_j \quad \text{gives} \quad
          \frac{\|X^\dagger (Xu)_+\|^2}{\|u\|^2} = \frac{1}{1 - K_{ij}^2 / (K_{ii} K_{jj})} > 1 .

Orthogonal rows, K diagonal, are Lemma 2.4; rows :math:`c_i a^T` with :math:`c \ge 0` come down to one row, Lemma 2.5
(for c with both signs there are two rows of rank one: not spike-free). Two slips follow. The second condition of
Lemma 2.3 looks only at u with :math:`(Xu)_+` in the range of X and so calls :math:`X = (1, -1)^T` spike-free, which it
is not. And against Theorem 3.4, two Gaussian rows are spike-free if and only if their inner product is not negative:
with probability 1/2 in *every* dimension. As the dimension grows :math:`\max_u \|X^\dagger (Xu)_+\|` does tend to one
(that is what its proof shows), but from above: the probability that it exceeds one tends to
:math:`1 - 2^{-n(n-1)/2}`, not to zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular

from bidual._util.typing import Array, FloatArray, IntArray

#: What counts as zero: the sine of an angle between rows, a cosine off the diagonal.
TOL = 1e-9


@dataclass(frozen=True, eq=False)
class SpikeFree:
    r"""The answer of :func:`is_spike_free`. As a bool it is True only if X is proven to be spike-free.

    Attributes
    ----------
    status : {"yes", "no", "unknown"}
    reason : str
    witness : ndarray, shape (d,), or None
        For "no": a unit vector u for which no z with :math:`\|z\| \le 1` has :math:`Xz = (Xu)_+`. With ``bias=True``
        its last entry is the bias.
    factor : float
        About the smallest s with :math:`\{(Xu)_+\} \subseteq s \{Xu : \|u\| \le 1, Xu \ge 0\}`. For "yes" an upper
        bound: one, up to what the tolerance may hide. For "no" a lower bound; infinite if there is no such s.
    """

    status: str
    reason: str
    witness: FloatArray | None = None
    factor: float = np.nan

    def __bool__(self) -> bool:
        return self.status == "yes"


def is_spike_free(X: Array, *, bias: bool = False, tol: float = TOL) -> SpikeFree:
    r"""Whether rectified neurons on X compute only what non-negative linear ones do (004 sec. 2.2.1).

    Exact, in :math:`O(n d \min(n, d))`, for X of any size: see :mod:`bidual.geometry.spike_free`. "unknown" is left for
    rows so close to dependent that rounding decides.

    Parameters
    ----------
    X : array of shape (n, d)
    bias : bool, default=False
        Append a column of ones first, as the estimators do for ``bias=True``.
    tol : float, default=1e-9
        Angles (in radians) and cosines up to this are zero.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import is_spike_free
    >>> bool(is_spike_free([[1.0, 0.0], [1.0, 1.0]]))
    True
    >>> answer = is_spike_free([[1.0, 0.0], [-1.0, 1.0]])
    >>> answer.status, round(answer.factor, 4)  # the angle of 135 degrees makes a spike
    ('no', 1.4142)
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"X must be a matrix with rows and columns, got shape {X.shape}")
    if not np.isfinite(X).all():
        raise ValueError("X must be finite: there are NaN or infinite entries")
    if bias:
        X = np.column_stack([X, np.ones(len(X))])
    C = _directions(X, tol)
    if not len(C):
        return SpikeFree("yes", "all rows are zero", factor=1.0)
    Q, R, pivots = qr(C.T, mode="economic", pivoting=True)
    C = C[pivots]
    eps = max(C.shape) * float(np.finfo(float).eps)
    rank = int((np.abs(np.diag(R)) > eps * abs(R[0, 0])).sum())
    if rank < len(C):
        return _dependent(C, Q[:, :rank], R[:rank], tol)
    inverse = solve_triangular(R, np.eye(rank))
    return _independent(Q @ inverse.T, tol, eps * float(np.linalg.norm(R) * np.linalg.norm(inverse)))


def _directions(X: FloatArray, tol: float = TOL) -> FloatArray:
    """The distinct directions of the rows, as unit vectors."""
    C = X[rays(X, tol)]
    C = C / np.abs(C).max(axis=1, keepdims=True, initial=0.0)
    return np.asarray(C / np.linalg.norm(C, axis=1, keepdims=True))


def rays(X: FloatArray, tol: float = TOL) -> IntArray:
    """Indices of one row of each direction: no zero rows, no two rows that are positive multiples (in order)."""
    largest = np.abs(X).max(axis=1, initial=0.0)
    rows = np.flatnonzero(largest > 0)
    unit = X[rows] / largest[rows, None]
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    # equal rows are neighbours in the order of a random projection
    line = unit @ np.random.default_rng(0).standard_normal(X.shape[1])
    order = np.argsort(line, kind="stable")
    reach = tol * (2.0 + np.sqrt(X.shape[1])) * 4.0
    first = np.ones(len(rows), dtype=bool)
    for a in range(len(order)):
        i = order[a]
        b = a + 1
        while b < len(order) and line[order[b]] - line[i] <= reach:
            j = order[b]
            if np.linalg.norm(unit[i] - unit[j]) <= tol:
                first[max(i, j)] = False
            b += 1
    return rows[first]


def _dependent(C: FloatArray, Q: FloatArray, R: FloatArray, tol: float) -> SpikeFree:
    """More directions than dimensions: some rectified neuron leaves the range. The first rows of C are a basis."""
    k, rank = len(C), len(R)
    coefficients = solve_triangular(R[:, :rank], R[:, rank:]).T  # of the other rows
    left = np.linalg.qr(C @ Q)[0]  # orthonormal basis of the range
    best, witness = 0.0, None
    for a in coefficients[:64]:  # each of them gives one; the clearest of a few will do
        t = np.zeros(rank)
        if a.min() < -tol:
            t[np.argmin(a)] = -1.0
        else:
            i, j = np.argsort(-a)[[0, min(1, rank - 1)]]
            t[j] = -0.5 / max(a[j], tol)
            t[i] = 1.0 / max(a[i], tol)
        u = Q @ solve_triangular(R[:, :rank], t, trans="T")
        z = np.maximum(C @ u, 0.0)
        outside = float(np.linalg.norm(z - left @ (left.T @ z)) / max(float(np.linalg.norm(z)), 1e-300))
        if outside > best:
            best, witness = outside, u / np.linalg.norm(u)
    if best <= 10 * tol:
        return SpikeFree("unknown", f"the rows have {k} directions and rank {rank}, but barely: rounding decides")
    reason = f"the rows have {k} directions but rank {rank}: some (Xu)_+ is not in the range of X"
    return SpikeFree("no", reason, witness, np.inf)


def _independent(dual: FloatArray, tol: float, error: float) -> SpikeFree:
    r"""From the columns of :math:`C^\dagger`, whose Gram matrix is K, known up to ``error`` (relative)."""
    dual = dual / np.linalg.norm(dual, axis=0)  # the length of a row is no matter, nor is that of its dual
    K = dual.T @ dual
    off = K - np.diag(np.diag(K))
    i, j = np.unravel_index(int(np.argmax(off)), off.shape)
    largest = float(off[i, j])
    if error > tol and largest <= tol + 2 * error:
        return SpikeFree("unknown", f"the distinct rows are nearly dependent, K is known to {error:.1e} only")
    if largest <= tol:
        # 2 p'Kq <= eps n |t|^2 <= eps n / lambda_min(K) t'Kt: what the tolerance may hide
        hidden = tol * len(K) / float(np.linalg.eigvalsh(K)[0])
        reason = "the rows are orthogonal" if np.abs(off).max() <= tol else "no entry off the diagonal of K is positive"
        return SpikeFree("yes", reason, factor=float(np.sqrt(1.0 + hidden)))
    u = dual[:, i] / largest - dual[:, j]
    reason = f"K has an entry {largest:.3g} (as a cosine) off its diagonal: (Xu)_+ = Xz takes a z longer than u"
    longer = 1.0 / np.sqrt(max(1.0 - largest**2, np.finfo(float).eps))
    return SpikeFree("no", reason, u / np.linalg.norm(u), float(longer))


def spike_factor(X: Array, *, bias: bool = False, random_state: int = 0) -> tuple[float, float]:
    r"""Bounds on :math:`s = \max_{\|u\| \le 1} \|X^\dagger (Xu)_+\|` (004 eq. 7): one if and only if X is spike-free.

    s is the factor by which the spike-free relaxation must be blown up to hold all neurons: for the optimal
    values of training, :math:`P_{\mathrm{relaxed}}(\beta / s) \le P(\beta) \le P_{\mathrm{relaxed}}(\beta)`.

    Returns
    -------
    lower, upper : float
        The first is attained (a local search from many starts); the second is proven: by all sign patterns of up to 10
        directions of rows, else by the condition number of the normalised rows. Both are infinite if some
        :math:`(Xu)_+` is not in the range of X.

    Examples
    --------
    >>> from bidual.geometry import spike_factor
    >>> lower, upper = spike_factor([[1.0, 0.0], [-1.0, 1.0]])
    >>> round(lower, 4), round(upper, 4)
    (1.4142, 1.4142)
    """
    answer = is_spike_free(X, bias=bias)
    if answer:
        return 1.0, answer.factor
    if not np.isfinite(answer.factor):
        return (np.inf if answer.status == "no" else 1.0), np.inf
    X = np.asarray(X, dtype=np.float64)
    C = _directions(np.column_stack([X, np.ones(len(X))]) if bias else X)
    C = np.linalg.qr(C.T)[1].T  # only the row space matters
    singular = np.linalg.svd(C, compute_uv=False)
    upper = float(singular[0] / singular[-1])
    G = C @ C.T
    dual = np.asarray(np.linalg.pinv(C))
    K = dual.T @ dual  # the inverse of G, of which rows that nearly depend on each other leave no digits
    if len(C) <= 10:
        subsets = ((np.arange(1, 2 ** len(C))[:, None] >> np.arange(len(C))) & 1).astype(bool)
        upper = min(upper, float(np.sqrt(max(_subset_bound(G, K, S) for S in subsets))))
    lower = max(answer.factor, _ascend(C, dual, np.random.default_rng(random_state)))
    return lower, max(upper, lower) * (1.0 + 1e-12)


def _ascend(C: FloatArray, dual: FloatArray, rng: np.random.Generator, starts: int = 200, steps: int = 300) -> float:
    r"""The largest :math:`\|C^\dagger (Cu)_+\| / \|u\|` found by gradient steps, shortened when they fail."""
    U = np.vstack(
        [rng.standard_normal((starts, C.shape[1])) @ dual @ C, rng.standard_normal((starts, len(C))) @ dual.T]
    )
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    length = np.ones((len(U), 1))

    def values(U: FloatArray) -> FloatArray:
        return np.linalg.norm(np.maximum(U @ C.T, 0.0) @ dual.T, axis=1)

    best = values(U)
    for _ in range(steps):
        Z = U @ C.T
        slope = (((np.maximum(Z, 0.0) @ dual.T) @ dual) * (Z > 0)) @ C
        slope /= np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), 1e-300)
        moved = U + length * slope
        moved /= np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-300)
        now = values(moved)
        better = now > best
        U[better], best = moved[better], np.maximum(now, best)
        length = np.where(better[:, None], 1.5, 0.5) * length
    return float(best.max())


def _subset_bound(G: FloatArray, K: FloatArray, S: Array) -> float:
    r"""Largest :math:`p^T K p / \min_q (p - q)^T K (p - q)` with p on S and q, of any sign, off S: an eigenvalue."""
    return float(np.linalg.eigvals(K[np.ix_(S, S)] @ G[np.ix_(S, S)]).real.max())
