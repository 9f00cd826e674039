r"""Compiled loops: what is neither a matrix product nor cheap in numpy.

Everything here runs without the GIL on independent pieces of work, so that callers may spread the pieces over
threads and get the same numbers whatever the number of threads.
"""

from __future__ import annotations

from numba import njit

from bidual._util.cores import over_pieces as over_pieces
from bidual._util.jit import JIT
from bidual._util.typing import Array


@njit(**JIT)
def relu_back(Z: Array, alpha: Array, g: Array, start: int, stop: int) -> None:
    r"""``Z_ik <- g_i alpha_k 1[Z_ik > 0]``, in place, for rows ``start..stop``."""
    m = Z.shape[1]
    for i in range(start, stop):
        gi = g[i]
        for k in range(m):
            Z[i, k] = gi * alpha[k] if Z[i, k] > 0 else Z.dtype.type(0)


@njit(**JIT)
def smooth_relu(Z: Array, signs: Array, delta: Array, D: Array, out: Array, start: int, stop: int) -> None:
    r"""Slopes ``D_ik = s_k h'(Z_ik)`` and sums ``out[i] = sum_k s_k h(Z_ik)`` of the smoothed ReLU.

    :math:`h(z) = (z + \delta)^2 / 4\delta` for :math:`|z| < \delta`, the ReLU elsewhere.
    """
    m = Z.shape[1]
    zero, half, one = Z.dtype.type(0), Z.dtype.type(0.5), Z.dtype.type(1)
    for i in range(start, stop):
        total = zero
        for k in range(m):
            z = Z[i, k]
            slope = min(max(half * (z / delta[k] + one), zero), one)
            total += signs[k] * (z if slope >= one else delta[k] * slope * slope)
            D[i, k] = signs[k] * slope
        out[i] = total


@njit(**JIT)
def curvatures(D: Array, g: Array, c: Array, delta: Array, E: Array, K: Array, start: int, stop: int) -> None:
    r"""Weights of the row outer products in the Hessian blocks: ``E = D^2 c`` (Gauss-Newton), ``K`` = convex kinks."""
    m = D.shape[1]
    zero, half, one = D.dtype.type(0), D.dtype.type(0.5), D.dtype.type(1)
    for i in range(start, stop):
        for k in range(m):
            d = D[i, k]
            E[i, k] = d * d * c[i]
            pull = g[i] if d > 0 else -g[i]
            inside = d != zero and abs(d) < one
            K[i, k] = half * pull / delta[k] if inside and pull > 0 else zero


@njit(**JIT)
def soften(Z: Array, delta: Array, D: Array, start: int, stop: int) -> None:
    """Smoothed activations in the place of ``Z``, and their slopes ``D``, for rows ``start..stop``."""
    zero, half, one = Z.dtype.type(0), Z.dtype.type(0.5), Z.dtype.type(1)
    for i in range(start, stop):
        for k in range(Z.shape[1]):
            slope = min(max(half * (Z[i, k] / delta[k] + one), zero), one)
            if slope < one:
                Z[i, k] = delta[k] * slope * slope
            D[i, k] = slope


@njit(**JIT)
def soften_back(back: Array, D: Array, widths: Array) -> None:
    r"""``back <- back D`` for slopes D, and ``widths[k] = sum_i back_ik D_ik (1 - D_ik)``, the slope in the width."""
    for k in range(len(widths)):
        widths[k] = 0
    for i in range(len(back)):
        for k in range(len(widths)):
            pulled = back[i, k] * D[i, k]
            widths[k] += pulled * (D.dtype.type(1) - D[i, k])
            back[i, k] = pulled
