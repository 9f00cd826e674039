"""Two-dimensional classes: what 003 Fig. 3 and Fig. 6 have in common."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray

from bidual import ReLUClassifier
from reproductions.descent import Ensemble, descend, tuned
from reproductions.framework import Context, table

Array = NDArray[np.float64]
M, RUNS, BATCH = 50, 10, 25
#: Not in the text; objectives then are of the size of the paper's.
BETA_PAPER = 1e-4


@dataclass(frozen=True)
class Planar:
    """Objectives, as sums of losses, of the three ways to train, and the Markdown table of them."""

    optimal: float
    bound: float
    approximate: float
    descents: Array
    details: str
    numbers: dict[str, dict[str, float]]


def compare(context: Context, X: Array, y: Array, name: str) -> Planar:
    """Hinge loss, m = 50 neurons with biases: all patterns, 50 random patterns, and ten runs of SGD."""
    n, beta = len(y), BETA_PAPER / len(y)
    settings: dict[str, Any] = {"beta": beta, "loss": "hinge", "fit_intercept": False, "random_state": 0}
    fits, seconds = {}, {}
    for label, options in {
        "Optimal": {"method": "exact"},
        "Approximate": {"method": "sampled", "n_patterns": M},
    }.items():
        began = time.perf_counter()
        fits[label] = ReLUClassifier(**settings, **options).fit(X, y)
        seconds[label] = time.perf_counter() - began
        context.log(f"{label}: {n * fits[label].objective_:.6f}")
    lifted = np.column_stack([X, np.ones(n)])
    epochs = context.pick(quick=5_000, default=30_000, full=400_000)
    run, rate = tuned(
        context.pick(quick=(0.1,), default=(0.03, 0.1)),
        lambda rate: descend(
            Ensemble(3, M, seeds=range(RUNS)), lifted, y, beta=beta, loss="hinge", rate=rate, momentum=0.9,
            cosine=True, epochs=epochs, batch_size=BATCH, records=300,
        ),
    )  # fmt: skip
    ends = n * run.objectives[-1]
    context.log(f"SGD: {np.sort(ends).round(5)}")
    optimal, approximate = fits["Optimal"], fits["Approximate"]
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), layout="constrained", width_ratios=(1.3, 1, 1, 1))
    axes[0].plot(run.epochs, n * run.objectives, color="C0", lw=0.8, alpha=0.7)
    for label, color in (("Optimal", "C3"), ("Approximate", "C2")):
        axes[0].axhline(n * fits[label].objective_, color=color, ls="--", label=label)
    axes[0].plot([], [], color="C0", label="SGD, ten runs")
    axes[0].set(xlabel="epoch", ylabel="objective (sum of losses)", yscale="log", xscale="log")
    axes[0].legend(frameon=False)
    best = run.module.network(int(np.argmin(ends)))
    for axis, label, predict in (
        (axes[1], "Optimal", optimal.decision_function),
        (axes[2], "Approximate", approximate.decision_function),
        (axes[3], "best of SGD", lambda Z: _torch_outputs(best, Z)),
    ):
        _boundary(axis, predict, X, y, label)
    context.save(figure, f"{name}.png")
    return Planar(
        optimal=n * optimal.objective_,
        bound=n * optimal.lower_bound_,
        approximate=n * approximate.objective_,
        descents=ends,
        details=table(
            ["", "objective", "neurons", "training accuracy", "seconds (wall)"],
            [
                ("Optimal (all patterns)", n * optimal.objective_, optimal.n_neurons_, optimal.score(X, y),
                 seconds["Optimal"]),
                (f"Approximate ({M} patterns)", n * approximate.objective_, approximate.n_neurons_,
                 approximate.score(X, y), seconds["Approximate"]),
                (f"SGD, best / median / worst of {RUNS} (rate {rate:g})",
                 f"{ends.min():.6g} / {np.median(ends):.6g} / {ends.max():.6g}", M,
                 float(np.mean(np.sign(_torch_outputs(best, X)) == y)), float(run.seconds[-1])),
            ],
        )
        + f"\n\nGap of Optimal {optimal.gap_:.0e}, {optimal.certificate_.method}. SGD's time is that of all runs "
        "together, trained at once.",
        numbers={
            "GD": {"seconds": float(run.seconds[-1]), "objective": float(np.median(ends))},
            "Approx.": {"seconds": seconds["Approximate"], "objective": n * approximate.objective_},
            "Optimal": {"seconds": seconds["Optimal"], "objective": n * optimal.objective_},
        },
    )  # fmt: skip


def _torch_outputs(module: torch.nn.Module, Z: Array) -> Array:
    with torch.no_grad():
        return module(torch.as_tensor(np.column_stack([Z, np.ones(len(Z))]))).numpy()[:, 0]


def _boundary(axis: Any, predict: Any, X: Array, y: Array, title: str) -> None:
    low, high = X.min(0) - 0.4, X.max(0) + 0.4
    grid = np.meshgrid(np.linspace(low[0], high[0], 200), np.linspace(low[1], high[1], 200))
    scores = predict(np.column_stack([part.ravel() for part in grid])).reshape(grid[0].shape)
    axis.contourf(*grid, scores, levels=[-np.inf, 0, np.inf], colors=["#cfe2f3", "#f9dcc4"])
    axis.contour(*grid, scores, levels=[0], colors="0.3", linewidths=1)
    for label, color in ((-1, "C0"), (1, "C1")):
        axis.scatter(*X[y == label].T, s=16, color=color, edgecolor="white", linewidth=0.4)
    axis.set(title=title, xticks=[], yticks=[])
