"""Rows on a Dask cluster: every worker keeps its blocks and sends sums.

Everything that workers hold is a future whose whole history is known to the scheduler: when a worker dies, Dask
computes what it held again, elsewhere, and training goes on. Weights travel as arguments of a task (not by
``scatter``, whose data nobody could compute again).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from distributed import Client, Future, get_client, wait

from bidual._util.typing import Array, FloatArray
from bidual.programs.gated.block import Setting
from bidual.programs.gated.shards import Shards, added
from bidual.programs.gated.sources import make_block

#: Parameters of glibc's malloc (malloc.h), its default for both, and the size below which arrays stay in the heap.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_TRIM, _LARGE = 2**17, 2**25


class DaskSource:
    """Rows of a dask array, in its chunks of rows.

    Parameters
    ----------
    X : dask array, shape (n, d)
    """

    #: Workers keep their rows in single precision.
    keep = True

    def __init__(self, X: Any) -> None:
        try:
            self.client: Client = get_client()
        except ValueError as error:
            raise ValueError(
                "X is a dask array, but there is no cluster: make one first, client = dask.distributed.Client(), "
                "or train on X.compute()"
            ) from error
        self.X = X.rechunk({1: -1})
        self.shape = (int(X.shape[0]), int(X.shape[1]))

    def mean_square(self) -> float:
        """Mean squared norm of the rows."""
        total = (self.X.astype(np.float64) ** 2).sum()
        return float(self.client.compute(total).result()) / max(self.shape[0], 1)

    def some_rows(self, count: int) -> Array:
        """At most ``count`` rows, evenly spaced."""
        rows = self.X[:: max(1, -(-self.shape[0] // count))].astype(np.float64)
        return np.asarray(self.client.compute(rows).result())

    def shards(self, Y: FloatArray, w: FloatArray, setting: Setting) -> DaskShards:
        """One block for each chunk of rows."""
        edges = np.concatenate([[0], np.cumsum(self.X.chunks[0])])
        chunks = self.client.compute(list(self.X.to_delayed().ravel()))
        common = _submit(self.client, _itself, setting)
        blocks = [
            _submit(self.client, make_block, chunk, Y[a:b], w[a:b], common)
            for chunk, a, b in zip(chunks, edges[:-1], edges[1:], strict=True)
            if b > a
        ]
        return DaskShards(self.client, blocks)


class DaskShards(Shards):
    """Blocks on the workers of a cluster."""

    def __init__(self, client: Client, blocks: list[Future]) -> None:
        self.client, self.blocks = client, blocks
        self.n_blocks = len(blocks)
        client.run(_hurry, True, on_error="ignore")
        wait(blocks)

    def map(self, function: Callable[..., Any], *handles: Any, **common: Any) -> list[Future]:
        """Futures of the results."""
        shared = _submit(self.client, _itself, common)
        return [
            _submit(self.client, _call, function, shared, *args) for args in zip(self.blocks, *handles, strict=True)
        ]

    def gather(self, function: Callable[..., Any], *handles: Any, **common: Any) -> list[Any]:
        """The results."""
        return list(self.client.gather(self.map(function, *handles, **common)))

    def reduce(self, function: Callable[..., tuple[Any, ...]], *handles: Any, **common: Any) -> tuple[Any, ...]:
        """Sums, taken in pairs on the workers."""
        return self._total(self.map(function, *handles, **common))

    def _total(self, parts: list[Future]) -> tuple[Any, ...]:
        while len(parts) > 1:
            pairs = [_submit(self.client, added, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = pairs + parts[2 * len(pairs) :]
        return tuple(parts[0].result())

    def chain(self, function: Callable[..., Any], state: Sequence[Any], **common: Any) -> tuple[Any, ...]:
        """Every worker passes the state through its own blocks; the mean of what comes out."""
        shared = _submit(self.client, _itself, common)
        first = _submit(self.client, _itself, tuple(state))
        places: dict[str, list[Future]] = {}
        for block, key in zip(self.blocks, (block.key for block in self.blocks), strict=True):
            workers = self.client.who_has([block])[key]
            places.setdefault(min(workers, default=""), []).append(block)
        ends = []
        for blocks in places.values():
            end = first
            for turn, block in enumerate(blocks):
                end = _submit(self.client, _turn, function, shared, block, end, turn, len(blocks))
            ends.append(end)
        total = self._total(ends)
        return tuple(_share(part, like, len(ends)) for part, like in zip(total, state, strict=True))

    def close(self) -> None:
        """Let the workers forget the blocks."""
        self.blocks = []
        if self.client.status == "running":  # a lost cluster has its own error to tell
            self.client.run(_hurry, False, on_error="ignore")


def _hurry(on: bool, dask_worker: Any) -> None:
    """Make a worker as fast as a plain process, or what it was.

    Workers give every larger array back to the system at once (``MALLOC_TRIM_THRESHOLD_``), and look at what their
    threads do a hundred times a second: together that makes training on small batches two to three times slower.
    """
    profile = dask_worker.periodic_callbacks.get("profile")
    if profile is not None:
        (profile.stop if on else profile.start)()
    with contextlib.suppress(OSError, AttributeError, TypeError):  # glibc only
        mallopt = ctypes.CDLL(None).mallopt
        trim = int(os.environ.get("MALLOC_TRIM_THRESHOLD_", _TRIM))
        mallopt(_M_MMAP_THRESHOLD, _LARGE if on else _TRIM)
        mallopt(_M_TRIM_THRESHOLD, 8 * _LARGE if on else trim)


def _share(total: Any, like: Any, count: int) -> Any:
    """A mean, in the type of the state it replaces."""
    return (total / count).astype(like.dtype) if isinstance(like, np.ndarray) else type(like)(total / count)


def _submit(client: Client, function: Callable[..., Any], *args: Any) -> Future:
    # Weights are arguments on purpose, see above; and hashing them to find equal tasks would cost more than the tasks.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        return client.submit(function, *args, pure=False)


def _itself(value: Any) -> Any:
    return value


def _call(function: Callable[..., Any], common: dict[str, Any], *args: Any) -> Any:
    return function(*args, **common)


def _turn(function: Callable[..., Any], common: dict[str, Any], block: Any, state: Any, turn: int, n_turns: int) -> Any:
    return function(block, state, turn, n_turns, **common)
