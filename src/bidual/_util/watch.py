"""Time limits and Ctrl-C: one watch, which all long work asks.

Whoever begins a piece of work (a fit, a certificate, a solver with its share of the time) does so ``with
watching(seconds)``. Within it, work that takes long calls :func:`checkpoint` at moments at which it may be abandoned,
which raises :class:`Stopped` as soon as the time is up or Ctrl-C was pressed; whoever has an answer by then catches
that and returns it. Work that can end early by itself asks :meth:`Watch.late` instead. The second Ctrl-C raises
``KeyboardInterrupt`` at once.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

from bidual._util.clock import clock

INTERRUPTED, TIME_LIMIT = "interrupted", "stopped at time_limit"


class Stopped(Exception):
    """Time is up, or Ctrl-C was pressed; the message is the status, in words."""


class Watch:
    """A deadline, and whether Ctrl-C was pressed.

    Parameters
    ----------
    deadline : float
        Moment of :func:`~bidual._util.clock.clock` at which to stop.
    outer : Watch or None
        The watch within which this one was made: its deadline and its Ctrl-C count as well.
    """

    def __init__(self, deadline: float = float("inf"), outer: Watch | None = None) -> None:
        self.deadline: float = deadline if outer is None else min(deadline, outer.deadline)
        self._root: Watch = self if outer is None else outer._root
        self._pressed = False

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._root._pressed

    @property
    def left(self) -> float:
        """Seconds until the deadline; zero after Ctrl-C."""
        return 0.0 if self.interrupted else max(0.0, self.deadline - clock())

    @property
    def status(self) -> str:
        """Why to stop, in words."""
        return INTERRUPTED if self.interrupted else TIME_LIMIT

    def late(self) -> bool:
        """Whether to stop. Other threads of the same work may ask, too."""
        return self.interrupted or clock() >= self.deadline

    def check(self) -> None:
        """Raise :class:`Stopped` if it is time to stop."""
        if self.late():
            raise Stopped(self.status)

    def interrupt(self) -> None:
        """What Ctrl-C does: the first one asks to stop, the second one stops."""
        if self._root._pressed:
            raise KeyboardInterrupt
        self._root._pressed = True


#: The watch of work that nobody limits.
_NEVER = Watch()
_current: ContextVar[Watch] = ContextVar("watch", default=_NEVER)


def current() -> Watch:
    """The watch of the work at hand."""
    return _current.get()


def checkpoint() -> None:
    """Raise :class:`Stopped` if the work at hand is to stop."""
    _current.get().check()


@contextmanager
def watching(seconds: float | None = None) -> Iterator[Watch]:
    """Work within so many seconds, and within the limits of the work that this is a part of.

    The outermost one listens to Ctrl-C (in the main thread, where signals arrive). An interrupted task of joblib, as
    those of cross-validations and searches are, ends in ``KeyboardInterrupt``: returned, it would let them run on.
    """
    outer = _current.get()
    outermost = outer is _NEVER
    watch = Watch(float("inf") if seconds is None else clock() + seconds, None if outermost else outer)
    listening = outermost and threading.current_thread() is threading.main_thread()

    def handle(number: int, frame: FrameType | None) -> None:
        watch.interrupt()

    previous = signal.signal(signal.SIGINT, handle) if listening else None
    token = _current.set(watch)
    try:
        yield watch
    finally:
        _current.reset(token)
        if previous is not None:
            signal.signal(signal.SIGINT, previous)
    if outermost and watch.interrupted and _in_joblib():
        raise KeyboardInterrupt


@contextmanager
def last_look(seconds: float) -> Iterator[Watch]:
    """A few more seconds after Ctrl-C, for what makes the answer honest."""
    watch = Watch(clock() + seconds)
    token = _current.set(watch)
    try:
        yield watch
    finally:
        _current.reset(token)


def _in_joblib() -> bool:
    """Whether somebody's ``joblib.Parallel`` has called, in this process or as its worker."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "joblib.parallel":
            return True
        frame = frame.f_back
    return False
