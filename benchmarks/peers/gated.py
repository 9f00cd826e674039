"""Gated ReLU: the gates are fixed, the problem is a group lasso, and all methods get the same gates."""

from __future__ import annotations

import numpy as np
from problems import Problem

from .common import FloatArray, Trace
from .external import Worker


def gates(problem: Problem, seed: int, count: int) -> FloatArray:
    """Gaussian gates ``(d, count)``."""
    return np.random.default_rng(1000 + seed).standard_normal((problem.shape[1], count))


class Gated:
    """A worker on the common gates."""

    def __init__(self, worker: Worker, n_gates: int) -> None:
        self.worker, self.n_gates = worker, n_gates

    def __call__(self, problem: Problem, seed: int, limit: float) -> Trace:
        """Run the worker."""
        return self.worker(problem, seed, limit, gates=gates(problem, seed, self.n_gates))
