"""004 Fig. 6: the duality gap closes at a certain number of neurons."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from bidual import ReLURegressor
from bidual.plots import plot_gap_by_width
from reproductions.descent import Ensemble, descend
from reproductions.framework import Context, Outcome, experiment, judge, table

BETAS = {"regularised, beta = 1e-3": 1e-3, "close to the exact fit, beta = 1e-5": 1e-5}


def problems() -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """One input, rank one (both with a column of ones), and white rows."""
    rng = np.random.default_rng(1)
    x, c = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), rng.standard_normal(15)
    rank_one = np.column_stack([np.outer(c, rng.standard_normal(10)) / 3.0, np.ones(15)])
    return {
        "one input, n = 5": (np.column_stack([x, np.ones(5)]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])),
        "rank one, n = 15, d = 10": (rank_one, np.sin(2 * c)),
        "white rows, n = 30, d = 40": (np.linalg.qr(rng.standard_normal((40, 30)))[0].T * 5.5, rng.standard_normal(30)),
    }


@experiment(
    "004-fig6",
    title="Duality gap against the number of neurons",
    claim="The gap between networks of m neurons and the dual closes once m reaches a certain value.",
    paper="curves only: zero from a small m on, for one input, rank-one and white data",
)
def run(context: Context) -> Outcome:
    """The best of many gradient descents at each width against the proven lower bound over all widths."""
    widths, starts = range(1, 9), context.pick(quick=16, default=40)
    steps = context.pick(quick=1_200, default=5_000)
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), sharey=True, layout="constrained")
    rows, closes, decreasing = [], [], []
    for axis, (name, (X, y)) in zip(axes, problems().items(), strict=True):
        gaps = {}
        for label, beta in list(BETAS.items())[: context.pick(quick=1, default=2)]:
            method = "exact" if np.linalg.matrix_rank(X) <= 3 else "adaptive"
            fit = ReLURegressor(beta, method=method, bias=False, fit_intercept=False, tol=1e-6, random_state=0).fit(
                X, y
            )
            ends = [
                descend(
                    Ensemble(X.shape[1], m, seeds=range(starts)), X, y, beta=beta, optimiser="adam", rate=0.03,
                    cosine=True, epochs=steps, records=1,
                ).objective
                for m in widths
            ]  # fmt: skip
            gaps[label] = (np.array(ends) - fit.lower_bound_) / np.array(ends)
            closed = [m for m, gap in zip(widths, gaps[label], strict=True) if gap < 0.02]
            first = gaps[label][0]
            if beta == BETAS["regularised, beta = 1e-3"]:
                closes.append(bool(closed))
                decreasing.append(bool(first > 0.02))
            rows.append((name, beta, fit.objective_, fit.gap_, fit.n_neurons_, closed[0] if closed else "-",
                         " ".join(f"{gap:.1e}" for gap in gaps[label])))  # fmt: skip
            context.log(str(rows[-1]))
        plot_gap_by_width(widths, gaps, ax=axis)
        axis.set_title(name, fontsize=10)
    context.save(figure, "004-fig6.png")
    where = {row[0]: row[5] for row in rows if row[1] == 1e-3}
    return Outcome(
        judge(all(closes), all(decreasing)),
        ours="gap below 2 % from m = " + ", ".join(f"{m} ({name})" for name, m in where.items()),
        sizes=f"best of {starts} runs of Adam of {steps} steps at each width; biases are regularised (the paper's "
        "are free)",
        details=table(
            [
                "data",
                "beta",
                "optimum over all widths",
                "its gap",
                "its neurons",
                "closed from m =",
                "gaps for m = 1 to 8",
            ],
            rows,
        )
        + "\n\nWith a small beta Adam itself does not reach the optimum of wide networks: what is left is its "
        "error, not a duality gap.",
    )
