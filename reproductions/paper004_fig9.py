"""004 Fig. 9: a mixture of Gaussians on a line; test accuracy of the optimum and of gradient descent."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray

from bidual import SplineClassifier
from reproductions.descent import LOSSES, descend
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.line import Line, line_squares, outputs

Array = NDArray[np.float64]
CENTRES = {-2: -1.0, -1: 1.0, 0: 1.0, 1: -1.0, 2: 1.0}
BETA, M = 1e-2, 20


class Columns(Line):
    """One network for each data set, all trained at once: the columns of X and of the outputs are data sets."""

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Outputs (n, sets) for inputs (n, sets)."""
        return super().forward(X.T[..., None])[..., 0].T


def descents(x: Array, y: Array, steps: int) -> tuple[Columns, Array]:
    """Gradient descent on the data sets in the columns: the networks and their objectives."""
    module = Columns(M, x.shape[1], 0.5)
    descend(
        module, x, y, beta=BETA, loss="hinge", penalty=lambda m: line_squares(m).sum(), rate=0.05, momentum=0.9,
        cosine=True, epochs=steps, records=1,
    )  # fmt: skip
    with torch.no_grad():
        F = module(torch.as_tensor(x)).T[..., None]
        ends = LOSSES["hinge"](F, torch.as_tensor(y.T[..., None])) + BETA * line_squares(module)
    return module, ends.numpy()


def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
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
    sizes, sets = (20, 40, 80, 160), context.pick(quick=10, default=100)
    steps = context.pick(quick=2_000, default=20_000)
    test_x, test_y = draw(5000, np.random.default_rng(1000))
    grid = np.linspace(-3, 3, 600)
    accuracy = {"optimum": np.zeros((len(sizes), sets)), "gradient descent": np.zeros((len(sizes), sets))}
    excess, apart = np.zeros((len(sizes), sets)), np.zeros((len(sizes), sets))
    for i, n in enumerate(sizes):
        drawn_sets = [draw(n, np.random.default_rng(1000 * i + j)) for j in range(sets)]
        x, y = (np.column_stack(part) for part in zip(*drawn_sets, strict=True))
        module, ends = descents(x, y, steps)
        theirs, drawn = (outputs(module, points) for points in (test_x, grid))
        for j in range(sets):
            fit = SplineClassifier(beta=BETA, loss="hinge").fit(x[:, [j]], y[:, j])
            accuracy["optimum"][i, j] = 100 * fit.score(test_x[:, None], test_y)
            accuracy["gradient descent"][i, j] = 100 * np.mean(np.sign(theirs[j]) == test_y)
            excess[i, j] = ends[j] / fit.objective_ - 1
            ours = fit.decision_function(grid[:, None])
            apart[i, j] = np.sqrt(np.mean((drawn[j] - ours) ** 2) / np.mean(ours**2))
            if (n, j) == (80, 0):
                example = x[:, j], y[:, j], ours, drawn[j]
        context.log(f"n = {n}: " + ", ".join(f"{k} {v[i].mean():.2f}" for k, v in accuracy.items()))
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    x, y, *curves = example
    axes[0].plot(grid, curves[0], color="C3", lw=2, label="optimum")
    axes[0].plot(grid, curves[1], color="C0", lw=1.2, label="gradient descent")
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
    means, others = (values.mean(axis=1) for values in accuracy.values())
    differences = np.subtract(*accuracy.values()).ravel()
    gain, error = float(differences.mean()), float(differences.std() / np.sqrt(len(differences)))
    return Outcome(
        judge(gain > 2 * error, bool(excess.min() > -1e-6), bool(np.median(apart) < 0.1)),
        ours=f"mean test accuracy {means.round(2).tolist()} (optimum), {others.round(2).tolist()} % (GD) for n = "
        f"{sizes}, a difference of {gain:+.3f} ± {error:.3f}; functions differ by {100 * np.median(apart):.2g} %, "
        f"objectives by {100 * excess.min():.2g} to {100 * excess.max():.2g} % (median {100 * np.median(excess):.2g})",
        sizes=f"{sets} data sets for each n, {steps} steps, {M} neurons, beta = {BETA:g}",
        details=table(
            ["n", "optimum, mean", "optimum, deviation", "GD, mean", "GD, deviation", "functions differ by",
             "objectives differ by"],
            [(n, *(float(f(v[i])) for v in accuracy.values() for f in (np.mean, np.std)),
              f"{100 * np.median(apart[i]):.2g} %", f"{100 * np.median(excess[i]):.2g} %")
             for i, n in enumerate(sizes)],
        )
        + "\n\nFunctions are compared on [-3, 3] (root mean square of the difference, relative to that of the "
        "optimum; medians). The claim about accuracy is taken to hold if the mean difference is more than twice its "
        "standard error.",
    )  # fmt: skip
