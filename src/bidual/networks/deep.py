"""The deep feed-forward network, linear or ReLU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bidual._util.typing import Array, FloatArray
from bidual.networks.base import Network
from bidual.networks.two_layer import _finite

if TYPE_CHECKING:
    import torch

#: What may stand between the layers.
ACTIVATIONS = ("relu", "linear")


class DeepNetwork(Network):
    r""":math:`f(x) = g(\cdots g(g(\tilde x W_1 + b_1) W_2 + b_2) \cdots) W_L + b_L` with :math:`\tilde x = x T + t`.

    The activation g is the ReLU or the identity (001 sec. 1.2). The m sub-networks of 001's *parallel* architecture are
    the diagonal blocks of the :math:`W_l`.

    Parameters
    ----------
    layers : sequence of arrays
        The :math:`W_l`, each of shape (m_{l-1}, m_l).
    biases : sequence of (array or None), or None
        The :math:`b_l`, one for each layer; None is zero. They are not regularised.
    activation : {"relu", "linear"}, default="relu"
    whitening : array of shape (d, m_0) or None
        The fixed map T of the inputs, which is data preparation and not regularised; None is the identity.
    whitening_bias : array of shape (m_0,) or None
        Its shift t.
    """

    kind = "deep"

    def __init__(
        self,
        layers: Sequence[ArrayLike],
        biases: Sequence[ArrayLike | None] | None = None,
        activation: str = "relu",
        whitening: ArrayLike | None = None,
        whitening_bias: ArrayLike | None = None,
    ) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}: use one of {', '.join(map(repr, ACTIVATIONS))}")
        if not layers:
            raise ValueError("a deep network needs at least one layer")
        if biases is not None and len(biases) != len(layers):
            raise ValueError(
                f"there must be one bias (or None) for each of the {len(layers)} layers, got {len(biases)}"
            )
        self.activation = activation
        self.layers: list[FloatArray] = []
        self.biases: list[FloatArray | None] = []
        width: int | None = None
        for k, (W, b) in enumerate(zip(layers, biases or [None] * len(layers), strict=True), start=1):
            self.layers.append(_finite(f"layer {k}", W, (width, None)))
            width = self.layers[-1].shape[1]
            self.biases.append(None if b is None else _finite(f"bias {k}", b, (width,)))
        m_0 = len(self.layers[0])
        self.whitening = None if whitening is None else _finite("whitening", whitening, (None, m_0))
        self.whitening_bias = None if whitening_bias is None else _finite("whitening_bias", whitening_bias, (m_0,))

    @property
    def depth(self) -> int:
        """Number of layers of weights, L."""
        return len(self.layers)

    @property
    def n_inputs(self) -> int:
        return len(self.layers[0]) if self.whitening is None else len(self.whitening)

    @property
    def n_outputs(self) -> int:
        return int(self.layers[-1].shape[1])

    @property
    def n_neurons(self) -> int:
        """Neurons of all hidden layers together."""
        return sum(W.shape[1] for W in self.layers[:-1])

    @property
    def output_weights(self) -> FloatArray:
        """The last layer, :math:`W_L`."""
        return self.layers[-1]

    def inputs(self, X: FloatArray) -> FloatArray:
        r""":math:`\tilde X`, what the first layer sees."""
        whitened = X if self.whitening is None else X @ self.whitening
        return whitened if self.whitening_bias is None else whitened + self.whitening_bias

    def hidden(self, X: FloatArray) -> FloatArray:
        """Activations of the last hidden layer, ``(n, m_{L-1})``."""
        A = self.inputs(X)
        for W, b in zip(self.layers[:-1], self.biases[:-1], strict=True):
            A = _affine(A, W, b)
            if self.activation == "relu":
                A = np.maximum(A, 0.0)
        return A

    def forward(self, X: FloatArray) -> FloatArray:
        return _affine(self.hidden(X), self.layers[-1], self.biases[-1])

    def penalty(self) -> float:
        r""":math:`\tfrac12 \sum_l \|W_l\|_F^2`, 001 eq. 2."""
        return 0.5 * sum(float((W**2).sum()) for W in self.layers)

    def weights(self) -> dict[str, Array | None]:
        named: dict[str, Array | None] = {"whitening": self.whitening, "whitening_bias": self.whitening_bias}
        for k, (W, b) in enumerate(zip(self.layers, self.biases, strict=True), start=1):
            named |= {f"layer_{k}": W, f"bias_{k}": b}
        return named

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "activation": self.activation, "depth": self.depth}

    @classmethod
    def _rebuild(cls, data: dict[str, Any]) -> DeepNetwork:
        w, numbers = data["weights"], range(1, data["depth"] + 1)
        # a matrix without rows has lost its number of columns: one layer without neurons is followed by such
        empty = [np.zeros((0, data["n_outputs"] if k == data["depth"] else 0)) for k in numbers]
        return cls(
            layers=[empty[k - 1] if w[f"layer_{k}"] == [] else w[f"layer_{k}"] for k in numbers],
            biases=[w[f"bias_{k}"] for k in numbers],
            activation=data["activation"],
            whitening=w["whitening"],
            whitening_bias=w["whitening_bias"],
        )

    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Sequential:
        from bidual.networks.torch_bridge import deep_module

        return deep_module(self, dtype)

    def __repr__(self) -> str:
        widths = " -> ".join(str(k) for k in [self.n_inputs, *(W.shape[1] for W in self.layers)])
        return f"{type(self).__name__}({widths}, {self.activation})"


def _affine(A: FloatArray, W: FloatArray, b: FloatArray | None) -> FloatArray:
    return A @ W if b is None else A @ W + b
