"""The closed form for networks with batch normalisation against gradient descent: 000 Fig. 3 and 001 Fig. 6."""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from bidual import ReLURegressor
from reproductions.descent import Descent, tuned
from reproductions.framework import Context, table, timed
from reproductions.normalised import accuracy, images, train_bn, watched

Array = NDArray[np.float64]
#: Percentages of test rows that differ by less are equal: 3000 rows have a standard error of 0.9.
NOISE = 2.0


@dataclass(frozen=True)
class ClosedBatchNorm:
    """The formula beside gradient descent: objectives (sum of losses), test accuracies (%) and CPU seconds.

    ``ends`` and ``tests`` are of the runs, ``best_test`` is their mean accuracy where it is best on the way, and
    ``early`` the objective after a quarter of the steps.
    """

    formula: float
    formula_test: float
    gap: float
    seconds: float
    ends: Array
    tests: Array
    run_seconds: float
    early: float
    best_test: float
    details: str

    @property
    def excess(self) -> float:
        """How far the best run is above the formula, as a fraction of it."""
        return float(self.ends.min()) / self.formula - 1

    @property
    def stays_above(self) -> bool | None:
        """Whether gradient descent ends above the optimum: None if it is still on its way."""
        if self.excess < 0.01:
            return False
        return True if self.excess > 0.9 * (self.early / self.formula - 1) else None

    @property
    def told(self) -> str:
        """How gradient descent ended, in words."""
        how = {
            False: "it reaches the optimum to one per cent",
            True: "it stays above the optimum",
            None: "it has not converged",
        }[self.stays_above]
        return (
            f"objective {self.formula:.3f} (formula), {self.ends.min():.3f} (best run of GD, "
            f"{100 * self.excess:+.2g} %: {how}); test accuracy {self.formula_test:.1f} % (formula), "
            f"{self.tests.mean():.1f} % (GD at the end), {self.best_test:.1f} % (GD at its best on the way)"
        )


def compare(context: Context, name: str, *, classes: int, n: int, m: int, runs: int, steps: int) -> ClosedBatchNorm:
    """beta = 1 of the sum of losses, squared loss of one-hot targets, full-batch gradient descent."""
    X, y, X_test, y_test = images(context, classes, n, 3000)
    beta, fit = 1.0 / n, ReLURegressor(1.0 / n, architecture="batch_norm", method="closed_form", fit_intercept=False)
    _, _, seconds = timed(lambda: fit.fit(X, np.eye(classes)[y]))
    formula, formula_test = n * fit.objective_, accuracy(fit.predict(X_test), y_test)
    context.log(f"formula {formula:.4f} ({seconds:.1f} CPU s), test {formula_test:.1f} %")

    def train(rate: float, seed: int, steps: int) -> Descent:
        return train_bn(
            X, y, beta=beta, m=m, seed=seed, rate=rate, epochs=steps, cosine=True, watch={"test": (X_test, y_test)}
        )

    early, rate = tuned(context.pick(quick=(0.1,), default=(0.03, 0.1)), lambda rate: train(rate, 0, steps // 4))
    descents = [train(rate, seed, steps) for seed in range(runs)]
    context.log(f"GD at rate {rate:g}: {n * early.objective:.4f}, then {[round(n * d.objective, 4) for d in descents]}")
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.7), layout="constrained")
    for run, color in ((early, "0.6"), *((run, "C0") for run in descents)):
        axes[0].plot(run.cpu_seconds, n * run.objectives, color=color, lw=1)
        axes[1].plot(run.cpu_seconds, watched(run, "test"), color=color, lw=1)
    for axis, value in ((axes[0], formula), (axes[1], formula_test)):
        axis.axhline(value, color="C3", ls="--", lw=1)
        axis.plot([seconds], [value], "x", color="C3", ms=9, mew=2, label="formula")
        axis.plot([], [], color="C0", label="gradient descent")
        axis.plot([], [], color="0.6", label="with a quarter of the steps")
        axis.set(xlabel="CPU seconds", xscale="log")
    axes[0].set(ylabel="objective (sum of losses)", yscale="log")
    axes[1].set_ylabel("test accuracy (%)")
    axes[0].legend(frameon=False)
    context.save(figure, f"{name}.png")
    ends = np.array([n * run.objective for run in descents])
    tests = np.array([watched(run, "test")[-1] for run in descents])
    labelled = [(f"gradient descent, run {k + 1}", run) for k, run in enumerate(descents)]
    rows = [("formula", f"{formula:.4f}", f"{formula_test:.1f}", "", f"{seconds:.2g}")]
    rows += [
        (label, f"{n * run.objective:.4f}", f"{watched(run, 'test')[-1]:.1f}", f"{watched(run, 'test').max():.1f}",
         f"{run.cpu_seconds[-1]:.3g}")
        for label, run in ((f"gradient descent, {steps // 4} steps", early), *labelled)
    ]  # fmt: skip
    return ClosedBatchNorm(
        formula=formula, formula_test=formula_test, gap=fit.gap_, seconds=seconds, ends=ends, tests=tests,
        run_seconds=float(descents[0].cpu_seconds[-1]), early=n * early.objective,
        best_test=float(np.mean([watched(run, "test").max() for run in descents])),
        details=f"Proven gap of the formula {fit.gap_:.0e}. The sizes are such that gradient descent has the time to "
        f"converge: {m} neurons, all rows in each step, momentum 0.9, a cosine schedule and rate {rate:g} of the mean "
        f"loss, the best one for {steps // 4} steps. It reaches the optimum if a run ends within 1 % of it, and stays "
        "above if four times the steps take away less than a tenth of the excess. Test accuracies that differ by less "
        f"than {NOISE:g} points are equal.\n\n"
        + table(["", "objective (sum of losses)", "test accuracy (%)", "best on the way", "CPU seconds"], rows),
    )  # fmt: skip
