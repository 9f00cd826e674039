"""SGD on a network with batch normalisation and on its whitened form: 000 Fig. 1 and Fig. 2 look at the same runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bidual.study.implicit import singular_similarity
from reproductions.descent import Descent
from reproductions.framework import Context
from reproductions.normalised import bn_net, images, train_bn, watched

Array = NDArray[np.float64]
MODELS = ("batch normalisation (9)", "whitened (16)")
DETAILS = (
    "Rate 0.05 of the mean loss, momentum 0.9 and a cosine schedule (the paper halves its rate on plateaus); the "
    "paper's beta, 1e-4 of the sum of losses. (16) as printed normalises weights; we normalise batches of white rows, "
    "which is the same for full batches only."
)


@dataclass(frozen=True)
class Pair:
    """Both runs, and the cosine of their hidden weights to the start along each singular direction, by epoch."""

    runs: dict[str, Descent]
    similarities: dict[str, dict[int, Array]]
    sizes: str


def train_pair(context: Context) -> Pair:
    """Train both, once for both figures."""
    if "whitened" not in context.shared:
        context.shared["whitened"] = _train_pair(context)
    return context.shared["whitened"]


def _train_pair(context: Context) -> Pair:
    n, pixels = context.pick(quick=2000, default=10_000, full=50_000), context.pick(quick=8, default=16, full=32)
    m, epochs = context.pick(quick=100, default=300, full=1000), context.pick(quick=100, default=250, full=500)
    batch, n_test = context.pick(quick=200, default=500, full=1000), context.pick(quick=3000, default=5000, full=10_000)
    X, y, X_test, y_test = images(context, 10, n, n_test, pixels)
    n, n_test = len(X), len(X_test)  # there may be fewer
    mean = X.mean(axis=0)
    _, sigma, Vt = np.linalg.svd(X - mean, full_matrices=False)
    V = Vt[sigma > 1e-6 * sigma[0]].T
    to_white = np.sqrt(n) * V / sigma[: V.shape[1]]
    runs, similarities = {}, {}
    for name, rows, test, basis in (
        (MODELS[0], X, X_test, V),
        (MODELS[1], (X - mean) @ to_white, (X_test - mean) @ to_white, np.eye(V.shape[1])),
    ):
        net = bn_net(rows.shape[1], m, 10)
        initial = net[0].weight.detach().numpy() @ basis

        def moved(module: torch.nn.Module, initial: Array = initial, basis: Array = basis) -> Array:
            return singular_similarity(module[0].weight.detach().numpy() @ basis, initial)

        run = train_bn(
            rows, y, beta=1e-4 / n, m=m, net=net, rate=0.05, epochs=epochs, batch_size=batch, cosine=True, records=25,
            watch={"train": (rows, y), "test": (test, y_test), "moved": moved},
        )  # fmt: skip
        runs[name] = run
        similarities[name] = dict(zip(run.epochs.tolist(), watched(run, "moved"), strict=True))
        train, tested = (watched(run, part)[-1] for part in ("train", "test"))
        context.log(f"{name}: training {train:.1f}, test {tested:.1f}, {run.cpu_seconds[-1]:.0f} s")
    sizes = (
        f"n = {n} (50000), d = {X.shape[1]} (3072, pixels averaged), m = {m} (1000), {epochs} epochs (501), batches of "
        f"{batch} (1000), {n_test} test rows; Fig. 1 and Fig. 2 share their runs"
    )
    return Pair(runs, similarities, sizes)
