"""The closed form for networks with batch normalisation against gradient descent: 000 Fig. 3 and 001 Fig. 6."""

from __future__ import annotations

import time
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from bidual import ReLURegressor
from reproductions.descent import Descent, tuned
from reproductions.framework import Context, table
from reproductions.normalised import accuracy, images, train_bn, watched

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClosedBatchNorm:
    """Objective and test accuracy by formula and of each run, and the Markdown table of them."""

    formula: float
    formula_test: float
    gap: float
    seconds: float
    ends: Array
    tests: Array
    details: str


def compare(context: Context, name: str, *, classes: int, n: int, m: int, runs: int, epochs: int) -> ClosedBatchNorm:
    """The paper's beta = 1 (of the sum of losses), squared loss of one-hot targets, full-batch gradient descent."""
    X, y, X_test, y_test = images(context, classes, n, 3000)
    beta = 1.0 / len(X)
    began = time.perf_counter()
    fit = ReLURegressor(beta, architecture="batch_norm", method="closed_form", fit_intercept=False)
    fit.fit(X, np.eye(classes)[y])
    seconds = time.perf_counter() - began
    formula_test = accuracy(fit.predict(X_test), y_test)
    context.log(f"formula {fit.objective_:.7f} ({seconds:.1f} s), test {formula_test:.1f} %")

    def train(rate: float, seed: int) -> Descent:
        return train_bn(
            X, y, beta=beta, m=m, seed=seed, rate=rate, epochs=epochs, cosine=True, watch={"test": (X_test, y_test)}
        )

    first, chosen = tuned(context.pick(quick=(0.1,), default=(0.03, 0.1)), lambda rate: train(rate, 0))
    descents = [first, *(train(chosen, seed) for seed in range(1, runs))]
    context.log(f"GD {[round(run.objective, 7) for run in descents]}")
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.7), layout="constrained")
    for run in descents:
        axes[0].plot(run.seconds, len(X) * run.objectives, color="C0", lw=1)
        axes[1].plot(run.seconds, watched(run, "test"), color="C0", lw=1)
    for axis, value in ((axes[0], len(X) * fit.objective_), (axes[1], formula_test)):
        axis.axhline(value, color="C3", ls="--", lw=1)
        axis.plot([seconds], [value], "x", color="C3", ms=9, mew=2, label="formula")
        axis.plot([], [], color="C0", label="gradient descent")
        axis.set_xlabel("seconds")
    axes[0].set(ylabel="objective (sum of losses)", yscale="log")
    axes[1].set_ylabel("test accuracy (%)")
    axes[0].legend(frameon=False)
    context.save(figure, f"{name}.png")
    ends = len(X) * np.array([run.objective for run in descents])
    tests = np.array([watched(run, "test")[-1] for run in descents])
    rows = [("formula", len(X) * fit.objective_, formula_test, seconds)]
    rows += [
        (f"gradient descent, run {k + 1}", float(ends[k]), float(tests[k]), float(run.seconds[-1]))
        for k, run in enumerate(descents)
    ]
    return ClosedBatchNorm(
        formula=len(X) * fit.objective_,
        formula_test=formula_test,
        gap=fit.gap_,
        seconds=seconds,
        ends=ends,
        tests=tests,
        details=f"Proven gap of the formula {fit.gap_:.0e}; {m} neurons and rate {chosen:g} for gradient descent. "
        "Classes of CIFAR-10 stand in for those of CIFAR-100.\n\n"
        + table(["", "objective (sum of losses)", "test accuracy (%)", "seconds (wall)"], rows),
    )
