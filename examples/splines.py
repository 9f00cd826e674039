"""One input: the global optimum is a linear spline with kinks at data points (004 sec. 3 and 5, figures 1, 7, 8).

Fits and their neurons, decision regions of the l1 support vector machine beside gradient descent on the same objective,
two different networks that are both optimal, and how long a hundred thousand points take.

    python examples/splines.py --out run
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

from bidual import SplineClassifier, SplineRegressor
from bidual._util.files import write_atomically
from bidual.networks import TwoLayerNetwork, from_torch
from bidual.plots import plot_fit_1d, plot_neurons_1d, plot_regions_1d


def gradient_descent(
    x: np.ndarray, y: np.ndarray, beta: float, *, hinge: bool, seed: int = 0, width: int = 50, steps: int = 3000
) -> TwoLayerNetwork:
    """The usual way: the same objective by Adam from a random start; hidden biases are not decayed."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)).double()
    inputs, targets = torch.as_tensor(x)[:, None], torch.as_tensor(y)[:, None]
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        outputs = net(inputs)
        rows = torch.relu(1 - targets * outputs) if hinge else 0.5 * (outputs - targets) ** 2
        decay = (net[0].weight ** 2).sum() + (net[2].weight ** 2).sum()
        (rows.mean() + 0.5 * beta * decay).backward()
        optimiser.step()
        scheduler.step()
    found = from_torch(net)
    return TwoLayerNetwork(**{**found.weights(), "free_bias": True})


def regression(out: Path) -> None:
    """Figures 1b and 8: the optimum, its neurons, and gradient descent."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, 14))
    y = np.sin(2 * x) + 0.3 * x + 0.2 * rng.standard_normal(14)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
    exact = SplineRegressor(beta=0.0).fit(x[:, None], y)
    plot_neurons_1d(exact.network_, x[:, None], y, ax=left)
    left.set_title(f"smallest network through the data: penalty {exact.objective_:.4f}", fontsize=10)
    beta = 0.01
    fit = SplineRegressor(beta=beta).fit(x[:, None], y)
    plot_fit_1d(fit, x[:, None], y, ax=middle)
    print(fit.certificate_)
    grid = np.linspace(-3.2, 3.2, 400)
    for seed in range(3):
        net = gradient_descent(x, y, beta, hinge=False, seed=seed)
        objective = net.objective(x[:, None], y, beta=beta)
        print(f"  Adam, 50 neurons, seed {seed}      {objective:.8f}")
        right.plot(grid, net.predict(grid[:, None]), color="C1", lw=1.2, label=f"Adam: {objective:.6f}")
    right.plot(grid, fit.predict(grid[:, None]), color="C0", lw=2, label=f"optimum: {fit.objective_:.6f}")
    right.plot(x, y, "o", color="0.5", ms=4)
    right.legend(frameon=False)
    write_atomically(out / "spline_fits.png", lambda path: figure.savefig(path, dpi=120))


def classification(out: Path) -> None:
    """Figures 1c, 7 and 9: decision regions of the l1 support vector machine over ramps, and gradient descent."""
    rng = np.random.default_rng(1)
    centres = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    which = rng.integers(0, 5, 40)
    x = centres[which] + 0.25 * rng.standard_normal(40)
    y = np.where(np.isin(which, [1, 2, 4]), 1, -1)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for ax, beta in zip(axes, (1e-3, 3e-2), strict=True):
        est = SplineClassifier(beta=beta, loss="hinge").fit(x[:, None], y)
        plot_regions_1d(est, x[:, None], y, ax=ax)
        net = gradient_descent(x, y.astype(float), beta, hinge=True)
        objective = net.objective(x[:, None], y, beta=beta, loss="hinge")
        print(f"hinge loss, beta {beta:g}: optimum {est.objective_:.6f} (gap {est.gap_:.0e}), Adam {objective:.6f}")
        grid = np.linspace(x.min(), x.max(), 400)
        ax.plot(grid, net.predict(grid[:, None]), color="C1", lw=1, label="Adam")
        ax.set_title(f"beta {beta:g}: optimum {est.objective_:.5f}, Adam {objective:.5f}", fontsize=10)
        ax.legend(frameon=False)
    write_atomically(out / "spline_regions.png", lambda path: figure.savefig(path, dpi=120))


def two_optima(out: Path) -> None:
    """Prop. 3.1: the optimum is not unique. A kink may leave the data, and ramps may face either way."""
    x, y = np.arange(4.0), np.array([0.0, 0.0, 1.0, 3.0])
    spline = SplineRegressor(beta=0.0).fit(x[:, None], y).network_
    r = np.sqrt(2.0)
    single = TwoLayerNetwork([[r]], [[r]], [-1.5 * r], free_bias=True)
    print("two optimal networks through (0, 0), (1, 0), (2, 1), (3, 3), and what they cost:")
    for name, net in (("kinks at the data points 1 and 2", spline), ("one kink at 3/2", single)):
        error = np.abs(net.predict(x[:, None]) - y).max()
        print(f"  {name:34s} {net.n_neurons} neurons, largest error {error:.1e}, penalty {net.penalty():.12f}")
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
    for ax, net in zip(axes, (spline, single), strict=True):
        plot_neurons_1d(net, x[:, None], y, ax=ax)
        ax.set_title(f"penalty {net.penalty():.6f}", fontsize=10)
    write_atomically(out / "spline_two_optima.png", lambda path: figure.savefig(path, dpi=120))


def timing() -> None:
    """How long it takes."""
    print("    n     loss      beta    neurons   relative gap   seconds")
    SplineRegressor(loss="absolute").fit(np.arange(9.0)[:, None], np.arange(9.0))  # loads what is compiled
    for n in (1_000, 10_000, 100_000):
        rng = np.random.default_rng(0)
        x = rng.standard_normal(n)
        f = np.sin(3 * x) + 0.5 * np.abs(x)
        for loss in ("squared", "huber", "absolute", "hinge", "logistic"):
            labels = loss in ("hinge", "logistic")
            y = np.where(f + 0.5 * rng.standard_normal(n) > 0.5, 1, -1) if labels else f + 0.3 * rng.standard_normal(n)
            est = (SplineClassifier if labels else SplineRegressor)(beta=1e-3, loss=loss)
            began = time.perf_counter()
            est.fit(x[:, None], y)
            seconds = time.perf_counter() - began
            print(f"{n:7d}  {loss:9s}  0.001  {est.n_neurons_:7d}      {est.gap_:.1e}     {seconds:7.2f}")


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("run"), help="folder for the pictures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    regression(out)
    classification(out)
    two_optima(out)
    timing()
    print(f"pictures: {out / 'spline_fits.png'}   {out / 'spline_regions.png'}   {out / 'spline_two_optima.png'}")


if __name__ == "__main__":
    main()
