r"""Products with gated weights, eight gates at a time.

The outputs of eight gates depend on a row only through the eight bits of its gates: rows with the same byte see the
same sum of weights. So

.. math:: \sum_{i<8} D_{in} \, m_n^T W_i = m_n^T T[\mathrm{byte}_n], \qquad T[b] = \sum_{i \in b} W_i ,

one product per row and byte instead of eight, with 256 sums made by doubling; and back,
:math:`\sum_n D_{in} m_n v_n^T` is first summed by bytes and then over the bytes with bit i, by halving. Exact, with
an eighth of the operations of the products with a matrix of gates.

Rows come in the order of their bytes (:func:`bucket_rows`), eight at a time, filled up where a bucket has fewer by a
row whose outputs are nobody's and whose V is zero. Weights and outputs are padded to vectors of :data:`LANES` outputs.
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, int64, njit, uint8, void

from bidual._util.jit import JIT
from bidual._util.typing import Array
from bidual.programs.gated._lanes import LANES, add, load, prefetch, scaled, store, zeros

#: Features of one pass: the 256 sums stay in the cache.
TILE = 64
#: Numbers in a line of the cache.
LINE = 16
#: Rows handled together.
TOGETHER = 8


@njit([int64(uint8[:, ::1], int64[:, ::1], int32[::1])], **JIT)
def bucket_rows(bytes_: Array, starts: Array, order: Array) -> int:
    """Rows in the order of each column of ``bytes_ (n, Q)``; bucket b of column q is ``starts[q, b] : starts[q, b+1]``.

    Buckets are filled up to multiples of eight with the row number n, which is none. Returns the length.
    """
    n, Q = bytes_.shape
    length = 0
    at = np.zeros(256, dtype=np.int64)
    for q in range(Q):
        at[:] = 0
        for i in range(n):
            at[bytes_[i, q]] += 1
        for b in range(256):
            starts[q, b] = length
            size = at[b]
            at[b] = length
            length += (size + TOGETHER - 1) // TOGETHER * TOGETHER
        starts[q, 256] = length
        for i in range(n):
            order[at[bytes_[i, q]]] = i
            at[bytes_[i, q]] += 1
        for b in range(256):
            for k in range(at[b], starts[q, b + 1]):
                order[k] = n
    return length


@njit(inline="always", nogil=True, error_model="numpy")
def fetch(M: Array, order: Array, i: int, last: int, p: int, first: int, width: int) -> None:
    """Ask for the rows that come next: they lie anywhere, and waiting for them costs as much as the products."""
    if i + TOGETHER <= len(order):
        for k in range(i, i + TOGETHER):
            row = min(order[k], last) * p + first
            for f in range(0, width, LINE):
                prefetch(M, row + f)


_SIGNATURES = [
    void(kind[::1], kind[::1], int32[::1], int64[:, ::1], kind[::1], int64, kind[::1]) for kind in (float32, float64)
]


@njit(_SIGNATURES, **JIT)
def outputs(M: Array, W: Array, order: Array, starts: Array, T: Array, p: int, F: Array) -> None:
    """Add the outputs of weights ``W (8 Q, p, LANES)`` to ``F (n + 1, LANES)``; all arrays are flat."""
    last = len(M) // p - 1
    for first in range(0, p, TILE):
        width = min(TILE, p - first)
        for q in range(len(starts)):
            for f in range(width):
                store(T, f * LANES, zeros(T))
            for bit in range(8):
                gate = ((8 * q + bit) * p + first) * LANES
                half = 1 << bit
                for b in range(half):
                    for f in range(width):
                        total = add(load(T, (b * width + f) * LANES), load(W, gate + f * LANES))
                        store(T, ((b + half) * width + f) * LANES, total)
            for b in range(1, 256):
                t = b * width * LANES
                for i in range(starts[q, b], starts[q, b + 1], TOGETHER):
                    r0, r1, r2, r3 = order[i], order[i + 1], order[i + 2], order[i + 3]
                    r4, r5, r6, r7 = order[i + 4], order[i + 5], order[i + 6], order[i + 7]
                    m0, m1 = min(r0, last) * p + first, min(r1, last) * p + first
                    m2, m3 = min(r2, last) * p + first, min(r3, last) * p + first
                    m4, m5 = min(r4, last) * p + first, min(r5, last) * p + first
                    m6, m7 = min(r6, last) * p + first, min(r7, last) * p + first
                    f0, f1, f2, f3 = load(F, r0 * LANES), load(F, r1 * LANES), load(F, r2 * LANES), load(F, r3 * LANES)
                    f4, f5, f6, f7 = load(F, r4 * LANES), load(F, r5 * LANES), load(F, r6 * LANES), load(F, r7 * LANES)
                    fetch(M, order, i + TOGETHER, last, p, first, width)
                    for f in range(width):
                        w = load(T, t + f * LANES)
                        f0, f1 = scaled(M, m0 + f, w, f0), scaled(M, m1 + f, w, f1)
                        f2, f3 = scaled(M, m2 + f, w, f2), scaled(M, m3 + f, w, f3)
                        f4, f5 = scaled(M, m4 + f, w, f4), scaled(M, m5 + f, w, f5)
                        f6, f7 = scaled(M, m6 + f, w, f6), scaled(M, m7 + f, w, f7)
                    store(F, r0 * LANES, f0)
                    store(F, r1 * LANES, f1)
                    store(F, r2 * LANES, f2)
                    store(F, r3 * LANES, f3)
                    store(F, r4 * LANES, f4)
                    store(F, r5 * LANES, f5)
                    store(F, r6 * LANES, f6)
                    store(F, r7 * LANES, f7)


@njit(_SIGNATURES, **JIT)
def correlations(M: Array, V: Array, order: Array, starts: Array, T: Array, p: int, G: Array) -> None:
    """Add ``M^T D_i V`` to ``G (8 Q, p, LANES)`` for ``V (n + 1, LANES)``, whose last row is zero; arrays are flat."""
    last = len(M) // p - 1
    for first in range(0, p, TILE):
        width = min(TILE, p - first)
        for q in range(len(starts)):
            for k in range(256 * width):
                store(T, k * LANES, zeros(T))
            for b in range(1, 256):
                t = b * width * LANES
                for i in range(starts[q, b], starts[q, b + 1], TOGETHER):
                    r0, r1, r2, r3 = order[i], order[i + 1], order[i + 2], order[i + 3]
                    r4, r5, r6, r7 = order[i + 4], order[i + 5], order[i + 6], order[i + 7]
                    m0, m1 = min(r0, last) * p + first, min(r1, last) * p + first
                    m2, m3 = min(r2, last) * p + first, min(r3, last) * p + first
                    m4, m5 = min(r4, last) * p + first, min(r5, last) * p + first
                    m6, m7 = min(r6, last) * p + first, min(r7, last) * p + first
                    v0, v1, v2, v3 = load(V, r0 * LANES), load(V, r1 * LANES), load(V, r2 * LANES), load(V, r3 * LANES)
                    v4, v5, v6, v7 = load(V, r4 * LANES), load(V, r5 * LANES), load(V, r6 * LANES), load(V, r7 * LANES)
                    fetch(M, order, i + TOGETHER, last, p, first, width)
                    for f in range(width):
                        g = load(T, t + f * LANES)
                        g = scaled(M, m1 + f, v1, scaled(M, m0 + f, v0, g))
                        g = scaled(M, m3 + f, v3, scaled(M, m2 + f, v2, g))
                        g = scaled(M, m5 + f, v5, scaled(M, m4 + f, v4, g))
                        g = scaled(M, m7 + f, v7, scaled(M, m6 + f, v6, g))
                        store(T, t + f * LANES, g)
            for bit in range(7, -1, -1):
                gate = ((8 * q + bit) * p + first) * LANES
                half = 1 << bit
                for b in range(half):
                    for f in range(width):
                        g = load(T, ((b + half) * width + f) * LANES)
                        store(G, gate + f * LANES, add(load(G, gate + f * LANES), g))
                        store(T, (b * width + f) * LANES, add(load(T, (b * width + f) * LANES), g))
