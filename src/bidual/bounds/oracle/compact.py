r"""A relaxation of the dual constraint of the size of the rank, for one output.

Let rows have norm one (weights take up their norms) and :math:`t_i = x_i^T u`. With :math:`(t)_+ = (t + |t|)/2`,
for any :math:`s_i > 0`, :math:`k_i + p_i + m_i \le 1` (all non-negative) and :math:`\|u\| \le 1`

.. math:: |t_i| \le \tfrac12 (s_i t_i^2 + 1/s_i), \qquad |t_i| \ge k_i t_i^2 + (p_i - m_i) t_i,

the first for rows of positive weight, the second for the others. Where the signs of some rows are known,
:math:`a_f^T u \ge 0`, their :math:`|t|` is linear, and one may add

.. math:: (a_f^T u) (\lambda_f - y_f^T u) \ge 0, \qquad \Lambda_{fg} (a_f^T u) (a_g^T u) \ge 0

for any :math:`\lambda_f \ge \|y_f\|` and :math:`\Lambda \ge 0`. All of it sums to a quadratic function, and

.. math:: b^T u + u^T Q u \le \mu + \tfrac14 b^T (\mu I - Q)^{-1} b, \qquad \mu > \max(\lambda_{\max}(Q), 0).

Without known signs the best multipliers give the value of Shor's semidefinite relaxation of the problem in (u, |t|).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bidual._util.rounding import TINY, VANISHED, cholesky_error, gamma
from bidual._util.typing import Array, FloatArray, IntArray
from bidual._util.watch import checkpoint

#: Smoothing (log-determinant, entropy) of the stages of the minimisation.
STAGES = ((0.3, 1.0), (0.1, 0.3), (0.03, 0.1), (0.01, 0.03), (0.003, 0.01), (0.001, 0.003))
#: Rows of known sign that serve as cuts, at most: the number of their products grows with the square.
CUTS = 20
#: Multipliers in logarithms are kept in this range.
_RANGE = 30.0
#: Those of a file may be anything, but their exponentials must not overflow.
_FAR = 200.0
#: Where the multipliers (logarithms) of new cuts start: they must not spoil what is known.
_NEW = -6.0


@dataclass(frozen=True)
class Side:
    r"""The function :math:`f(u) = c \sum_i w_i (x_i^T u)_+` of unit rows, to be bounded over :math:`\|u\| \le 1`.

    Attributes
    ----------
    X : ndarray, shape (N, r)
        Unit rows.
    w : ndarray, shape (N,)
    scale : float
        The size c of the function: multipliers are measured in it.
    signs : ndarray of int8, shape (N,)
        The known sign of each row on the part of the ball that is meant, 0 if unknown.
    fixed : tuple of int
        The rows of known sign that are used as cuts, in the order in which they became known.
    """

    X: FloatArray
    w: FloatArray
    scale: float
    signs: Array
    fixed: tuple[int, ...] = ()

    @classmethod
    def of(cls, X: FloatArray, v: FloatArray, scale: float) -> Side:
        r"""The function :math:`\sum_i v_i (x_i^T u)_+` of non-zero rows, about as large as ``scale``.

        The unit rows are a little shorter than one, because the relaxation needs :math:`|t_i| \le 1`. The function is
        that of ``v`` and ``X`` up to :math:`\gamma_3 \sum_i |v_i| \|x_i\|`: three roundings in each coefficient.
        """
        if not 0.0 < scale < np.inf:
            raise ValueError(f"the scale of a relaxation must be positive, got {scale}")
        norms = np.linalg.norm(X, axis=1) * (1.0 + gamma(X.shape[1] + 8))
        return cls(X / norms[:, None], v * norms / scale, scale, np.zeros(len(X), dtype=np.int8))

    def where(self, row: int, sign: int) -> Side:
        """The same function on the part of the ball where ``row`` has the given sign."""
        signs = self.signs.copy()
        signs[row] = sign
        return replace(self, signs=signs, fixed=(*self.fixed, row)[:CUTS])

    @property
    def plus(self) -> IntArray:
        """Rows of unknown sign and positive weight."""
        return np.flatnonzero((self.signs == 0) & (self.w > 0))

    @property
    def minus(self) -> IntArray:
        """Rows of unknown sign and negative weight."""
        return np.flatnonzero((self.signs == 0) & (self.w < 0))

    @property
    def linear(self) -> FloatArray:
        r"""The linear part :math:`\tfrac12 \sum_i w_i (1 + \sigma_i) x_i`."""
        return 0.5 * (self.w * (1.0 + self.signs)) @ self.X

    @property
    def cuts(self) -> FloatArray:
        """The known rows :math:`a_f`, turned to their positive side."""
        rows = list(self.fixed)
        return self.signs[rows, None] * self.X[rows]


@dataclass(frozen=True)
class Relaxed:
    r"""Multipliers of the relaxation of a :class:`Side`, and what they say.

    Attributes
    ----------
    x : ndarray of float32
        log s, the logits of (k, p, m), half the logarithms of lambda^2 - norm(y)^2, log Lambda (pairs g < f), and the
        vectors y: what a proof stores.
    bound : float
        The bound that they prove, see :func:`prove`.
    u : ndarray, shape (r,)
        The (mean) direction at which the relaxed function is largest.
    U : ndarray, shape (r, r)
        Its second moments, :math:`U \succeq u u^T` of trace one.
    """

    x: Array
    bound: float
    u: FloatArray
    U: FloatArray

    def neuron(self, X: FloatArray, v: FloatArray) -> FloatArray:
        r"""Outputs of the relaxed neuron on rows with weights v.

        :math:`\tfrac12 (t_i + r_i)` with the largest :math:`r_i` that the relaxation allows where v is positive,
        :math:`\sqrt{x_i^T U x_i}`, and the smallest elsewhere, :math:`\max(|t_i|, x_i^T U x_i / \|x_i\|)`.
        """
        t = X @ self.u
        q = np.maximum(np.einsum("ij,ij->i", X @ self.U, X), 0.0)
        norms = np.maximum(np.linalg.norm(X, axis=1), np.finfo(float).tiny)
        return 0.5 * (t + np.where(v > 0, np.sqrt(q), np.maximum(np.abs(t), q / norms)))

    def doubt(self, side: Side) -> FloatArray:
        """By how much each row of unknown sign and positive weight is overestimated: where to branch."""
        rows = np.where((side.signs == 0) & (side.w > 0), side.w, 0.0)
        return rows * (self.neuron(side.X, side.w) - np.maximum(side.X @ self.u, 0.0))


def relax(
    side: Side,
    start: FloatArray | None = None,
    stages: tuple[tuple[float, float], ...] = STAGES,
    enough: float = 0.0,
    max_iter: int = 100,
    tol: float = 1e-4,
) -> Relaxed:
    """Minimise the bound over the multipliers.

    Parameters
    ----------
    side : Side
    start : ndarray or None
        Multipliers to start from.
    enough : float
        A bound with which to stop.
    max_iter, tol
        Of each stage: quasi-Newton steps, and the relative progress in ten of them below which it ends.
    """
    from bidual.bounds.oracle._compact_kernels import minimise

    plus, minus = side.plus, side.minus
    rows = np.concatenate([plus, minus])
    X = np.ascontiguousarray(side.X[rows])
    w = np.abs(side.w[rows])
    r, F = side.X.shape[1], len(side.fixed)
    if start is None:
        start = np.zeros(len(plus) + 3 * len(minus) + F + F * (F - 1) // 2 + F * r)
        start[: len(plus)] = 0.5 * np.log(r)
    x = np.array(start, dtype=np.float64)
    u, U, mu = np.zeros(r), np.zeros((r, r)), np.ones(1)
    for tau, eps in stages:
        checkpoint()
        bound = minimise(
            x, X, w, len(plus), side.linear, side.cuts, tau / r, eps, mu, max_iter, enough / side.scale, tol, u, U
        )
        if bound * side.scale <= enough:
            break
    kept = np.clip(x, -_RANGE, _RANGE).astype(np.float32)
    return Relaxed(kept, prove(side, kept), u, U)


def inherit(side: Side, x: FloatArray, row: int) -> FloatArray:
    """Multipliers for the halves of ``side`` at ``row``, from those of ``side``."""
    n_plus, n_minus, F, r = len(side.plus), len(side.minus), len(side.fixed), side.X.shape[1]
    s, logits, lam, pairs, y = np.split(x, np.cumsum([n_plus, 3 * n_minus, F, F * (F - 1) // 2]))
    known = np.concatenate([side.plus != row, np.repeat(side.minus != row, 3)])
    rest = np.concatenate([s, logits])[known]
    if F == CUTS:
        return np.concatenate([rest, lam, pairs, y])
    return np.concatenate([rest, lam, [_NEW], pairs, np.full(F, _NEW), y, np.zeros(r)])


def prove(side: Side, x: Array) -> float:
    r"""The bound that multipliers prove, whatever they are, rounding included; infinite if they prove nothing.

    For every vector z and :math:`A = \mu I - Q \succeq 0`, :math:`b^T u - u^T A u \le z^T A z + \|b - 2 A z\|` on the
    unit ball; so nothing rests on how well a linear system was solved, and s, (k, p, m), :math:`\lambda` and
    :math:`\Lambda` are what they are in memory.

    What is rounded: Q, b and the constant are sums of at most :math:`K = N + F^2 + 2 r + 16` products (F cuts) of
    rows no longer than one, with coefficients that sum up to S in absolute values; so they are off by at most
    :math:`e = \gamma_K S` in norm. That :math:`A \succeq 0` is shown by the Cholesky factors of A less e and less
    what they may hide (:func:`bidual._util.rounding.cholesky_error`). The value at z is off by :math:`e (1 + \|z\|)^2`
    for that of A and b, and by :math:`\gamma_{2r+8} (\|b\| + 2 \|A\|_F \|z\| + \|A\|_F \|z\|^2)` for its own sums.
    """
    plus, minus = side.plus, side.minus
    r, F = side.X.shape[1], len(side.fixed)
    sizes = [len(plus), 3 * len(minus), F, F * (F - 1) // 2, F * r]
    if len(x) != sum(sizes):
        raise ValueError(f"{len(x)} multipliers do not belong to this problem, which has {sum(sizes)}")
    x = x.astype(np.float64)
    if not np.isfinite(x).all():
        return np.inf
    log_s, logits, log_lam, log_pairs, y = np.split(np.clip(x, -_FAR, _FAR), np.cumsum(sizes[:-1]))
    s, lam, pairs = np.exp(log_s), np.exp(2 * log_lam), np.zeros((F, F))
    const = 0.25 * float((side.w[plus] / s).sum())
    pairs[np.tril_indices(F, -1)] = np.exp(log_pairs)
    shares = np.exp(logits.reshape(-1, 3) - logits.reshape(-1, 3).max(axis=1, keepdims=True, initial=-np.inf))
    shares /= shares.sum(axis=1, keepdims=True) * (1.0 + gamma(8))
    half = -0.5 * side.w[minus]
    c = np.concatenate([0.25 * side.w[plus] * s, -half * shares[:, 0]])
    lin = half * (shares[:, 2] - shares[:, 1])
    X = side.X[np.concatenate([plus, minus])]
    Q, b = (X.T * c) @ X, side.linear + lin @ side.X[minus]
    size = float(np.abs(c).sum() + np.abs(half).sum() + const + np.abs(side.w).sum())
    if F:
        cuts, Y = side.cuts, y.reshape(F, r)
        lam = np.sqrt((Y**2).sum(axis=1) + lam) * (1.0 + gamma(r + 8)) + VANISHED
        b = b + lam @ cuts
        Q += cuts.T @ (0.5 * (pairs + pairs.T)) @ cuts - 0.5 * (cuts.T @ Y + Y.T @ cuts)
        size += float(2 * lam.sum() + pairs.sum())
    error = gamma(len(side.w) + F * F + 2 * r + 16) * size * (1.0 + gamma(len(side.w) + F * F + 8)) + TINY
    if not np.isfinite([error, *b, *Q.ravel()]).all():
        return np.inf
    mu = _best_mu(Q, b)
    for _ in range(60):
        A = mu * np.eye(r) - Q
        margin = 2.0 * cholesky_error(A) + error
        try:
            np.linalg.cholesky(A - margin * np.eye(r))
            break
        except np.linalg.LinAlgError:
            mu = mu * (1.0 + 1e-9) + 10 * margin
    else:
        return np.inf
    z = 0.5 * np.linalg.solve(A, b)
    length, spread = float(np.linalg.norm(z)), float(np.linalg.norm(A))
    own = gamma(2 * r + 8) * (float(np.linalg.norm(b)) + 2 * spread * length + spread * length**2)
    value = float(const + mu + z @ A @ z + np.linalg.norm(b - 2 * A @ z))
    value = side.scale * (value + 2.0 * own + error * (1.0 + length) ** 2) * (1.0 + gamma(8))
    return value if np.isfinite(value) else np.inf


def _best_mu(Q: FloatArray, b: FloatArray) -> float:
    r"""Nearly a minimiser of :math:`\mu + b^T (\mu I - Q)^{-1} b / 4` over :math:`\mu > \max(\lambda_{\max}(Q), 0)`."""
    values, vectors = np.linalg.eigh(Q)
    beta = (0.5 * (vectors.T @ b)) ** 2
    floor = max(float(values[-1]), 0.0)
    tiny = np.finfo(float).eps * floor + np.finfo(float).tiny
    size = float(np.sqrt(beta.sum())) + tiny  # the minimiser is no further away
    grid = np.logspace(-13, 0, 50)
    for _ in range(3):  # ever finer around the best
        mu = floor + size * grid
        best = int(np.argmin(mu + (beta / np.maximum(mu[:, None] - values, tiny)).sum(axis=1)))
        step = grid[1] / grid[0]
        grid = grid[best] * np.logspace(-1, 1, 50, base=step)
    return float(mu[best])
