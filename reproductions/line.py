"""Networks of one input with free biases by gradient descent: the opponents in 004 Fig. 1, 7, 8 and 9."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from reproductions.descent import Descent, descend

Array = NDArray[np.float64]


class Line(torch.nn.Module):
    """Networks ``sum_j a_j (u_j x + b_j)_+ + c`` side by side, one for each run; all but c start at N(0, std^2).

    ``std`` may be one for each run.
    """

    def __init__(self, m: int, runs: int, std: float | Array, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        scale = torch.as_tensor(np.broadcast_to(std, runs).copy())[:, None, None]
        self.u, self.b, self.a = (torch.nn.Parameter(scale * torch.randn(runs, 1, m).double()) for _ in range(3))
        self.c = torch.nn.Parameter(torch.zeros(runs, 1).double())

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Outputs (runs, n, 1) for rows (n, 1)."""
        return ((torch.relu(X * self.u + self.b) * self.a).sum(2) + self.c)[..., None]


def line_squares(module: torch.nn.Module) -> torch.Tensor:
    """Half the squared weights of each run; biases are free."""
    return 0.5 * ((module.u**2).sum((1, 2)) + (module.a**2).sum((1, 2)))  # type: ignore[operator,union-attr]


def train(
    x: Array, y: Array, *, beta: float, m: int, runs: int, std: float | Array, steps: int, loss: str,
    rate: float | Array,
) -> Descent:  # fmt: skip
    """Gradient descent with momentum and a falling rate, all runs at once; each may have a ``std`` and ``rate``."""
    module, longest = Line(m, runs, std), float(np.max(rate))
    shorter = torch.as_tensor(np.broadcast_to(rate, runs) / longest)
    for parameter in module.parameters():
        factor = shorter.reshape(-1, *[1] * (parameter.ndim - 1))
        parameter.register_hook(lambda gradient, factor=factor: gradient * factor)
    return descend(
        module, x[:, None], y, beta=beta, loss=loss, penalty=line_squares, rate=longest, momentum=0.9, epochs=steps,
        cosine=True, records=50,
    )  # fmt: skip


def outputs(module: torch.nn.Module, x: Array) -> Array:
    """Outputs of all networks on the same inputs: (runs, len(x))."""
    with torch.no_grad():
        return Line.forward(module, torch.as_tensor(x[:, None]))[..., 0].numpy()  # type: ignore[arg-type]
