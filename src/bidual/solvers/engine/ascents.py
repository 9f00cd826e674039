r"""Gradient ascents in single precision on :math:`\|G^T (X u)_+\|` over unit vectors u, from many starts at once."""

from __future__ import annotations

import numpy as np

from bidual._util.typing import Array
from bidual._util.watch import Watch
from bidual.solvers.engine import _kernels

#: With several outputs: full steps in the beginning; then steps of such a length, first and last, or first near a
#: maximum, with momentum; half of the starts are given up after such a share of them. They end in kinks, where the
#: high maxima are and which full steps jump over: as good as polishing in a thirtieth of its time.
_FULL_STEPS, _LENGTHS, _NEAR, _MOMENTUM, _HALF = 6, (0.3, 0.003), 0.03, 0.9, 1 / 3


def climb_one(X: Array, G: Array, U: Array, signs: Array, values: Array, steps: int) -> None:
    """One output ``G (n, 1)``: full steps, in place; ``signs`` of the outputs are kept."""
    g = np.ascontiguousarray(G[:, 0])
    for step in range(steps + 1):
        Z = X @ U.T
        _kernels.relu_back(Z, signs, g, 0, len(Z))
        S = Z.T @ X
        values[:] = np.einsum("kr,kr->k", S, U)
        if step < steps:
            _full_step(U, S)


def climb_several(X: Array, G: Array, U: Array, A: Array, values: Array, steps: int, near: bool, watch: Watch) -> None:
    """Several outputs, whose directions ``A`` follow: each start ends, in place, at the best point on its way.

    Starts that are ``near`` maxima stay near. ``watch`` is that of whoever waits for the threads.
    """
    full, first = (0, _NEAR) if near else (_FULL_STEPS, _LENGTHS[0])
    shrink = (_LENGTHS[1] / first) ** (1.0 / max(steps - full, 1))
    going, u, drift = np.arange(len(U)), U.copy(), np.zeros_like(U)
    for step in range(steps + 1):
        watch.check()
        Z = X @ u.T
        H = np.maximum(Z, 0).T @ G
        value = np.linalg.norm(H, axis=1)
        H /= np.maximum(value, 1e-30)[:, None]
        better = value > values[going]
        there = going[better]
        values[there], U[there], A[there] = value[better], u[better], H[better]
        if step == steps:
            break
        S = ((Z > 0) * (G @ H.T)).T @ X
        if step < full:
            _full_step(u, S)
            continue
        drift *= _MOMENTUM  # of the slope along the sphere, whose radial part is the value
        drift += (1.0 - _MOMENTUM) * (S / np.maximum(value, 1e-30)[:, None] - u)
        length = np.float32(first * shrink ** (step - full))
        u += drift * (length / np.maximum(np.linalg.norm(drift, axis=1, keepdims=True), 1e-30))
        u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 1e-30)
        if step == int(_HALF * steps):
            kept = np.sort(np.argsort(-values[going], kind="stable")[: (len(going) + 1) // 2])
            going, u, drift = going[kept], u[kept], drift[kept]


def _full_step(U: Array, S: Array) -> None:
    U += S / np.maximum(np.linalg.norm(S, axis=1, keepdims=True), 1e-30)
    U /= np.maximum(np.linalg.norm(U, axis=1, keepdims=True), 1e-30)
