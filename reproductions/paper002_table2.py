"""002 Table 2: SGD on a toy set against the convex program, three layers, K = 5, 20 and 40 branches."""

from __future__ import annotations

import time

import numpy as np

from bidual import Parallel, ParallelNetwork, ReLURegressor
from bidual.networks.parallel_torch import ParallelModule
from reproductions.descent import descend
from reproductions.framework import Context, Outcome, Verdict, experiment

#: (n, d, m1, m2) and beta of the paper, whose loss is a sum.
N, D, M1, M2, BETA_PAPER = 5, 2, 3, 1, 0.002
#: The paper's step length 0.005 for the mean instead of the sum.
RATE = 0.005 * N


@experiment(
    "002-table2",
    title="Five runs of SGD with K = 5, 20 and 40 branches against the convex program",
    claim="SGD is stuck above the optimum with few branches and comes close with many; none goes below.",
    paper="convex 0.0007 in 4.9 s; SGD 0.0027 to 0.0239 with K = 5, 0.0008 to 0.0009 with K = 40 in 92 s",
)
def run(context: Context) -> Outcome:
    """Points from a random parallel network, as in the paper; its own points are not published."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    y = ParallelNetwork([rng.standard_normal(shape) for shape in [(5, D, M1), (5, M1, M2), (5, M2, 1)]]).predict(X)
    beta = BETA_PAPER / N
    options = {"architecture": Parallel(M1, M2), "bias": False, "fit_intercept": False, "method": "exact"}
    ReLURegressor(beta, **options).fit(X[:2], y[:2])  # loads the kernels
    began = time.process_time(), time.perf_counter()
    best = ReLURegressor(beta, tol=1e-8, **options).fit(X, y)
    ours = time.process_time() - began[0], time.perf_counter() - began[1]
    patterns = best.certificate_.n_patterns
    epochs, runs = context.pick(quick=2_000, default=6_000, full=60_000), 5
    rows, lowest, medians = [], np.inf, []
    for K in (5, 20, 40):
        ends, began_at = [], time.process_time()
        for seed in range(runs):
            module = ParallelModule([D, M1, M2, 1], K, seed=seed)
            descend(
                module, X, y, beta=beta, penalty=lambda m: m.path_norm(), rate=RATE, momentum=0.9, epochs=epochs,
                records=1, seed=seed,
            )  # fmt: skip
            ends.append(module.network().objective(X, y, beta=beta))
        spent = (time.process_time() - began_at) / runs
        lowest = min(lowest, *ends)
        medians.append(float(np.median(ends)))
        rows.append(f"| SGD, K = {K} | " + " | ".join(f"{N * end:.5f}" for end in ends) + f" | {spent:.1f} |")
        context.log(rows[-1])
    never_below, closer = lowest >= best.lower_bound_, medians[-1] < medians[0]
    table = [
        f"Proven optimum {N * best.objective_:.7f} (gap {best.gap_:.0e}, all {patterns} activation patterns of both "
        f"layers) in {ours[0]:.2f} s of CPU, {ours[1]:.2f} s of wall clock. Objectives in the paper's normalisation "
        f"(sums; ours times n = {N}), for points drawn as in the paper: its values are for its own points.",
        "",
        "| | run 1 | run 2 | run 3 | run 4 | run 5 | CPU seconds of a run |",
        "|" + "---|" * 7,
        *rows,
    ]
    return Outcome(
        Verdict.HOLDS if never_below and closer else Verdict.PARTLY if never_below else Verdict.FAILS,
        ours=f"optimum {N * best.objective_:.5f} in {ours[0]:.2f} s of CPU; lowest run {N * lowest:.5f}, medians "
        + ", ".join(f"{N * value:.5f}" for value in medians)
        + " for K = 5, 20, 40",
        sizes=f"{epochs} epochs",
        details="\n".join(table),
    )
