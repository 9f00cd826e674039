"""What every method of training takes and returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bidual._util.typing import FloatArray
from bidual.arrangements import Patterns
from bidual.atoms import GatedNeurons, Neurons
from bidual.atoms.abilities import WORDS, Needs, offered
from bidual.bounds import Bound, relative_gap
from bidual.problem import Problem

#: Up to this many activation patterns are enumerated to prove a bound.
PROOF_PATTERNS = 20_000


@dataclass(frozen=True)
class Options:
    """How to solve, as opposed to what (:class:`bidual.problem.Problem`)."""

    tol: float = 1e-4
    enough: float | None = None  # a gap at which training ends once predictions hardly change; None: only ``tol``
    max_iter: int = 200
    time_limit: float | None = None
    n_patterns: int | None = None
    random_state: int | np.random.RandomState | None = None
    start: Neurons | GatedNeurons | None = None
    directions: FloatArray | None = None  # hidden weights of neurons worth a look: those of a similar problem
    max_neurons: int | None = None
    audit: bool = True
    tidy: bool = True  # whether a finished network is made as small as can be
    prove: float | str | bool = "auto"  # seconds for a proof after training; see bidual.solvers.proving
    gates: Patterns | None = None  # of a gated network, or the patterns to use; None: drawn at random
    verbose: int = 0


#: Options that change what is trained, so that ignoring them would be a lie; None: not set.
OPTIONAL = frozenset({"gates", "max_neurons", "n_patterns"})


@dataclass(frozen=True)
class HistoryEntry:
    """State of a fit at one moment."""

    elapsed: float
    objective: float
    likely_bound: float
    n_neurons: int

    @property
    def gap(self) -> float:
        """Relative gap of the two."""
        return relative_gap(self.objective, self.likely_bound)


@dataclass(frozen=True)
class Solution:
    """Neurons and the bound that goes with them.

    Attributes
    ----------
    neurons : Neurons or GatedNeurons
    bound : Bound
        Lower bound on the optimum of ``scope``; with a proof, or by local search.
    scope : str
        See :class:`bidual.bounds.Certificate`.
    method : str
        How the dual constraint was checked, in words.
    status : str
        Why the solver stopped, in words.
    directions : ndarray, shape (k, p), or None
        Hidden weights of neurons that came close to being of use; good starts for a similar problem.
    proven : tuple of Bound and str, or None
        Beside a bound by search: the best one of the same scope that was proven on the way, and how.
    """

    neurons: Neurons | GatedNeurons
    bound: Bound
    scope: str
    method: str
    status: str
    n_iter: int
    n_patterns: int | None = None
    history: list[HistoryEntry] = field(default_factory=list)
    directions: FloatArray | None = None
    proven: tuple[Bound, str] | None = None


class Solver(ABC):
    """A method of training: what it needs, which options it honours, and how it solves.

    A subclass with a :attr:`name` is a choice of ``method=`` from then on. Nothing else needs to know of it.
    """

    #: All methods that have a name.
    registry: ClassVar[dict[str, Solver]] = {}
    name: ClassVar[str]
    #: What it needs of a problem, see :mod:`bidual.atoms.abilities`.
    needs: ClassVar[Needs] = ()
    #: Which of :data:`OPTIONAL` it takes into account.
    honours: ClassVar[frozenset[str]] = frozenset()
    #: ``tol`` and ``enough`` of :class:`Options` if the user leaves them to the method.
    accuracy: ClassVar[tuple[float, float | None]] = (1e-4, None)

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            Solver.registry[cls.name] = cls()

    def solve(self, problem: Problem, options: Options) -> Solution:
        """Train; before any arithmetic, refuse what does not go together."""
        self.check_options(options)
        there = problem.atoms.can | offered(problem.loss, problem.n_outputs, problem.fit_intercept)
        lacking = [need for need in self.needs if not need & there]
        if lacking:
            words = " and ".join(" or ".join(WORDS[one] for one in sorted(need)) for need in lacking)
            raise ValueError(f"{self!r} needs {words}, which this problem does not have: use another method")
        return self._solve(problem, options)

    __call__ = solve

    def check_options(self, options: Options) -> None:
        """Raise ValueError, with what would honour it, for an option that was set and would be ignored."""
        for option in sorted(OPTIONAL - self.honours):
            if getattr(options, option) is not None:
                others = [repr(name) for name, solver in Solver.registry.items() if option in solver.honours]
                raise ValueError(
                    f"{option} has no meaning to {self!r}: leave it at None, or use method={' or '.join(others)}"
                )

    @abstractmethod
    def _solve(self, problem: Problem, options: Options) -> Solution:
        """Train."""

    def __repr__(self) -> str:
        return f"method={self.name!r}" if hasattr(self, "name") else type(self).__name__
