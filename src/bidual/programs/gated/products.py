r"""The operators of a gated network on some rows: arrays in, arrays out.

For rows :math:`M` (n x p) with gates :math:`D_i = \mathrm{diag}(1[M g_i \ge 0])`, kept as bits,

.. math:: F = \sum_i D_i M W_i \quad (n \times C), \qquad G_i = M^T D_i V \quad (P \times p \times C).

This is all that a backend has to know; losses, penalties and the solver are written once, on top of it.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from bidual._util.typing import Array

#: Outputs from which the products by bytes are faster than matrix products.
MANY_OUTPUTS = 4
#: Entries of the largest temporary array of the matrix products.
BLOCK = 2**22


class Products(Protocol):
    """Products of some rows with gated weights."""

    def outputs(self, W: Array) -> Array:
        """``sum_i D_i M W_i`` for ``W (P, p, C)``, ``(n, C)``."""
        ...

    def correlations(self, V: Array) -> Array:
        """``M^T D_i V`` for all gates, ``(P, p, C)``."""
        ...


class ByteProducts:
    """Products by bytes of eight gates (:mod:`bidual.programs.gated._kernels`), the fast way with several outputs.

    Parameters
    ----------
    M : ndarray, shape (n, p)
        Rows in single or double precision.
    bits : ndarray of uint8, shape (n, Q)
        The gates of each row, little-endian bytes.
    n_gates : int
    """

    def __init__(self, M: Array, bits: Array, n_gates: int) -> None:
        from bidual.programs.gated import _kernels, _lanes

        self._kernels, self._lanes = _kernels, _lanes.LANES
        self.M, self.n_gates = np.ascontiguousarray(M), n_gates
        n, Q = bits.shape
        self.starts = np.empty((Q, 257), dtype=np.int64)
        order = np.empty(Q * (n + 256 * (_kernels.TOGETHER - 1)), dtype=np.int32)
        self.order = order[: _kernels.bucket_rows(np.ascontiguousarray(bits), self.starts, order)].copy()

    def outputs(self, W: Array) -> Array:
        """``sum_i D_i M W_i``."""
        lanes = self._lanes
        n, p = self.M.shape
        C = W.shape[2]
        F = np.empty((n, C), dtype=self.M.dtype)
        for c in range(0, C, lanes):
            part = _padded(W[:, :, c : c + lanes], (8 * len(self.starts), p, lanes), self.M.dtype)
            total = np.zeros((n + 1, lanes), dtype=self.M.dtype)
            self._run(self._kernels.outputs, part, total)
            F[:, c : c + lanes] = total[:n, : C - c]
        return F

    def correlations(self, V: Array) -> Array:
        """``M^T D_i V``."""
        lanes = self._lanes
        n, p = self.M.shape
        C = V.shape[1]
        G = np.empty((self.n_gates, p, C), dtype=self.M.dtype)
        for c in range(0, C, lanes):
            part = _padded(V[:, c : c + lanes], (n + 1, lanes), self.M.dtype)
            total = np.zeros((8 * len(self.starts), p, lanes), dtype=self.M.dtype)
            self._run(self._kernels.correlations, part, total)
            G[:, :, c : c + lanes] = total[: self.n_gates, :, : C - c]
        return G

    def _run(self, kernel: Any, given: Array, total: Array) -> None:
        k = self._kernels
        sums = np.empty(256 * min(k.TILE, self.M.shape[1]) * self._lanes, dtype=self.M.dtype)
        kernel(self.M.reshape(-1), given.reshape(-1), self.order, self.starts, sums, self.M.shape[1], total.reshape(-1))


class MatrixProducts:
    """The same by matrix products with the 0/1 matrix of the gates: for few rows or few outputs.

    Parameters
    ----------
    M : ndarray, shape (n, p)
    bits : ndarray of uint8, shape (n, Q)
    n_gates : int
    """

    def __init__(self, M: Array, bits: Array, n_gates: int) -> None:
        self.M, self.bits, self.n_gates = M, bits, n_gates

    def outputs(self, W: Array) -> Array:
        """``sum_i D_i M W_i``."""
        P, p, C = W.shape
        flat = np.ascontiguousarray(W, dtype=self.M.dtype).reshape(P, p * C)
        F = np.empty((len(self.M), C), dtype=self.M.dtype)
        for rows in self._pieces(p * C):
            mixed = (self._gates(rows) @ flat).reshape(-1, p, C)  # every row's own linear map
            F[rows] = np.matmul(self.M[rows, None, :], mixed)[:, 0]
        return F

    def correlations(self, V: Array) -> Array:
        """``M^T D_i V``."""
        p, C = self.M.shape[1], V.shape[1]
        V = V.astype(self.M.dtype, copy=False)
        G = np.zeros((self.n_gates, p * C), dtype=self.M.dtype)
        for rows in self._pieces(p * C):
            weighted = (self.M[rows, :, None] * V[rows, None, :]).reshape(-1, p * C)
            G += self._gates(rows).T @ weighted
        return G.reshape(self.n_gates, p, C)

    def _gates(self, rows: slice) -> Array:
        unpacked = np.unpackbits(self.bits[rows], axis=1, count=self.n_gates, bitorder="little")
        return unpacked.astype(self.M.dtype)

    def _pieces(self, width: int) -> list[slice]:
        step = max(1, BLOCK // max(width, self.n_gates))
        return [slice(i, i + step) for i in range(0, len(self.M), step)]


def pack_gates(active: Array) -> Array:
    """Bytes ``(n, Q)`` of gates ``(n, P)``."""
    return np.packbits(active, axis=1, bitorder="little")


def numpy_products(M: Array, bits: Array, n_gates: int, n_outputs: int) -> Products:
    """Products of many rows ``M (n, p)`` on this machine's processor."""
    if n_outputs < MANY_OUTPUTS:
        return MatrixProducts(M, bits, n_gates)
    return ByteProducts(M, bits, n_gates)


def _padded(values: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """``values`` in the corner of an array of zeros."""
    result = np.zeros(shape, dtype=dtype)
    result[tuple(slice(k) for k in values.shape)] = values
    return result
