r"""The loss of a spline, as a function of its values at the knots.

Between knots :math:`t_1 < \dots < t_K` a linear spline with values :math:`g_j` is
:math:`f(x) = (1 - \lambda) g_j + \lambda g_{j+1}`: every row of data sees two values, and sums over rows give
tridiagonal matrices. Rows are sorted by x, and every knot is the place of a row.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from bidual._util.typing import BoolArray, FloatArray, IntArray
from bidual.losses import DualBox, Loss
from bidual.splines import _kernels

#: Curvature, relative to the loss's largest, that a quadratic model has at least.
FLOOR = 1e-10


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
        self.piece = np.zeros(len(x), dtype=np.int64)
        self.left, self.right = np.ones(len(x)), np.zeros(len(x))
        if pieces:
            self.piece = piece = np.repeat(np.arange(pieces), np.diff(np.append(self.starts, len(x))))
            self.right = (x - self.knots[piece]) / self.spacing[piece]
            self.left = (self.knots[piece + 1] - x) / self.spacing[piece]

    def values(self, g: FloatArray) -> FloatArray:
        """The spline on the rows, ``(n, C)``, from its values ``(K, C)`` at the knots."""
        if not len(self.spacing):
            return np.repeat(g, len(self.piece), axis=0)
        return self.left[:, None] * g[self.piece] + self.right[:, None] * g[self.piece + 1]

    def sums(self, r: FloatArray) -> FloatArray:
        """The transpose of :meth:`values`."""
        if not len(self.spacing):
            return r.sum(axis=0, keepdims=True)
        total = np.zeros((len(self.knots), r.shape[1]))
        total[:-1] += self._reduce(self.left[:, None] * r)
        total[1:] += self._reduce(self.right[:, None] * r)
        return total

    def gram(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Diagonal ``(K, k)`` and first off-diagonal ``(K - 1, k)`` of the matrix with weights ``theta (n, k)``."""
        if not len(self.spacing):
            return theta.sum(axis=0, keepdims=True), np.zeros((0, theta.shape[1]))
        diagonal = np.zeros((len(self.knots), theta.shape[1]))
        left, right = self.left[:, None], self.right[:, None]
        diagonal[:-1] += self._reduce(left**2 * theta)
        diagonal[1:] += self._reduce(right**2 * theta)
        return diagonal, self._reduce(left * right * theta)

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


class NoBarrier:
    """Rows without variables of their own."""

    degree = 0.0
    #: Whether primal and dual steps must be equal.
    coupled = True
    #: Whether a Newton step solves the rows' equations only to first order.
    curved = False

    def share(self, cones: int) -> float:
        """Weight of a cone on the central path."""
        return 1.0 / max(1, cones)

    def gap(self) -> float:
        """Complementarity of the rows."""
        return 0.0

    def direct(self, dg: FloatArray) -> None:
        """Find the step of the rows' own variables."""

    def largest_steps(self) -> tuple[float, float]:
        """How far the primal and the dual ones can go."""
        return np.inf, np.inf

    def gap_after(self, primal: float, dual: float) -> float:
        """Complementarity after such steps."""
        return 0.0

    def move(self, primal: float, dual: float) -> None:
        """Take them."""


class QuadraticRows(NoBarrier):
    r"""Rows with a quadratic loss :math:`L(F_0) + \langle V_0, F - F_0 \rangle + \tfrac12 (F - F_0)^T Q (F - F_0)`.

    Parameters
    ----------
    hats : Hats
    F0, gradient : ndarray, shape (n, C)
    hessian : ndarray, shape (n, C) or (n, C, C)
        Of every row, weights included.
    """

    def __init__(self, hats: Hats, F0: FloatArray, gradient: FloatArray, hessian: FloatArray) -> None:
        self.hats = hats
        self.diagonal, self.off_diagonal = _gram_blocks(hats, hessian)
        product = hessian * F0 if hessian.ndim == 2 else np.einsum("nij,nj->ni", hessian, F0)
        self.constant = hats.sums(gradient - product)

    def residual(self, g: FloatArray) -> FloatArray:
        """Gradient of the loss at the values ``g``."""
        slope = self.constant + np.einsum("kij,kj->ki", self.diagonal, g)
        slope[:-1] += np.einsum("kij,kj->ki", self.off_diagonal, g[1:])
        slope[1:] += np.einsum("kji,kj->ki", self.off_diagonal, g[:-1])
        return slope

    def linearise(self, g: FloatArray, target: float, corrector: float) -> NewtonRows:
        """The rows' part of a Newton step."""
        return NewtonRows(self.diagonal, self.off_diagonal, -self.residual(g))


class SmoothRows(NoBarrier):
    """Rows of any smooth loss."""

    curved = True

    def __init__(self, hats: Hats, Y: FloatArray, w: FloatArray, loss: Loss) -> None:
        self.hats, self.Y, self.w, self.loss = hats, Y, w, loss
        self._blocks: tuple[FloatArray, FloatArray] | None = None

    def residual(self, g: FloatArray) -> FloatArray:
        """Gradient of the loss at the values ``g``."""
        return self.hats.sums(self.loss.gradient(self.hats.values(g), self.Y, self.w))

    def linearise(self, g: FloatArray, target: float, corrector: float) -> NewtonRows:
        """The rows' part of a Newton step; a corrector keeps the Hessian of its predictor."""
        if corrector == 0.0 or self._blocks is None:
            self._blocks = _gram_blocks(self.hats, hessians(self.loss, self.hats.values(g), self.Y, self.w))
            self._residual = self.residual(g)
        return NewtonRows(*self._blocks, -self._residual)


