"""003 Fig. 10: a convolutional network on two classes of CIFAR-10, gradient descent against the convex programs."""

from __future__ import annotations

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from bidual import Convolutional, ReLUClassifier
from bidual.arrangements import flip_nearest, patterns_of
from bidual.networks.torch_conv import SumPool
from reproductions.descent import Descent, descend
from reproductions.framework import Context, Outcome, Verdict, experiment

CLASSES, N, WIDTH, CLUSTERS, BATCH = (0, 1), 195, 50, 50, 20
ARCHITECTURE = Convolutional(kernel_size=4, stride=4)
BETA = 0.02
#: Step sizes to choose from, by short runs.
RATES = {"sgd": (3e-4, 1e-3, 3e-3), "adam": (1e-3, 3e-3, 1e-2)}
REMARK = (
    "Adaptive needs no patterns to be chosen: it finds them, and its gap says how far from the best possible network "
    "the result is. Gaps of the programs, among networks on their patterns: "
)


def data(context: Context, n: int) -> tuple[np.ndarray, ...]:
    """Two classes, standardised channels, n training images; labels -1 and 1."""
    arrays, rng = context.data.images("cifar10"), np.random.default_rng(0)
    parts = []
    for half in ("train", "test"):
        X, y = arrays[f"X_{half}"], arrays[f"y_{half}"]
        rows = np.flatnonzero(np.isin(y, CLASSES))
        rows = rng.choice(rows, n, replace=False) if half == "train" else rows
        parts += [X[rows].astype(np.float64), np.where(y[rows] == CLASSES[1], 1, -1)]
    X, y, X_test, y_test = parts
    mean, deviation = X.mean(axis=(0, 1, 2)), X.std(axis=(0, 1, 2))
    return (X - mean) / deviation, y, (X_test - mean) / deviation, y_test


