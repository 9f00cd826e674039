"""The opponents: plain gradient descent in torch, as the papers run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.nn import functional

Penalty = Callable[[torch.nn.Module], torch.Tensor]


def half_squares(module: torch.nn.Module) -> torch.Tensor:
    """Weight decay: half the sum of all squared parameters."""
    return 0.5 * torch.stack([(p**2).sum() for p in module.parameters()]).sum()


#: Mean losses in the normalisation of bidual.
LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "squared": lambda f, y: 0.5 * ((f - y) ** 2).sum(1).mean(),
    "hinge": lambda f, y: functional.relu(1.0 - y * f).sum(1).mean(),
    "squared_hinge": lambda f, y: 0.5 * (functional.relu(1.0 - y * f) ** 2).sum(1).mean(),
    "logistic": lambda f, y: functional.softplus(-y * f).sum(1).mean(),
    "softmax": lambda f, y: functional.cross_entropy(f, y),
}


@dataclass(frozen=True)
class Descent:
    """A run: the module at its end, the full objective after each recorded epoch, and the time of each record."""

    module: torch.nn.Module
    objectives: NDArray[np.float64]
    seconds: NDArray[np.float64]

    @property
    def objective(self) -> float:
        """The objective at the end."""
        return float(self.objectives[-1])


def two_layer(d: int, m: int, C: int = 1, *, bias: bool = False, seed: int = 0) -> torch.nn.Sequential:
    """A ReLU network with m neurons, initialised by torch."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(d, m, bias=bias), torch.nn.ReLU(), torch.nn.Linear(m, C, bias=False)
    ).double()


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
    time_limit: float | None = None,
) -> Descent:
    """Minimise ``mean loss + beta * penalty``; all rows at once (GD) without a batch size.

    Objectives that are not finite end the run: the step was too long.
    """
    dtype = next(module.parameters()).dtype
    inputs = torch.as_tensor(np.asarray(X), dtype=dtype)
    targets = torch.as_tensor(np.asarray(y))
    targets = targets.long() if loss == "softmax" else targets.to(dtype).reshape(len(inputs), -1)
    parameters: Iterable[torch.nn.Parameter] = list(module.parameters())
    make = {
        "sgd": lambda: torch.optim.SGD(parameters, lr=rate, momentum=momentum),
        "adam": lambda: torch.optim.Adam(parameters, lr=rate),
    }[optimiser]
    stepper = make()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(stepper, epochs) if cosine else None
    shuffle = torch.Generator().manual_seed(seed)
    every = max(epochs // records, 1)
    objectives, seconds, began = [], [], time.perf_counter()

    def objective(rows: torch.Tensor | slice) -> torch.Tensor:
        return LOSSES[loss](module(inputs[rows]), targets[rows]) + beta * penalty(module)

    for epoch in range(epochs):
        batches = (
            (slice(None),) if batch_size is None else torch.randperm(len(inputs), generator=shuffle).split(batch_size)
        )
        for rows in batches:
            stepper.zero_grad()
            objective(rows).backward()
            stepper.step()
        if schedule is not None:
            schedule.step()
        late = time_limit is not None and time.perf_counter() - began > time_limit
        if epoch % every == every - 1 or epoch == epochs - 1 or late:
            with torch.no_grad():
                objectives.append(float(objective(slice(None))))
            seconds.append(time.perf_counter() - began)
            if late or not np.isfinite(objectives[-1]):
                break
    return Descent(module, np.array(objectives), np.array(seconds))
