"""004 Fig. 9: a mixture of Gaussians on a line; test accuracy of the optimum and of gradient descent."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from bidual import SplineClassifier
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.line import outputs, train

CENTRES = {-2: -1.0, -1: 1.0, 0: 1.0, 1: -1.0, 2: 1.0}
BETA = 1e-2


def draw(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points of five clouds of standard deviation 0.25, with the labels of their centres."""
    centres = rng.choice(list(CENTRES), n)
    return centres + 0.25 * rng.standard_normal(n), np.array([CENTRES[c] for c in centres.tolist()])


@experiment(
    "004-fig9",
    title="Five clouds on a line, hinge loss: test accuracy against the number of rows",
    claim="The optimum of Theorem 5.2 generalises slightly better than gradient descent, and their functions agree.",
    paper="curves only: mean test accuracy of Theory slightly above that of GD",
)
def run(context: Context) -> Outcome:
    """Several data sets for each size; the deviation 0.25 is taken for the paper's N(mu, 0.25)."""
    sizes, sets = (20, 40, 80, 160), context.pick(quick=6, default=20, full=100)
    steps = context.pick(quick=1_500, default=5_000)
    test_x, test_y = draw(5000, np.random.default_rng(1000))
    accuracy = {"optimum": np.zeros((len(sizes), sets)), "gradient descent": np.zeros((len(sizes), sets))}
    excess, example = [], None
    for i, n in enumerate(sizes):
        for j in range(sets):
            x, y = draw(n, np.random.default_rng(100 * i + j))
            fit = SplineClassifier(beta=BETA, loss="hinge").fit(x[:, None], y)
            gd = train(x, y, beta=BETA, m=20, runs=1, std=0.5, steps=steps, loss="hinge", rate=0.05)
            accuracy["optimum"][i, j] = 100 * fit.score(test_x[:, None], test_y)
            accuracy["gradient descent"][i, j] = 100 * np.mean(np.sign(outputs(gd, test_x)[0]) == test_y)
            excess.append(gd.objective / fit.objective_ - 1)
            example = (x, y, fit, gd) if (n, j) == (80, 0) else example
        context.log(f"n = {n}: " + ", ".join(f"{k} {v[i].mean():.2f}" for k, v in accuracy.items()))
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    x, y, fit, gd = example  # type: ignore[misc]
    grid = np.linspace(-3, 3, 600)
    axes[0].plot(grid, fit.decision_function(grid[:, None]), color="C3", lw=2, label="optimum")
    axes[0].plot(grid, outputs(gd, grid)[0], color="C0", lw=1.2, label="gradient descent")
    axes[0].scatter(x, y, c=y, cmap="coolwarm", s=12, zorder=3)
    axes[0].axhline(0, color="0.7", lw=0.8)
    axes[0].set_title("n = 80", fontsize=10)
    for (name, values), color in zip(accuracy.items(), ("C3", "C0"), strict=True):
        mean, spread = values.mean(axis=1), values.std(axis=1)
        axes[1].plot(sizes, mean, "o-", color=color, label=name)
        axes[1].fill_between(sizes, mean - spread, mean + spread, color=color, alpha=0.15)
    axes[1].set(xlabel="n", ylabel="test accuracy (%)", xscale="log", xticks=sizes, xticklabels=sizes)
    axes[1].minorticks_off()
    for axis in axes:
        axis.legend(frameon=False)
    context.save(figure, "004-fig9.png")
    ours, theirs = (values.mean(axis=1) for values in accuracy.values())
    differences = np.subtract(*accuracy.values()).ravel()
    gain, error = float(differences.mean()), float(differences.std() / np.sqrt(len(differences)))
    return Outcome(
        judge(gain > 2 * error, min(excess) > -1e-6 and np.median(excess) < 0.02),
        ours=f"mean test accuracy {ours.round(2).tolist()} (optimum), {theirs.round(2).tolist()} % (GD) for n = "
        f"{sizes}, a difference of {gain:+.3f} ± {error:.3f}; objective of GD {100 * np.median(excess):.2g} % "
        f"above the optimum (median), {100 * min(excess):+.1g} % at least",
        sizes=f"{sets} data sets for each n, {steps} steps, 20 neurons, beta = {BETA:g}",
        details=table(
            ["n", "optimum, mean", "optimum, deviation", "GD, mean", "GD, deviation"],
            [(n, *(float(f(v[i])) for v in accuracy.values() for f in (np.mean, np.std))) for i, n in enumerate(sizes)],
        ),
    )
