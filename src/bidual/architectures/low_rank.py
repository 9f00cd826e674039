r"""What training on data of low rank may cost (002 Theorem 2).

Let :math:`X_r` be the best approximation of X of rank r, :math:`\sigma_{r+1} = \|X - X_r\|_2`. Replacing X by
:math:`X_r` moves the outputs of a branch of unit cost by at most :math:`\sqrt{T}\, \sigma_{r+1}` in norm, where T is
the number of its leaves times copies (m1 m2 for three layers). If the mean loss changes by at most R times that,

.. math:: p^* \;\le\; p_r \;\le\; \Big(1 + \frac{\sqrt{T} R \sigma_{r+1}}{\beta}\Big) p^* .

The paper prints the square of this factor: one for going from X to :math:`X_r` with the optimal weights, one for going
back with the weights found. The way back is free: weights found on :math:`X_r` lie in its row space (others would cost
more), where X and :math:`X_r` do the same.

R for a mean loss is :math:`\rho \|w\|_2` (:math:`\rho / \sqrt n` without weights) for a loss of slope at most
:math:`\rho` in each row; the paper's :math:`R / \beta` with sums instead of means is the same number. The squared loss
has no such slope (the paper's :math:`R = 1` is that of the norm itself, not of its square), but at the optimum
:math:`L \le p_0`, the objective of a constant, and a loss whose gradient has Lipschitz constant :math:`\lambda`
satisfies :math:`\|\nabla \ell\|^2 \le 2 \lambda \ell`, hence

.. math:: R = \sqrt{2 \lambda w_{\max} p_0} + \tfrac12 \lambda w_{\max} \sqrt T \sigma_{r+1} p_0 / \beta .
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual.losses import Loss

#: Slopes beyond this are none.
STEEP = 1e9


@dataclass(frozen=True)
class LowRank:
    r"""The price of low rank.

    Attributes
    ----------
    ranks : ndarray of int, shape (k,)
        1, 2, ... up to the rank of X.
    sigmas : ndarray, shape (k,)
        :math:`\sigma_{r+1}`, zero for the last one.
    factors : ndarray, shape (k,)
        The proven factors :math:`1 + \sqrt T R \sigma_{r+1} / \beta`.
    """

    ranks: Array
    sigmas: FloatArray
    factors: FloatArray

    @property
    def paper_factors(self) -> FloatArray:
        """Their squares, which 002 Theorem 2 prints."""
        return np.asarray(self.factors**2)

    def rank_for(self, factor: float) -> int:
        """The smallest rank whose proven factor is at most ``factor``."""
        return int(self.ranks[int(np.argmax(self.factors <= factor))])


def price_of_rank(
    X: FloatArray, Y: FloatArray, w: FloatArray, *, loss: Loss, beta: float, fit_intercept: bool, leaves: int
) -> LowRank:
    """The factors for all ranks of ``X (n, d)``; ``leaves`` is T."""
    s = np.linalg.svd(X, compute_uv=False)
    s = s[s > s[0] * max(X.shape) * np.finfo(float).eps] if s[0] > 0 else s[:1]
    sigmas = np.append(s[1:], 0.0)
    change = np.sqrt(leaves) * sigmas
    p0 = loss.value(np.zeros_like(Y), Y, w)
    if fit_intercept:
        p0 = min(p0, loss.value(np.broadcast_to(w @ Y, Y.shape), Y, w))
    slope = np.minimum(_steepest(loss, Y, w), _slope_below(loss, w, p0, change / beta))
    steps = np.zeros_like(change)
    np.multiply(slope, change, out=steps, where=change > 0)
    return LowRank(np.arange(1, len(s) + 1), sigmas, 1.0 + steps / beta)


def _steepest(loss: Loss, Y: FloatArray, w: FloatArray) -> float:
    r""":math:`\rho \|w\|_2`: gradients lie in the domain of the conjugate, the largest ones in its corners."""
    if loss.coupled:  # a difference of two points of a simplex
        return float(np.sqrt(2.0) * np.linalg.norm(w))
    corners = [loss.clip_rows(np.full(Y.shape, far), Y) for far in (1e12, -1e12)]
    slopes = np.max([np.linalg.norm(corner, axis=1) for corner in corners], axis=0)
    return float(np.linalg.norm(w * slopes)) if slopes.max() < STEEP else np.inf


def _slope_below(loss: Loss, w: FloatArray, p0: float, change: FloatArray) -> FloatArray:
    """R for a smooth loss that is at most p0 at the optimum; ``change`` is per unit of the objective."""
    curvature = loss.lipschitz * float(w.max())
    if not np.isfinite(curvature):
        return np.full(len(change), np.inf)
    return np.asarray(np.sqrt(2.0 * curvature * p0) + 0.5 * curvature * change * p0)
