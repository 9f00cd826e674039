"""Compiled loops of the certificates. Imported only when first used: numba takes a moment to load."""

from __future__ import annotations

import numpy as np
from numba import njit

from bidual._util.jit import JIT
from bidual._util.rounding import UNIT
from bidual._util.typing import Array


@njit(**JIT)
def tighten_cones(
    gradients: Array,
    patterns: Array,
    indptr: Array,
    normals: Array,
    threshold: float,
    sweeps: int,
    bounds: Array,
    start: int,
    stop: int,
) -> None:
    r"""Lower ``bounds[b]`` towards :math:`\min_{\lambda \ge 0} \|g_b + \sum_k \lambda_k n_k\|` by coordinate descent.

    For the blocks b from ``start`` to ``stop``; ``normals[indptr[p]:indptr[p+1]]`` are the inward unit normals of
    pattern ``p = patterns[b]``. A block is left as soon as its bound is below ``threshold``. Every bound is evaluated
    from the multipliers themselves.
    """
    r = gradients.shape[1]
    for b in range(start, stop):
        first, last = indptr[patterns[b]], indptr[patterns[b] + 1]
        multipliers = np.zeros(last - first)
        point = gradients[b].copy()
        for sweep in range(sweeps):
            moved = 0.0
            for k in range(last - first):
                slope = 0.0
                for i in range(r):
                    slope += normals[first + k, i] * point[i]
                new = max(0.0, multipliers[k] - slope)
                change = new - multipliers[k]
                if change != 0.0:
                    multipliers[k] = new
                    moved = max(moved, abs(change))
                    for i in range(r):
                        point[i] += change * normals[first + k, i]
            norm = 0.0
            for i in range(r):
                norm += point[i] * point[i]
            norm = np.sqrt(norm)
            if norm < threshold or moved <= 1e-14 * norm or sweep == sweeps - 1:
                break
        # Evaluate afresh, with the error of doing so: the running point has collected rounding errors.
        norm, size, total = 0.0, 0.0, 0.0
        for i in range(r):
            value = gradients[b, i]
            size += value * value
            for k in range(last - first):
                value += multipliers[k] * normals[first + k, i]
            norm += value * value
        for k in range(last - first):
            total += multipliers[k]
        few = (last - first + r + 16) * UNIT
        bounds[b] = min(bounds[b], np.sqrt(norm) + few * (np.sqrt(size) + total))
