r"""The loss of a spline, as a function of its values at the knots.

Between knots :math:`t_1 < \dots < t_K` a linear spline with values :math:`g_j` is
:math:`f(x) = (1 - \lambda) g_j + \lambda g_{j+1}`: every row of data sees two values, and sums over rows give
tridiagonal matrices. Rows are sorted by x, and every knot is the place of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bidual._typing import FloatArray, IntArray
from bidual.losses import DualBox


class Hats:
    """Hat functions of the knots on the rows.

    Parameters
    ----------
    x : ndarray, shape (n,)
        Coordinates of the rows, sorted.
    first : ndarray, shape (K,)
        For every knot, the first row at it; the first and the last distinct x are knots.
    """

    def __init__(self, x: FloatArray, first: IntArray) -> None:
        self.knots = x[first]
        self.spacing = np.diff(self.knots)
        self.starts = first[:-1]
        pieces = len(self.spacing)
        if pieces:
            piece = np.repeat(np.arange(pieces), np.diff(np.append(self.starts, len(x))))
            self.piece = piece
            self.right = ((x - self.knots[piece]) / self.spacing[piece])[:, None]
            self.left = ((self.knots[piece + 1] - x) / self.spacing[piece])[:, None]
            self._products = self.left**2, self.right**2, self.left * self.right

    def values(self, g: FloatArray) -> FloatArray:
        """The spline on the rows, ``(n, C)``, from its values ``(K, C)`` at the knots."""
        if not len(self.spacing):
            return g
        return self.left * g[self.piece] + self.right * g[self.piece + 1]

    def sums(self, r: FloatArray) -> FloatArray:
        """The transpose of :meth:`values`."""
        if not len(self.spacing):
            return r.sum(axis=0, keepdims=True)
        total = np.zeros((len(self.knots), r.shape[1]))
        total[:-1] += self._reduce(self.left * r)
        total[1:] += self._reduce(self.right * r)
        return total

    def gram(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Diagonal ``(K, k)`` and first off-diagonal ``(K - 1, k)`` of the matrix with weights ``theta (n, k)``."""
        if not len(self.spacing):
            return theta.sum(axis=0, keepdims=True), np.zeros((0, theta.shape[1]))
        diagonal = np.zeros((len(self.knots), theta.shape[1]))
        diagonal[:-1] += self._reduce(self._products[0] * theta)
        diagonal[1:] += self._reduce(self._products[1] * theta)
        return diagonal, self._reduce(self._products[2] * theta)

    def _reduce(self, r: FloatArray) -> FloatArray:
        if r.shape[1] == 1:  # many times faster than along an axis
            return np.add.reduceat(r[:, 0], self.starts)[:, None]
        return np.add.reduceat(r, self.starts, axis=0)


class NewtonRows(NamedTuple):
    """What the rows add to a Newton step in the values at the knots.

    Matrix blocks ``(K, C, C)`` and ``(K - 1, C, C)``, and the right-hand side ``(K, C)``.
    """

    diagonal: FloatArray
    off_diagonal: FloatArray
    rhs: FloatArray


@dataclass
class QuadraticRows:
    r"""Rows with a quadratic loss :math:`L(F_0) + \langle V_0, F - F_0 \rangle + \tfrac12 (F - F_0)^T Q (F - F_0)`.

    Parameters
    ----------
    hats : Hats
    F0, gradient : ndarray, shape (n, C)
    hessian : ndarray, shape (n, C) or (n, C, C)
        Of every row, weights included.
    """

    hats: Hats
    F0: FloatArray
    gradient: FloatArray
    hessian: FloatArray

    def __post_init__(self) -> None:
        n, C = self.F0.shape
        if self.hessian.ndim == 2:
            diagonal, off = self.hats.gram(self.hessian)
            self.diagonal, self.off_diagonal = _as_blocks(diagonal), _as_blocks(off)
            product = self.hessian * self.F0
        else:
            diagonal, off = self.hats.gram(self.hessian.reshape(n, C * C))
            self.diagonal, self.off_diagonal = diagonal.reshape(-1, C, C), off.reshape(-1, C, C)
            product = np.einsum("nij,nj->ni", self.hessian, self.F0)
        self.constant = self.hats.sums(self.gradient - product)

    degree = 0.0

    def gap(self) -> float:
        """Complementarity of the rows."""
        return 0.0

    def residual(self, g: FloatArray) -> FloatArray:
        """Gradient of the loss at the values ``g``."""
        slope = self.constant + np.einsum("kij,kj->ki", self.diagonal, g)
        slope[:-1] += np.einsum("kij,kj->ki", self.off_diagonal, g[1:])
        slope[1:] += np.einsum("kji,kj->ki", self.off_diagonal, g[:-1])
        return slope

    def linearise(self, g: FloatArray, target: float, corrector: bool) -> NewtonRows:
        """The rows' part of a Newton step."""
        return NewtonRows(self.diagonal, self.off_diagonal, -self.residual(g))

    def direct(self, dg: FloatArray) -> None:
        """Find the step of the rows' own variables."""

    def largest_step(self) -> float:
        """How far they can go."""
        return np.inf

    def gap_after(self, step: float) -> float:
        """Complementarity after a step."""
        return 0.0

    def move(self, step: float) -> None:
        """Take it."""


