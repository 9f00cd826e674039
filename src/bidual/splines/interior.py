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

from bidual._util.typing import FloatArray
from bidual.splines.band import Band
from bidual.splines.cones import Cones
from bidual.splines.rows import Rows

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
            norms = np.linalg.norm(cones.a, axis=1)
            cones.tau = 2.0 * norms + norms.mean() + size
    degree = rows.degree + 2 * pieces * share
    solved, iterations, first = False, 0, np.inf
    while iterations < max_iter:
        iterations += 1
        gap = rows.gap() + right.gap() + left.gap()
        r_s = np.diff(g, axis=0) - H * (right_slope + left_slope)
        # the weights of the ramps are differences of the slopes, which rounding must not spoil
        r_right = right_slope - _previous(right_slope) - right.a
        r_left = _next(left_slope) - left_slope - left.a
        r_A = right.u - _next(right.u) - H * s
        r_E = _previous(left.u) - left.u - H * s
        balance = _previous_row(s) - _next_row(s)
        r_g = rows.residual(g) + balance
        weight = float(right.tau.sum() + left.tau.sum())
        allowed = tol * beta * weight + floor
        # residuals in units of the objective: values matter as much as the gradients, slopes cost beta, and gradients
        # sum up to what the ramps see
        seen = np.abs(r_A).sum() + np.abs(r_E).sum() + (0.0 if fixed else np.abs(r_g).sum())
        bent = beta * (np.abs(r_right).sum() + np.abs(r_left).sum())
        error = np.abs(s).max(initial=beta) * np.abs(r_s).sum() + bent + max(1.0, weight) * seen
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
                dg, du, dA, ds, dE, dz = band.solve([step_g, d_right - r_right, -r_A, -r_s, -r_E, d_left - r_left])
                rows.direct(dg)
                right.direct(dA - _previous(dA) + r_right, du)
                left.direct(_next(dE) - dE + r_left, dz)
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
    return Chain(g, right.a, left.a, right.u, left.u, s, rows.gap() + right.gap() + left.gap(), solved, iterations)


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


def _previous(x: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((1, x.shape[1])), x])[: len(x)]


def _next(x: FloatArray) -> FloatArray:
    return np.concatenate([x, np.zeros((1, x.shape[1]))])[1:]


def _previous_row(x: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((1, x.shape[1])), x])


def _next_row(x: FloatArray) -> FloatArray:
    return np.concatenate([x, np.zeros((1, x.shape[1]))])
