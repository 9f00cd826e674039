"""Two-dimensional classes: what 003 Fig. 3 and Fig. 6 have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray

from bidual import ReLUClassifier
from reproductions.descent import Descent, Ensemble, descend, tuned
from reproductions.framework import Context, table, timed
from reproductions.paper003_table1 import matched

Array = NDArray[np.float64]
M, RUNS, BATCH = 50, 10, 25
#: Not in the text; objectives then are of the size of the paper's.
BETA_PAPER = 1e-4


@dataclass(frozen=True)
class Planar:
    """Objectives, as sums of losses, of the ways to train, and what the page says of them.

    ``restricted`` has, for each run of SGD, the optimum among networks on the patterns that the run ended with;
    ``settled`` counts the runs within one per cent of it: the others are at no local minimum.
    """

    optimal: float
    approximate: float
    descents: Array
    restricted: Array
    settled: int
    sizes: str
    details: str
    numbers: dict[str, dict[str, float | None]]


def compare(context: Context, X: Array, y: Array, name: str) -> Planar:
    """Hinge loss, m = 50 neurons with biases: all patterns, 50 random patterns, ten runs of SGD, and their patterns."""
    n, beta = len(y), BETA_PAPER / len(y)
    settings: dict[str, Any] = {"beta": beta, "loss": "hinge", "fit_intercept": False, "random_state": 0}
    optimal, _, optimal_cpu = timed(lambda: ReLUClassifier(**settings, method="exact").fit(X, y))
    approximate, _, approximate_cpu = timed(
        lambda: ReLUClassifier(**settings, method="sampled", n_patterns=M).fit(X, y)
    )
    context.log(f"Optimal {n * optimal.objective_:.6f}, Approximate {n * approximate.objective_:.6f}")
    epochs = context.pick(quick=2_000, default=30_000, full=400_000)
    lifted = np.column_stack([X, np.ones(n)])

    def go(rate: float) -> Descent:
        return descend(
            Ensemble(3, M, seeds=range(RUNS)), lifted, y, beta=beta, loss="hinge", rate=rate, momentum=0.9,
            cosine=True, epochs=epochs, batch_size=BATCH, records=300,
        )  # fmt: skip

    run, rate = tuned((0.01, 0.03), go)
    assert isinstance(run.module, Ensemble)
    ends = n * run.objectives[-1]
    assert ends.min() >= n * optimal.lower_bound_
    own = [
        ReLUClassifier(**settings, method="sampled", gates=first.T).fit(X, y)
        for first in run.module.first.detach().numpy()
    ]
    restricted = np.array([n * fit.objective_ for fit in own])
    context.log(f"SGD {np.sort(ends).round(5)}, on its patterns {np.sort(restricted).round(5)}, rate {rate:g}")
    best = run.module.network(int(np.argmin(ends)))
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), layout="constrained", width_ratios=(1.3, 1, 1, 1))
    axes[0].plot(run.epochs, n * run.objectives, color="C0", lw=0.8, alpha=0.7)
    for label, value, color in (
        ("Optimal", n * optimal.objective_, "C3"),
        ("Approximate", n * approximate.objective_, "C2"),
        ("patterns of SGD, median", float(np.median(restricted)), "C4"),
    ):
        axes[0].axhline(value, color=color, ls="--", label=label)
    axes[0].plot([], [], color="C0", label="SGD, ten runs")
    axes[0].set(xlabel="epoch", ylabel="objective (sum of losses)", yscale="log", xscale="log")
    axes[0].legend(frameon=False)
    for axis, label, predict in (
        (axes[1], "Optimal", optimal.decision_function),
        (axes[2], "Approximate", approximate.decision_function),
        (axes[3], "best of SGD", lambda Z: _torch_outputs(best, Z)),
    ):
        _boundary(axis, predict, X, y, label)
    context.save(figure, f"{name}.png")
    settled = int((ends <= 1.01 * restricted).sum())
    accuracy = float(np.mean(np.sign(_torch_outputs(best, X)) == y))
    details = table(
        ["", "objective", "neurons", "training accuracy", "CPU seconds"],
        [
            ("Optimal (all patterns)", n * optimal.objective_, optimal.n_neurons_, f"{optimal.score(X, y):.2f}",
             f"{optimal_cpu:.2g}"),
            (f"Approximate ({M} patterns)", n * approximate.objective_, approximate.n_neurons_,
             f"{approximate.score(X, y):.2f}", f"{approximate_cpu:.2g}"),
            (f"SGD, best / median / worst of {RUNS}", _spread(ends), M, f"{accuracy:.2f}",
             f"{run.cpu_seconds[-1] / RUNS:.0f} each"),
            ("Convex program on the patterns of each run of SGD", _spread(restricted),
             f"{min(fit.n_neurons_ for fit in own)} to {max(fit.n_neurons_ for fit in own)}", "", ""),
        ],
    )  # fmt: skip
    details += (
        f"\n\nGap of Optimal {optimal.gap_:.0e}, {optimal.certificate_.method}; largest gap of the other programs, "
        f"among networks on their patterns, {max(fit.gap_ for fit in (approximate, *own)):.0e}. {settled} of "
        f"{RUNS} runs of SGD end within 1 % of the best network on their own patterns. A run further above it is not "
        "at a local minimum: the segment to that network keeps all patterns and descends. What it lacks is time, as "
        "weights decay slowly with such a small beta."
    )
    return Planar(
        optimal=n * optimal.objective_,
        approximate=n * approximate.objective_,
        descents=ends,
        restricted=restricted,
        settled=settled,
        sizes=f"n = 50, m = 50 and batches of {BATCH} as in the paper, whose points are not published; hidden biases; "
        f"beta = {BETA_PAPER:g}; {epochs} epochs, momentum 0.9, rate {rate:.2g} (the best of several) falling "
        "to zero along a cosine: the paper names none of these",
        details=details,
        numbers={
            "SGD": {"seconds": float(run.cpu_seconds[-1]) / RUNS, "objective": float(np.median(ends))},
            "Approximate": {"seconds": approximate_cpu, "objective": n * approximate.objective_,
                            "matched": matched(run, approximate.objective_)},
            "Optimal": {"seconds": optimal_cpu, "objective": n * optimal.objective_,
                        "matched": matched(run, optimal.objective_)},
        },
    )  # fmt: skip


def _spread(values: Array) -> str:
    return f"{values.min():.5f} / {np.median(values):.5f} / {values.max():.5f}"


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
