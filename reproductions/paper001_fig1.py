"""001 Fig. 1: deep ReLU networks of one input interpolate by linear splines."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch

from bidual.closed_form.rank_one import interpolate_spline
from reproductions.descent import deep, descend, half_weight_squares
from reproductions.framework import Context, Outcome, experiment, judge, table

x = np.array([0.2, 0.9, 1.5, 2.2, 3.0, 3.6])
y = np.array([0.3, 1.2, 0.4, 1.6, 0.8, 1.5])  # the slope changes its sign at every point: the optimum is unique
BETA = 1e-4


def spread_kinks(module: torch.nn.Sequential) -> torch.nn.Sequential:
    """Initial biases of the last hidden layer that spread its kinks evenly over the data.

    On positive inputs the layers before it are linear; with torch's own biases all kinks begin near zero, and
    training is stuck far from a fit.
    """
    last = module[-3]
    with torch.no_grad():
        last.bias.zero_()
        slopes = module[:-2](torch.ones(1, 1, dtype=torch.float64))[0]
        last.bias.copy_(-slopes * torch.linspace(x[0], x[-1], len(slopes), dtype=torch.float64))
    return module


@experiment(
    "001-fig1",
    title="One-dimensional interpolation by networks of L = 2, 3, 4, 5 layers",
    claim="For any depth the optimal network is the linear spline through the data, with kinks at the data points.",
    paper="curves only: trained networks of 20 neurons in each layer lie on the linear spline",
)
def run(context: Context) -> Outcome:
    """The formula, and Adam with weight decay; biases (of the last hidden layer and the output) are free."""
    grid = np.linspace(x[0], x[-1], 400)
    spline = np.interp(grid, x, y)
    steps = context.pick(quick=5_000, default=20_000)
    depths = (2, 3, 4, 5)
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.2), sharey=True, layout="constrained")
    rows, formula_errors, excesses, errors = [], [], [], []
    for axis, depth in zip(axes, depths, strict=True):
        network, certificate = interpolate_spline(x[:, None], y, depth=depth)
        formula_errors.append(float(np.abs(network.predict(grid[:, None]).ravel() - spline).max()))
        runs = [
            descend(
                spread_kinks(deep([1, *[20] * (depth - 1), 1], biases=2, seed=seed)), x[:, None], y, beta=BETA,
                penalty=half_weight_squares, optimiser="adam", rate=0.01, cosine=True, epochs=steps, records=10,
            )
            for seed in range(context.pick(quick=1, default=2))
        ]  # fmt: skip
        best = min(runs, key=lambda run: run.objective)
        with torch.no_grad():
            trained = best.module(torch.as_tensor(grid[:, None])).numpy().ravel()
            penalty = float(half_weight_squares(best.module))
        errors.append(float(np.abs(trained - spline).max()))
        excesses.append(penalty / certificate.objective - 1)
        axis.plot(grid, spline, color="C3", lw=3, alpha=0.5, label="linear spline (formula)")
        axis.plot(grid, trained, color="C0", lw=1.2, label="trained")
        axis.plot(x, y, "ko", ms=4)
        axis.set_title(f"L = {depth}")
        rows.append((depth, certificate.objective, certificate.gap, formula_errors[-1], penalty, errors[-1]))
        context.log(str(rows[-1]))
    axes[0].legend(frameon=False)
    context.save(figure, "001-fig1.png")
    kinks, merged = (float(depths[1] / 2 * v) for v in (2.0, 2.0 ** (2 / 3)))
    return Outcome(
        judge(max(formula_errors) < 1e-9, max(errors) < 0.1, min(excesses) > -0.03),
        ours=f"formula on the spline to {max(formula_errors):.0e}; trained networks at most {max(errors):.3f} from "
        f"it, their penalties {100 * min(excesses):+.1f} to {100 * max(excesses):+.1f} % of the formula's",
        sizes=f"six points of our own, Adam, {steps} steps, beta = {BETA:g} (a little below an exact fit)",
        details=table(
            ["L", "smallest penalty (formula)", "gap", "formula to spline", "trained penalty", "trained to spline"],
            rows,
        )
        + "\n\nFor L > 2 this holds for dense networks, whose ramps share the first layers. In the parallel "
        "networks of 001 (Cor. 4.2 as printed) it does not: two equal changes of slope in branches of their own "
        f"cost {kinks:.3f} at L = 3, one kink between the two points {merged:.3f}. And where neighbouring changes of "
        "slope have one sign, the spline is one optimum of several.",
    )
