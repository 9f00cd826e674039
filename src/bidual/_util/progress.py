"""Progress for people: a live display on a terminal, plain lines elsewhere, nothing unless asked for.

Long work opens a :func:`task`; solvers deep inside call :func:`note`, which reaches the innermost open task. Nested
tasks (a fold, its path, a training) share one display. ``verbose=1`` shows what is going on, ``verbose=2`` keeps every
line of it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass
class Task:
    """One bar of the display, or only a title if there is no terminal."""

    title: str
    verbose: int
    display: Any = None  # rich.progress.Progress
    bar: Any = None

    def note(self, text: str, done: float | None = None) -> None:
        """Say what is going on; ``done`` is the part of the task that is finished, from 0 to 1."""
        if self.display is None:
            _print(text)
            return
        known = {} if done is None else {"completed": min(max(done, 0.0), 1.0)}
        self.display.update(self.bar, detail=" ".join(text.split()), **known)
        if self.verbose > 1:
            self.display.console.print(f"bidual: {text}", highlight=False, markup=False, soft_wrap=True)


_current: ContextVar[Task | None] = ContextVar("bidual_progress", default=None)


def note(text: str, done: float | None = None) -> None:
    """A line of progress from inside the task that is open, if any; a plain line otherwise."""
    current = _current.get()
    if current is None:
        _print(text)
    else:
        current.note(text, done)


def closed(gap: float, tol: float) -> float:
    """How much of the way from a gap of one to ``tol`` is done, on the log scale."""
    if not tol < gap < 1.0:
        return 1.0 if gap <= tol else 0.0
    return math.log(gap) / math.log(max(tol, 1e-12))


@contextmanager
def task(title: str, verbose: int) -> Iterator[Task]:
    """Work with progress. Without ``verbose``, and where output is no terminal, nothing is opened."""
    outer = _current.get()
    if not verbose:
        yield Task(title, 0)
        return
    if outer is not None and outer.display is not None:  # another bar below
        current = Task(title, verbose, outer.display, outer.display.add_task(title, total=1.0, detail=""))
        with _entered(current):
            yield current
        outer.display.remove_task(current.bar)
        return
    if not sys.stdout.isatty():
        current = Task(title, verbose)
        with _entered(current):
            yield current
        return
    with _display() as display:
        current = Task(title, verbose, display, display.add_task(title, total=1.0, detail=""))
        with _entered(current):
            yield current


@contextmanager
def _entered(current: Task) -> Iterator[None]:
    token = _current.set(current)
    try:
        yield
    finally:
        _current.reset(token)


def _display() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
    from rich.table import Column

    return Progress(
        SpinnerColumn(finished_text=" ", table_column=Column(width=1)),
        TextColumn("{task.description}", table_column=Column(min_width=8, no_wrap=True)),
        BarColumn(bar_width=16, table_column=Column(min_width=16)),
        TextColumn("{task.fields[detail]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=Console(file=sys.stdout),
        transient=True,  # what stays on the screen is the result
    )


def _print(text: str) -> None:
    print(f"bidual: {text}", flush=True)
