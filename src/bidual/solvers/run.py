"""A run: what every main loop keeps while it works, and what it hands back at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, cast

import numpy as np
from sklearn.utils import check_random_state

from bidual._util.clock import clock
from bidual._util.progress import closed, note, unit
from bidual._util.status import Status
from bidual._util.tuning import tuning
from bidual._util.typing import FloatArray
from bidual._util.watch import Stopped, Watch, checkpoint, current, watching
from bidual.atoms import Neurons
from bidual.bounds import Bound, relative_gap
from bidual.problem import Problem
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.reduce import ZERO, gathered, reduce_neurons

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # defaults of type variables: Run alone is Run[Neurons]

    NetworkT = TypeVar("NetworkT", default=Neurons)
else:
    from typing import TypeVar

    NetworkT = TypeVar("NetworkT")

__all__ = ["Log", "Run", "Status", "generator"]

#: What a network with fewer neurons may cost, relative to the tolerance.
_SLIMMING = 0.01
#: What one with the fewest neurons may cost.
_THINNING = 0.05


def generator(random_state: int | np.random.RandomState | None) -> np.random.Generator:
    """Random numbers of a ``random_state``, as scikit-learn knows it."""
    return np.random.default_rng(check_random_state(random_state).randint(2**31))


class Log:
    """Clock, random numbers, history and progress of one training, of whatever it may be.

    Parameters
    ----------
    options : Options
    began : float or None
        When the work began, of :func:`~bidual._util.clock.clock`; None: now.

    Attributes
    ----------
    history : list of HistoryEntry
    status : str
        Why it ended, see :class:`Status`.
    n_iter : int
    """

    def __init__(self, options: Options, began: float | None = None) -> None:
        self.options = options
        self.began = clock() if began is None else began
        self.history: list[HistoryEntry] = []
        self.status: str = Status.MAX_ITER
        self.n_iter = 0

    @property
    def elapsed(self) -> float:
        """Seconds since the work began."""
        return clock() - self.began

    @cached_property
    def seed(self) -> int:
        """Drawn from ``random_state``."""
        return int(check_random_state(self.options.random_state).randint(2**31))

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random numbers of ``random_state``."""
        return np.random.default_rng(self.seed)

    @contextmanager
    def going(self, share: float = 1.0) -> Iterator[Watch]:
        """Work within this share of the time limit; time or Ctrl-C end it with that status, and what is best so far."""
        limit = np.inf if self.options.time_limit is None else self.options.time_limit
        there_is = min(limit, current().deadline - self.began)
        with watching(share * there_is - self.elapsed) as watch:
            try:
                yield watch
            except Stopped as stopped:
                self.status = str(stopped)

    @staticmethod
    def late() -> bool:
        """Whether to end."""
        return current().late()

    def share_of_time(self, share: float) -> float:
        """How much of this share of the time limit is over; zero without a limit."""
        limit = self.options.time_limit
        return 0.0 if limit is None else self.elapsed / max(share * limit, 1e-9)

    def say(self, words: str, done: float | None = None) -> None:
        """Tell whoever wants to know; ``done`` is how much of the work is, from 0 to 1."""
        if self.options.verbose:
            note(f"{self.elapsed:8.2f} s  {words}", done)

    def write(self, objective: float, lower: float, n_neurons: int, size: str = "", words: str = "") -> HistoryEntry:
        """Write down how far it is, and say so, with its ``size`` in words (none: the number of neurons)."""
        entry = HistoryEntry(self.elapsed, objective, lower, n_neurons)
        self.history.append(entry)
        self.say(
            f"{size or f'{n_neurons:5d} neurons'}  objective {unit() * objective:.8g}  gap {entry.gap:.1e}"
            + (f" ({words})" if words else ""),
            closed(entry.gap, self.options.tol),
        )
        return entry


