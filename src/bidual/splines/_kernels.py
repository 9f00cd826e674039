"""Loops over the rows of :class:`bidual.splines.rows.BoxRows`: one pass each, where arrays would take thirty."""

from __future__ import annotations

import numpy as np
from numba import njit

from bidual._util.jit import JIT
from bidual._util.typing import FloatArray, IntArray


@njit(**JIT)
def linearise(
    v: FloatArray,
    mu: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    q: float,
    Y: FloatArray,
    w: FloatArray,
    piece: IntArray,
    left: FloatArray,
    right: FloatArray,
    g: FloatArray,
    target: float,
    corrector: float,
    step: FloatArray,
    state: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Eliminate the rows from a Newton step: diagonal, off-diagonal and right-hand side in the values at the knots.

    ``mu`` and ``step`` hold the multipliers of the lower and upper bounds and the last step of (v, mu); ``state``
    receives theta, the residual and the slopes of the multipliers, for :func:`direct`.
    """
    n, C = v.shape
    K = len(g)
    diagonal, off, rhs = np.zeros((K, C)), np.zeros((K, C)), np.zeros((K, C))
    for i in range(n):
        j = piece[i]
        k = min(j + 1, K - 1)
        a, b = left[i], right[i]
        for c in range(C):
            value, low, high = v[i, c], 0.0, 0.0
            slope_low, slope_high = 0.0, 0.0
            if lower[i, c] > -np.inf:
                slack = value - lower[i, c]
                aim = target - corrector * step[1, i, c] * step[0, i, c]
                low, slope_low = aim / slack - mu[0, i, c], mu[0, i, c] / slack
            if upper[i, c] < np.inf:
                slack = upper[i, c] - value
                aim = target + corrector * step[2, i, c] * step[0, i, c]
                high, slope_high = aim / slack - mu[1, i, c], mu[1, i, c] / slack
            theta = 1.0 / (q + slope_low + slope_high)
            residual = a * g[j, c] + b * g[k, c] - Y[i, c] - q * value - mu[1, i, c] + mu[0, i, c]
            pull = residual - high + low
            state[0, i, c], state[1, i, c] = theta, pull
            state[2, i, c], state[3, i, c] = low, high
            state[4, i, c], state[5, i, c] = slope_low, slope_high
            weight = w[i] * theta
            diagonal[j, c] += weight * a * a
            diagonal[k, c] += weight * b * b
            off[j, c] += weight * a * b
            force = w[i] * (value + theta * pull)
            rhs[j, c] -= a * force
            rhs[k, c] -= b * force
    return diagonal, off, rhs


@njit(**JIT)
def direct(
    v: FloatArray,
    mu: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    piece: IntArray,
    left: FloatArray,
    right: FloatArray,
    dg: FloatArray,
    state: FloatArray,
    step: FloatArray,
) -> tuple[float, float]:
    """Find the step of (v, mu) that goes with ``dg``; returns how far mu and v can go."""
    n, C = v.shape
    K = len(dg)
    primal, dual = 0.0, 0.0  # largest relative decreases
    for i in range(n):
        j = piece[i]
        k = min(j + 1, K - 1)
        for c in range(C):
            dv = state[0, i, c] * (left[i] * dg[j, c] + right[i] * dg[k, c] + state[1, i, c])
            d_low = state[2, i, c] - state[4, i, c] * dv
            d_high = state[3, i, c] + state[5, i, c] * dv
            step[0, i, c], step[1, i, c], step[2, i, c] = dv, d_low, d_high
            if lower[i, c] > -np.inf:
                dual = max(dual, -dv / (v[i, c] - lower[i, c]))
                primal = max(primal, -d_low / mu[0, i, c])
            if upper[i, c] < np.inf:
                dual = max(dual, dv / (upper[i, c] - v[i, c]))
                primal = max(primal, -d_high / mu[1, i, c])
    return 1.0 / primal if primal > 0 else np.inf, 1.0 / dual if dual > 0 else np.inf


@njit(**JIT)
def gap_after(
    v: FloatArray,
    mu: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    w: FloatArray,
    step: FloatArray,
    primal: float,
    dual: float,
) -> float:
    """Complementarity after a step of these sizes in mu and v."""
    n, C = v.shape
    total = 0.0
    for i in range(n):
        for c in range(C):
            value = v[i, c] + dual * step[0, i, c]
            if lower[i, c] > -np.inf:
                total += w[i] * (value - lower[i, c]) * (mu[0, i, c] + primal * step[1, i, c])
            if upper[i, c] < np.inf:
                total += w[i] * (upper[i, c] - value) * (mu[1, i, c] + primal * step[2, i, c])
    return total


@njit(**JIT)
def sums(v: FloatArray, w: FloatArray, piece: IntArray, left: FloatArray, right: FloatArray, K: int) -> FloatArray:
    """Weighted sums of the rows' ``v`` at the knots, ``(K, C)``."""
    n, C = v.shape
    total = np.zeros((K, C))
    for i in range(n):
        j = piece[i]
        k = min(j + 1, K - 1)
        for c in range(C):
            total[j, c] += w[i] * left[i] * v[i, c]
            total[k, c] += w[i] * right[i] * v[i, c]
    return total
