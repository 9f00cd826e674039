"""Convolutional networks with one hidden layer."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bidual._util.checks import as_numbers
from bidual._util.patches import Sizes, Window, as_filters, fold
from bidual._util.sparse import dense
from bidual._util.typing import Array, FloatArray
from bidual.networks.base import Network
from bidual.networks.deep import DeepNetwork
from bidual.networks.two_layer import _finite

if TYPE_CHECKING:
    import torch

#: What becomes of the outputs of a sample's patches.
POOLINGS = ("sum", "average", None, "flatten")


class ConvolutionalNetwork(Network):
    r"""One layer of filters, applied to every patch (003 sec. 4, A.1).

    With patches :math:`x_{ik}`, k = 1..K, of sample i and the hidden layer :math:`\phi` of ``layer``,

    .. math:: f(x_i) = \sum_k \phi(x_{ik})^T \alpha + b, \qquad f(x_i) = \sum_k \phi(x_{ik})^T \alpha_k + b,
              \qquad f_k(x_i) = \phi(x_{ik})^T \alpha + b,

    the first for ``pooling="sum"`` (or "average", with 1/K), the second for "flatten", where every position has output
    weights of its own, the third for None, where every position has outputs of its own.

    Parameters
    ----------
    layer : Network
        The network on one patch, whose entries are in the order (\*kernel, channels): two layers, with or without
        batch normalisation, gated or linear. Its own intercept is not used. "flatten": its outputs are those of
        position 1, position 2, ...
    kernel_size : int, sequence of int or None
        Size of the patches along each of the spatial axes; None: inputs are patches ``(n, K, h)``.
    stride, padding : int or sequence of int
        Steps between patches, and zeros on both sides.
    pooling : {"sum", "average", None, "flatten"}
    intercept : array of shape (C,) or None
    circular : bool
        Whether patches wrap around instead of being padded.
    grid : sequence of int or None
        Positions along each spatial axis, for "flatten".
    """

    kind = "convolutional"

    def __init__(
        self,
        layer: Network,
        kernel_size: Sizes | None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        pooling: str | None = "sum",
        intercept: ArrayLike | None = None,
        circular: bool = False,
        grid: Sizes | None = None,
    ) -> None:
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(map(repr, POOLINGS))}; got {pooling!r}")
        axes = 1 if kernel_size is None or isinstance(kernel_size, int) else len(kernel_size)
        self.layer = layer
        self.window = Window.of(kernel_size, stride, padding, 3 if kernel_size is None else axes + 2, circular)
        self.pooling = pooling
        self.grid = None if grid is None else tuple(int(k) for k in np.atleast_1d(np.asarray(grid)))
        if isinstance(layer, DeepNetwork) and (
            pooling != "flatten" or layer.activation != "linear" or layer.depth != 2
        ):
            raise ValueError("a deep layer must be linear, of two layers, and its activations flattened")
        if pooling == "flatten" and self.grid is None:
            raise ValueError("pooling='flatten' needs the grid of positions that have output weights")
        if layer.n_outputs % (self.n_positions or 1):
            raise ValueError(
                f"the layer has {layer.n_outputs} outputs, which {self.n_positions} positions cannot share"
            )
        C = self.n_outputs
        self.intercept = np.zeros(C) if intercept is None else _finite("intercept", intercept, (C,))

    @property
    def core(self) -> Network:
        return self.layer.core

    @property
    def n_positions(self) -> int | None:
        """Positions with output weights of their own."""
        return prod(self.grid) if self.pooling == "flatten" and self.grid is not None else None

    @property
    def n_inputs(self) -> int:
        """Entries of a patch, h."""
        return self.layer.n_inputs

    @property
    def n_outputs(self) -> int:
        return self.layer.n_outputs // (self.n_positions or 1)

    @property
    def n_neurons(self) -> int:
        """Number of filters."""
        return self.layer.n_neurons

    @property
    def filters(self) -> FloatArray:
        """The hidden weights ``(m, *kernel, channels)``, or ``(m, h)`` for explicit patches."""
        deep = isinstance(self.layer, DeepNetwork)
        hidden: FloatArray = self.layer.layers[0].T if deep else self.layer.hidden_weights  # type: ignore[attr-defined]
        return as_filters(hidden, self.window)

    @property
    def output_weights(self) -> FloatArray:
        """``(m, C)``, or ``(m, K, C)`` for "flatten"."""
        alpha: FloatArray = self.layer.output_weights  # type: ignore[attr-defined]
        return alpha if self.n_positions is None else alpha.reshape(len(alpha), self.n_positions, self.n_outputs)

    @property
    def hidden_bias(self) -> FloatArray | None:
        """Biases of the filters, None if there are none."""
        return getattr(self.layer, "hidden_bias", None)

    def check_inputs(self, X: Array) -> FloatArray:
        X = as_numbers("X", dense(X))
        if self.window.kernel is None and X.ndim != 3:
            raise ValueError(f"X must hold explicit patches (n, K, {self.n_inputs}), got {X.shape}")
        self.window.tensor(X[:1])  # raises if it has the wrong number of axes
        grid, size = self.window.grid(X.shape), self.window.size(X.shape)
        if size != self.n_inputs:
            raise ValueError(
                f"X of shape {X.shape} has patches of {size} entries (channels last), the filters have {self.n_inputs}"
            )
        if self.grid is not None and self.pooling == "flatten" and grid != self.grid:
            raise ValueError(f"X of shape {X.shape} has patches at {grid} positions, the network is for {self.grid}")
        return X

    def restated(self, X: FloatArray, counts: FloatArray | None = None) -> ConvolutionalNetwork:
        if type(self.layer).restated is Network.restated:
            return self  # without looking at the patches
        K = prod(self.window.grid(X.shape))
        layer = self.layer.restated(self.window.rows(X), None if counts is None else np.repeat(counts, K))
        return self if layer is self.layer else ConvolutionalNetwork(layer, **self.options(), intercept=self.intercept)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape[:1] if self.pooling is not None else (shape[0], *self.window.grid(shape))

    def forward(self, X: FloatArray) -> FloatArray:
        C, K = self.n_outputs, prod(self.window.grid(X.shape))
        if isinstance(self.layer, DeepNetwork):  # linear: one map on the tensors
            maps = np.tensordot(self.output_weights, self.layer.layers[0], axes=(0, 1)).swapaxes(1, 2)
            return X.reshape(len(X), -1) @ fold(self.window, maps, X.shape) + self.intercept
        F = np.empty((len(X), K if self.pooling is None else 1, C))
        own = getattr(self.layer, "intercept", 0.0) if self.n_positions is None else 0.0
        for part, rows in self.window.pieces(X):
            if self.n_positions is not None:
                hidden = self.layer.hidden(rows)  # type: ignore[attr-defined]
                alpha = self.output_weights.swapaxes(0, 1).reshape(K * self.n_neurons, C)
                F[part, 0] = hidden.reshape(len(rows) // K, K * self.n_neurons) @ alpha
                continue
            outputs = (self.layer.forward(rows) - own).reshape(-1, K, C)
            F[part] = outputs if self.pooling is None else outputs.sum(axis=1, keepdims=True)
        if self.pooling == "average":
            F /= K
        return F.reshape(-1, C) + self.intercept

    def penalty(self) -> float:
        """That of the layer: filters and output weights are counted once, however often they are used."""
        return self.layer.penalty()

    def gate_vectors(self) -> FloatArray:
        return self.layer.gate_vectors()

    def weights(self) -> dict[str, Array | None]:
        return {**self.layer.weights(), "intercept": self.intercept}

    def options(self) -> dict[str, Any]:
        """How patches are taken and pooled: arguments that rebuild this network."""
        w = self.window
        one = 1 if w.kernel is None else w.stride
        return {
            "kernel_size": w.kernel,
            "stride": one,
            "padding": 0 if w.kernel is None else w.padding,
            "pooling": self.pooling,
            "circular": w.circular,
            "grid": self.grid,
        }

    def to_dict(self) -> dict[str, Any]:
        listed = {k: list(v) if isinstance(v, tuple) else v for k, v in self.options().items()}
        return {
            "kind": self.kind,
            "n_inputs": self.n_inputs,
            "n_outputs": self.n_outputs,
            "layer": self.layer.to_dict(),
            "intercept": self.intercept.tolist(),
            "options": listed,
        }

    @classmethod
    def _rebuild(cls, data: dict[str, Any]) -> ConvolutionalNetwork:
        return cls(Network.from_dict(data["layer"]), intercept=data["intercept"], **data["options"])

    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Module:
        """``Sequential(Conv, ReLU, pooling, Linear)`` on tensors with channels first, as torch has them.

        With batch normalisation before the ReLU; for outputs at every position the last layer is a convolution of size
        one. Explicit patches ``(n, K, h)`` need no convolution: the first layer is ``Linear``.
        """
        from bidual.networks.torch_conv import convolutional_module

        return convolutional_module(self, dtype)

    def __repr__(self) -> str:
        where = "explicit patches" if self.window.kernel is None else "x".join(map(str, self.window.kernel))
        return f"{type(self).__name__}({self.n_neurons} filters on {where}, {self.pooling}, {self.n_outputs} outputs)"
