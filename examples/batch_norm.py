"""Batch normalisation (paper 000): a formula against gradient descent, and what truncation does for new images.

1. Where the centred rows have full rank, the global optimum for one-hot targets is a formula (Theorem 2.4). It is set
   against gradient descent on the same objective.
2. On CIFAR-10 (if its file is there): test accuracy of the global optimum ("Convex"), of the global optimum on data
   truncated to 95 % of their variance ("Convex-Truncated"), of SGD on both, and of the convex program trained by Adam
   in its penalty form (appendix A, rho) for comparison.
3. How far SGD moves the weights along the singular directions of the data (Figure 2), as a picture.

    python examples/batch_norm.py --data cifar10.npz --out run
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from bidual import BatchNorm, ReLURegressor
from bidual.architectures import truncate
from bidual.architectures.batch_norm import CentredSVD
from bidual.atoms import Neurons
from bidual.networks import Network
from bidual.plots import plot_singular_similarity
from bidual.study.implicit import singular_similarity

Array = np.ndarray


def batch_norm_net(d: int, m: int, C: int) -> torch.nn.Sequential:
    """A network as torch users write it."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(d, m, bias=False), torch.nn.BatchNorm1d(m), torch.nn.ReLU(), torch.nn.Linear(m, C, bias=False)
    )


def objective(net: torch.nn.Sequential, X: torch.Tensor, Y: torch.Tensor, beta: float, n: int) -> torch.Tensor:
    """Mean loss plus weight decay; torch divides by the standard deviation, which makes beta sqrt(n) times as large."""
    decay = sum((p**2).sum() for p in (net[1].weight, net[1].bias, net[3].weight))
    return 0.5 * ((net(X) - Y) ** 2).sum() / len(X) + 0.5 * np.sqrt(n) * beta * decay


def descend(
    X: Array, Y: Array, beta: float, *, m: int, seconds: float, lr: float, batch: int | None = None, adam: bool = False
) -> tuple[torch.nn.Sequential, Array]:
    """Descent on the non-convex objective: the network with its statistics, and the first hidden weights."""
    net = batch_norm_net(X.shape[1], m, Y.shape[1])
    inputs, targets = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(Y, dtype=torch.float32)
    initial = net[0].weight.detach().numpy().copy()
    parameters = net.parameters()
    optimiser = torch.optim.Adam(parameters, lr) if adam else torch.optim.SGD(parameters, lr, momentum=0.9)
    n, began, left = len(X), time.perf_counter(), 1.0
    while left > 0:
        for rows in torch.randperm(n).split(batch or n):
            optimiser.zero_grad()
            objective(net, inputs[rows], targets[rows], beta, n).backward()
            optimiser.step()
        left = 1 - (time.perf_counter() - began) / seconds
        for group in optimiser.param_groups:
            group["lr"] = lr * max(left, 1e-3)
    with torch.no_grad():  # statistics of all rows
        net[1].momentum = 1.0
        net(inputs)
    return net, initial


def accuracy(scores: Array, labels: Array) -> float:
    """Percentage of rows whose largest score is that of their class."""
    return 100 * float((scores.argmax(axis=1) == labels).mean())


def scores(net: torch.nn.Sequential, X: Array) -> Array:
    """Outputs with the statistics of training."""
    with torch.no_grad():
        return net.eval()(torch.as_tensor(X, dtype=torch.float32)).numpy()


