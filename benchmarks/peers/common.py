"""What every peer returns, and how it is measured.

Only numpy is imported here: the workers of the peers' own environment use this file too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass
class Trace:
    """One run: the training objective (float64, of the network itself) against wall-clock seconds."""

    times: list[float] = field(default_factory=list)
    objectives: list[float] = field(default_factory=list)
    neurons: int | None = None
    note: str = ""
    #: Further numbers of the method: tuned rate, certified gap, ...
    extra: dict[str, Any] = field(default_factory=dict)

    def add(self, seconds: float, objective: float) -> None:
        """Record a point; a value that is not a number is left out."""
        if np.isfinite(objective):
            self.times.append(float(seconds))
            self.objectives.append(float(objective))

    @property
    def best(self) -> float:
        """The lowest objective of the run, infinite if there is none."""
        return min(self.objectives, default=np.inf)

    @property
    def seconds(self) -> float:
        """The time of the last point."""
        return max(self.times, default=np.nan)

    def at(self, seconds: float) -> float:
        """The lowest objective up to this time, nan if there is none yet."""
        values = [v for t, v in zip(self.times, self.objectives, strict=True) if t <= seconds]
        return min(values, default=np.nan)

    def time_to(self, objective: float) -> float:
        """The first time at which the objective is as low as this, infinite if it never is."""
        return min((t for t, v in zip(self.times, self.objectives, strict=True) if v <= objective), default=np.inf)


class Clock:
    """Wall-clock seconds since the start, without the time spent on measuring."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._paused = 0.0

    @property
    def seconds(self) -> float:
        """Seconds that count."""
        return time.perf_counter() - self._began - self._paused

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time spent in this block does not count."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - began


def network_objective(X: FloatArray, y: FloatArray, beta: float, hidden: FloatArray, output: FloatArray) -> float:
    """Mean of ``1/2 (f - y)^2`` plus ``beta/2 (norm(hidden)^2 + norm(output)^2)``, in float64.

    ``hidden`` is ``(m, d)``, ``output`` ``(m,)``; the network has no biases.
    """
    hidden, output = np.asarray(hidden, dtype=np.float64), np.asarray(output, dtype=np.float64)
    outputs = np.maximum(X @ hidden.T, 0.0) @ output
    return float(0.5 * np.mean((outputs - y) ** 2) + 0.5 * beta * ((hidden**2).sum() + (output**2).sum()))


def lifted_objective(X: FloatArray, y: FloatArray, beta: float, V: FloatArray, signs: FloatArray) -> float:
    """The same for balanced neurons ``sign * (x^T v)_+``, whose penalty is ``beta * norm(v)``."""
    V = np.asarray(V, dtype=np.float64)
    outputs = np.maximum(X @ V.T, 0.0) @ signs
    return float(0.5 * np.mean((outputs - y) ** 2) + beta * np.linalg.norm(V, axis=1).sum())


def gated_objective(X: FloatArray, y: FloatArray, beta: float, V: FloatArray, active: NDArray[Any]) -> float:
    """Objective of the gated network ``sum_k active_k * (x^T v_k)``; ``active`` is ``(n, P)``, ``V`` ``(P, d)``."""
    V = np.asarray(V, dtype=np.float64)
    outputs = ((X @ V.T) * active).sum(axis=1)
    return float(0.5 * np.mean((outputs - y) ** 2) + beta * np.linalg.norm(V, axis=1).sum())


def gate_patterns(X: FloatArray, gates: FloatArray) -> NDArray[np.bool_]:
    """Distinct non-zero activation patterns ``(n, P)`` of the gates ``(d, P)``."""
    active = np.unique(X @ gates > 0, axis=1)
    return active[:, active.any(axis=0)]


def planted_warm_up() -> tuple[FloatArray, FloatArray]:
    """A group lasso of two groups of two columns, to load and compile a solver with."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 4))
    return np.asfortranarray(A), A[:, 0] + 0.1 * rng.standard_normal(30)
