"""004 Fig. 1: gradient descent from small weights finds the linear spline; so does the hinge loss."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch

from bidual import SplineClassifier, SplineRegressor
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.line import Array, outputs, train

x = np.array([-2.0, -1.2, -0.3, 0.6, 1.3, 2.0])
y = np.array([0.8, -0.6, 0.9, -0.4, 0.7, -0.5])
labels = np.array([1.0, 1.0, -1.0, -1.0, 1.0, 1.0])
WIDTHS = (50, 200)
#: What counts as no deviation, of functions and of places: a hundredth of the size of the data.
CLOSE = 0.01
LENGTH = x[-1] - x[0]


def at_samples(module: torch.nn.Module) -> Array:
    """For each run, the share of all turning within the data, sum of |a u|, that is close to a sample."""
    u, b, a = (parameter.detach().numpy()[:, 0] for parameter in (module.u, module.b, module.a))
    place, turn = -b / u, np.abs(a * u)
    turn = turn * ((place > x[0] - CLOSE * LENGTH) & (place < x[-1] + CLOSE * LENGTH))
    near = np.abs(place[..., None] - x).min(axis=2) < CLOSE * LENGTH
    return (turn * near).sum(axis=1) / turn.sum(axis=1)


def boundaries(f: Array, grid: Array) -> Array:
    """Where a function on a grid changes its sign."""
    i = np.flatnonzero(f[:-1] * f[1:] < 0)
    return grid[i] + (grid[1] - grid[0]) * f[i] / (f[i] - f[i + 1])


@experiment(
    "004-fig1",
    title="One input: deviation from the linear spline against the size of the initial weights",
    claim="Without regularisation gradient descent fits the linear spline, with kinks at the samples, if the initial "
    "weights are small, and something else if they are large; the optimum is the spline, and the same holds for "
    "the hinge loss.",
    paper="curves only: the deviation vanishes below a critical standard deviation of the initial weights",
)
def run(context: Context) -> Outcome:
    """Six points, networks of 50 and 200 neurons with free biases; the optima for beta = 0."""
    grid = np.linspace(x[0], x[-1], 600)
    spline, span = np.interp(grid, x, y), float(np.ptp(y))
    best = SplineRegressor(beta=0.0).fit(x[:, None], y)
    exact = float(np.abs(best.predict(grid[:, None]) - spline).max())
    stds = np.array(context.pick(quick=[0.02, 0.1, 0.5, 2.0], default=[0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0]))
    runs, steps = context.pick(quick=5, default=20), context.pick(quick=6_000, default=25_000)
    starts, deviations, kinks, fitted, networks = np.repeat(stds, runs), [], [], [], {}
    for m in WIDTHS:
        rates = 0.02 / np.maximum(1.0, m * starts**2)  # larger weights need shorter steps
        gd = train(x, y, beta=0.0, m=m, runs=len(starts), std=starts, steps=steps, loss="squared", rate=rates)
        networks[m] = gd.module
        F = outputs(gd.module, grid).reshape(len(stds), runs, -1)
        deviations.append(np.abs(F - spline).max(axis=2) / span)
        kinks.append(np.median(at_samples(gd.module).reshape(len(stds), runs), axis=1))
        fitted.append(gd.objectives[-1].reshape(len(stds), runs).max(axis=1))
        context.log(f"m = {m}: {deviations[-1].mean(axis=1).round(3)}, losses {fitted[-1]}, kinks {kinks[-1]}")
    means, on = np.mean(deviations, axis=2), (np.array(deviations) < CLOSE).sum(axis=2)
    smallest, critical = stds[0], int(means.mean(axis=0).argmin())
    margin = SplineClassifier(beta=0.0, loss="hinge").fit(x[:, None], labels)
    scores = margin.decision_function(grid[:, None])
    hinge = train(x, labels, beta=0.0, m=WIDTHS[0], runs=runs, std=smallest, steps=steps, loss="hinge", rate=0.02)
    F, ends = outputs(hinge.module, grid), boundaries(scores, grid)
    off = np.array(
        [np.abs(found - ends).max() if len(found := boundaries(f, grid)) == len(ends) else np.inf for f in F]
    )
    same = int((off < CLOSE * LENGTH).sum())
    figure, axes = plt.subplots(2, 2, figsize=(11, 7.4), layout="constrained")
    (deviation, neurons), (fit, classes) = axes
    for m, line in zip(WIDTHS, means, strict=True):
        deviation.plot(stds, line, "o-", label=f"m = {m}")
    deviation.set(xscale="log", xlabel="standard deviation of the initial weights", ylabel="mean deviation (of span)")
    shown = critical * runs
    u, b, a = (p.detach().numpy()[shown, 0] for p in (networks[50].u, networks[50].b, networks[50].a))
    neurons.plot(grid, np.maximum(np.outer(grid, u) + b, 0.0) * a, color="C0", lw=0.7)
    neurons.plot(grid, outputs(networks[50], grid)[shown], color="C3", lw=2, label="their sum and the output bias")
    neurons.set_title(f"contribution of each neuron, std {stds[critical]:g}", fontsize=10)
    fit.plot(grid, spline, color="C3", lw=3, alpha=0.5, label="linear spline")
    fit.plot(grid, outputs(networks[50], grid)[:runs].T, color="C0", lw=0.7)
    fit.set_title(f"trained from std {smallest:g}", fontsize=10)
    classes.plot(grid, scores, color="C3", lw=3, alpha=0.5, label="smallest network of margin one")
    classes.plot(grid, F.T, color="C0", lw=0.7)
    classes.set_title(f"hinge loss, trained from std {smallest:g}", fontsize=10)
    for axis, values in ((neurons, y), (fit, y), (classes, labels)):
        axis.plot(x, values, "ko", ms=4)
        axis.axhline(0, color="0.7", lw=0.8)
    for axis in axes.ravel():
        axis.legend(frameon=False, fontsize=8)
    context.save(figure, "004-fig1.png")
    header = ["std of the initial weights"]
    for m in WIDTHS:
        header += [f"m = {m}: mean deviation", "median", "runs on the spline", "turning at samples", "largest loss"]
    rows = [
        [f"{std:g}"]
        + [
            cell
            for i in range(len(WIDTHS))
            for cell in (
                f"{means[i, j]:.4f}", f"{np.median(deviations[i][j]):.1e}", f"{on[i, j]} of {runs}",
                f"{100 * kinks[i][j]:.0f} %", f"{fitted[i][j]:.0e}",
            )
        ]
        for j, std in enumerate(stds)
    ]  # fmt: skip
    return Outcome(
        judge(
            exact < 1e-6,
            bool((means[:, 0] < CLOSE).all()),
            bool((means[:, -1] > 10 * CLOSE).all()),
            min(kink[critical] for kink in kinks) > 1.0 - CLOSE,
            same == runs,
        ),
        ours=f"optimum on the spline to {exact:.0e}; mean deviation of gradient descent {means[0, 0]:.3f} / "
        f"{means[1, 0]:.3f} of the span of y (std {stds[0]:g}), {means[0, critical]:.3f} / {means[1, critical]:.3f} "
        f"(std {stds[critical]:g}), {means[0, -1]:.2f} / {means[1, -1]:.2f} (std {stds[-1]:g}) for m = {WIDTHS[0]} / "
        f"{WIDTHS[1]}; hinge loss: {same} of {runs} runs have the decision boundaries of the optimum",
        sizes=f"{runs} runs of {steps} steps for each point; the paper's points, widths and steps are not published",
        details=table(header, rows)
        + f"\n\nDeviations are largest differences from the spline, as fractions of the span of y; on the spline: "
        f"below {CLOSE:g}. Turning at samples: share of the sum of |a u| of neurons whose kink -b/u is within "
        f"{100 * CLOSE:.0f} % of the data's length from a sample (median over runs). The deviation "
        f"{'grows' if (np.diff(means, axis=1) > 0).all() else 'does not grow steadily'} with the initial weights; "
        "where the loss is zero and the deviation is not, gradient descent has found another interpolant."
        f"\n\nHinge loss: no regularisation either, {WIDTHS[0]} neurons, std {smallest:g}. Largest distance of a "
        f"decision boundary from that of the smallest network of margin one: median {np.median(off):.3f} of a length "
        f"of {LENGTH:g}. Functions themselves are not compared: between equal labels the optimum is not unique. "
        f"Smallest penalty through the points {best.objective_:.6f} (gap {best.gap_:.0e}), of margin one "
        f"{margin.objective_:.6f} (gap {margin.gap_:.0e}).",
    )
