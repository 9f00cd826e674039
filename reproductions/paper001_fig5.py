"""001 Fig. 5: the neurons of a two-layer linear network lie along singular vectors."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch

from bidual import LinearNetRegressor
from bidual.closed_form.ranks import rank_jumps
from reproductions.descent import weights
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.linear_teacher import data, trained


@experiment(
    "001-fig5",
    title="Directions of hidden neurons, and singular values of the first layer against beta",
    claim="With a beta that leaves rank two the neurons lie in the span of the first two right singular vectors of "
    "Y^T X, and the singular values of W1 vanish one after the other as beta grows.",
    paper="curves only: most neurons align with the first two of five singular vectors",
)
def run(context: Context) -> Outcome:
    """A network 20-50-5 trained by gradient descent with momentum, beside the formula."""
    X, Y = data()
    jumps = rank_jumps(X, Y)
    beta = float(np.sqrt(jumps[1] * jumps[2]))
    steps = context.pick(quick=3_000, default=15_000)
    vectors = np.linalg.svd(Y.T @ X)[2][:5]
    W = weights(trained([20, 50, 5], X, Y, beta, steps).module)[0].detach().numpy()  # (50, 20)
    alive = np.linalg.norm(W, axis=1) > 1e-2 * np.linalg.norm(W, axis=1).max()
    unit = W[alive] / np.linalg.norm(W[alive], axis=1, keepdims=True)
    projections = np.abs(unit @ vectors.T)
    inside = float((projections[:, :2] ** 2).sum(axis=1).min())

    betas = np.geomspace(0.3 * jumps[-1], 1.2 * jumps[0], context.pick(quick=6, default=12))
    formula, found = [], []
    for b in betas:
        fit = LinearNetRegressor(depth=2, beta=float(b), fit_intercept=False).fit(X, Y)
        values = np.zeros(5)
        sigma = np.linalg.svd(fit.network_.layers[0], compute_uv=False)[:5]
        values[: len(sigma)] = sigma
        formula.append(values)
        first = weights(trained([20, 50, 5], X, Y, float(b), steps).module)[0]
        found.append(torch.linalg.svdvals(first.detach()).numpy()[:5])
    error = float(np.abs(np.array(formula) - np.array(found)).max())
    context.log(f"inside {inside:.6f}, error {error:.2e}")

    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    axes[0].bar(range(1, 6), projections.sum(axis=0), color="C0")
    axes[0].set(xlabel="right singular vector", ylabel="sum of projections", title=f"{alive.sum()} neurons, rank two")
    for k in range(5):
        axes[1].plot(betas, np.array(formula)[:, k], color=f"C{k}")
        axes[1].plot(betas, np.array(found)[:, k], "o", color=f"C{k}", ms=4)
        axes[1].axvline(jumps[k], color=f"C{k}", lw=0.6, ls=":")
    axes[1].set(xlabel="beta", ylabel="singular values of W1", xscale="log")
    axes[1].set_title("formula (lines), gradient descent (dots)")
    context.save(figure, "001-fig5.png")
    return Outcome(
        judge(inside > 0.999, error < 0.03),
        ours=f"smallest part of a neuron's squared length in the span of the first two: {inside:.5f}; singular "
        f"values of W1 as by formula to {error:.1g}",
        sizes=f"{steps} steps",
        details=table(
            ["beta", "singular values, formula", "singular values, gradient descent"],
            [
                (float(b), np.round(f, 4).tolist(), np.round(g, 4).tolist())
                for b, f, g in zip(betas, formula, found, strict=True)
            ],
        ),
    )
