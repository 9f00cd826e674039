"""The linear networks of 001 Fig. 2, 3a and 5: data of a random teacher, with exactly white rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from reproductions.descent import deep, descend, weights

Array = NDArray[np.float64]
#: What the figures say of all of them.
SETTINGS = (
    "Rows are exactly white (X^T X = n I), n = 100, and beta is that of the mean loss, the paper's divided by n. The "
    "teacher has 50 hidden neurons and noise of deviation 0.1. Gradient descent has rate 0.05, momentum 0.9 and a "
    "cosine schedule; four layers get the better of two starts, usual weights and 0.3 times these. The paper publishes "
    "the widths of the layers only."
)


def data(d: int = 20, hidden: int = 50, outputs: int = 5, n: int = 100) -> tuple[Array, Array]:
    """Rows of mean zero with identity covariance (X^T X = n I), and the outputs of a two-layer linear teacher."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, d))
    X = np.linalg.qr(rows - rows.mean(axis=0))[0] * np.sqrt(n)
    teacher = rng.standard_normal((d, hidden)) @ rng.standard_normal((hidden, outputs)) / np.sqrt(d * hidden)
    return X, X @ teacher + 0.1 * rng.standard_normal((n, outputs))


class Chains(torch.nn.Module):
    """Linear networks side by side, each with a weight decay and a start of its own: all are trained at once."""

    def __init__(self, widths: Sequence[int], betas: Sequence[float], gains: Sequence[float]) -> None:
        super().__init__()
        starts = [weights(deep(widths, relu=False, gain=gain)) for gain in gains]
        self.layers = torch.nn.ParameterList(
            torch.stack(list(layer)).detach().mT for layer in zip(*starts, strict=True)
        )
        self.betas = torch.tensor(betas, dtype=torch.float64)

    def forward(self, A: torch.Tensor) -> torch.Tensor:
        """Outputs of shape (networks, n, C)."""
        for W in self.layers:
            A = A @ W
        return A

    def penalty(self) -> torch.Tensor:
        """The weight decay of each, times its beta."""
        return 0.5 * self.betas * torch.stack([(W**2).sum((1, 2)) for W in self.layers]).sum(0)


@dataclass(frozen=True)
class Trained:
    """The network of each beta: its layers, each of shape (betas, in, out), its objective, and what was watched."""

    layers: list[torch.Tensor]
    objectives: Array
    epochs: NDArray[np.int64]
    watched: Array


def trained(
    widths: Sequence[int], X: Array, Y: Array, betas: ArrayLike, steps: int, *, records: int = 50,
    watch: Callable[[Sequence[torch.Tensor]], Any] = lambda layers: (),
) -> Trained:  # fmt: skip
    """Gradient descent with momentum on linear networks: for each beta the better of a usual start and a small one.

    From the usual start deep networks may end at a rank that is too large. ``watch`` is given the layers of all.
    """
    values = np.atleast_1d(np.asarray(betas, dtype=np.float64))
    gains = (1.0, 0.3) if len(widths) > 3 else (1.0,)
    chains = Chains(widths, np.tile(values, len(gains)).tolist(), np.repeat(gains, len(values)).tolist())
    run = descend(
        chains, X, Y, beta=1.0, penalty=lambda module: module.penalty(), rate=0.05, momentum=0.9, epochs=steps,
        cosine=True, records=records, watch=lambda module: watch(module.layers),
    )  # fmt: skip
    ends = np.nan_to_num(run.objectives[-1], nan=np.inf).reshape(len(gains), -1)
    best = ends.argmin(axis=0) * len(values) + np.arange(len(values))
    watched = np.array(run.watched)
    return Trained(
        layers=[W.detach()[best] for W in chains.layers],
        objectives=ends.min(axis=0),
        epochs=run.epochs,
        watched=watched[:, best] if watched.size else watched,
    )
