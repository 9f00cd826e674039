r"""Minimum-norm interpolation: the values are given, and only the ramps are to be chosen.

For slopes :math:`d_1, d_2, \dots` between the data points and :math:`\delta_k = d_k - d_{k-1}` the dual is

.. math:: \max_{m, u} \; m^T d_1 + \sum_k u_k^T \delta_k \quad \text{s.t.} \quad \|m\| \le 1, \;
          \|u_k\| \le 1, \; \|u_k - m\| \le 1 :

with one output the formula of :func:`bidual.splines.problem.spline_norm`, with several a program for
:mod:`bidual.splines.interior`.
"""

from __future__ import annotations

import numpy as np

from bidual._util.typing import FloatArray
from bidual.bounds import Bound
from bidual.solvers.base import Options
from bidual.solvers.run import Log, Status
from bidual.splines.generation import Generated, Spline
from bidual.splines.interior import Chain, solve_chain
from bidual.splines.problem import KINKS, SplineProblem, spline_norm
from bidual.splines.rows import Hats, QuadraticRows

_EPS = float(np.finfo(float).eps)


def exact_fit(problem: SplineProblem, options: Options) -> Generated:
    """The network of smallest penalty through all data (their penalty has weight ``problem.beta``)."""
    log = Log(options)
    hats = Hats(problem.x, problem.nodes)
    g = problem.Y[problem.nodes]
    slopes = np.diff(g, axis=0) / hats.spacing[:, None]
    delta = np.diff(slopes, axis=0)
    pieces, C = slopes.shape
    right, left = np.zeros((pieces, C)), np.zeros((pieces, C))
    u, z = np.zeros((pieces, C)), np.zeros((pieces, C))
    log.n_iter, log.status = 1, Status.FORMULA
    if pieces:
        right[0], right[1:] = slopes[0], delta
    if C == 1:
        least = spline_norm(slopes[:, 0])
        u = _multipliers(slopes, delta)
    else:
        size = max(float(np.abs(slopes).max(initial=0.0)), np.finfo(float).tiny)
        zero = np.zeros_like(problem.Y)
        rows = QuadraticRows(hats, zero, zero, zero)
        chain = solve_chain(
            rows, 1.0, start=g / size, fixed=True, tol=0.05 * min(options.tol, 1e-6), floor=np.finfo(float).tiny
        )
        left = chain.left * size
        # the ramps must add up to the slopes exactly
        if pieces:
            right[0], right[1:] = slopes[0] + left.sum(axis=0), delta - left[:-1]
        u, z, log.n_iter = chain.u, chain.z, chain.iterations
        log.status = Status.CONVERGED if chain.solved else Status.STALLED
        least = _bound(chain, slopes, delta)
    rounding = (64 + 4 * len(g)) * _EPS * (np.linalg.norm(slopes, axis=1).sum() if C > 1 else least)
    # every slope counts twice at most, and is as uncertain as the distance of its nodes
    away = problem.away[problem.nodes]
    rounding += 4.0 * float(np.linalg.norm(slopes, axis=1) @ ((away[1:] + away[:-1]) / hats.spacing))
    chain = Chain(g, right, left, u, z, np.zeros_like(u), 0.0, True, log.n_iter)
    penalty = float(np.linalg.norm(right, axis=1).sum() + np.linalg.norm(left, axis=1).sum())
    spline = Spline(np.arange(len(g)), chain, problem.Y, problem.beta * penalty, np.zeros_like(problem.Y))
    V = problem.beta * _dual_point(problem, u, hats.spacing)
    bound = Bound(problem.beta * max(0.0, least - rounding), V, problem.beta, problem.beta, KINKS)
    log.write(spline.objective, bound.value, pieces)
    return Generated(spline, bound, log.history, log.n_iter, log.status)


def _multipliers(slopes: FloatArray, delta: FloatArray) -> FloatArray:
    """The best m (in front) and u of one output: the dual objective is concave in m, with corners at -1, 0 and 1."""

    def best(m: float) -> FloatArray:
        return np.concatenate([[[m]], np.where(delta > 0, min(1.0, m + 1.0), max(-1.0, m - 1.0))])

    steps = np.concatenate([slopes[:1], delta])
    if not len(steps):
        return steps
    return max(map(best, (-1.0, 0.0, 1.0)), key=lambda u: float((u * steps).sum()))


def _dual_point(problem: SplineProblem, u: FloatArray, spacing: FloatArray) -> FloatArray:
    r"""V with :math:`\sum_i v_i (x_i - t)_+` equal to u at the nodes t, zero at the last one: second differences."""
    V = np.zeros_like(problem.Y)
    steps = np.diff(np.concatenate([u, np.zeros((1, u.shape[1]))]), axis=0)[: len(spacing)] / spacing[:, None]
    zero = np.zeros((1, u.shape[1]))
    V[problem.nodes] = np.diff(np.concatenate([zero, steps, zero]), axis=0)
    return V


def _bound(chain: Chain, slopes: np.ndarray, delta: np.ndarray) -> float:
    """The dual value of the multipliers, made feasible."""
    if not len(slopes):
        return 0.0
    m, u = chain.u[0], chain.u[1:]
    largest = max(
        float(np.linalg.norm(m)),
        float(np.linalg.norm(u, axis=1).max(initial=0.0)),
        float(np.linalg.norm(u - m, axis=1).max(initial=0.0)),
    )
    value = float(m @ slopes[0] + (u * delta).sum())
    return value / max(1.0, largest)
