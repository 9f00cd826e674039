"""The convex geometry of ReLU neurons (paper 004) in pictures and numbers.

1. The rectified ellipsoid, its spike-free relaxation and the feasible set of the dual, for two rows (Figures 2-4) and
   three (Figure 5).
2. Random data in high dimension (Theorem 3.4): the factor by which neurons exceed the spike-free relaxation tends to
   one, but the share of spike-free matrices does not.
3. Cutting planes with the spike-free relaxation against column generation.
4. The duality gap of networks of few neurons (Figure 6).

    python examples/geometry.py --out run
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from bidual import ReLURegressor, is_spike_free
from bidual._util.files import write_atomically
from bidual.geometry import spike_factor
from bidual.networks import TwoLayerNetwork
from bidual.plots import plot_gap_by_width, plot_polar, plot_rectified_ellipsoid

Array = np.ndarray

#: Two rows: an acute angle, an obtuse one, and one so obtuse that only the spikes are left of the hull.
PLANE = {
    "acute": np.array([[1.0, 0.1], [0.5, 0.8]]),
    "obtuse": np.array([[1.0, 0.2], [-0.5, 0.9]]),
    "opposite": np.array([[1.0, 0.1], [-1.0, 0.25]]),
}
SPACE = {
    "orthogonal": np.diag([1.0, 0.8, 0.6]),
    "spiky": np.array([[1.0, 0.0, 0.0], [-0.6, 0.8, 0.0], [-0.3, -0.6, 0.75]]),
}


def save(figure: plt.Figure, path: Path) -> None:
    """Write a picture."""
    write_atomically(path, lambda p: figure.savefig(p, dpi=130))
    plt.close(figure)
    print(f"picture: {path}")


def pictures(out: Path) -> None:
    """Figures 2-5."""
    figure, axes = plt.subplots(2, len(PLANE), figsize=(12, 8), layout="constrained")
    for column, X in zip(axes.T, PLANE.values(), strict=True):
        plot_rectified_ellipsoid(X, column[0])
        plot_polar(X, column[1])
    save(figure, out / "rectified_2d.png")
    figure, axes = plt.subplots(2, len(SPACE), figsize=(9, 8.5), layout="constrained", subplot_kw={"projection": "3d"})
    for column, X in zip(axes.T, SPACE.values(), strict=True):
        plot_rectified_ellipsoid(X, column[0])
        plot_polar(X, column[1])
    save(figure, out / "rectified_3d.png")


def high_dimension(n: int = 3, trials: int = 400) -> None:
    """Theorem 3.4 in numbers."""
    rng = np.random.default_rng(0)
    limit = 2.0 ** -(n * (n - 1) // 2)
    print(f"\n{n} Gaussian rows: share of spike-free matrices (its limit: {limit})")
    print("      d   spike-free   mean factor, at least   at most")
    for d in (3, 10, 100, 1000, 10000):
        matrices = [rng.standard_normal((n, d)) for _ in range(trials)]
        share = np.mean([bool(is_spike_free(X)) for X in matrices])
        factors = np.array([spike_factor(X) for X in matrices[:20]])
        print(f"{d:7d}   {share:10.3f}   {factors[:, 0].mean():21.4f}   {factors[:, 1].mean():7.4f}")


def spike_free_rows(n: int, d: int, rng: np.random.Generator) -> Array:
    """Rows whose inverse Gram matrix has no positive entry off its diagonal."""
    B = rng.random((n, n))
    K = n * np.eye(n) - 0.5 * (B + B.T)
    return np.linalg.cholesky(np.linalg.inv(K)) @ np.linalg.qr(rng.standard_normal((d, n)))[0].T * np.sqrt(n)


def methods() -> None:
    """Cutting planes where they are exact, and where they are not."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    problems = {
        "spike-free, n=30, d=40": (spike_free_rows(30, 40, rng), rng.standard_normal(30), {"bias": False}),
        "whitened, n=30, d=40": (
            np.linalg.qr(rng.standard_normal((40, 30)))[0].T,
            rng.standard_normal(30),
            {"bias": False},
        ),
        "Gaussian, n=30, d=40": (rng.standard_normal((30, 40)), rng.standard_normal(30), {"bias": False}),
        "Gaussian, n=60, d=4": (X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2], {}),
    }
    print("\nmethod                                   objective   lower bound      gap  likely gap  neurons   CPU s")
    for name, (X, y, options) in problems.items():
        for method in ("cutting_plane", "adaptive"):
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                est = ReLURegressor(1e-2, method=method, fit_intercept=False, random_state=0, **options).fit(X, y)
            print(
                f"{name:24s} {method:14s} {est.objective_:10.6f}  {est.lower_bound_:12.6f}  {est.gap_:7.1e}  "
                f"{est.likely_gap_:10.1e}  {est.n_neurons_:7d}  {time.process_time() - began:6.2f}"
            )


