"""001 Fig. 3: layers have equal norms, and one direction on rank-one data."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray

from bidual import LinearNetRegressor
from bidual.closed_form.rank_one import train_rank_one
from bidual.closed_form.ranks import rank_jumps
from reproductions.descent import deep, descend, numerical_rank, weights
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.linear_teacher import SETTINGS, data, trained

BETA = 0.02  # of the ReLU network


@experiment(
    "001-fig3",
    title="Norms of the layers of a linear network, ranks of those of a ReLU network on rank-one data",
    claim="All hidden layers of a linear network get the same operator and Frobenius norms, and on rank-one data "
    "all layers of a ReLU network converge to rank one.",
    paper="curves only",
)
def run(context: Context) -> Outcome:
    """Four linear layers with a beta that leaves rank two, and five ReLU layers on X = c a^T, c >= 0."""
    steps = context.pick(quick=2_000, default=8_000)
    X, Y = data(d=5)
    jumps = rank_jumps(X, Y, depth=4)
    beta = float(np.sqrt(jumps[1] * jumps[2]))
    fit = LinearNetRegressor(depth=4, beta=beta, fit_intercept=False).fit(X, Y)

    def norms(layers: Sequence[torch.Tensor]) -> NDArray[np.float64]:
        both = [(torch.linalg.matrix_norm(W), torch.linalg.matrix_norm(W, 2)) for W in layers]
        return np.array(both).transpose(2, 0, 1)  # (networks, layers, 2)

    linear = trained([5, 50, 30, 40, 5], X, Y, beta, steps, watch=norms, records=400)
    curves = linear.watched[:, 0]  # (records, layers, 2)
    spread = float((curves[-1].max(0) / curves[-1].min(0) - 1).max())

    rng = np.random.default_rng(2)
    Z = rng.random((40, 1)) * rng.standard_normal((1, 10))
    t = rng.standard_normal((40, 1)) + 2.0
    relu = min(
        (
            descend(
                deep([10, 50, 40, 30, 20, 1], seed=seed), Z, t, beta=BETA, rate=0.02, momentum=0.9,
                epochs=steps, watch=lambda module: [numerical_rank(W) for W in weights(module)],
            )
            for seed in range(2)
        ),
        key=lambda run: run.objective,
    )  # fmt: skip
    _, certificate = train_rank_one(Z, t, beta=BETA, depth=5)
    ranks = np.array(relu.watched)

    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    for layer in range(4):
        axes[0].plot(linear.epochs, curves[:, layer, 0], color=f"C{layer}", ls="--")
        axes[0].plot(linear.epochs, curves[:, layer, 1], color=f"C{layer}", label=f"W{layer + 1}")
    axes[0].axhline(np.linalg.norm(fit.network_.layers[0]), color="0.3", ls=":", label="formula")
    axes[0].axhline(np.linalg.norm(fit.network_.layers[0], 2), color="0.3", ls=":")
    axes[0].set(xlabel="step", title="operator (solid) and Frobenius (dashed) norms", ylim=(0, None), xscale="log")
    axes[0].legend(frameon=False)
    for layer in range(ranks.shape[1]):
        axes[1].plot(relu.epochs, ranks[:, layer], color=f"C{layer}", label=f"W{layer + 1}")
    axes[1].set(xlabel="step", ylabel="rank", title="ReLU network on rank-one data", yscale="log", xscale="log")
    axes[1].legend(frameon=False)
    context.save(figure, "001-fig3.png")
    formula = [(float(np.linalg.norm(W)), float(np.linalg.norm(W, 2))) for W in fit.network_.layers]
    return Outcome(
        judge(spread < 1e-2, bool((ranks[-1] == 1).all())),
        ours=f"norms of the layers differ by at most {100 * spread:.1g} %; ranks of the five ReLU layers at the end "
        f"{', '.join(map(str, ranks[-1]))}; objectives {linear.objectives[0]:.6f} (formula {fit.objective_:.6f}), "
        f"{relu.objective:.6f} (formula {certificate.objective:.6f})",
        sizes=f"n = 100 (linear) and 40 (ReLU), {steps} steps of gradient descent with momentum",
        details=f"Linear network: beta = {beta:.3g} leaves rank {fit.rank_} by formula (gap {fit.gap_:.0e}). "
        f"{SETTINGS} ReLU network: 40 rows that are positive multiples of one vector, random targets of mean 2, beta = "
        f"{BETA:g} of the mean loss, rate 0.02, momentum 0.9, the better of two starts; singular values below 1 % of "
        "the largest (or of one) count as zero.\n\n"
        + table(
            ["layer", "Frobenius, formula", "operator, formula", "Frobenius, trained", "operator, trained"],
            [(k + 1, *(f"{v:.5f}" for v in (*formula[k], *curves[-1, k]))) for k in range(4)],
        ),
    )
