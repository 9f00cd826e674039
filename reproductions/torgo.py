"""Regression sets of 003 Fig. 7, 8 and 9: one function, three experiments."""

from __future__ import annotations

import numpy as np

from bidual import ReLURegressor
from reproductions.data import standardised
from reproductions.framework import Context, Outcome
from reproductions.sampled import Task, compare, regression


def compare_on(context: Context, name: str, data: str, n: int, *, rows: int, beta: float = 1e-2) -> Outcome:
    """The paper's ``n`` rows of a data set (``rows`` of them are used) for training, all others for testing."""
    arrays = context.data.load(data)
    order = np.random.default_rng(0).permutation(len(arrays["y"]))
    train, test = order[:rows], order[n:]
    X, X_test = standardised(arrays["X"][train], arrays["X"][test])
    y, y_test = (part[:, 0] for part in standardised(arrays["y"][train, None], arrays["y"][test, None]))
    task = Task(X, y, X_test, y_test, ReLURegressor, "squared", beta, regression, "test error (mean square)", False)
    steps = context.pick(quick=4_000, default=40_000, full=400_000)
    return compare(
        context, task, name, runs=5, epochs=max(30, steps * task.batch // rows),
        rates=context.pick(quick=(0.03,), default=(0.01, 0.03, 0.1)), solved=context.pick(quick=2, default=5),
        time_limit=context.pick(quick=10.0, default=60.0, full=600.0),
        sizes=f"{rows} random training rows" + f" instead of {n}" * (rows != n)
        + f" and {len(test)} for testing, columns and target standardised",
    )  # fmt: skip
