"""The opponents: plain gradient descent in torch, as the papers run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Penalty = Callable[[torch.nn.Module], torch.Tensor]


class Ensemble(torch.nn.Module):
    """Two-layer ReLU networks side by side, one for each seed: all runs of a small experiment are trained at once.

    Outputs have shape (runs, n, C). Each network has the weights that :func:`two_layer` gives to its seed, and sees
    batches of its own.
    """

    def __init__(self, d: int, m: int, C: int = 1, *, seeds: Sequence[int]) -> None:
        super().__init__()
        networks = [two_layer(d, m, C, seed=seed) for seed in seeds]
        self.runs = len(networks)
        self.first, self.last = (
            torch.nn.Parameter(torch.stack([network[k].weight.detach().T for network in networks])) for k in (0, 2)
        )

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Outputs for rows (n, d), or (runs, n, d)."""
        return torch.relu(X @ self.first) @ self.last

    def network(self, run: int) -> torch.nn.Sequential:
        """One of the networks, as torch users write it."""
        (d, m), C = self.first.shape[1:], self.last.shape[2]
        module = two_layer(d, m, C)
        with torch.no_grad():
            module[0].weight.copy_(self.first[run].T)
            module[2].weight.copy_(self.last[run].T)
        return module


def half_squares(module: torch.nn.Module) -> torch.Tensor:
    """Weight decay: half the sum of all squared parameters; of each network of an ensemble."""
    if isinstance(module, Ensemble):
        return 0.5 * ((module.first**2).sum((1, 2)) + (module.last**2).sum((1, 2)))
    return 0.5 * torch.stack([(p**2).sum() for p in module.parameters()]).sum()


def _cross_entropy(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -torch.log_softmax(f, -1).gather(-1, y[..., None])[..., 0].mean(-1)


#: Mean losses in the normalisation of bidual; outputs are (n, C), or (runs, n, C) for one value for each run.
LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "squared": lambda f, y: 0.5 * ((f - y) ** 2).sum(-1).mean(-1),
    "hinge": lambda f, y: torch.relu(1.0 - y * f).sum(-1).mean(-1),
    "squared_hinge": lambda f, y: 0.5 * (torch.relu(1.0 - y * f) ** 2).sum(-1).mean(-1),
    "logistic": lambda f, y: torch.nn.functional.softplus(-y * f).sum(-1).mean(-1),
    "softmax": _cross_entropy,
}


@dataclass(frozen=True)
class Descent:
    """A run: the module at its end, and what was recorded on the way.

    Attributes
    ----------
    module : torch.nn.Module
    objectives : ndarray, shape (records,) or (records, runs)
        The objective of all rows after each recorded epoch.
    cpu_seconds : ndarray, shape (records,)
        Of training only, of all runs together.
    epochs : ndarray, shape (records,)
    watched : list
        What ``watch`` returned at each record.
    """

    module: torch.nn.Module
    objectives: NDArray[np.float64]
    cpu_seconds: NDArray[np.float64]
    epochs: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    watched: list[Any] = field(default_factory=list)

    @property
    def objective(self) -> float:
        """The objective at the end (of an ensemble: that of its best run)."""
        return float(np.min(self.objectives[-1]))


def two_layer(d: int, m: int, C: int = 1, *, bias: bool = False, seed: int = 0) -> torch.nn.Sequential:
    """A ReLU network with m neurons, initialised by torch."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(d, m, bias=bias), torch.nn.ReLU(), torch.nn.Linear(m, C, bias=False)
    ).double()


def deep(
    widths: Sequence[int], *, relu: bool = True, biases: int = 0, seed: int = 0, gain: float = 1.0
) -> torch.nn.Sequential:
    """A dense network of any depth with ``gain`` times He's initialisation; the last ``biases`` layers have biases."""
    torch.manual_seed(seed)
    layers: list[torch.nn.Module] = []
    for k, (a, b) in enumerate(pairwise(widths)):
        layer = torch.nn.Linear(a, b, bias=k >= len(widths) - 1 - biases)
        torch.nn.init.normal_(layer.weight, std=gain * ((2.0 if relu else 1.0) / a) ** 0.5)
        layers += [layer, torch.nn.ReLU()] if relu and k < len(widths) - 2 else [layer]
    return torch.nn.Sequential(*layers).double()


def weights(module: torch.nn.Module) -> list[torch.Tensor]:
    """The weight matrices of the layers, without biases."""
    return [p for p in module.parameters() if p.ndim > 1]


