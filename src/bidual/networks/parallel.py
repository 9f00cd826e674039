"""Parallel networks: branches of any depth side by side, charged by their paths (002)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bidual._util.typing import Array, FloatArray
from bidual.networks.base import Network
from bidual.networks.two_layer import _finite

if TYPE_CHECKING:
    import torch


class ParallelNetwork(Network):
    r"""Branches side by side: :math:`f(X) = \sum_k ((X W_{1k})_+ \cdots W_{L-1,k})_+ W_{Lk} + b` (002 eq. 1).

    With biases of the first layer, which count as one more input. The penalty is the path regulariser

    .. math:: R = \sum_k \Big( \sum_{j_1, \dots, j_L} \|w_{1kj_1}\|^2 \prod_{l \ge 2} w_{lkj_{l-1}j_l}^2 \Big)^{1/2},

    the squares of all products of weights along paths from the input to the output, branch by branch. It does not
    change when a neuron's incoming weights are multiplied with a positive number that divides the outgoing ones.

    Parameters
    ----------
    layers : sequence of arrays
        The weights :math:`W_l` of all branches, shapes (K, m_{l-1}, m_l): at least two, the first with m_0 = d inputs,
        the last with C outputs.
    hidden_bias : array of shape (K, m_1) or None
        Biases of the first layer; None is zero.
    intercept : array of shape (C,) or None
        Free output bias; None is zero.
    """

    kind = "parallel"

    def __init__(
        self,
        layers: Sequence[ArrayLike],
        hidden_bias: ArrayLike | None = None,
        intercept: ArrayLike | None = None,
    ) -> None:
        if len(layers) < 2:
            raise ValueError(f"a parallel network needs at least two layers, got {len(layers)}")
        self.layers: list[FloatArray] = []
        branches: int | None = None
        width: int | None = None
        for k, W in enumerate(layers, start=1):
            self.layers.append(_finite(f"layer {k}", W, (branches, width, None)))
            branches, _, width = self.layers[-1].shape
        first = self.layers[0]
        self.hidden_bias = (
            None if hidden_bias is None else _finite("hidden_bias", hidden_bias, (len(first), first.shape[2]))
        )
        C = self.n_outputs
        self.intercept = np.zeros(C) if intercept is None else _finite("intercept", intercept, (C,))

    @property
    def n_inputs(self) -> int:
        return int(self.layers[0].shape[1])

    @property
    def n_outputs(self) -> int:
        return int(self.layers[-1].shape[2])

    @property
    def n_branches(self) -> int:
        """Number of branches, K."""
        return len(self.layers[0])

    @property
    def n_neurons(self) -> int:
        """Neurons of all hidden layers of all branches together."""
        return self.n_branches * sum(W.shape[2] for W in self.layers[:-1])

    @property
    def depth(self) -> int:
        """Number of layers of weights, L."""
        return len(self.layers)

    @property
    def output_weights(self) -> FloatArray:
        """The last layers of all branches below each other, ``(K m_{L-1}, C)``."""
        return self.layers[-1].reshape(-1, self.n_outputs)

    def hidden(self, X: FloatArray) -> FloatArray:
        """Activations of the last hidden layers of all branches side by side, ``(n, K m_{L-1})``."""
        A = np.einsum("nd,kdm->nkm", X, self.layers[0], optimize=True)
        if self.hidden_bias is not None:
            A = A + self.hidden_bias
        for W in self.layers[1:-1]:
            A = np.einsum("nkm,kml->nkl", np.maximum(A, 0.0), W, optimize=True)
        return np.maximum(A, 0.0).reshape(len(X), len(self.output_weights))

    def forward(self, X: FloatArray) -> FloatArray:
        return self.hidden(X) @ self.output_weights + self.intercept

    def path_norms(self) -> FloatArray:
        """What each branch costs, ``(K,)``."""
        # not by squares, which may underflow in one layer though another one makes up for it
        norms = np.hypot.reduce(self.layers[0], axis=1)
        if self.hidden_bias is not None:
            norms = np.hypot(norms, self.hidden_bias)
        for W in self.layers[1:]:
            norms = np.hypot.reduce(norms[:, :, None] * W, axis=1)
        return np.asarray(np.hypot.reduce(norms, axis=1))

    def penalty(self) -> float:
        """The path regulariser, 002 eq. 4."""
        return float(self.path_norms().sum())

    def weights(self) -> dict[str, Array | None]:
        named: dict[str, Array | None] = {f"layer_{k}": W for k, W in enumerate(self.layers, start=1)}
        return {**named, "hidden_bias": self.hidden_bias, "intercept": self.intercept}

    def to_dict(self) -> dict[str, Any]:
        # without branches the lists say nothing about the widths
        return {**super().to_dict(), "widths": [self.n_inputs, *(W.shape[2] for W in self.layers)]}

    @classmethod
    def _rebuild(cls, data: dict[str, Any]) -> ParallelNetwork:
        w, widths = data["weights"], data["widths"]
        layers = [
            np.asarray(w[f"layer_{k}"], dtype=np.float64).reshape(-1, a, b)
            for k, (a, b) in enumerate(pairwise(widths), start=1)
        ]
        bias = w["hidden_bias"]
        return cls(layers, None if bias is None else np.reshape(bias, (-1, widths[1])), w["intercept"])

    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Module:
        """A :class:`bidual.networks.parallel_torch.ParallelModule`, which can be trained on."""
        from bidual.networks.parallel_torch import ParallelModule

        return ParallelModule.of(self, dtype)

    def __repr__(self) -> str:
        widths = " -> ".join(str(k) for k in [self.n_inputs, *(W.shape[2] for W in self.layers)])
        return f"{type(self).__name__}({self.n_branches} branches, {widths})"