def module(seed: int) -> torch.nn.Sequential:
    """The paper's network, initialised by torch."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, WIDTH, 4, stride=4, bias=False),
        torch.nn.ReLU(),
        SumPool(),
        torch.nn.Linear(WIDTH, 1, bias=False),
    ).double()


def filters(network: torch.nn.Sequential) -> np.ndarray:
    """Filters as directions on patches, channels last."""
    weight = network[0].weight.detach().numpy()
    return np.moveaxis(weight, 1, -1).reshape(len(weight), -1)


def accuracy(network: torch.nn.Sequential, X: np.ndarray, y: np.ndarray) -> float:
    """Share of right signs."""
    with torch.no_grad():
        F = network(torch.tensor(X.transpose(0, 3, 1, 2)))[:, 0].numpy()
    return float(np.mean(np.where(F > 0, 1, -1) == y))


@experiment(
    "003-fig10",
    title="A convolutional network on two classes of CIFAR-10 (n = 195, filters 4 x 4 x 3, stride 4, hinge loss)",
    claim="The convex program on patterns of clustered patches and of the trained network (Alg1) ends lower than its "
    "approximations and than gradient descent, with a better test accuracy.",
    paper="curves only: Alg1 lowest in objective and highest in accuracy, GD above it",
)
def run(context: Context) -> Outcome:
    """Train by SGD and Adam, by the three programs of the paper, and by column generation."""
    n = context.pick(quick=40, default=N)
    X, y, X_test, y_test = data(context, n)
    runs = context.pick(quick=2, default=5)
    common = {"loss": "hinge", "architecture": ARCHITECTURE, "bias": False, "fit_intercept": False}
    rows: list[tuple[str, float, float, float, float]] = []

    tensors = X.transpose(0, 3, 1, 2)
    best: dict[str, Descent] = {}
    for name, rates in RATES.items():

        def go(rate: float, seed: int, epochs: int, name: str = name) -> Descent:
            return descend(
                module(seed), tensors, y, beta=BETA, loss="hinge", optimiser=name, rate=rate, momentum=0.9,
                epochs=epochs, batch_size=BATCH, cosine=True, seed=seed,
            )  # fmt: skip

        probe = context.pick(quick=40, default=60)
        rate = min(rates, key=lambda rate: go(rate, 0, probe).objective)
        epochs = context.pick(quick=300, default=600, full=5000)
        end = best[name] = min((go(rate, seed, epochs) for seed in range(runs)), key=lambda d: d.objective)
        rows.append((f"{name.upper()}, best of {runs}", end.objective, accuracy(end.module, X, y),
                     accuracy(end.module, X_test, y_test), float(end.seconds[-1])))  # fmt: skip
        context.log(str(rows[-1]))
    trained = filters(min(best.values(), key=lambda d: d.objective).module)
    patches = ARCHITECTURE.window(4).rows(X)
    first = filters(module(0))
    programs = {
        "Alg1: clusters and trained patterns": [ARCHITECTURE.cluster(X, CLUSTERS, random_state=0), trained],
        "Alg2: trained patterns": trained,
        "Alg3: initial patterns, flipped": flip_nearest(patches, patterns_of(patches, first)).witnesses,
    }
    program_limit = context.pick(quick=60.0, default=900.0, full=7200.0)
    gaps: dict[str, float] = {}
    for name, settings in [
        ("bidual, adaptive", {"tol": context.pick(quick=0.1, default=0.03, full=0.01), "time_limit": program_limit}),
        *(
            (name, {"method": "sampled", "gates": gates, "time_limit": program_limit})
            for name, gates in programs.items()
        ),
    ]:
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            est = ReLUClassifier(BETA, **common, **settings, random_state=0).fit(X, y)
        rows.append((name, est.objective_, est.score(X, y), est.score(X_test, y_test), time.perf_counter() - began))
        gaps[name] = est.gap_
        context.log(f"{rows[-1]}, gap {est.gap_:.1e}, {est.certificate_.method}")
    ours, alg1 = (next(row for row in rows if row[0].startswith(name)) for name in ("bidual", "Alg1"))
    others = [row for row in rows if row is not ours]
    _draw(context, rows)
    table = ["| method | objective | train accuracy | test accuracy | seconds |", "|---|---|---|---|---|"]
    table += [f"| {name} | {value:.5f} | {train:.3f} | {test:.3f} | {s:.0f} |" for name, value, train, test, s in rows]
    lowest = all(ours[1] <= row[1] for row in others)
    alg1_lowest = all(alg1[1] <= row[1] for row in others)
    verdict = Verdict.HOLDS if alg1_lowest else Verdict.PARTLY if lowest else Verdict.FAILS
    return Outcome(
        verdict if gaps[alg1[0]] < 0.1 else Verdict.UNTESTED,  # stopped at the time limit
        ours=f"adaptive {ours[1]:.5f} (gap {gaps[ours[0]]:.0e}, local search), Alg1 {alg1[1]:.5f} (gap "
        f"{gaps[alg1[0]]:.0e}), "
        f"SGD {rows[0][1]:.5f}, Adam {rows[1][1]:.5f}; test accuracy {ours[3]:.3f}, {alg1[3]:.3f}, {rows[0][3]:.3f}, "
        f"{rows[1][3]:.3f}",
        sizes=f"n = {n}, beta = {BETA} (the paper names none), airplanes and automobiles, {runs} runs of each descent",
        details="\n".join([*table, "", REMARK + ", ".join(f"{k[:4]} {v:.0e}" for k, v in gaps.items() if "Alg" in k)]),
    )


def _draw(context: Context, rows: list[tuple[str, float, float, float, float]]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axis, column, title in zip(axes, (1, 3), ("objective", "test accuracy"), strict=True):
        axis.barh([row[0] for row in rows], [row[column] for row in rows], color="C0")
        axis.invert_yaxis()
        axis.set_title(title)
    axes[1].set_xlim(left=0.5)
    axes[1].tick_params(labelleft=False)
    figure.savefig(context.figure("003-fig10.png"), dpi=110)
    plt.close(figure)