def penalty_form(
    X: Array, Y: Array, beta: float, rank: float | None, *, gates: int, seconds: float, rho: float
) -> Network:
    """The convex program on random gates by Adam, with violated cones penalised (000 appendix A), as a network."""
    torch.manual_seed(0)
    white = CentredSVD.of(X, np.ones(len(X)), rank)
    M = torch.as_tensor(np.column_stack([white.features(X), np.full(len(X), len(X) ** -0.5)]), dtype=torch.float32)
    C, p = Y.shape[1], M.shape[1]
    open_ = (M @ torch.randn(p, gates) >= 0).float()  # (n, P)
    S = torch.zeros(2, gates, C, p, requires_grad=True)
    targets = torch.as_tensor(Y, dtype=torch.float32)
    optimiser = torch.optim.Adam([S], lr=0.05)
    signs = 2 * open_ - 1
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        optimiser.zero_grad()
        pre = torch.einsum("np,sgcp->sngc", M, S)
        F = torch.einsum("ngc,ng->nc", pre[0] - pre[1], open_)
        violation = torch.relu(-signs[None, :, :, None] * pre).sum() / len(X)
        value = 0.5 * ((F - targets) ** 2).sum() / len(X) + beta * S.norm(dim=3).sum() + rho * violation
        value.backward()
        optimiser.step()
    # each block is a neuron, with a ReLU instead of its gate
    heads = np.concatenate([np.tile(np.eye(C), (gates, 1)), np.tile(-np.eye(C), (gates, 1))])
    neurons = Neurons(S.detach().double().numpy().reshape(-1, p), heads, np.zeros(C))
    return BatchNorm(rank=rank).lift(X, bias=False).recover(neurons)


def formula_against_descent(X: Array, labels: Array, seconds: float) -> None:
    """Part 1."""
    Y = np.eye(labels.max() + 1)[labels]
    n = len(X)
    beta = 1.0 / n  # the paper's beta = 1
    began = time.perf_counter()
    est = ReLURegressor(beta, architecture="batch_norm", method="closed_form", fit_intercept=False).fit(X, Y)
    elapsed = time.perf_counter() - began
    print(f"\n1. Theorem 2.4 on n = {n} rows, d = {X.shape[1]} columns, {Y.shape[1]} classes, beta = 1/n")
    print(f"   formula            objective {est.objective_:.9f}   gap {est.gap_:.0e} (proven)   {elapsed:6.2f} s")
    for name, lr, adam in (
        ("GD, rate 0.1", 0.1, False),
        ("GD, rate 0.03", 0.03, False),
        ("Adam, rate 0.01", 0.01, True),
    ):
        began = time.perf_counter()
        net, _ = descend(X, Y, beta, m=100, seconds=seconds, lr=lr, adam=adam)
        inputs, targets = (torch.as_tensor(a, dtype=torch.float32) for a in (X, Y))
        with torch.no_grad():
            value = float(objective(net.train(), inputs, targets, beta, n))
        excess = 100 * (value / est.objective_ - 1)
        print(f"   {name:<18} objective {value:.9f}   {excess:+.2f} %   {time.perf_counter() - began:17.2f} s")


def accuracies(X: Array, y: Array, X_test: Array, y_test: Array, beta: float, seconds: float) -> None:
    """Part 2."""
    Y, rank = np.eye(10)[y], 0.95
    k = len(CentredSVD.of(X, np.ones(len(X)), rank).sigma)
    print(f"\n2. CIFAR-10, {len(X)} training and {len(X_test)} test rows, beta = {beta:g}; truncation keeps k = {k}")

    def note(name: str, value: float, F: Array, F_test: Array, began: float, more: str = "") -> None:
        print(
            f"   {name:<28} objective {value:.5f}   train {accuracy(F, y):5.1f} %   "
            f"test {accuracy(F_test, y_test):5.1f} %   {time.perf_counter() - began:6.1f} s   {more}",
            flush=True,
        )

    def note_network(name: str, network: Network, began: float, more: str = "") -> None:
        value = network.objective(X, Y, beta=beta)
        note(name, value, network.predict(X), network.predict(X_test), began, more)

    for name, r in (("Convex", None), ("Convex-Truncated", rank)):
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            est = ReLURegressor(
                beta,
                architecture=BatchNorm(rank=r),
                fit_intercept=False,
                tol=1e-2,
                time_limit=seconds,
                random_state=0,
            ).fit(X, Y)
        gaps = f"proven gap {est.gap_:.0e}, likely gap {est.likely_gap_:.0e}"
        proof = f"{gaps}, {est.n_neurons_} neurons, {est.certificate_.method}"
        note_network(name, est.network_, began, proof)
    for name, r in (("penalty form (rho)", None), ("penalty form, truncated", rank)):
        began = time.perf_counter()
        note_network(name, penalty_form(X, Y, beta, r, gates=20, seconds=seconds / 2, rho=0.01), began)
    for name, Z in (("SGD", X), ("SGD-Truncated", truncate(X, rank))):
        began = time.perf_counter()
        net, _ = descend(Z, Y, beta, m=500, seconds=seconds, lr=0.02, batch=200)
        inputs, targets = (torch.as_tensor(a, dtype=torch.float32) for a in (Z, Y))
        with torch.no_grad():
            value = float(objective(net.train(), inputs, targets, beta, len(Z)))
        note(name, value, scores(net, Z), scores(net, X_test), began)


