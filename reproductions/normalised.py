"""Networks with batch normalisation by gradient descent, and the images they are trained on (000, 001 Fig. 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reproductions.descent import Descent, descend
from reproductions.framework import Context

Array = NDArray[np.float64]


def images(
    context: Context, classes: int, n: int, n_test: int, pixels: int = 32
) -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
    """Rows of the first classes of CIFAR-10, averaged to ``pixels`` x ``pixels`` colours, values in [0, 1].

    CIFAR-100, which 000 and 001 Fig. 6 use as well, is not among the data sets: CIFAR-10 stands in for it.
    """
    arrays = context.data.load("cifar10")
    parts: list[Any] = []
    for part, count in (("train", n), ("test", n_test)):
        rows = np.flatnonzero(arrays[f"y_{part}"] < classes)[:count]
        block = 32 // pixels
        X = arrays[f"X_{part}"][rows].reshape(-1, 3, pixels, block, pixels, block).mean(axis=(3, 5)) / 255.0
        parts += [X.reshape(len(X), -1), arrays[f"y_{part}"][rows].astype(np.int64)]
    return parts[0], parts[1], parts[2], parts[3]


def bn_net(d: int, m: int, C: int, *, seed: int = 0) -> torch.nn.Sequential:
    """A two-layer network with batch normalisation in front of the ReLU, as torch users write it (float32)."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(d, m, bias=False), torch.nn.BatchNorm1d(m), torch.nn.ReLU(), torch.nn.Linear(m, C, bias=False)
    )


def bn_squares(module: torch.nn.Module) -> torch.Tensor:
    """Half the squares of scales, shifts and output weights: the scale of the hidden weights does not matter."""
    net: Any = module
    return 0.5 * ((net[1].weight ** 2).sum() + (net[1].bias ** 2).sum() + (net[3].weight ** 2).sum())


def accuracy(scores: Any, labels: Any) -> float:
    """Percentage of rows whose largest score is that of their class."""
    return float(100 * np.mean(np.asarray(scores).argmax(axis=1) == np.asarray(labels)))


def scores(module: torch.nn.Module, X: Array) -> Array:
    """Outputs with the statistics of training."""
    dtype = next(module.parameters()).dtype
    module.eval()
    with torch.no_grad():
        F = module(torch.as_tensor(X, dtype=dtype)).numpy()
    module.train()
    return F


def train_bn(
    X: Array, labels: NDArray[np.int64], *, beta: float, m: int, seed: int = 0, watch: dict[str, Any] | None = None,
    net: torch.nn.Module | None = None, **options: Any,
) -> Descent:  # fmt: skip
    """SGD with momentum 0.9 on one-hot targets.

    ``watch`` maps names to (rows, labels), whose accuracies are recorded, or to functions of the module. torch divides
    by the standard deviation where 000 divides by the norm: the same problem with sqrt(n) times beta.
    """
    Y = np.eye(labels.max() + 1)[labels]
    module = bn_net(X.shape[1], m, Y.shape[1], seed=seed) if net is None else net
    if options.get("batch_size") is None:
        module[1].momentum = 1.0  # type: ignore[index]  # statistics of all rows, as 000 A.1 has it
    seen = {} if watch is None else watch

    def look(module: torch.nn.Module) -> dict[str, Any]:
        return {
            name: what(module) if callable(what) else accuracy(scores(module, what[0]), what[1])
            for name, what in seen.items()
        }

    settings = {"momentum": 0.9, "penalty": bn_squares, "watch": look, "seed": seed, "records": 30, **options}
    return descend(module, X, Y, beta=np.sqrt(len(X)) * beta, **settings)


def watched(run: Descent, name: str) -> Array:
    """What was recorded under this name."""
    return np.array([entry[name] for entry in run.watched])
