"""Deep networks in closed form beside stochastic gradient descent: figures 2, 3, 4 and 6 of the paper (001).

Linear networks whose rank falls with beta, layers whose operator and Frobenius norms agree, deep ReLU classifiers on
sampled and whitened images by formula and by training, and a network with batch normalisation by formula.

    python examples/deep.py --data FOLDER     # a folder with mnist.npz and cifar10.npz; synthetic classes otherwise
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

from bidual import DeepReLUClassifier, neural_collapse
from bidual._util.files import write_atomically
from bidual.closed_form.deep_linear import train_linear
from bidual.closed_form.deep_relu import ClassProblem
from bidual.closed_form.rank_one import train_rank_one
from bidual.closed_form.ranks import rank_jumps, rank_path
from bidual.closed_form.whitening import Whitening
from bidual.losses import Squared
from bidual.plots import plot_ranks

Layers = list[torch.Tensor]
Forward = Callable[[Layers, torch.Tensor], torch.Tensor]


# ---- training -----------------------------------------------------------------------------------


def random_layers(widths: list[int], seed: int, branches: int | None = None, gain: float = 2.0) -> Layers:
    """Gaussian layers of He's variance (gain 2, for ReLU); a leading dimension for branches."""
    generator = torch.Generator().manual_seed(seed)
    lead = () if branches is None else (branches,)
    return [
        (torch.randn(*lead, a, b, dtype=torch.float64, generator=generator) * (gain / a) ** 0.5).requires_grad_()
        for a, b in pairwise(widths)
    ]


def linear(layers: Layers, A: torch.Tensor) -> torch.Tensor:
    """A dense linear network."""
    for W in layers:
        A = A @ W
    return A


def dense(layers: Layers, A: torch.Tensor) -> torch.Tensor:
    """A dense ReLU network."""
    for W in layers[:-1]:
        A = torch.relu(A @ W)
    return A @ layers[-1]


def parallel(layers: Layers, A: torch.Tensor) -> torch.Tensor:
    """001's architecture: branches that share inputs and outputs only."""
    A = A.expand(len(layers[0]), *A.shape)
    for W in layers[:-1]:
        A = torch.relu(A @ W)
    return (A @ layers[-1]).sum(dim=0)


def sgd(
    layers: Layers,
    forward: Forward,
    X: np.ndarray,
    Y: np.ndarray,
    beta: float,
    rate: float,
    steps: int,
    record: Callable[[], None] | None = None,
) -> list[float]:
    """Objectives along full-batch gradient descent with momentum; training stops where it diverges."""
    inputs, targets = torch.as_tensor(X), torch.as_tensor(Y)
    optimiser = torch.optim.SGD(layers, lr=rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps, eta_min=0.01 * rate)
    objectives = []
    for step in range(steps + 1):
        optimiser.zero_grad()
        loss = 0.5 * ((forward(layers, inputs) - targets) ** 2).sum(dim=1).mean()
        objective = loss + 0.5 * beta * sum((W**2).sum() for W in layers)
        objectives.append(objective.item())
        if not np.isfinite(objectives[-1]) or step == steps:
            break
        if record is not None:
            record()
        objective.backward()
        optimiser.step()
        schedule.step()
    return objectives


def numerical_rank(W: torch.Tensor, tol: float = 1e-2) -> int:
    """Singular values above a fraction of the largest one (and of one): training never reaches zero."""
    sigma = torch.linalg.svdvals(W.detach())
    return int((sigma > tol * max(float(sigma[0]), 1.0)).sum())


# ---- figures 2 and 3: linear networks, rank-one data --------------------------------------------


