"""The banded Newton matrix of a chain of pieces."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from scipy.linalg import lapack

from bidual._util.typing import FloatArray, IntArray
from bidual.splines.rows import NewtonRows

#: Unknowns of a piece, in the order of the band: value, right multiplier, right slope, multiplier of the piece, left
#: slope, left multiplier.
G, U, A, S, E, Z = range(6)
#: An unknown, and the pieces whose it is.
Place: TypeAlias = tuple[int, IntArray]


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

    def _diagonal(self, band: FloatArray, row: Place, column: Place, x: FloatArray) -> None:
        for c in range(self.C):
            i, k = (6 * row[1] + row[0]) * self.C + c, (6 * column[1] + column[0]) * self.C + c
            band[2 * self.width + i - k, k] = x

    def _pairs(self, band: FloatArray, row: Place, column: Place, x: FloatArray) -> None:
        self._diagonal(band, row, column, x)
        self._diagonal(band, column, row, x)

    def _blocks(self, band: FloatArray, row: Place, column: Place, x: FloatArray) -> None:
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