def best_of_width(
    X: Array, y: Array, beta: float, m: int, optimum: TwoLayerNetwork, starts: int = 8, steps: int = 800
) -> float:
    """The best objective of networks with m neurons that Adam finds, from random starts and from the optimal network.

    Of the latter the m most important neurons are the start.
    """
    torch.manual_seed(m)
    bias = optimum.hidden_bias is not None
    M = torch.as_tensor(np.column_stack([X, np.ones(len(X))]) if bias else X)
    U = torch.randn(starts, M.shape[1], m, dtype=torch.float64)
    a = torch.randn(starts, m, dtype=torch.float64)
    gates = optimum.gate_vectors()[:, : M.shape[1]]
    largest = np.argsort(-np.linalg.norm(gates, axis=1))[:m]
    U[0], a[0] = 0.0, 0.0
    U[0, :, : len(largest)] = torch.as_tensor(gates[largest].T)
    a[0, : len(largest)] = torch.as_tensor(optimum.output_weights[largest, 0])
    U.requires_grad_()
    a.requires_grad_()
    best = np.inf
    target = torch.as_tensor(y)
    optimiser = torch.optim.Adam([U, a], lr=2e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        F = (torch.relu(M @ U) * a[:, None, :]).sum(dim=2)
        decay = (U**2).sum(dim=(1, 2)) + (a**2).sum(dim=1)
        values = 0.5 * ((F - target) ** 2).mean(dim=1) + 0.5 * beta * decay
        best = min(best, float(values.detach().min()))
        values.sum().backward()
        optimiser.step()
        scheduler.step()
    return best


def widths(out: Path, largest: int = 12) -> None:
    """Figure 6, for the regularised problem (biases are regularised here)."""
    rng = np.random.default_rng(1)
    x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])[:, None]
    y = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    c = rng.standard_normal(15)
    problems = {
        "one dimension, n=5": (x, y, True),
        "rank one, n=15, d=10": (np.outer(c, rng.standard_normal(10)), np.sin(2 * c), True),
        "whitened, n=30, d=40": (np.linalg.qr(rng.standard_normal((40, 30)))[0].T, rng.standard_normal(30), False),
    }
    beta, m = 1e-3, range(1, largest + 1)
    gaps = {}
    for name, (X, y, bias) in problems.items():
        method = "exact" if bias else "closed_form"
        est = ReLURegressor(beta, method=method, bias=bias, fit_intercept=False).fit(X, y)
        found = np.minimum.accumulate([best_of_width(X, y, beta, k, est.network_) for k in m])
        gaps[name] = [max(0.0, 1.0 - est.lower_bound_ / value) for value in found]
        print(f"\n{name}: optimum {est.objective_:.6f} (proven, {est.n_neurons_} neurons); gaps by width")
        print("  " + "  ".join(f"{k}: {gap:.1e}" for k, gap in zip(m, gaps[name], strict=True)))
    figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
    plot_gap_by_width(list(m), gaps, axes)
    save(figure, out / "gap_by_width.png")


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("run"), help="folder for the pictures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    pictures(out)
    high_dimension()
    methods()
    widths(out)


if __name__ == "__main__":
    main()