def singular_movement(X: Array, labels: Array, beta: float, seconds: float, out: Path) -> None:
    """Part 3: the network itself, and its whitened form: the same network on the features U."""
    Y = np.eye(labels.max() + 1)[labels]
    white = CentredSVD.of(X, np.ones(len(X)))
    U = np.sqrt(len(X)) * white.features(X)
    curves = {}
    for name, Z, data in (("batch normalisation (9)", X, X), ("whitened (16)", U, None)):
        net, initial = descend(Z, Y, beta, m=200, seconds=seconds, lr=0.02, batch=200)
        curves[name] = singular_similarity(net[0].weight.detach().numpy(), initial, data)[: len(white.sigma)]
    print("\n3. Cosine of the hidden weights to their start, mean over the leading / middle / last tenth of directions")
    for name, values in curves.items():
        tenth = max(1, len(values) // 10)
        middle = values[len(values) // 2 :][:tenth]
        print(f"   {name:<28} {values[:tenth].mean():.3f} / {middle.mean():.3f} / {values[-tenth:].mean():.3f}")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "singular_similarity.png"
    plot_singular_similarity(curves).figure.savefig(path, dpi=120)
    print(f"   {path}")


def main() -> None:
    """Run the three parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="cifar10.npz; without it, digits are used and part 2 is left out")
    parser.add_argument("--rows", type=int, default=2000, help="training rows of part 2")
    parser.add_argument("--beta", type=float, default=1e-3)
    parser.add_argument("--seconds", type=float, default=40.0, help="for each training by gradient descent")
    parser.add_argument("--out", type=Path, default=Path("run"))
    arguments = parser.parse_args()
    if arguments.data is None or not arguments.data.exists():
        print("No CIFAR-10 file: part 1 and 3 on 60 of scikit-learn's digits (give --data for all of it)")
        X, y = load_digits(return_X_y=True)
        rows = np.flatnonzero(y < 3)[:60]
        X, y = X[rows] / 16 + 1e-3 * np.random.default_rng(0).standard_normal((60, 64)), y[rows]
        formula_against_descent(X, y, arguments.seconds)
        singular_movement(X, y, arguments.beta, arguments.seconds, arguments.out)
        return
    data = np.load(arguments.data)
    X, y = data["X_train"] / 255.0, data["y_train"].astype(int)
    X_test, y_test = data["X_test"] / 255.0, data["y_test"].astype(int)
    three = np.flatnonzero(y < 3)[:600]
    formula_against_descent(X[three], y[three], arguments.seconds)
    rows = slice(arguments.rows)
    accuracies(X[rows], y[rows], X_test, y_test, arguments.beta, arguments.seconds)
    singular_movement(X[rows], y[rows], arguments.beta, arguments.seconds, arguments.out)


if __name__ == "__main__":
    main()
