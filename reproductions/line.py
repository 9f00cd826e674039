"""Networks of one input with free biases by gradient descent: the opponents in 004 Fig. 1, 7, 8 and 9."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from reproductions.descent import Descent, descend

Array = NDArray[np.float64]


class Line(torch.nn.Module):
    """Networks ``sum_j a_j (u_j x + b_j)_+ + c`` side by side, one for each run; all but c start at N(0, std^2)."""

    def __init__(self, m: int, runs: int, std: float, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.u, self.b, self.a = (torch.nn.Parameter(std * torch.randn(runs, 1, m).double()) for _ in range(3))
        self.c = torch.nn.Parameter(torch.zeros(runs, 1).double())

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Outputs (runs, n, 1) for rows (n, 1)."""
        return ((torch.relu(X * self.u + self.b) * self.a).sum(2) + self.c)[..., None]


def line_squares(module: torch.nn.Module) -> torch.Tensor:
    """Half the squared weights of each run; biases are free."""
    return 0.5 * ((module.u**2).sum((1, 2)) + (module.a**2).sum((1, 2)))  # type: ignore[operator,union-attr]


def train(
    x: Array, y: Array, *, beta: float, m: int, runs: int, std: float, steps: int, loss: str, rate: float
) -> Descent:
    """Gradient descent with momentum, all runs at once."""
    return descend(
        Line(m, runs, std), x[:, None], y, beta=beta, loss=loss, penalty=line_squares, rate=rate, momentum=0.9,
        epochs=steps, records=50,
    )  # fmt: skip


def outputs(run: Descent, x: Array) -> Array:
    """Outputs of all runs on other inputs: (runs, len(x))."""
    with torch.no_grad():
        return run.module(torch.as_tensor(x[:, None]))[..., 0].numpy()