def hessians(loss: Loss, F: FloatArray, Y: FloatArray, w: FloatArray) -> FloatArray:
    """Hessians of the rows, ``(n, C)`` or, for a coupled loss, ``(n, C, C)``; flat rows get a little curvature."""
    floor = FLOOR * min(loss.lipschitz, 1.0)
    if loss.coupled:
        return w[:, None, None] * (loss.row_hessians(F, Y) + floor * np.eye(F.shape[1]))
    return w[:, None] * (loss.row_curvatures(F, Y) + floor)


def _gram_blocks(hats: Hats, hessian: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Diagonal and off-diagonal blocks of the Hessian in the values at the knots."""
    if hessian.ndim == 2:
        diagonal, off = hats.gram(hessian)
        return _as_blocks(diagonal), _as_blocks(off)
    n, C, _ = hessian.shape
    diagonal, off = hats.gram(hessian.reshape(n, C * C))
    return diagonal.reshape(-1, C, C), off.reshape(-1, C, C)


class BoxRows:
    r"""Rows of a loss :math:`\sup_{l \le v \le h} v (f - y) - \tfrac q2 v^2`, with a barrier for the box.

    With multipliers of the bounds the optimum has :math:`f - y = q v + \mu_h - \mu_l`, and the central path
    :math:`\mu_h (h - v) = \mu_l (v - l) = \mu`.

    Parameters
    ----------
    hats : Hats
    Y, w : ndarray
    box : DualBox
    settled : ndarray of bool, shape (n,), or None
        Rows that are taken to be far on one side: their v stays at the bound given by ``bounds``, which makes their
        loss linear.
    bounds : ndarray, shape (n, C), or None
    crowded : bool
        Whether many rows are likely to end up at the kink of their loss, as labels do on the plateaus of the spline.
    """

    curved = False

    def __init__(
        self,
        hats: Hats,
        Y: FloatArray,
        w: FloatArray,
        box: DualBox,
        settled: BoolArray | None = None,
        bounds: FloatArray | None = None,
        crowded: bool = False,
    ) -> None:
        K = len(hats.knots)
        self.hats, self.q = hats, box.curvature
        self.coupled, self._crowded = self.q > 0, crowded
        self._free = np.ones(len(Y), dtype=bool) if settled is None else ~settled
        self._all = np.zeros_like(Y) if bounds is None else np.where(self._free[:, None], 0.0, bounds)
        self._pull = _kernels.sums(self._all, w, hats.piece, hats.left, hats.right, K)
        self.Y, self.w = Y[self._free], w[self._free]
        self.lower, self.upper = box.lower[self._free], box.upper[self._free]
        self._place = hats.piece[self._free], hats.left[self._free], hats.right[self._free]
        below, above = np.isfinite(self.lower), np.isfinite(self.upper)
        low, high = np.where(below, self.lower, -1.0), np.where(above, self.upper, 1.0)
        self._v = np.where(below & ~above, low + 1.0, np.where(above & ~below, high - 1.0, 0.5 * (low + high)))
        # multipliers that fit the outputs zero, all of order one
        gap = -self.Y - self.q * self._v
        base = np.where(below & above, 1.0, np.maximum(1.0, np.abs(gap)))
        self.mu = np.stack([below * (base + np.maximum(-gap, 0.0)), above * (base + np.maximum(gap, 0.0))])
        self.step, self._state = np.zeros((3, *self.Y.shape)), np.zeros((6, *self.Y.shape))
        self.degree = float((self.w[:, None] * below).sum() + (self.w[:, None] * above).sum())

    @property
    def v(self) -> FloatArray:
        """Gradients of all rows, settled ones included, per unit of weight."""
        v = self._all.copy()
        v[self._free] = self._v
        return v

    def share(self, cones: int) -> float:
        """Weight of a cone on the central path: that of a row, or of all rows together if these are ``crowded``."""
        return 1.0 / max(1, cones) if self._crowded or not len(self.w) else float(self.w.mean())

    def gap(self) -> float:
        """Complementarity of the rows."""
        return self.gap_after(0.0, 0.0)

    def linearise(self, g: FloatArray, target: float, corrector: float) -> NewtonRows:
        """The rows' part of a Newton step towards complementarity ``target``, and so much of a corrector."""
        diagonal, off, rhs = _kernels.linearise(
            self._v,
            self.mu,
            self.lower,
            self.upper,
            self.q,
            self.Y,
            self.w,
            *self._place,
            g,
            target,
            corrector,
            self.step,
            self._state,
        )
        return NewtonRows(_as_blocks(diagonal), _as_blocks(off[:-1]), rhs - self._pull)

    def direct(self, dg: FloatArray) -> None:
        """Find the step of the rows' own variables."""
        self._longest = _kernels.direct(
            self._v,
            self.mu,
            self.lower,
            self.upper,
            *self._place,
            np.ascontiguousarray(dg),
            self._state,
            self.step,
        )

    def largest_steps(self) -> tuple[float, float]:
        """How far the primal and the dual ones can go."""
        return self._longest

    def gap_after(self, primal: float, dual: float) -> float:
        """Complementarity after such steps."""
        return _kernels.gap_after(self._v, self.mu, self.lower, self.upper, self.w, self.step, primal, dual)

    def move(self, primal: float, dual: float) -> None:
        """Take them."""
        self._v += dual * self.step[0]
        self.mu += primal * self.step[1:]

    def residual(self, g: FloatArray) -> FloatArray:
        """Gradient of the loss, as the multipliers have it."""
        return self._pull + _kernels.sums(self._v, self.w, *self._place, len(g))


#: Any kind of rows; made anew for every set of knots.
Rows: TypeAlias = QuadraticRows | SmoothRows | BoxRows


def _as_blocks(entries: FloatArray) -> FloatArray:
    """Diagonal matrices from their entries."""
    C = entries.shape[1]
    return entries[:, :, None] * np.eye(C)