class Run(Log, Generic[NetworkT]):
    """A log, with the best network and the best bound.

    Parameters
    ----------
    problem : Problem
    options : Options
    neurons : Neurons
        The network to begin with.
    objective : float or None
        Its objective; None: to be computed.
    began : float or None
        When the work began, of :func:`~bidual._util.clock.clock`; None: now.

    Attributes
    ----------
    neurons, objective : Neurons, float
        The best network so far.
    bound : Bound
        The best bound so far.
    """

    #: What the neurons are called.
    what: ClassVar[str] = "neurons"

    def __init__(
        self,
        problem: Problem,
        options: Options,
        neurons: NetworkT,
        objective: float | None = None,
        began: float | None = None,
    ) -> None:
        super().__init__(options, began)
        self.problem = problem
        self.adopt(neurons, objective)
        self.bound = Bound.nothing(problem)

    @staticmethod
    def empty(problem: Problem, options: Options, began: float | None = None) -> Run:
        """Without a network yet: any is better."""
        nothing = problem.atoms.none(problem.atoms.M.shape[1], np.zeros(problem.n_outputs))
        return Run(problem, options, nothing, np.inf, began)

    @property
    def gap(self) -> float:
        """Relative gap of the best network and the best bound."""
        return relative_gap(self.objective, self.bound.value)

    @property
    def tolerance(self) -> float:
        """The gap to reach."""
        return self.options.tol

    @property
    def closed(self) -> bool:
        """Whether the gap is as small as was asked for."""
        return self.gap <= self.tolerance

    def predictions(self) -> FloatArray:
        """Outputs of the best network."""
        return self.problem.outputs(self._trained)

    @property
    def _trained(self) -> Neurons:
        """The network; whoever trains something else tells its objective and its size."""
        return cast("Neurons", self.neurons)

    def evaluate(self, neurons: NetworkT) -> float:
        """The objective of a network; other coordinates than those of the problem have another way to it."""
        return self.problem.objective(cast("Neurons", neurons))

    def adopt(self, neurons: NetworkT, objective: float | None = None) -> None:
        """Go on with this network, be it the best or not; its objective is computed unless it is given."""
        self.neurons = neurons
        self.objective = self.evaluate(neurons) if objective is None else objective

    def offer(self, neurons: NetworkT, objective: float | None = None, *, ties: bool = False) -> bool:
        """Keep the network if it is the best so far, with ``ties`` also if it is as good; whether it was kept."""
        objective = self.evaluate(neurons) if objective is None else objective
        if kept := objective < self.objective or (ties and objective == self.objective):
            self.adopt(neurons, objective)
        return kept

    def bounded(self, bound: Bound) -> bool:
        """Keep the bound if it is the best so far; whether it is."""
        if better := bound.value > self.bound.value:
            self.bound = bound
        return better

    def narrow(self: Run, improved: Callable[[Neurons], Iterable[Neurons]]) -> bool:
        """Keep ``max_neurons`` of the best network, if it has more; whether it has.

        Those that cost most, or the best of the networks that ``improved`` makes of them.
        """
        width = self.options.max_neurons
        if self.closed and self.options.tidy:
            self.thin(improved)
        if width is None or np.count_nonzero(self.neurons.costs) <= width:
            return False
        few = self.neurons.take(np.sort(np.argsort(-self.neurons.costs, kind="stable")[:width]))
        self.adopt(few)
        self.status = f"{Status.NARROW}={width}"
        with suppress(Stopped):  # any of them is an answer, and the status says more than the time
            for neurons in improved(few):
                self.offer(neurons)
                checkpoint()
        return True

    def thin(self: Run, improved: Callable[[Neurons], Iterable[Neurons]]) -> None:
        """As few neurons as ``improved`` can make as good as those of the best network, but for what no gap shows.

        By bisection over their number.
        """
        if not (self.problem.atoms.merges and len(self.neurons) <= tuning().gathered):
            return
        ceiling = self.objective * (1.0 + _THINNING * self.options.tol)
        if self.tolerance < 1.0:  # the gap stays closed
            ceiling = min(ceiling, self.bound.value / (1.0 - self.tolerance))
        most = tuning().thinned // max(self.neurons.U.shape[1] * len(self.problem.Y), 1)  # all rows may be zero
        fails = 0
        with suppress(Stopped):
            while (width := min((fails + len(self.neurons)) // 2, most)) > fails:
                checkpoint()
                for few in improved(self._telling(gathered(self.neurons, width))):
                    if (objective := self.evaluate(few)) <= ceiling:
                        self.adopt(few, objective)
                        break
                else:
                    fails = width

    def _telling(self: Run, neurons: Neurons) -> Neurons:
        """Without neurons that are silent on all rows, or constant where there is an intercept for that."""
        answers = np.maximum(self.problem.atoms.reduced @ neurons.U.T, 0.0)
        largest, least = answers.max(axis=0), answers.min(axis=0)
        return neurons.take(largest - self.problem.fit_intercept * least > ZERO * largest)

    def slim(self, neurons: Neurons) -> Neurons:
        """The same network with fewer neurons, at a cost that no gap shows."""
        return reduce_neurons(self.problem, neurons, _SLIMMING * self.options.tol)

    def note(self, n_neurons: int | None = None, words: str = "", size: str = "") -> HistoryEntry:
        """Write down how far it is, see :meth:`write`."""
        n_neurons = len(self._trained) if n_neurons is None else n_neurons
        return self.write(self.objective, self.bound.value, n_neurons, size or f"{n_neurons:5d} {self.what}", words)

    def solution(
        self,
        method: str,
        neurons: NetworkT | None = None,
        *,
        scope: str = "global",
        n_patterns: int | None = None,
        directions: FloatArray | None = None,
        told: bool = False,
        **changes: Any,
    ) -> Solution:
        """The solution with these ``neurons`` (None: the best ones).

        The last line of its history is about them, unless that is ``told`` already.
        """
        if neurons is not None:  # of what is told, nothing is computed again: rows may be many
            self.adopt(neurons, self.objective if told else self.problem.objective(cast("Neurons", neurons)))
        last = HistoryEntry(self.elapsed, self.objective, self.bound.value, len(self._trained))
        found = Solution(
            neurons=self._trained,
            bound=self.bound,
            scope=scope,
            method=method,
            status=self.status,
            n_iter=max(1, self.n_iter),
            n_patterns=n_patterns,
            history=self.history if told else [*self.history, last],
            directions=directions,
        )
        return replace(found, **changes)
