"""002 Fig. 4: training on a low-rank approximation, its bound, and the number of patterns."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from bidual import Parallel, ParallelNetwork, ReLURegressor, count_patterns, low_rank
from reproductions.framework import Context, Outcome, experiment, judge, table

#: n, beta and m1 of the paper, whose loss is a sum.
N, BETA_PAPER, M1 = 15, 0.1, 1


@experiment(
    "002-fig4",
    title="Low-rank training: objective, bound of Theorem 2 and number of patterns",
    claim="Training at rank d/2 costs less than the worst case of Theorem 2, and needs significantly fewer patterns.",
    paper="curves over d: p_r close to p*, below the bound; patterns fewer by orders of magnitude",
)
def run(context: Context) -> Outcome:
    """Gaussian data with singular values of one beyond d/2, targets of a random network with noise."""
    beta = BETA_PAPER / N
    options = {"bias": False, "fit_intercept": False, "method": "exact"}
    dimensions = context.pick(quick=(2, 4, 6), default=(2, 4, 6, 8, 10, 12))
    rows, numbers = [], []
    for d in dimensions:
        rng = np.random.default_rng(d)
        r = d // 2
        U, s, Vt = np.linalg.svd(rng.standard_normal((N, d)), full_matrices=False)
        X = U * np.where(np.arange(d) < r, s, 1.0) @ Vt
        shapes = [(5, d, M1), (5, M1, 1), (5, 1, 1)]
        teacher = ParallelNetwork([rng.standard_normal(shape) for shape in shapes])
        y = teacher.predict(X) + 0.1 * rng.standard_normal(N)
        best = ReLURegressor(beta, architecture=Parallel(M1), tol=1e-6, **options).fit(X, y)
        low = ReLURegressor(beta, architecture=Parallel(M1, rank=r), tol=1e-6, **options).fit(X, y)
        prices = low_rank(X, y, beta=beta, architecture=Parallel(M1), fit_intercept=False)
        found = best.certificate_.n_patterns, low.certificate_.n_patterns
        # R = 1, as the paper has it: the slope of the norm, not of half its square
        printed = (1 + np.sqrt(M1) * prices.sigmas[r - 1] / BETA_PAPER) ** 2
        value = (N * best.objective_, N * low.objective_, prices.factors[r - 1], printed, *found)
        numbers.append(value)
        ratio, d_patterns = f"{value[1] / value[0]:.3f}", count_patterns(N, d)
        rows.append(
            (d, r, f"{value[0]:.4f}", f"{value[1]:.4f}", ratio, f"{value[2]:.1f}", f"{printed:.0f}", *found, d_patterns)
        )
        context.log(str(rows[-1]))
    p, p_r, factor, printed, all_patterns, few = (np.array(column) for column in zip(*numbers, strict=True))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    left.semilogy(dimensions, p, "o-", label="optimum")
    left.semilogy(dimensions, p_r, "s-", label="trained at rank d/2")
    left.semilogy(dimensions, p * factor, "--", label="proven bound")
    left.semilogy(dimensions, p * printed, ":", label="bound as printed, R = 1")
    left.set(xlabel="d", ylabel="objective (sum)")
    left.legend()
    right.semilogy(dimensions, all_patterns, "o-", label="rank d")
    right.semilogy(dimensions, few, "s-", label="rank d/2")
    right.set(xlabel="d", ylabel="patterns")
    right.legend()
    context.save(figure, "002-fig4.png")
    assert (p * (1 - 1e-6) <= p_r).all()
    assert (p_r <= p * factor).all()
    text = (
        "Objectives in the paper's normalisation (sums). The factor is 1 + sqrt(m1 m2) R sigma / beta with R for the "
        "squared loss below the objective of the zero network; as printed it is the square, with R = 1. With "
        "sigma = 1 and beta = 0.1 both say little: what low rank really costs is in the column of ratios. The claim "
        "holds if p_r is below the bound as printed, which is not proven, and a third of the patterns are enough."
    )
    header = ["d", "r", "p*", "p_r", "ratio", "factor", "as printed", "patterns", "at rank r", "general position"]
    return Outcome(
        judge(bool((p_r < printed * p).all()), bool((3 * few <= all_patterns).all())),
        ours=f"p_r / p* = {', '.join(f'{b / a:.2f}' for a, b in zip(p, p_r, strict=True))} for d = "
        f"{', '.join(map(str, dimensions))}; patterns {all_patterns[-1]} against {few[-1]} at d = {dimensions[-1]}",
        sizes=f"d up to {dimensions[-1]}",
        details=f"{text}\n\n{table(header, rows)}",
    )
