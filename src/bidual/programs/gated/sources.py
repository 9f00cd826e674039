"""Where the rows come from: arrays, memory maps, or (:mod:`bidual.programs.gated.dask`) a cluster."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from bidual._util.tuning import tuning
from bidual._util.typing import Array, FloatArray
from bidual.programs.gated.block import Block, Setting
from bidual.programs.gated.shards import LocalShards, Shards

#: Bytes of a block in single precision, where rows are very long.
BLOCK_BYTES = 2**27


class Source(Protocol):
    """Rows of training data."""

    shape: tuple[int, int]

    def mean_square(self) -> float:
        """Mean squared norm of the rows."""
        ...

    def some_rows(self, count: int) -> Array:
        """At most ``count`` rows from all over the data, brought here."""
        ...

    def shards(self, Y: FloatArray, w: FloatArray, setting: Setting) -> Shards:
        """Blocks of these rows with their targets and weights."""
        ...


class LocalSource:
    """Rows of an array or a memory map of any numeric type, which is never copied as a whole if it is large.

    Parameters
    ----------
    X : array of shape (n, d)
    """

    def __init__(self, X: Array) -> None:
        self.X = X
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.keep = self.shape[0] * (self.shape[1] + 1) * 4 <= tuning().kept_bytes

    def mean_square(self) -> float:
        """Mean squared norm of the rows."""
        total, step = 0.0, tuning().double_rows
        for i in range(0, len(self.X), step):
            rows = np.asarray(self.X[i : i + step], dtype=np.float64)
            total += float(np.vdot(rows, rows))
        return total / max(len(self.X), 1)

    def some_rows(self, count: int) -> Array:
        """At most ``count`` rows, evenly spaced."""
        return np.asarray(self.X[:: max(1, -(-len(self.X) // count))], dtype=np.float64)

    def shards(self, Y: FloatArray, w: FloatArray, setting: Setting) -> LocalShards:
        """Blocks of every k-th row if they are kept (data are often sorted), of consecutive ones if they are read."""
        n = len(self.X)
        size = max(1, min(tuning().block_rows, BLOCK_BYTES // (4 * setting.gates.shape[1])))
        k = -(-n // size)
        edges = np.linspace(0, n, k + 1).astype(int)
        parts = [slice(i, None, k) if setting.keep else slice(edges[i], edges[i + 1]) for i in range(k)]
        return LocalShards([make_block(self.X[part], Y[part], w[part], setting) for part in parts])


def make_block(X: Array, Y: FloatArray, w: FloatArray, setting: Setting) -> Block:
    """A block without the rows of weight zero."""
    used = w > 0
    return Block(X, Y, w, setting) if used.all() else Block(X[used], Y[used], w[used], setting)
