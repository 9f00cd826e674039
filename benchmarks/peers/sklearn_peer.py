"""scikit-learn's MLPRegressor.

It minimises ``1/2 mean (f - y)^2 + alpha/(2 n_batch) (norm(W1)^2 + norm(W2)^2)``, so ``alpha = beta * n`` with the full
batch is our penalty on the weights. It also has hidden biases and an output intercept, neither of them penalised nor
optional. Its network is therefore not one of the problem's (the intercept is a freedom the others do not have), and its
objective, from ``from_sklearn(...).objective``, charges hidden biases like weights: a number to look at, not to rank.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from problems import Problem
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from bidual.networks import from_sklearn

from .common import Clock, Trace


def _exact(problem: Problem, mlp: MLPRegressor) -> float:
    return from_sklearn(mlp).objective(problem.X, problem.y, beta=problem.beta)


class SklearnAdam:
    """``solver="adam"``, full batch, constant rate (it has no schedule for Adam)."""

    def __init__(self, width: int, rate: float = 1e-2) -> None:
        self.width, self.rate = width, rate

    def __call__(self, problem: Problem, seed: int, limit: float) -> Trace:
        """One ``partial_fit`` is one step; train until the time is over."""
        n = len(problem.y)
        mlp = MLPRegressor(
            hidden_layer_sizes=(self.width,),
            solver="adam",
            alpha=problem.beta * n,
            batch_size=n,
            learning_rate_init=self.rate,
            random_state=seed,
        )
        clock, trace, next_point = Clock(), Trace(neurons=self.width), 0.0
        while clock.seconds < limit:
            mlp.partial_fit(problem.X, problem.y)
            if clock.seconds >= next_point:
                with clock.paused():
                    trace.add(clock.seconds, _exact(problem, mlp))
                next_point = clock.seconds + limit / 100
        trace.add(clock.seconds, _exact(problem, mlp))
        return trace


class _TimeIsUp(Exception):
    pass


class _WatchedMLP(MLPRegressor):
    """Calls ``watch`` at every evaluation of L-BFGS, which scikit-learn itself does not offer."""

    def _loss_grad_lbfgs(self, *args: Any) -> Any:
        value = super()._loss_grad_lbfgs(*args)
        self.watch(self, value[0])
        return value


class SklearnLBFGS:
    """``solver="lbfgs"``."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, problem: Problem, seed: int, limit: float) -> Trace:
        """Train until scikit-learn stops or the time is over."""
        clock, trace = Clock(), Trace(neurons=self.width)

        def watch(mlp: MLPRegressor, value: float) -> None:
            # its value is our objective without the charge for hidden biases
            with clock.paused():
                value += 0.5 * problem.beta * float((mlp.intercepts_[0] ** 2).sum())
                if not trace.times:
                    assert np.isclose(value, _exact(problem, mlp), rtol=1e-9)
                trace.add(clock.seconds, value)
            if clock.seconds > limit:
                raise _TimeIsUp

        mlp = _WatchedMLP(
            hidden_layer_sizes=(self.width,),
            solver="lbfgs",
            alpha=problem.beta * len(problem.y),
            max_iter=10**6,
            max_fun=10**9,
            tol=1e-9,
            random_state=seed,
        )
        mlp.watch = watch
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            try:
                mlp.fit(problem.X, problem.y)
                trace.add(clock.seconds, _exact(problem, mlp))
            except _TimeIsUp:
                trace.note = "stopped by the time limit"
        return trace
