"""004 Fig. 1: gradient descent from small weights finds the linear spline; so does the hinge loss."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from bidual import SplineClassifier, SplineRegressor
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.line import outputs, train

x = np.array([-2.0, -1.2, -0.3, 0.6, 1.3, 2.0])
y = np.array([0.8, -0.6, 0.9, -0.4, 0.7, -0.5])
labels = np.array([1.0, 1.0, -1.0, -1.0, 1.0, 1.0])


@experiment(
    "004-fig1",
    title="One input: deviation from the linear spline against the size of the initial weights",
    claim="Without regularisation gradient descent fits the linear spline if the initial weights are small, and "
    "something else if they are large; the optimum is the spline, for the hinge loss too.",
    paper="curves only: the deviation vanishes below a critical standard deviation of the initial weights",
)
def run(context: Context) -> Outcome:
    """Six points, networks of 50 and 200 neurons with free biases; the optima for beta = 0."""
    grid = np.linspace(x[0], x[-1], 600)
    spline = np.interp(grid, x, y)
    best = SplineRegressor(beta=0.0).fit(x[:, None], y)
    exact = float(np.abs(best.predict(grid[:, None]) - spline).max())
    stds = np.array(context.pick(quick=[0.02, 0.1, 0.5, 2.0], default=[0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0]))
    widths, runs = (50, 200), context.pick(quick=5, default=20)
    steps = context.pick(quick=5_000, default=40_000)
    deviations, fitted = np.zeros((len(widths), len(stds))), np.zeros((len(widths), len(stds)))
    starts, curves = np.repeat(stds, runs), []
    for i, m in enumerate(widths):
        rates = 0.02 / np.maximum(1.0, m * starts**2)  # larger weights need shorter steps
        gd = train(x, y, beta=0.0, m=m, runs=len(starts), std=starts, steps=steps, loss="squared", rate=rates)
        F = outputs(gd.module, grid).reshape(len(stds), runs, -1)
        deviations[i] = np.abs(F - spline).max(axis=2).mean(axis=1)
        fitted[i] = np.median(gd.objectives[-1].reshape(len(stds), runs), axis=1)
        curves.append(F)
        context.log(f"m = {m}: {deviations[i].round(3).tolist()}, losses {fitted[i]}")
    margin = SplineClassifier(beta=0.0, loss="hinge").fit(x[:, None], labels)
    scores = margin.decision_function(grid[:, None])
    hinge = train(x, labels, beta=1e-4, m=50, runs=runs, std=0.05, steps=steps, loss="hinge", rate=0.05)
    figure, axes = plt.subplots(1, 3, figsize=(14, 3.8), layout="constrained")
    for m, line in zip(widths, deviations, strict=True):
        axes[0].plot(stds, line, "o-", label=f"m = {m}")
    axes[0].set(xscale="log", xlabel="standard deviation of the initial weights", ylabel="deviation from the spline")
    axes[1].plot(grid, spline, color="C3", lw=3, alpha=0.5, label="linear spline")
    axes[1].plot(grid, curves[0][0].T, color="C0", lw=0.7)
    axes[1].plot(x, y, "ko", ms=4)
    axes[1].set_title(f"trained from std {stds[0]:g}", fontsize=10)
    axes[2].plot(grid, scores, color="C3", lw=3, alpha=0.5, label="smallest network of margin one")
    axes[2].plot(grid, outputs(hinge.module, grid).T, color="C0", lw=0.7)
    axes[2].plot(x, labels, "ko", ms=4)
    axes[2].axhline(0, color="0.7", lw=0.8)
    axes[2].set_title("hinge loss", fontsize=10)
    for axis in axes:
        axis.legend(frameon=False, fontsize=8)
    context.save(figure, "004-fig1.png")
    return Outcome(
        judge(exact < 1e-6, deviations[:, 0].max() < 0.1, bool((deviations[:, -1] > 2 * deviations[:, 0]).all())),
        ours=f"optimum on the spline to {exact:.0e}; deviation of gradient descent {deviations[0, 0]:.3f} / "
        f"{deviations[1, 0]:.3f} (std {stds[0]:g}), {deviations[0, -1]:.3f} / {deviations[1, -1]:.3f} (std "
        f"{stds[-1]:g}) for m = {widths[0]} / {widths[1]}",
        sizes=f"{runs} runs of {steps} steps for each point; the paper's points are not published",
        details=table(
            [
                "std of the initial weights",
                *(f"deviation, m = {m}" for m in widths),
                *(f"loss, m = {m}" for m in widths),
            ],
            [(float(s), *map(float, deviations[:, j]), *map(float, fitted[:, j])) for j, s in enumerate(stds)],
        )
        + f"\n\nSmallest penalty through the points {best.objective_:.6f} (gap {best.gap_:.0e}), of margin one "
        f"{margin.objective_:.6f} (gap {margin.gap_:.0e})."
        + "\n\nFrom the smallest weights gradient descent does not always end at the spline. Its loss is zero all the "
        "same: it has found another interpolant, with a kink between two points."
        * bool(deviations[:, 0].max() > 0.1 and fitted[:, 0].max() < 1e-6),
    )