def linear_networks(out: Path, steps: int) -> None:
    """Rank against beta for two layers, and for four (001 Fig. 2); norms of the layers (Fig. 3a)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 20))
    Y = X @ rng.standard_normal((20, 50)) @ rng.standard_normal((50, 5)) / 30 + 0.1 * rng.standard_normal((100, 5))
    white = np.linalg.qr(X)[0] * 10.0
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    print("Rank of the hidden layer of a two-layer linear network (001 Fig. 2a)")
    for ax, (name, rows) in zip(axes, {"white rows": white, "Gaussian rows": X}.items(), strict=True):
        jumps = rank_jumps(rows, Y)
        betas = np.sort(np.concatenate([jumps * 0.999, jumps * 1.001, np.geomspace(0.3, 1.5, 40) * np.median(jumps)]))
        ranks = rank_path(rows, Y, betas)
        plot_ranks(betas, ranks, jumps, ax=ax)
        checks = np.sqrt(jumps[1:] * jumps[:-1])
        trained = []
        for beta in checks:
            layers = random_layers([20, 50, 5], 0, gain=1.0)
            sgd(layers, linear, rows, Y, float(beta), 0.05, steps)
            trained.append(numerical_rank(layers[0]))
        ax.plot(checks, trained, "o", color="C1", label="gradient descent")
        ax.set_title(name)
        ax.legend(frameon=False)
        print(f"  {name}: at geometric means of neighbouring singular values {np.round(checks, 3).tolist()}")
        print(f"    by formula {rank_path(rows, Y, checks).tolist()}, by gradient descent {trained}")
    save(figure, out / "figure2.png")

    print("Ranks of all layers of a four-layer linear network, white rows (001 Fig. 2b)")
    for beta in np.sqrt(rank_jumps(white, Y, depth=4)[1:] * rank_jumps(white, Y, depth=4)[:-1]):
        network, certificate, _ = train_linear(white, Y, beta=float(beta), depth=4, fit_intercept=False)
        ranks = [int(np.linalg.matrix_rank(W)) for W in network.layers]
        print(f"  beta {beta:.4f}: ranks {ranks}, objective {certificate.objective:.6f}, gap {certificate.gap:.1e}")

    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    layers = random_layers([20, 50, 30, 40, 1], 1, gain=1.0)
    norms: list[list[float]] = []
    curve = sgd(
        layers, linear, X, Y[:, :1], 0.02, 0.05, steps,
        record=lambda: norms.append([f(W).item() for W in layers for f in (torch.linalg.norm, operator_norm)]),
    )  # fmt: skip
    network, certificate, _ = train_linear(X, Y[:, :1], beta=0.02, depth=4, fit_intercept=False)
    for k, line in enumerate(np.array(norms).T):
        axes[0].plot(
            line, color=f"C{k // 2}", ls="-" if k % 2 else "--", label=f"layer {k // 2 + 1}" if k % 2 else None
        )
    axes[0].axhline(np.linalg.norm(network.layers[0]), color="0.3", ls=":", label="formula")
    axes[0].set(xlabel="step", title="operator (solid) and Frobenius (dashed) norms", ylim=(0, None))
    axes[0].legend(frameon=False)
    print("Norms of the layers of a four-layer linear network with one output (001 Fig. 3a), Frobenius / operator")
    print("  formula ", [f"{np.linalg.norm(W):.6f} / {np.linalg.norm(W, 2):.6f}" for W in network.layers])
    print("  training", [f"{a:.6f} / {b:.6f}" for a, b in zip(norms[-1][::2], norms[-1][1::2], strict=True)])
    print(f"  objective by formula {certificate.objective:.8f}, by training {curve[-1]:.8f}")
    rank_one_data(axes[1], steps)
    save(figure, out / "figure3.png")


def operator_norm(W: torch.Tensor) -> torch.Tensor:
    """Largest singular value."""
    return torch.linalg.matrix_norm(W, 2)


def rank_one_data(ax: plt.Axes, steps: int) -> None:
    """Ranks of the layers of a five-layer ReLU network on rank-one data fall to one in training (001 Fig. 3b)."""
    rng = np.random.default_rng(2)
    X = rng.random((40, 1)) * rng.standard_normal((1, 10))
    Y = rng.standard_normal((40, 1)) + 2.0
    layers, ranks = random_layers([10, 50, 40, 30, 20, 1], 3), []
    curve = sgd(
        layers, dense, X, Y, 0.02, 0.05, steps, record=lambda: ranks.append([numerical_rank(W) for W in layers])
    )
    _, certificate = train_rank_one(X, Y, beta=0.02, depth=5)
    for k, line in enumerate(np.array(ranks).T[:-1]):
        ax.plot(line, color=f"C{k}", label=f"layer {k + 1}")
    ax.set(xlabel="step", title="ranks of a five-layer ReLU network, rank-one data", yscale="log")
    ax.legend(frameon=False)
    print("Five-layer ReLU network on rank-one data (001 Fig. 3b)")
    print(f"  training: ranks {ranks[-1]}, objective {curve[-1]:.8f}; formula: all one, {certificate.objective:.8f}")


# ---- figure 4: whitened images --------------------------------------------------------------------


def images(folder: Path | None, name: str, K: int, n: int, d: int) -> tuple[np.ndarray, ...]:
    """``n`` training rows, balanced over K classes, and test rows, on the first ``d`` principal components."""
    rng = np.random.default_rng(0)
    path = None if folder is None else folder / f"{name}.npz"
    if path is not None and path.exists():
        data = np.load(path)
        X, y, X_test, y_test = (data[k] for k in ("X_train", "y_train", "X_test", "y_test"))
        X, X_test = (rows.reshape(len(rows), -1) / 255.0 for rows in (X[:8000], X_test[:2000]))
        y, y_test = y[:8000], y_test[:2000]
        if d < X.shape[1]:
            basis = np.linalg.eigh(X.T @ X)[1][:, -d:]
            X, X_test = X @ basis, X_test @ basis
    else:
        centres = rng.standard_normal((10, d))
        y, y_test = np.arange(20 * n) % 10, np.arange(2000) % 10
        X, X_test = (centres[labels] + 2.0 * rng.standard_normal((len(labels), d)) for labels in (y, y_test))
    train = np.concatenate([rng.choice(np.flatnonzero(y == k), n // K, replace=False) for k in range(K)])
    test = y_test < K
    return X[train], y[train].astype(int), X_test[test], y_test[test].astype(int)


def whitened_classes(out: Path, folder: Path | None, steps: int, seeds: int, n_beta: float) -> None:
    """Formula of Thm 4.3 against gradient descent with momentum at L = 3, 4, 5 (001 Fig. 4)."""
    names, K, n, d = ("mnist", "cifar10"), 10, 60, 90
    beta = n_beta / n
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
    print(
        f"Whitened rows, (n, d) = ({n}, {d}), {K} classes, beta = {n_beta} / n, best of {2 * seeds} runs (001 Fig. 4)"
    )
    print("  data       L  formula    gap    time  | dense SGD  accuracy  time | parallel SGD  time | formula accuracy")
    for row, name in enumerate(names):
        X, y, X_test, y_test = images(folder, name, K, n, d)
        name = name if folder is not None and (folder / f"{name}.npz").exists() else "synthetic"
        white = Whitening.of(X)
        Xw, Xw_test, Y = white.apply(X), white.apply(X_test), np.eye(K)[y]
        for column, depth in enumerate((3, 4, 5)):
            began = time.perf_counter()
            est = DeepReLUClassifier(depth, beta).fit(X, y)
            taken = time.perf_counter() - began
            ax, results = axes[row, column], {}
            for kind, (forward, widths, branches) in {
                "dense": (dense, [Xw.shape[1], *[50] * (depth - 1), K], None),
                "parallel": (parallel, [Xw.shape[1], *[5] * (depth - 2), 1, K], 50),
            }.items():
                runs, began = [], time.perf_counter()
                for rate in (3.0, 1.0):
                    for seed in range(seeds):
                        layers = random_layers(widths, seed, branches)
                        curve = sgd(layers, forward, Xw, Y, beta, rate, steps)
                        label = f"SGD, {kind}" if not runs else None
                        color = {"dense": "C1", "parallel": "C2"}[kind]
                        ax.plot(np.clip(curve, 0.0, 10.0), color=color, lw=0.8, label=label)
                        with torch.no_grad():
                            scores = forward(layers, torch.as_tensor(Xw_test)).numpy()
                        runs.append((curve[-1], float((scores.argmax(axis=1) == y_test).mean())))
                best = min((run for run in runs if np.isfinite(run[0])), default=(np.inf, 0.0))
                results[kind] = (*best, time.perf_counter() - began)
            ax.axhline(est.objective_, color="C0", label="formula")
            ax.set(title=f"{name}, L = {depth}", yscale="log", ylim=(0.5 * est.objective_, 1.0))
            (value, accuracy, seconds), (branch_value, _, branch_seconds) = results["dense"], results["parallel"]
            print(
                f"  {name:<9} {depth}  {est.objective_:.7f}  {est.gap_:.0e}  {taken:.3f} | {value:.7f}  {accuracy:.3f}"
                f"   {seconds:5.1f} | {branch_value:.7f}   {branch_seconds:5.1f} | {est.score(X_test, y_test):.3f}",
                flush=True,
            )
    print("  The formula is optimal among parallel networks; a dense one of more than two layers may be below it.")
    print(f"  {neural_collapse(est, X, y)} (formula, last line)")
    axes[0, 0].legend(frameon=False)
    save(figure, out / "figure4.png")


# ---- figure 6: batch normalisation ------------------------------------------------------------------


def batch_norm(U: torch.Tensor, gamma: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Columns centred, scaled to norm ``gamma``, and shifted by ``shift / sqrt(n)``, as in 001 sec. 4.2."""
    U = U - U.mean(dim=0)
    return U / torch.linalg.norm(U, dim=0).clamp_min(1e-12) * gamma + shift / len(U) ** 0.5


