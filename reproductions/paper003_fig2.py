"""003 Fig. 2: SGD on a one-dimensional toy set ends above the convex optimum, less often when the network is wide."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from bidual import ReLURegressor
from reproductions.descent import descend, two_layer
from reproductions.framework import Context, Outcome, Verdict, experiment

X = np.column_stack([[-2.0, -1.0, 0.0, 1.0, 2.0], np.ones(5)])
y = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
BETA_PAPER = 1e-3


@experiment(
    "003-fig2",
    title="Ten runs of SGD against the optimum, m = 8, 15 and 50",
    claim="SGD is stuck above the convex optimum with m = 8, most runs reach it with m = 50; none goes below.",
    paper="curves only: with m = 8 several of ten runs stay above, with m = 50 all come down to the optimum",
)
def run(context: Context) -> Outcome:
    """Train the five points of the paper (with a ones column) exactly and by SGD."""
    beta = BETA_PAPER / len(y)
    best = ReLURegressor(beta=beta, method="exact", bias=False, fit_intercept=False, tol=1e-8).fit(X, y)
    epochs = context.pick(quick=5_000, default=40_000)
    widths, runs = (8, 15, 50), context.pick(quick=5, default=10)
    figure, axes = plt.subplots(1, len(widths), figsize=(11, 3.4), sharey=True, layout="constrained")
    lowest, stuck, rows = np.inf, [], []
    for axis, m in zip(axes, widths, strict=True):
        ends = []
        for seed in range(runs):
            result = descend(two_layer(2, m, seed=seed), X, y, beta=beta, rate=0.05, epochs=epochs, seed=seed)
            axis.loglog(np.linspace(0, epochs, len(result.objectives) + 1)[1:], result.objectives, lw=0.8, color="C0")
            ends.append(result.objective)
        axis.axhline(best.objective_, color="C3", ls="--", label="proven optimum")
        axis.set(title=f"m = {m}", xlabel="epoch")
        lowest = min(lowest, *ends)
        stuck.append(int(np.sum(np.array(ends) > 2 * best.objective_)))
        rows.append(f"| {m} | {min(ends):.6f} | {np.median(ends):.6f} | {max(ends):.6f} | {stuck[-1]} of {runs} |")
        context.log(rows[-1])
    axes[0].set_ylabel("objective")
    axes[0].legend()
    figure.savefig(context.figure("003-fig2.png"), dpi=110)
    plt.close(figure)
    never_below = lowest >= best.lower_bound_
    shape = stuck[0] > stuck[-1]
    details = "\n".join(
        [f"Proven optimum {best.objective_:.8f} (gap {best.gap_:.0e}); beta = {beta:g}.", "",
         "| m | best run | median | worst | above twice the optimum |", "|---|---|---|---|---|", *rows]
    )  # fmt: skip
    return Outcome(
        Verdict.HOLDS if never_below and shape else Verdict.PARTLY if never_below else Verdict.FAILS,
        ours=f"optimum {best.objective_:.6f}; lowest run {lowest:.6f}; stuck runs {stuck} for m = {list(widths)}",
        sizes=f"{runs} runs of {epochs} epochs",
        details=details,
    )
