r"""From a spline to a network of few neurons.

A change of slope :math:`\delta_k` may be split, :math:`\delta_k = a_k + c_k`, into a ramp to the right and one to the
left, which together cost :math:`\|\delta_k\|` if they are parallel. The line that is left over has slope
:math:`d_1 + \sum_k c_k`. Many splits are optimal (004 Prop. 3.1); here nearly all kinks get one neuron.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidual._util.typing import FloatArray
from bidual.closed_form.rank_one import left_ramps
from bidual.networks import TwoLayerNetwork
from bidual.splines.line import Line

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Ramps:
    r"""Neurons :math:`(s (x - t))_+ \kappa^T` with :math:`s = \pm 1`, and the value at the first knot.

    Attributes
    ----------
    t : ndarray, shape (m,)
    side : ndarray, shape (m,)
        s, +1 for ramps to the right.
    kappa : ndarray, shape (m, C)
    first : float
        The place whose value is known,
    value : ndarray, shape (C,)
        and that value.
    """

    t: FloatArray
    side: FloatArray
    kappa: FloatArray
    first: float
    value: FloatArray

    def network(self, line: Line) -> TwoLayerNetwork:
        """Balanced neurons with free biases on rows of the line's space."""
        size = np.linalg.norm(self.kappa, axis=1)
        kept = size > 0
        t, side, kappa, size = self.t[kept], self.side[kept], self.kappa[kept], size[kept]
        root = np.sqrt(size)
        shift = float(line.origin @ line.direction) if len(line.origin) > 1 else 0.0
        at_first = np.maximum(side * (self.first - t), 0.0) @ kappa
        return TwoLayerNetwork(
            hidden_weights=(side * root)[:, None] * line.direction,
            output_weights=kappa / root[:, None],
            hidden_bias=-side * root * (t + shift),
            intercept=self.value - at_first,
            free_bias=True,
        )


def ramps_of(t: FloatArray, g: FloatArray, right: FloatArray, left: FloatArray, spare: float = 0.0) -> Ramps:
    """Few ramps for the spline with knots ``t (K,)``, first value ``g (C,)`` and weights of all ramps ``(K - 1, C)``.

    ``right`` belongs to the first K - 1 knots, ``left`` to the last ones. Where a knot has parallel ramps to both
    sides, they are shifted to one side as far as the line that is left allows. The smallest ramps are left out as long
    as their weights sum up to less than ``spare``.
    """
    C = len(g)
    if not len(right):
        return Ramps(t[:0], t[:0], np.zeros((0, C)), float(t[0]), g)
    inner_right, inner_left = right[1:], left[:-1]
    delta = inner_right + inner_left
    slope = right[0] - left.sum(axis=0)  # of the first piece
    if C == 1:
        inner_left = left_ramps(delta[:, 0], float(slope[0]))[0][:, None]
    else:
        inner_left = min(_one_sided(delta, inner_left), inner_left, key=lambda part: _cost(delta, slope, part))
    rest = slope + inner_left.sum(axis=0)
    inner_right = delta - inner_left
    kappa = np.concatenate([rest[None, :], inner_right, inner_left])
    places = np.concatenate([t[:1], t[1:-1], t[1:-1]])
    side = np.repeat([1.0, 1.0, -1.0], [1, len(delta), len(delta)])
    size = np.linalg.norm(kappa, axis=1)
    # what is below the rounding of the others, or does nothing over the whole length
    kept = size > 64 * _EPS * max(float(size.sum()), float(np.abs(g).max()) / float(t[-1] - t[0]))
    order = np.argsort(size)
    kept[order[np.cumsum(size[order]) <= spare]] = False
    return Ramps(places[kept], side[kept], kappa[kept], float(t[0]), g)


def _cost(delta: FloatArray, slope: FloatArray, left: FloatArray) -> float:
    """Penalty of a split, up to what is worth more than a neuron."""
    parts = np.concatenate([delta - left, left, (slope + left.sum(axis=0))[None, :]])
    return float(f"{np.linalg.norm(parts, axis=1).sum():.7g}")


def _one_sided(delta: FloatArray, left: FloatArray) -> FloatArray:
    r"""Another split of the same cost and the same sum of the left parts, with at most C knots split.

    With :math:`c_k = \theta_k \delta_k` for the knots with parallel parts, :math:`\sum_k \theta_k \delta_k` is to stay
    as it is: as long as more than C of the :math:`\theta_k` are strictly between 0 and 1, there is a direction along
    which one of them can be moved to 0 or 1 (Caratheodory).
    """
    C = delta.shape[1]
    right = delta - left
    product = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    parallel = (left * right).sum(axis=1) >= (1 - 1e-6) * product
    size = np.linalg.norm(delta, axis=1)
    theta = np.where(size > 0, np.linalg.norm(left, axis=1) / np.where(size > 0, size, 1.0), 0.0)
    theta = np.clip(theta, 0.0, 1.0)
    total = left[parallel].sum(axis=0)
    open_ = [k for k in np.flatnonzero(parallel) if 1e-9 < theta[k] < 1 - 1e-9]
    theta[parallel & (theta <= 1e-9)], theta[parallel & (theta >= 1 - 1e-9)] = 0.0, 1.0
    while len(open_) > C:
        group = open_[: C + 1]
        _, _, Vt = np.linalg.svd(delta[group].T)
        along = Vt[-1]
        limits = np.where(along > 0, (1 - theta[group]) / np.where(along > 0, along, 1.0), np.inf)
        limits = np.minimum(limits, np.where(along < 0, theta[group] / np.where(along < 0, -along, 1.0), np.inf))
        first = int(np.argmin(limits))
        theta[group] = np.clip(theta[group] + limits[first] * along, 0.0, 1.0)
        theta[group[first]] = np.round(theta[group[first]])
        open_ = [k for k in open_ if 0.0 < theta[k] < 1.0]
    new = np.where(parallel[:, None], theta[:, None] * delta, left)
    if open_:  # what parallel up to a tolerance has cost, given back where it is free
        missing = total - new[parallel].sum(axis=0)
        change, *_ = np.linalg.lstsq(delta[open_].T, missing, rcond=1e-12)
        theta[open_] = np.clip(theta[open_] + change, 0.0, 1.0)
        new = np.where(parallel[:, None], theta[:, None] * delta, left)
    return new
