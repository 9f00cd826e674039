"""Functions of blocks, applied to all of them: on this machine's cores, or wherever the blocks are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from threadpoolctl import ThreadpoolController

from bidual._util.cores import cores
from bidual.programs.gated.block import Block


class Shards(ABC):
    """The blocks of a training set. A *handle* is one object per block that stays where the block is."""

    n_blocks: int

    @abstractmethod
    def map(self, function: Callable[..., Any], *handles: Any, **common: Any) -> Any:
        """``function(block, ..., **common)`` of every block: a handle."""

    @abstractmethod
    def gather(self, function: Callable[..., Any], *handles: Any, **common: Any) -> list[Any]:
        """The same, brought here."""

    @abstractmethod
    def reduce(self, function: Callable[..., tuple[Any, ...]], *handles: Any, **common: Any) -> tuple[Any, ...]:
        """Sums over the blocks of what ``function`` returns: a tuple of numbers and arrays."""

    @abstractmethod
    def chain(self, function: Callable[..., Any], state: Sequence[Any], **common: Any) -> tuple[Any, ...]:
        """``state = function(block, state, turn, n_turns, **common)`` through the blocks, in turn.

        Where blocks are in several places, each place does so by itself and the states are averaged.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""


def added(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sums of the entries."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


class LocalShards(Shards):
    """Blocks in this process, worked on by threads; results do not depend on how many."""

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks
        self.n_blocks = len(blocks)
        self._threads = ThreadPoolExecutor(min(cores(), len(blocks)), thread_name_prefix="bidual")
        self._blas = ThreadpoolController()

    def _each(self, function: Callable[..., Any], handles: tuple[Any, ...], common: dict[str, Any]) -> Iterator[Any]:
        # one thread of ours for each core: more of them inside BLAS would only be in the way
        with self._blas.limit(limits=1, user_api="blas"):
            yield from self._threads.map(
                lambda args: function(*args, **common), zip(self.blocks, *handles, strict=True)
            )

    def map(self, function: Callable[..., Any], *handles: Any, **common: Any) -> list[Any]:
        """A list of the results."""
        return list(self._each(function, handles, common))

    def gather(self, function: Callable[..., Any], *handles: Any, **common: Any) -> list[Any]:
        """The same list."""
        return list(self._each(function, handles, common))

    def reduce(self, function: Callable[..., tuple[Any, ...]], *handles: Any, **common: Any) -> tuple[Any, ...]:
        """Sums in the order of the blocks."""
        results = self._each(function, handles, common)
        total = next(results)
        for part in results:  # in the order of the blocks, so that rounding is always the same
            total = added(total, part)
        return total

    def chain(self, function: Callable[..., Any], state: Sequence[Any], **common: Any) -> tuple[Any, ...]:
        """One block after the other."""
        for turn, block in enumerate(self.blocks):
            state = function(block, state, turn, self.n_blocks, **common)
        return tuple(state)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False)