class BoxRows:
    r"""Rows of a loss :math:`\sup_{l \le v \le h} v (f - y) - \tfrac q2 v^2`, with a barrier for the box.

    With multipliers of the bounds the optimum has :math:`f - y = q v + \mu_h - \mu_l`, and the central path
    :math:`\mu_h (h - v) = \mu_l (v - l) = \mu`.
    """

    def __init__(self, hats: Hats, Y: FloatArray, w: FloatArray, box: DualBox) -> None:
        self.hats, self.Y, self.w, self.q = hats, Y, w[:, None], box.curvature
        self.lower, self.upper = box.lower, box.upper
        self.below, self.above = np.isfinite(box.lower), np.isfinite(box.upper)
        low, high = np.where(self.below, box.lower, 0.0), np.where(self.above, box.upper, 0.0)
        both = self.below & self.above
        self.v = np.where(both, 0.5 * (low + high), np.where(self.below, low + 1.0, np.where(self.above, high - 1.0, 0)))
        self.mu_low, self.mu_high = self.below.astype(np.float64), self.above.astype(np.float64)
        self.degree = float((self.w * self.below).sum() + (self.w * self.above).sum())

    def _slacks(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.where(self.below, v - self.lower, 1.0), np.where(self.above, self.upper - v, 1.0)

    def gap(self) -> float:
        """Complementarity of the rows."""
        low, high = self._slacks(self.v)
        return float((self.w * (self.mu_low * low + self.mu_high * high)).sum())

    def linearise(self, g: FloatArray, target: float, corrector: bool) -> NewtonRows:
        """The rows' part of a Newton step towards complementarity ``target``; ``corrector``: of second order."""
        low, high = self._slacks(self.v)
        t_low, t_high = np.where(self.below, target, 0.0), np.where(self.above, target, 0.0)
        if corrector:
            t_low = t_low - self.d_low * self.dv
            t_high = t_high + self.d_high * self.dv
        self._low, self._high = t_low / low - self.mu_low, t_high / high - self.mu_high
        self._slope_low, self._slope_high = self.mu_low / low, self.mu_high / high
        self.theta = 1.0 / (self.q + self._slope_low + self._slope_high)
        residual = self.hats.values(g) - self.Y - self.q * self.v - self.mu_high + self.mu_low
        self.pull = residual - self._high + self._low
        if not corrector:
            diagonal, off = self.hats.gram(self.w * self.theta)
            self._blocks = _as_blocks(diagonal), _as_blocks(off)
        return NewtonRows(*self._blocks, -self.hats.sums(self.w * (self.v + self.theta * self.pull)))

    def direct(self, dg: FloatArray) -> None:
        """Find the step of the rows' own variables."""
        self.dv = self.theta * (self.hats.values(dg) + self.pull)
        self.d_high = self._high + self._slope_high * self.dv
        self.d_low = self._low - self._slope_low * self.dv

    def largest_step(self) -> float:
        """How far they can go."""
        low, high = self._slacks(self.v)
        pairs = (
            (low, np.where(self.below, self.dv, 0.0)),
            (high, np.where(self.above, -self.dv, 0.0)),
            (self.mu_low, self.d_low),
            (self.mu_high, self.d_high),
        )
        return min(_ratio(value, change) for value, change in pairs)

    def gap_after(self, step: float) -> float:
        """Complementarity after a step."""
        low, high = self._slacks(self.v + step * self.dv)
        mu_low, mu_high = self.mu_low + step * self.d_low, self.mu_high + step * self.d_high
        return float((self.w * (mu_low * low + mu_high * high)).sum())

    def move(self, step: float) -> None:
        """Take it."""
        self.v = self.v + step * self.dv
        self.mu_low, self.mu_high = self.mu_low + step * self.d_low, self.mu_high + step * self.d_high

    def residual(self, g: FloatArray) -> FloatArray:
        """Gradient of the loss, as the multipliers have it."""
        return self.hats.sums(self.w * self.v)


#: Either kind of rows; made anew for every set of knots.
Rows = QuadraticRows | BoxRows
RowsOf = Callable[[Hats], Rows]


def _as_blocks(entries: FloatArray) -> FloatArray:
    """Diagonal matrices from their entries."""
    C = entries.shape[1]
    return entries[:, :, None] * np.eye(C)


def _ratio(value: FloatArray, change: FloatArray) -> float:
    """The largest step for which positive values stay non-negative."""
    falling = change < 0
    return float((value[falling] / -change[falling]).min(initial=np.inf))
