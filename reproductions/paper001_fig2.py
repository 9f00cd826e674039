"""001 Fig. 2: weight decay decides the rank of linear networks."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from bidual import LinearNetRegressor
from bidual.closed_form.ranks import rank_jumps, rank_path
from bidual.plots import plot_ranks
from reproductions.descent import numerical_rank
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.linear_teacher import SETTINGS, data, trained


@experiment(
    "001-fig2",
    title="Rank of the layers of linear networks against beta",
    claim="The rank of a two-layer linear network changes where beta passes a singular value of Y^T X, and all "
    "layers of a four-layer one have the same rank, which falls with beta.",
    paper="curves only: rank of W1 from 5 to 0 with steps at the five singular values; equal ranks for four betas",
)
def run(context: Context) -> Outcome:
    """Two layers 20-50-5 and four layers 5-50-30-40-5, by formula and by gradient descent."""
    steps = context.pick(quick=3_000, default=6_000)
    X, Y = data()
    sigma = np.linalg.svd(Y.T @ X, compute_uv=False) / len(X)  # largest first
    sides = np.concatenate([0.95 * sigma, 1.05 * sigma])
    (first, _) = trained([20, 50, 5], X, Y, sides, steps).layers
    below, above = np.array([numerical_rank(W) for W in first]).reshape(2, -1)
    jumped = (below == np.arange(1, 6)) & (above == np.arange(5))
    context.log(f"two layers: ranks below {below}, above {above}")

    deep_X, deep_Y = data(d=5)
    jumps = rank_jumps(deep_X, deep_Y, depth=4)
    betas = np.sqrt(jumps[1:] * jumps[:-1])[::-1]
    fits = [LinearNetRegressor(depth=4, beta=float(b), fit_intercept=False).fit(deep_X, deep_Y) for b in betas]
    four = trained([5, 50, 30, 40, 5], deep_X, deep_Y, betas, 2 * steps)
    ranks = np.array([[numerical_rank(W[k]) for W in four.layers] for k in range(len(betas))])
    same = bool((ranks == ranks[:, :1]).all())
    falls = bool((np.diff(ranks[:, 0]) < 0).all())
    context.log(f"four layers: {ranks.tolist()}, formula {[fit.rank_ for fit in fits]}")

    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    near = np.sort(np.concatenate([sides, 0.999 * sigma, 1.001 * sigma, [0.5 * sigma[-1]]]))
    plot_ranks(near, rank_path(X, Y, near), sigma, ax=axes[0])
    axes[0].plot(sides, np.concatenate([below, above]), "o", color="C1", label="gradient descent")
    axes[0].set_title("two layers: rank of the first")
    axes[0].legend(frameon=False)
    for layer, offset in enumerate(np.linspace(-0.27, 0.27, 4)):
        axes[1].bar(np.arange(len(betas)) + offset, ranks[:, layer], 0.17, label=f"W{layer + 1}")
    axes[1].set(xticks=range(len(betas)), xticklabels=[f"{b:.3g}" for b in betas], xlabel="beta", ylabel="rank")
    axes[1].set_title("four layers, gradient descent")
    axes[1].legend(frameon=False, ncols=2)
    context.save(figure, "001-fig2.png")
    two = [(f"{s:.4f}", low, high) for s, low, high in zip(sigma, below, above, strict=True)]
    deep_rows = [
        (f"{b:.3g}", fit.rank_, ", ".join(map(str, found)), f"{fit.objective_:.6f}", f"{end:.6f}")
        for b, fit, found, end in zip(betas, fits, ranks, four.objectives, strict=True)
    ]
    return Outcome(
        judge(bool(jumped.all()), same and falls),
        ours=f"two layers: the rank by gradient descent falls by one between 0.95 and 1.05 times the singular value "
        f"for {jumped.sum()} of 5; four layers: ranks {', '.join(map(str, ranks[:, 0]))} for rising beta, "
        + ("equal in all layers" if same else "not equal in all layers"),
        sizes=f"n = 100, {steps} steps of gradient descent for two layers and {2 * steps} for four",
        details=SETTINGS + " Singular values below 1 % of the largest (or of one) count as zero. For rows that are not "
        "white only the first step is at a singular value of Y^T X.\n\n"
        + table(["singular value of Y^T X / n", "rank of W1 at 0.95 of it", "at 1.05 of it"], two)
        + "\n\n"
        + table(["beta (four layers)", "rank, formula", "ranks, GD", "objective, formula", "objective, GD"], deep_rows),
    )
