"""SGD on a network with batch normalisation and on its whitened form: 000 Fig. 1 and Fig. 2 look at the same runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bidual.implicit import singular_similarity
from reproductions.descent import Descent
from reproductions.framework import Context, Size
from reproductions.normalised import bn_net, images, train_bn

Array = NDArray[np.float64]
MODELS = ("batch normalisation (9)", "whitened (16)")
_CONTEXTS: dict[int, Context] = {}


@dataclass(frozen=True)
class Pair:
    """Both runs, and how far their hidden weights moved along each singular direction, at each record."""

    runs: dict[str, Descent]
    similarities: dict[str, Array]
    sizes: str


def train_pair(context: Context) -> Pair:
    """Train both, once for both figures."""
    _CONTEXTS[id(context.data)] = context
    return _train_pair(context.size, id(context.data))


@lru_cache(maxsize=1)
def _train_pair(size: Size, data: int) -> Pair:
    context = _CONTEXTS[data]
    n, pixels = context.pick(quick=2000, default=10_000, full=50_000), context.pick(quick=8, default=16, full=32)
    m, epochs = context.pick(quick=100, default=300, full=1000), context.pick(quick=200, default=100, full=500)
    batch = context.pick(quick=200, default=500, full=1000)
    X, y, X_test, y_test = images(context, 10, n, 3000, pixels)
    mean = X.mean(axis=0)
    _, sigma, Vt = np.linalg.svd(X - mean, full_matrices=False)
    kept = sigma > 1e-6 * sigma[0]
    to_white = np.sqrt(len(X)) * Vt[kept].T / sigma[kept]
    runs, similarities = {}, {}
    for name, rows, test, basis in (
        (MODELS[0], X, X_test, X),
        (MODELS[1], (X - mean) @ to_white, (X_test - mean) @ to_white, None),
    ):
        net = bn_net(rows.shape[1], m, 10)
        initial = net[0].weight.detach().numpy().copy()
        run = train_bn(
            rows, y, beta=1e-4 / len(X), m=m, net=net, rate=0.05, epochs=epochs, batch_size=batch, cosine=True,
            watch={"train": (rows[:3000], y[:3000]), "test": (test, y_test)},
        )  # fmt: skip
        runs[name] = run
        similarities[name] = singular_similarity(net[0].weight.detach().numpy(), initial, basis)[: kept.sum()]
        context.log(f"{name}: {run.watched[-1]}, {run.seconds[-1]:.0f} s")
    sizes = f"n = {len(X)} (50000), d = {X.shape[1]} (3072, pixels averaged), m = {m} (1000), {epochs} epochs (501)"
    return Pair(runs, similarities, sizes)