def normalised_objective(parts: Layers, X: torch.Tensor, Y: torch.Tensor, beta: float) -> torch.Tensor:
    """Objective of a two-layer network with batch normalisation, in the mean loss."""
    W, gamma, shift, last = parts
    F = torch.relu(batch_norm(X @ W, gamma, shift)) @ last
    penalty = (gamma**2).sum() + (shift**2).sum() + (last**2).sum()
    return 0.5 * ((F - Y) ** 2).sum(dim=1).mean() + 0.5 * beta * penalty


def batch_norm_networks(out: Path, folder: Path | None, rows: int, steps: int, seeds: int) -> None:
    """Thm 4.4 on four classes, L = 2, against full-batch gradient descent (001 Fig. 6)."""
    K, d = 4, 3072
    X, y, _, _ = images(folder, "cifar10", K, rows, d)
    X, Y, beta = X[:, : max(d, rows)], np.eye(K)[y], 1.0 / len(y)
    began = time.perf_counter()
    norms = np.sqrt(np.bincount(y))
    solved = ClassProblem(Squared(), np.bincount(y), np.eye(K), beta, 2).solve()
    root = np.sqrt([point.s for point in solved])  # strengths split evenly between (gamma, alpha) and the last layer
    W = np.linalg.lstsq(X, Y, rcond=None)[0]
    gamma = root * np.linalg.norm(Y - Y.mean(axis=0), axis=0) / norms
    shift = root * Y.sum(axis=0) / np.sqrt(len(y)) / norms
    parts = [torch.as_tensor(part) for part in (W, gamma, shift, np.diag(root))]
    inputs, targets = torch.as_tensor(X), torch.as_tensor(Y)
    formula = normalised_objective(parts, inputs, targets, beta).item()
    taken = time.perf_counter() - began
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    best, began = np.inf, time.perf_counter()
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        W0 = torch.randn(X.shape[1], 100, dtype=torch.float64, generator=generator) * (2.0 / X.shape[1]) ** 0.5
        last = torch.randn(100, K, dtype=torch.float64, generator=generator) * 0.1
        parts = [W0, torch.ones(100).double(), torch.zeros(100).double(), last]
        optimiser = torch.optim.SGD([part.requires_grad_() for part in parts], lr=1.0, momentum=0.9)
        curve = []
        for _ in range(steps):
            optimiser.zero_grad()
            objective = normalised_objective(parts, inputs, targets, beta)
            curve.append(objective.item())
            objective.backward()
            optimiser.step()
        ax.plot(curve, color="C1", lw=1, label=None if seed else "SGD with momentum")
        best = min(best, curve[-1])
    ax.axhline(formula, color="C0", label="formula")
    ax.set(xlabel="step", title=f"batch normalisation, {len(y)} rows, four classes", yscale="log")
    ax.legend(frameon=False)
    print(f"Batch normalisation (001 Thm 4.4, Fig. 6), {X.shape} rows, K = {K}, L = 2, 100 neurons, beta = 1 / n")
    print(
        f"  formula {formula:.8f} (sum of scalar problems {sum(p.value for p in solved):.8f}) in {taken:.2f} s; ",
        end="",
    )
    print(f"best of {seeds} SGD runs {best:.8f} in {time.perf_counter() - began:.1f} s")
    save(figure, out / "figure6.png")


def save(figure: plt.Figure, path: Path) -> None:
    """Write a picture and say where."""
    write_atomically(path, lambda target: figure.savefig(target, dpi=130))
    plt.close(figure)
    print(f"  picture: {path}", flush=True)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="folder with mnist.npz and cifar10.npz")
    parser.add_argument("--out", type=Path, default=Path("run/deep"), help="folder for the pictures")
    parser.add_argument("--steps", type=int, default=2000, help="steps of gradient descent")
    parser.add_argument("--seeds", type=int, default=3, help="runs of gradient descent for each learning rate")
    parser.add_argument("--n-beta", type=float, default=0.1, help="beta of the paper (n times ours) for figure 4")
    parser.add_argument("--bn-rows", type=int, default=400, help="rows for figure 6 (the paper has 2000)")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in ("mnist", "cifar10"):
        if args.data is None or not (args.data / f"{name}.npz").exists():
            print(f"no {name}.npz in --data: synthetic Gaussian classes stand in for it")
    linear_networks(args.out, args.steps)
    whitened_classes(args.out, args.data, args.steps, args.seeds, args.n_beta)
    batch_norm_networks(args.out, args.data, args.bn_rows, args.steps // 10, args.seeds)


if __name__ == "__main__":
    main()
