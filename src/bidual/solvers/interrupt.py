"""Ctrl-C as a polite request."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class InterruptFlag:
    """Within this context the first Ctrl-C only sets a flag; the second one interrupts as usual.

    A solver asks :meth:`is_set` between iterations and returns its best point with its gap. Outside the main thread,
    where signals do not arrive, it does nothing.
    """

    def __init__(self) -> None:
        self._set = False
        self._previous: Any = None

    def is_set(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._set

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._set:
            raise KeyboardInterrupt
        self._set = True

    def __enter__(self) -> InterruptFlag:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
