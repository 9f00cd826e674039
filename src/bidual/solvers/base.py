"""What every method of training takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bidual._typing import FloatArray
from bidual.arrangements import Patterns
from bidual.certificates import Bound
from bidual.problem import GatedNeurons, Neurons, Problem

#: Up to this many activation patterns are enumerated to prove a bound.
PROOF_PATTERNS = 20_000


@dataclass(frozen=True)
class Options:
    """How to solve, as opposed to what (:class:`bidual.problem.Problem`)."""

    tol: float = 1e-4
    max_iter: int = 200
    time_limit: float | None = None
    n_patterns: int | None = None
    random_state: int | np.random.RandomState | None = None
    start: Neurons | GatedNeurons | None = None
    directions: FloatArray | None = None  # hidden weights of neurons worth a look: those of a similar problem
    max_neurons: int | None = None
    audit: bool = True
    prove: float | str | bool = "auto"  # seconds for a proof after training; see bidual.solvers.proving
    gates: Patterns | None = None  # of a gated network, or the patterns to use; None: drawn at random
    verbose: int = 0


@dataclass(frozen=True)
class HistoryEntry:
    """State of a fit at one moment."""

    elapsed: float
    objective: float
    likely_bound: float
    n_neurons: int


@dataclass(frozen=True)
class Solution:
    """Neurons and the bound that goes with them.

    Attributes
    ----------
    neurons : Neurons or GatedNeurons
    bound : Bound
        Lower bound on the optimum of ``scope``; with a proof, or by local search.
    scope : str
        See :class:`bidual.certificates.Certificate`.
    method : str
        How the dual constraint was checked, in words.
    status : str
        Why the solver stopped, in words.
    directions : ndarray, shape (k, p), or None
        Hidden weights of neurons that came close to being of use; good starts for a similar problem.
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


#: A method of training.
Method = Callable[[Problem, Options], Solution]
