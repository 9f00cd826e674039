"""What an experiment is: a claim of a paper, a function that tests it, and what came out.

A script of this folder registers one function::

    @experiment("003-fig2", title="...", claim="...", paper="...")
    def run(context: Context) -> Outcome: ...

It uses the public names of bidual, draws its figure into ``context.figure("name.png")`` and says what it found. It
never decides the verdict by looking at what the paper says: it checks the claim with numbers.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
from sklearn.exceptions import ConvergenceWarning

from bidual._util.files import read_json
from reproductions.data import Data, DataMissing

__all__ = [
    "Context",
    "Experiment",
    "Outcome",
    "Size",
    "Verdict",
    "discover",
    "experiment",
    "judge",
    "natural",
    "table",
    "timed",
]

matplotlib.use("Agg")  # figures go to files

T = TypeVar("T")
#: What the files of results are called where one is broken.
RECORD = "record of an experiment (run that experiment again)"


class Verdict(StrEnum):
    """Whether the paper's claim stands."""

    HOLDS = "holds"
    PARTLY = "holds in part"
    FAILS = "does not hold here"
    UNTESTED = "could not be tested"


class Size(StrEnum):
    """How much is computed: minutes for everything, this machine's patience, or the paper's own sizes."""

    QUICK = "quick"
    DEFAULT = "default"
    FULL = "full"


@dataclass(frozen=True)
class Outcome:
    """What an experiment found.

    Attributes
    ----------
    verdict : Verdict
    ours : str
        Our figures, in one line.
    sizes : str
        The sizes used, where they differ from the paper's; empty if they do not.
    details : str
        Markdown: tables, and what disagrees and why.
    numbers : dict
        What other experiments, which put several together, need of this one; kept with the record.
    """

    verdict: Verdict
    ours: str
    sizes: str = ""
    details: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass
class Context:
    """What an experiment is given.

    Attributes
    ----------
    size : Size
    data : Data
        Real data sets by name.
    folder : Path
        Where figures go.
    shared : dict
        What experiments of one command leave to each other, such as networks that two figures show.
    """

    size: Size
    data: Data
    folder: Path
    verbose: bool = False
    shared: dict[Any, Any] = field(default_factory=dict)
    figures: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0  # of the last experiment run with it

    def pick(self, *, quick: T, default: T, full: T | None = None) -> T:
        """The value for this size; ``full`` is ``default`` where it is not given."""
        if self.size is Size.QUICK:
            return quick
        return default if self.size is Size.DEFAULT or full is None else full

    def figure(self, name: str) -> Path:
        """Where to save a figure of this name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.figures.append(name)
        return self.folder / name

    def save(self, figure: Any, name: str) -> None:
        """Write a matplotlib figure to a file of this name and close it."""
        from matplotlib import pyplot

        figure.savefig(self.figure(name), dpi=100)
        pyplot.close(figure)

    def numbers(self, name: str) -> dict[str, Any] | None:
        """The numbers that the last run of another experiment left; None if it was not run."""
        path = self.folder / f"{name}.json"
        return read_json(path, RECORD).get("numbers") if path.exists() else None

    def log(self, line: str) -> None:
        """A line of progress."""
        if self.verbose:
            print(f"  {line}", flush=True)


@dataclass(frozen=True)
class Experiment:
    """One figure or table of a paper.

    Attributes
    ----------
    name : str
        Paper and figure, ``"003-fig2"``.
    title : str
    claim : str
        What the paper says, in one sentence.
    paper : str
        The paper's published figures, in one line.
    run : callable
    """

    name: str
    title: str
    claim: str
    paper: str
    run: Callable[[Context], Outcome]

    def __call__(self, context: Context) -> tuple[Outcome, float]:
        """The outcome and the seconds it took; without its data an experiment could not be tested.

        Solvers may stop at a time limit: the experiments report the gaps, so that a warning says nothing new.
        """
        outcome, seconds, context.cpu_seconds = timed(lambda: self._tested(context))
        return outcome, seconds

    def _tested(self, context: Context) -> Outcome:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                return self.run(context)
        except DataMissing as missing:
            return Outcome(Verdict.UNTESTED, ours="-", details=str(missing))


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """What ``work`` returns, and the seconds it took: wall clock, and CPU of all threads."""
    began, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - began, time.process_time() - cpu


def judge(*parts: bool) -> Verdict:
    """The verdict on a claim that has these parts: all of them hold, some do, or none does."""
    if all(parts):
        return Verdict.HOLDS
    return Verdict.PARTLY if any(parts) else Verdict.FAILS


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; floats with six significant digits."""
    cells = [[f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in (list(header), ["---"] * len(header), *cells))


_EXPERIMENTS: dict[str, Experiment] = {}


def experiment(
    name: str, *, title: str, claim: str, paper: str
) -> Callable[[Callable[[Context], Outcome]], Callable[[Context], Outcome]]:
    """Register a function as the experiment of this name."""

    def register(run: Callable[[Context], Outcome]) -> Callable[[Context], Outcome]:
        if name in _EXPERIMENTS:
            raise ValueError(f"two experiments are called {name}")
        _EXPERIMENTS[name] = Experiment(name, title, claim, paper, run)
        return run

    return register


def discover() -> dict[str, Experiment]:
    """All experiments of this folder, by name; a script that cannot be imported is reported, and costs no other one."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("paper"):
            try:
                importlib.import_module(f"reproductions.{module.name}")
            except (ImportError, SyntaxError) as error:
                warnings.warn(f"{module.name}.py cannot be imported: {error}", stacklevel=2)
    return {name: _EXPERIMENTS[name] for name in sorted(_EXPERIMENTS, key=natural)}


def natural(name: str) -> list[tuple[int, str]]:
    """Numbers by their value: Fig. 10 comes after Fig. 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
