"""Parallel networks as torch modules. Imported only when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from bidual._util.extras import advice

try:
    import torch
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError(advice("this", "torch", "torch")) from error

from bidual.networks.parallel import ParallelNetwork


class ParallelModule(torch.nn.Module):
    r"""K branches with the weights of :class:`~bidual.networks.ParallelNetwork`: for torch optimisers.

    Minimise ``loss(module(X), Y) + beta * module.path_norm()``.

    Parameters
    ----------
    widths : sequence of int
        Inputs, hidden neurons of a branch layer by layer, outputs.
    n_branches : int
    bias, intercept : bool
        Whether the first layer has biases, and whether there is a free output bias.
    dtype : torch.dtype or None
        None: float64.
    seed : int or None
        Of the initial weights, uniform as in ``torch.nn.Linear``; None: from torch's own stream.
    """

    hidden_bias: torch.nn.Parameter | None
    intercept: torch.nn.Parameter | None

    def __init__(
        self,
        widths: Sequence[int],
        n_branches: int,
        *,
        bias: bool = False,
        intercept: bool = False,
        dtype: torch.dtype | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        dtype = torch.float64 if dtype is None else dtype
        stream = None if seed is None else torch.Generator().manual_seed(seed)

        def uniform(shape: tuple[int, ...], fan: int) -> torch.nn.Parameter:
            values = 2.0 * torch.rand(shape, generator=stream, dtype=torch.float64) - 1.0
            return torch.nn.Parameter((values / max(fan, 1) ** 0.5).to(dtype))

        self.layers = torch.nn.ParameterList(uniform((n_branches, a, b), a) for a, b in pairwise(widths))
        self.hidden_bias = uniform((n_branches, widths[1]), widths[0]) if bias else None
        self.intercept = torch.nn.Parameter(torch.zeros(widths[-1], dtype=dtype)) if intercept else None

    @classmethod
    def of(cls, network: ParallelNetwork, dtype: torch.dtype | None = None) -> ParallelModule:
        """With the weights of ``network``."""
        widths = [network.n_inputs, *(W.shape[2] for W in network.layers)]
        bias = network.hidden_bias is not None
        module = cls(widths, network.n_branches, bias=bias, intercept=True, dtype=dtype, seed=0)
        with torch.no_grad():
            for parameter, W in zip(module.layers, network.layers, strict=True):
                parameter.copy_(torch.as_tensor(W))
            if module.hidden_bias is not None and network.hidden_bias is not None:
                module.hidden_bias.copy_(torch.as_tensor(network.hidden_bias))
            assert module.intercept is not None
            module.intercept.copy_(torch.as_tensor(network.intercept))
        return module

    @property
    def output_weights(self) -> torch.Tensor:
        """The last layers of all branches below each other, ``(K m_{L-1}, C)``."""
        last = self.layers[-1]
        return last.reshape(-1, last.shape[2])

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        """Activations of the last hidden layers of all branches side by side, ``(n, K m_{L-1})``."""
        first, *rest, _ = self.layers
        A = torch.einsum("nd,kdm->nkm", x, first)
        if self.hidden_bias is not None:
            A = A + self.hidden_bias
        for W in rest:
            A = torch.einsum("nkm,kml->nkl", torch.relu(A), W)
        return torch.relu(A).reshape(len(x), len(self.output_weights))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs ``(n, C)``."""
        F = self.hidden(x) @ self.output_weights
        return F if self.intercept is None else F + self.intercept

    def path_norm(self) -> torch.Tensor:
        """The path regulariser (002 eq. 4); its gradient at a dead branch is zero."""
        return self.branch_norms().sum()

    def branch_norms(self) -> torch.Tensor:
        """What each branch adds to the path regulariser, ``(K,)``."""
        first, *rest = self.layers
        squares = (first**2).sum(dim=1)
        if self.hidden_bias is not None:
            squares = squares + self.hidden_bias**2
        for W in rest:
            squares = torch.einsum("km,kml->kl", squares, W**2)
        total = squares.sum(dim=1)
        alive = total > 0
        return torch.sqrt(torch.where(alive, total, torch.ones_like(total))).where(alive, torch.zeros_like(total))

    def network(self) -> ParallelNetwork:
        """The weights as they are now, as a bidual network."""

        def numbers(tensor: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
            return tensor.detach().to("cpu", torch.float64).numpy().copy()

        return ParallelNetwork(
            [numbers(W) for W in self.layers],
            None if self.hidden_bias is None else numbers(self.hidden_bias),
            None if self.intercept is None else numbers(self.intercept),
        )