def half_weight_squares(module: torch.nn.Module) -> torch.Tensor:
    """Weight decay of the weight matrices only: biases are free."""
    return 0.5 * torch.stack([(W**2).sum() for W in weights(module)]).sum()


def numerical_rank(W: torch.Tensor, tol: float = 1e-2) -> int:
    """Singular values above a fraction of the largest one (and of one): training never reaches zero."""
    sigma = torch.linalg.svdvals(W.detach())
    return int((sigma > tol * max(float(sigma[0]), 1.0)).sum())


def descend(
    module: torch.nn.Module,
    X: ArrayLike,
    y: ArrayLike,
    *,
    beta: float,
    loss: str = "squared",
    penalty: Penalty = half_squares,
    optimiser: str = "sgd",
    rate: float = 1e-2,
    momentum: float = 0.0,
    epochs: int = 1000,
    batch_size: int | None = None,
    cosine: bool = False,
    records: int = 100,
    seed: int = 0,
    watch: Callable[[torch.nn.Module], Any] | None = None,
) -> Descent:
    """Minimise ``mean loss + beta * penalty``; all rows at once (GD) without a batch size.

    On one thread: for networks as small as these a second one costs more than it gives. ``watch`` is called with the
    module at each record. Objectives that are not finite (in all runs of an ensemble) end the run: the step was too
    long.
    """
    torch.set_num_threads(1)
    dtype = next(module.parameters()).dtype
    inputs = torch.as_tensor(np.asarray(X), dtype=dtype)
    targets = torch.as_tensor(np.asarray(y))
    targets = targets.long() if loss == "softmax" else targets.to(dtype).reshape(len(inputs), -1)
    stepper: torch.optim.Optimizer = {
        "sgd": lambda: torch.optim.SGD(module.parameters(), lr=rate, momentum=momentum),
        "adam": lambda: torch.optim.Adam(module.parameters(), lr=rate),
        "adagrad": lambda: torch.optim.Adagrad(module.parameters(), lr=rate),
        "adadelta": lambda: torch.optim.Adadelta(module.parameters(), lr=rate),
    }[optimiser]()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(stepper, epochs) if cosine else None
    shuffle = torch.Generator().manual_seed(seed)
    every = max(epochs // records, 1)
    objectives, seconds, at, watched, spent = [], [], [], [], 0.0

    def objective(rows: torch.Tensor | slice) -> torch.Tensor:
        return LOSSES[loss](module(inputs[rows]), targets[rows]) + beta * penalty(module)

    for epoch in range(epochs):
        began = time.process_time()
        for rows in _batches(module, len(inputs), batch_size, shuffle):
            stepper.zero_grad()
            objective(rows).sum().backward()
            stepper.step()
        if schedule is not None:
            schedule.step()
        spent += time.process_time() - began
        if epoch % every == every - 1 or epoch == epochs - 1:
            with torch.no_grad():
                objectives.append(objective(slice(None)).numpy())
                watched += [] if watch is None else [watch(module)]
            seconds.append(spent)
            at.append(epoch + 1)
            if not np.isfinite(objectives[-1]).any():
                break
    return Descent(module, np.array(objectives, dtype=np.float64), np.array(seconds), np.array(at), watched)


def _batches(
    module: torch.nn.Module, n: int, batch_size: int | None, shuffle: torch.Generator
) -> Sequence[torch.Tensor | slice]:
    """The rows of each step of an epoch: (batch,), or (runs, batch) for an ensemble."""
    if batch_size is None:
        return (slice(None),)
    if isinstance(module, Ensemble):
        return torch.rand(module.runs, n, generator=shuffle).argsort(dim=1).split(batch_size, dim=1)
    return torch.randperm(n, generator=shuffle).split(batch_size)


def tuned(rates: Sequence[float], train: Callable[[float], Descent]) -> tuple[Descent, float]:
    """The run, and its learning rate, that ended lowest (of an ensemble: in the median over its runs).

    A rate at which any run blows up is too long. A grid of several rates, which must rise, is extended while its best
    rate is the first or the last, three times at most.
    """
    runs = {rate: train(rate) for rate in rates}

    def end(rate: float) -> float:
        ends = runs[rate].objectives[-1]
        return float(np.median(ends)) if np.isfinite(ends).all() else np.inf

    def best() -> float:
        return min(runs, key=end)

    for _ in range(3 if len(rates) > 1 else 0):
        low, *_, high = sorted(runs)
        further = {low: low * rates[0] / rates[1], high: high * rates[-1] / rates[-2]}.get(best())
        if further is None:
            break
        runs[further] = train(further)
    return runs[best()], best()
