r"""An interior point method for splines with given knots.

A spline with knots :math:`t_1 < \dots < t_K`, values :math:`g_j` and right- and left-facing ramps is a chain: with
:math:`H_j = t_{j+1} - t_j` and the slopes :math:`A_j, E_j` that the two kinds of ramps have between the knots,

.. math:: \min_{g, A, E} \; L(g) + \beta \sum_j \|A_j - A_{j-1}\| + \beta \sum_j \|E_{j+1} - E_j\|
          \quad \text{s.t.} \quad g_{j+1} - g_j = H_j (A_j + E_j), \quad A_0 = 0, \; E_K = 0.

:math:`A_j - A_{j-1}` is the output weight of :math:`(x - t_j)_+`, :math:`E_{j+1} - E_j` that of
:math:`(t_{j+1} - x)_+`; their multipliers u and z are the dual constraints of these ramps. Nothing is divided by the
spacings, so that knots may be close. A Newton step is one banded linear system in the unknowns
:math:`(g_j, u_j, A_j, s_j, E_j, z_{j+1})`, piece by piece: O(K) work. The norms are second-order cones with
Nesterov-Todd scaling, steps are Mehrotra's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from bidual._typing import FloatArray
from bidual.splines.rows import NewtonRows, Rows

#: Unknowns of a piece, in the order of the band.
G, U, A, S, E, Z = range(6)
#: Fraction of the way to the boundary that a step may go.
_DAMPING = 0.995
#: Weight of all ramps together at the start, in natural units.
START = 1000.0
#: Growth of the complementarity that means divergence: rows taken to be linear can make a program unbounded.
_DIVERGED = 1e6


@dataclass(frozen=True)
class Chain:
    """A point of the program.

    Attributes
    ----------
    g : ndarray, shape (K, C)
        Values at the knots.
    right, left : ndarray, shape (K - 1, C)
        Output weights of the ramps from the first K - 1 knots to the right, and from the last K - 1 to the left.
    u, z : ndarray, shape (K - 1, C)
        Their multipliers.
    s : ndarray, shape (K - 1, C)
        Multipliers of the pieces: sums of the loss's gradient over all rows on their left.
    gap : float
        Complementarity that is left.
    solved : bool
        Whether the tolerance was met.
    iterations : int
    """

    g: FloatArray
    right: FloatArray
    left: FloatArray
    u: FloatArray
    z: FloatArray
    s: FloatArray
    gap: float
    solved: bool
    iterations: int


class Cones:
    r"""Pairs :math:`x = (\tau, a)` and :math:`y = (\beta, -u)` of second-order cones, Nesterov-Todd scaled."""

    def __init__(self, count: int, C: int, beta: float, size: float) -> None:
        self.tau = np.full(count, size)
        self.beta = beta
        self.a, self.u = np.zeros((count, C)), np.zeros((count, C))

    def gap(self) -> float:
        """Complementarity."""
        return float(self.beta * self.tau.sum() - (self.a * self.u).sum())

    def scale(self) -> FloatArray:
        """Update the scaling; returns the blocks ``(count, C, C)`` that take du to da."""
        x0, x1, y0, y1 = self.tau, self.a, np.full(len(self.tau), self.beta), -self.u
        dx, dy = _determinant(x0, x1), _determinant(y0, y1)
        rx, ry = np.sqrt(dx), np.sqrt(dy)
        x0, x1, y0, y1 = x0 / rx, x1 / rx[:, None], y0 / ry, y1 / ry[:, None]
        gamma = np.sqrt(0.5 * (1.0 + x0 * y0 + (x1 * y1).sum(axis=1)))
        self.w0, self.w1 = (x0 + y0) / (2 * gamma), (x1 - y1) / (2 * gamma)[:, None]
        self.eta = np.sqrt(rx / ry)
        self.lam = self._apply(np.full(len(self.tau), self.beta), -self.u)
        eye = np.eye(self.a.shape[1])
        return (self.eta**2)[:, None, None] * (2 * self.w1[:, :, None] * self.w1[:, None, :] + eye)

    def _apply(self, y0: FloatArray, y1: FloatArray, inverse: bool = False) -> tuple[FloatArray, FloatArray]:
        """The scaling W, or its inverse, times vectors."""
        w1 = -self.w1 if inverse else self.w1
        eta = 1.0 / self.eta if inverse else self.eta
        inner = (w1 * y1).sum(axis=1)
        head = eta * (self.w0 * y0 + inner)
        tail = eta[:, None] * (y1 + w1 * (y0 + inner / (1.0 + self.w0))[:, None])
        return head, tail

    def linearise(self, target: float, corrector: float) -> FloatArray:
        """Right-hand side of ``da = M du + rhs``."""
        l0, l1 = self.lam
        d0 = target - (l0**2 + (l1**2).sum(axis=1))
        d1 = -2 * l0[:, None] * l1
        if corrector:
            p0, p1 = self._apply(self.d_tau, self.da, inverse=True)
            q0, q1 = self._apply(np.zeros_like(self.d_tau), -self.du)
            d0 = d0 - corrector * (p0 * q0 + (p1 * q1).sum(axis=1))
            d1 = d1 - corrector * (p0[:, None] * q1 + q0[:, None] * p1)
        # divide by lambda in the Jordan algebra, then scale back
        determinant = _determinant(l0, l1)
        inner = (l1 * d1).sum(axis=1)
        e0 = (l0 * d0 - inner) / determinant
        e1 = (d1 - e0[:, None] * l1) / l0[:, None]
        self._r0, r1 = self._apply(e0, e1)
        return r1

    def direct(self, da: FloatArray, du: FloatArray) -> None:
        """Complete the step."""
        self.da, self.du = da, du
        self.d_tau = self._r0 + 2 * self.eta**2 * self.w0 * (self.w1 * du).sum(axis=1)

    def largest_steps(self) -> tuple[float, float]:
        """How far the primal and the dual step can go."""
        beta = np.full(len(self.tau), self.beta)
        primal = _cone_step(self.tau, self.a, self.d_tau, self.da)
        return primal, _cone_step(beta, self.u, np.zeros_like(beta), self.du)

    def gap_after(self, primal: float, dual: float) -> float:
        """Complementarity after such steps."""
        a, u = self.a + primal * self.da, self.u + dual * self.du
        return float(self.beta * (self.tau + primal * self.d_tau).sum() - (a * u).sum())

    def move(self, primal: float, dual: float) -> None:
        """Take them."""
        self.tau, self.u = self.tau + primal * self.d_tau, self.u + dual * self.du
        self.a = self.a + primal * self.da


class Band:
    """The Newton matrix of a chain: what does not change, and how to add the rest and solve."""

    def __init__(self, spacing: FloatArray, C: int, fixed: bool) -> None:
        self.pieces, self.C, self.fixed = len(spacing), C, fixed
        self.width = 7 * C - 1
        self.size = (6 * self.pieces + 1) * C
        self.static = np.zeros((3 * self.width + 1, self.size), order="F")
        j = np.arange(self.pieces)
        one = np.ones(self.pieces)
        put = self._pairs
        put(self.static, (U, j), (A, j), one)
        put(self.static, (U, j[1:]), (A, j[:-1]), -one[1:])
        put(self.static, (A, j), (S, j), -spacing)
        put(self.static, (E, j), (S, j), -spacing)
        put(self.static, (E, j), (Z, j), -one)
        put(self.static, (E, j[1:]), (Z, j[:-1]), one[1:])
        if fixed:  # the values are given: their own equations say so
            self._diagonal(self.static, (S, j), (G, j), -one)
            self._diagonal(self.static, (S, j), (G, j + 1), one)
            self._diagonal(self.static, (G, np.arange(self.pieces + 1)), (G, np.arange(self.pieces + 1)), np.ones(1))
        else:
            put(self.static, (S, j), (G, j), -one)
            put(self.static, (S, j), (G, j + 1), one)

    def _diagonal(
        self, band: FloatArray, row: tuple[int, FloatArray], column: tuple[int, FloatArray], x: FloatArray
    ) -> None:
        for c in range(self.C):
            i, k = (6 * row[1] + row[0]) * self.C + c, (6 * column[1] + column[0]) * self.C + c
            band[2 * self.width + i - k, k] = x

    def _pairs(
        self, band: FloatArray, row: tuple[int, FloatArray], column: tuple[int, FloatArray], x: FloatArray
    ) -> None:
        self._diagonal(band, row, column, x)
        self._diagonal(band, column, row, x)

    def _blocks(
        self, band: FloatArray, row: tuple[int, FloatArray], column: tuple[int, FloatArray], x: FloatArray
    ) -> None:
        for c in range(self.C):
            for e in range(self.C):
                i, k = (6 * row[1] + row[0]) * self.C + c, (6 * column[1] + column[0]) * self.C + e
                band[2 * self.width + i - k, k] = x[:, c, e]

    def factorise(self, rows: NewtonRows, M_right: FloatArray, M_left: FloatArray) -> None:
        """Add what changes from step to step, and factorise."""
        band = self.static.copy(order="F")
        j, k = np.arange(self.pieces), np.arange(self.pieces + 1)
        if not self.fixed:
            self._blocks(band, (G, k), (G, k), rows.diagonal)
            self._blocks(band, (G, j), (G, j + 1), rows.off_diagonal)
            self._blocks(band, (G, j + 1), (G, j), rows.off_diagonal.swapaxes(1, 2))
        self._blocks(band, (U, j), (U, j), -M_right)
        self._blocks(band, (Z, j), (Z, j), -M_left)
        self.lu, self.pivots, info = lapack.dgbtrf(band, self.width, self.width, overwrite_ab=1)
        if info != 0:
            raise np.linalg.LinAlgError("the Newton matrix is singular")

    def solve(self, parts: list[FloatArray]) -> list[FloatArray]:
        """The step from the right-hand sides of the six kinds of equations, in the order of the unknowns."""
        rhs = np.zeros((self.pieces + 1, 6, self.C))
        rhs[:, G] = parts[G]
        for kind in (U, A, S, E, Z):
            rhs[:-1, kind] = parts[kind]
        flat = rhs.reshape(-1)[: self.size]
        x, info = lapack.dgbtrs(self.lu, self.width, self.width, flat, self.pivots)
        if info != 0 or not np.isfinite(x).all():
            raise np.linalg.LinAlgError("the Newton step is not finite")
        full = np.zeros((self.pieces + 1) * 6 * self.C)
        full[: self.size] = x
        shaped = full.reshape(self.pieces + 1, 6, self.C)
        return [shaped[:, G], *(shaped[:-1, kind] for kind in (U, A, S, E, Z))]


def solve_chain(
    rows: Rows,
    beta: float,
    *,
    start: FloatArray,
    fixed: bool = False,
    size: float | None = None,
    tol: float,
    floor: float,
    max_iter: int = 100,
    stop: Callable[[], bool] = lambda: False,
) -> Chain:
    """Minimise loss plus penalty over splines with the knots of ``rows``.

    Parameters
    ----------
    rows : QuadraticRows or BoxRows
        The loss, at its starting point.
    beta : float
    start : ndarray, shape (K, C)
        Values at the knots to start from; the final ones if ``fixed``.
    fixed : bool
        Whether only the ramps are to be found.
    size : float or None
        Weight of the ramps to start from, if known.
    tol : float
        Complementarity to reach, relative to the penalty,
    floor : float
        plus this.
    """
    H = rows.hats.spacing[:, None]
    pieces, C = len(H), start.shape[1]
    band = Band(H[:, 0], C, fixed)
    g = start.copy()
    right_slope, left_slope, s = np.zeros((pieces, C)), np.zeros((pieces, C)), np.zeros((pieces, C))
    share = rows.share(2 * pieces)
    size = START / max(1, 2 * pieces) if size is None else size
    right, left = (Cones(pieces, C, beta, size) for _ in range(2))
    parts = (rows, right, left)
    if fixed and pieces:  # start from ramps that fit
        right_slope = left_slope = 0.5 * np.diff(g, axis=0) / H
        right.a, left.a = right_slope - _previous(right_slope), _next(left_slope) - left_slope
        for cones in (right, left):
            weight = np.linalg.norm(cones.a, axis=1)
            cones.tau = 2.0 * weight + weight.mean() + size
    degree = rows.degree + 2 * pieces * share
    solved, iteration, first = False, 0, np.inf
    for iteration in range(1, max_iter + 1):
        gap = rows.gap() + right.gap() + left.gap()
        r_s = np.diff(g, axis=0) - H * (right_slope + left_slope)
        r_A = right.u - _next(right.u) - H * s
        r_E = _previous(left.u) - left.u - H * s
        balance = _previous_row(s) - _next_row(s)
        r_g = rows.residual(g) + balance
        allowed = tol * beta * (right.tau.sum() + left.tau.sum()) + floor
        # residuals in units of the objective: slopes cost beta, gradients act over the size of the values
        error = (
            beta * np.abs(r_s).sum()
            + np.abs(np.concatenate([r_A, r_E])).max(initial=0.0) * (right.tau.sum() + left.tau.sum()) / max(pieces, 1)
            + (0.0 if fixed else np.abs(r_g).sum())
        )
        if gap <= allowed and error <= allowed:
            solved = True
            break
        first = min(first, gap)
        if stop() or not gap <= _DIVERGED * max(first, beta):
            break
        mu = gap / degree if degree else 0.0  # without cones these are plain Newton steps
        try:
            M_right, M_left = right.scale(), left.scale()
            target, corrector = 0.0, 0.0
            for predict in (True, False):
                linear = rows.linearise(g, target, corrector)
                if predict:
                    band.factorise(linear, M_right, M_left)
                step_g = np.zeros_like(g) if fixed else linear.rhs - balance
                d_right = right.linearise(target * share, corrector)
                d_left = left.linearise(target * share, corrector)
                dg, du, dA, ds, dE, dz = band.solve([step_g, d_right, -r_A, -r_s, -r_E, d_left])
                rows.direct(dg)
                right.direct(dA - _previous(dA), du)
                left.direct(_next(dE) - dE, dz)
                longest = np.min([part.largest_steps() for part in parts], axis=0)
                # a loss with curvature ties primal and dual variables together, others do not
                primal, dual = np.minimum(1.0, _DAMPING * (longest.min() if rows.coupled else longest)) * np.ones(2)
                if predict:
                    after = sum(part.gap_after(primal, dual) for part in parts)
                    centring = max(after / gap, 1e-8) ** 2 if gap > 0 else 0.0
                    if rows.curved and gap > 0:  # complementarity must not run ahead of the loss
                        centring = max(centring, 0.1 * error / gap)
                    target = mu * min(1.0, centring)
                    corrector = 1.0
        except np.linalg.LinAlgError:
            break
        if rows.curved:
            primal = dual = _shortened(rows, g, s, dg, ds, primal, gap)
        if not min(primal, dual) > 1e-10:
            break
        for part in parts:
            part.move(primal, dual)
        g, s = g + primal * dg, s + dual * ds
        right_slope, left_slope = right_slope + primal * dA, left_slope + primal * dE
        # the weights of the ramps are differences of the slopes: never let them drift apart
        right.a, left.a = right_slope - _previous(right_slope), _next(left_slope) - left_slope
    return Chain(g, right.a, left.a, right.u, left.u, s, rows.gap() + right.gap() + left.gap(), solved, iteration)


def _shortened(
    rows: Rows, g: FloatArray, s: FloatArray, dg: FloatArray, ds: FloatArray, step: float, gap: float
) -> float:
    """A step after which the equations of a curved loss are not much worse than before."""

    def error(t: float) -> float:
        moved = s + t * ds
        return float(np.abs(rows.residual(g + t * dg) + _previous_row(moved) - _next_row(moved)).sum())

    allowed = 1.1 * error(0.0) + gap
    for _ in range(30):
        if error(step) <= allowed:
            return step
        step *= 0.5
    return 0.0


def _determinant(x0: FloatArray, x1: FloatArray) -> FloatArray:
    size = np.linalg.norm(x1, axis=1)
    det = (x0 - size) * (x0 + size)
    if not (det > 0).all():
        raise np.linalg.LinAlgError("a point has left its cone")
    return det


def _cone_step(x0: FloatArray, x1: FloatArray, d0: FloatArray, d1: FloatArray) -> float:
    """The largest step for which ``(x0, x1) + step (d0, d1)`` stays in the second-order cone."""
    size = np.linalg.norm(x1, axis=1)
    c = (x0 - size) * (x0 + size)
    b = x0 * d0 - (x1 * d1).sum(axis=1)
    a = d0**2 - (d1**2).sum(axis=1)
    # smallest positive root of a t^2 + 2 b t + c, with c > 0
    root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
    divisor = -b + np.where(b**2 - a * c >= 0, root, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(divisor > 0, c / divisor, np.inf)
    return float(steps.min(initial=np.inf))


def _previous(x: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((1, x.shape[1])), x])[: len(x)]


def _next(x: FloatArray) -> FloatArray:
    return np.concatenate([x, np.zeros((1, x.shape[1]))])[1:]


def _previous_row(x: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((1, x.shape[1])), x])


def _next_row(x: FloatArray) -> FloatArray:
    return np.concatenate([x, np.zeros((1, x.shape[1]))])
