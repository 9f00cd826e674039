"""001 Fig. 2: weight decay decides the rank of linear networks."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from bidual import LinearNetRegressor
from bidual.closed_form.ranks import rank_jumps, rank_path
from bidual.plots import plot_ranks
from reproductions.descent import numerical_rank, weights
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.linear_teacher import data, trained


@experiment(
    "001-fig2",
    title="Rank of the layers of linear networks against beta",
    claim="The rank of a two-layer linear network changes where beta passes a singular value of Y^T X, and all "
    "layers of a four-layer one have the same rank, which falls with beta.",
    paper="curves only: rank of W1 from 5 to 0 with steps at the five singular values; equal ranks for four betas",
)
def run(context: Context) -> Outcome:
    """Two layers 20-50-5 and four layers 5-50-30-40-5, by formula and by gradient descent."""
    X, Y = data()
    jumps = rank_jumps(X, Y)
    steps = context.pick(quick=1_200, default=8_000)
    checks = np.concatenate([[0.5 * jumps[-1]], np.sqrt(jumps[1:] * jumps[:-1])[::-1], [1.1 * jumps[0]]])
    near = np.sort(np.concatenate([0.999 * jumps, 1.001 * jumps, checks]))
    formula = rank_path(X, Y, near)
    jumps_at_sigma = bool((rank_path(X, Y, 0.999 * jumps) - rank_path(X, Y, 1.001 * jumps) == 1).all())
    by_descent = [numerical_rank(weights(trained([20, 50, 5], X, Y, b, steps).module)[0]) for b in checks]
    agree = by_descent == rank_path(X, Y, checks).tolist()
    context.log(f"two layers: {by_descent}, formula {rank_path(X, Y, checks).tolist()}")

    deep_X, deep_Y = data(d=5)
    deep_jumps = rank_jumps(deep_X, deep_Y, depth=4)
    betas = np.sqrt(deep_jumps[1:] * deep_jumps[:-1])[::-1]
    rows, same, match = [], True, True
    ranks = []
    for beta in betas:
        fit = LinearNetRegressor(depth=4, beta=float(beta), fit_intercept=False).fit(deep_X, deep_Y)
        module = trained([5, 50, 30, 40, 5], deep_X, deep_Y, float(beta), 2 * steps)
        found = [numerical_rank(W) for W in weights(module.module)]
        ranks.append(found)
        same, match = same and len(set(found)) == 1, match and found[0] == fit.rank_
        rows.append((float(beta), fit.rank_, fit.objective_, fit.gap_, str(found), module.objective))
        context.log(str(rows[-1]))

    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    plot_ranks(near, formula, jumps, ax=axes[0])
    axes[0].plot(checks, by_descent, "o", color="C1", label="gradient descent")
    axes[0].set_title("two layers: rank of the first")
    axes[0].legend(frameon=False)
    for layer, offset in zip(range(4), np.linspace(-0.27, 0.27, 4), strict=True):
        axes[1].bar(np.arange(len(betas)) + offset, [r[layer] for r in ranks], 0.17, label=f"W{layer + 1}")
    axes[1].set(xticks=range(len(betas)), xticklabels=[f"{b:.3g}" for b in betas], xlabel="beta", ylabel="rank")
    axes[1].set_title("four layers, gradient descent")
    axes[1].legend(frameon=False, ncols=2)
    context.save(figure, "001-fig2.png")
    return Outcome(
        judge(jumps_at_sigma and agree, same and match),
        ours=f"two layers: ranks by gradient descent {by_descent[::-1]} as by formula: {agree}; four layers: "
        f"{[r[0] for r in ranks]}, equal in all layers: {same}, as by formula: {match}",
        sizes=f"{steps} steps of gradient descent with momentum; beta of the mean loss",
        details="Rows are exactly white (X^T X = n I): for other rows only the first step is at a singular value.\n\n"
        + table(
            ["beta (four layers)", "rank, formula", "objective, formula", "gap", "ranks, GD", "objective, GD"], rows
        ),
    )
