"""001 Fig. 5: the neurons of a two-layer linear network lie along singular vectors."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch

from bidual import LinearNetRegressor
from reproductions.descent import numerical_rank
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.linear_teacher import SETTINGS, Array, data, trained


@experiment(
    "001-fig5",
    title="Directions of hidden neurons, and singular values of the first layer against beta",
    claim="With a beta that leaves rank two the neurons lie in the span of the first two right singular vectors of "
    "Y^T X, and the singular values of W1 vanish one after the other as beta grows.",
    paper="curves only: most neurons align with the first two of five singular vectors",
)
def run(context: Context) -> Outcome:
    """A network 20-50-5 trained by gradient descent with momentum, beside the formula."""
    steps = context.pick(quick=1_500, default=6_000)
    X, Y = data()
    _, sigma, vectors = np.linalg.svd(Y.T @ X / len(X))
    middles = np.concatenate([[1.1 * sigma[0]], np.sqrt(sigma[1:] * sigma[:-1]), [0.5 * sigma[-1]]])
    betas = np.sort(np.concatenate([middles, 0.95 * sigma]))
    (first, _) = trained([20, 50, 5], X, Y, betas, steps).layers
    found = torch.linalg.svdvals(first).numpy()[:, :5]
    ranks = [numerical_rank(first[k]) for k in np.searchsorted(betas, middles)]
    one_by_one = ranks == list(range(6))

    W = first[np.searchsorted(betas, middles[2])].numpy().T  # (50, 20): rank two
    lengths = np.linalg.norm(W, axis=1, keepdims=True)
    alive = lengths[:, 0] > 1e-2 * lengths.max()
    projections = np.abs(W[alive] / lengths[alive] @ vectors[:5].T)
    inside = float((projections[:, :2] ** 2).sum(axis=1).min())

    def formula(beta: float) -> Array:
        fit = LinearNetRegressor(depth=2, beta=beta, fit_intercept=False).fit(X, Y)
        values = np.linalg.svd(fit.network_.layers[0], compute_uv=False)[:5]
        return np.pad(values, (0, 5 - len(values)))

    error = float(np.abs(np.array([formula(float(b)) for b in betas]) - found).max())
    context.log(f"inside {inside:.6f}, ranks {ranks}, error {error:.2e}")

    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    axes[0].bar(range(1, 6), projections.sum(axis=0), color="C0")
    axes[0].set(xlabel="right singular vector", ylabel="sum of projections", title=f"{alive.sum()} neurons, rank two")
    dense = np.geomspace(betas[0], betas[-1], 200)
    curves = np.array([formula(float(b)) for b in dense])
    for k in range(5):
        axes[1].plot(dense, curves[:, k], color=f"C{k}")
        axes[1].plot(betas, found[:, k], "o", color=f"C{k}", ms=4)
        axes[1].axvline(sigma[k], color=f"C{k}", lw=0.6, ls=":")
    axes[1].set(xlabel="beta", ylabel="singular values of W1", xscale="log")
    axes[1].set_title("formula (lines), gradient descent (dots)")
    context.save(figure, "001-fig5.png")
    return Outcome(
        judge(inside > 0.999, one_by_one),
        ours=f"smallest part of a neuron's squared length in the span of the first two: {inside:.5f}; ranks "
        f"{', '.join(map(str, ranks[::-1]))} for betas between the singular values of Y^T X; singular values of W1 as "
        f"by formula to {error:.0e}",
        sizes=f"n = 100, {steps} steps of gradient descent",
        details=f"{SETTINGS} Neurons shorter than 1 % of the longest are left out ({alive.sum()} of 50 remain).\n\n"
        + table(
            ["beta", *(f"singular value {k + 1} of W1, gradient descent" for k in range(5))],
            [(f"{b:.3f}", *(f"{value:.4f}" for value in row)) for b, row in zip(betas, found, strict=True)],
        ),
    )
