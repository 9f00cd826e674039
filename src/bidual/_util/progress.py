"""Progress for people: bars on a terminal and in a notebook, plain lines elsewhere, nothing unless asked for.

Long work opens a :func:`task`; solvers deep inside call :func:`note`, which reaches the innermost open task. Nested
tasks (a fold, its path, a training) share one display. ``verbose=1`` shows what is going on, ``verbose=2`` keeps every
line of it.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from html import escape
from typing import Any

from bidual._util.tuning import tuning


@dataclass
class Task:
    """One bar of the display, or only a title if there is none."""

    title: str
    verbose: int
    display: Any = None  # rich.progress.Progress, or NotebookBars
    bar: Any = None
    unit: float = 1.0  # of the objectives inside, in the units of the user

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


def unit() -> float:
    """What an objective of the work at hand counts in the units of the user."""
    current = _current.get()
    return 1.0 if current is None else current.unit


def result(text: str) -> None:
    """What came of the work, unless it is part of larger work, which says so itself."""
    if _current.get() is None:
        print(text, flush=True)


def closed(gap: float, tol: float) -> float:
    """How much of the way from a gap of one to ``tol`` is done, on the log scale."""
    if not tol < gap < 1.0:
        return 1.0 if gap <= tol else 0.0
    return math.log(gap) / math.log(max(tol, 1e-12))


@contextmanager
def task(title: str, verbose: int, unit: float = 1.0) -> Iterator[Task]:
    """Work with progress. Without ``verbose`` nothing is opened; without a terminal or a notebook no display."""
    outer = _current.get()
    if not verbose:
        yield Task(title, 0)
        return
    if outer is not None and outer.display is not None:  # another bar below
        current = Task(title, verbose, outer.display, outer.display.add_task(title, total=1.0, detail=""), unit)
        with _entered(current):
            yield current
        outer.display.remove_task(current.bar)
        return
    if not (in_notebook() or sys.stdout.isatty()):
        current = Task(title, verbose, unit=unit)
        with _entered(current):
            yield current
        return
    with NotebookBars() if in_notebook() else _display() as display:
        current = Task(title, verbose, display, display.add_task(title, total=1.0, detail=""), unit)
        with _entered(current):
            yield current


@contextmanager
def _entered(current: Task) -> Iterator[None]:
    token = _current.set(current)
    try:
        yield
    finally:
        _current.reset(token)


def in_notebook() -> bool:
    """Whether output is shown by a notebook, which has an IPython kernel behind it."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class NotebookBars:
    """The bars of a notebook: one output, drawn again in place, gone when the work is done. As rich's ``Progress``.

    It is plain HTML, so that no widgets need be installed.
    """

    def __init__(self) -> None:
        from IPython.display import display

        self.bars: dict[int, dict[str, Any]] = {}
        self.console = self
        self._drawn = -math.inf
        self._area = display(self, display_id=True)

    def __enter__(self) -> NotebookBars:
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.clear()
        self._draw()

    def add_task(self, title: str, **about: Any) -> int:
        """A bar below the others; its number."""
        number = max(self.bars, default=-1) + 1
        self.bars[number] = {"title": title, "completed": 0.0, **about}
        self._draw()
        return number

    def update(self, number: int, **about: Any) -> None:
        """Change a bar; it is seen with the next drawing."""
        self.bars[number].update(about)
        if time.monotonic() - self._drawn > tuning().redraw_seconds:
            self._draw()

    def remove_task(self, number: int) -> None:
        """Take a bar away."""
        self.bars.pop(number, None)
        self._draw()

    def print(self, text: str, **style: Any) -> None:
        """A line that stays."""
        print(text, flush=True)

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._area.update(self)

    def __repr__(self) -> str:
        return "\n".join(f"{bar['title']}  {bar['detail']}" for bar in self.bars.values())

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<div><progress value="{bar["completed"]:.3f}" max="1" style="width:12em"></progress>'
            f' {escape(bar["title"])} <span style="opacity:.75">{escape(bar["detail"])}</span></div>'
            for bar in self.bars.values()
        )
        return f'<div class="bidual" style="font-family:system-ui,sans-serif;font-size:13px">{rows}</div>'


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
