"""A network on standardised columns, which takes them as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bidual._util.typing import Array, FloatArray
from bidual.networks.base import Network
from bidual.networks.two_layer import TwoLayerNetwork, _finite

if TYPE_CHECKING:
    import torch


class StandardisedNetwork(Network):
    r""":math:`f(x) = g((x - c) / s)`, column by column, with a network g.

    Weight decay is charged for the weights of g: it does not see the units of the columns.

    Parameters
    ----------
    layer : Network
        The network g on the standardised columns.
    centre, scale : array of shape (d,)
        c and s > 0; of images and sequences those of the channels.
    """

    kind = "standardised"

    def __init__(self, layer: Network, centre: ArrayLike, scale: ArrayLike) -> None:
        self.layer = layer
        self.centre = _finite("centre", centre, (None,))
        self.scale = _finite("scale", scale, (len(self.centre),))
        if not (self.scale > 0).all():
            raise ValueError("scale must be positive")

    @property
    def n_inputs(self) -> int:
        return self.layer.n_inputs

    @property
    def n_outputs(self) -> int:
        return self.layer.n_outputs

    @property
    def n_neurons(self) -> int:
        return self.layer.n_neurons

    @property
    def core(self) -> Network:
        return self.layer.core

    @property
    def output_weights(self) -> FloatArray:
        """Rows are the output weights of the neurons."""
        return self.layer.output_weights  # type: ignore[attr-defined]

    @property
    def intercept(self) -> FloatArray:
        """Free output bias."""
        return self.layer.intercept  # type: ignore[attr-defined]

    @property
    def folded(self) -> TwoLayerNetwork:
        r"""The same function as a two-layer network on the columns as they are: :math:`u / s` and :math:`b - u^T c/s`.

        Its weight decay is another one.
        """
        layer = self.layer
        if not isinstance(layer, TwoLayerNetwork):
            raise ValueError(f"only a two-layer network can be folded, this is a {layer.kind} network")
        W = layer.hidden_weights / self.scale
        return TwoLayerNetwork(W, layer.output_weights, layer.bias_vector - W @ self.centre, layer.intercept)

    def standardised(self, X: FloatArray) -> FloatArray:
        """The columns as the inner network sees them."""
        return (X - self.centre) / self.scale

    def forward(self, X: FloatArray) -> FloatArray:
        return self.layer.forward(self.standardised(X))

    def evaluate(self, X: FloatArray) -> FloatArray:
        return self.layer.evaluate(self.standardised(X))

    def penalty(self) -> float:
        """That of the inner network."""
        return self.layer.penalty()

    def gate_vectors(self) -> FloatArray:
        gates = self.layer.gate_vectors()
        W = gates[:, :-1] / self.scale
        return np.column_stack([W, gates[:, -1] - W @ self.centre])

    def check_inputs(self, X: Array) -> FloatArray:
        X = self.layer.check_inputs(X)
        if X.shape[-1] != len(self.centre) > 1:
            raise ValueError(f"the last axis of X must have {len(self.centre)} entries, got {X.shape}")
        return X

    def restated(self, X: FloatArray, counts: FloatArray | None = None) -> StandardisedNetwork:
        layer = self.layer.restated(self.standardised(X), counts)
        return self if layer is self.layer else StandardisedNetwork(layer, self.centre, self.scale)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.layer.output_shape(shape)

    def weights(self) -> dict[str, Array | None]:
        return {**self.layer.weights(), "centre": self.centre, "scale": self.scale}

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "n_inputs": self.n_inputs,
            "n_outputs": self.n_outputs,
            "layer": self.layer.to_dict(),
            "centre": self.centre.tolist(),
            "scale": self.scale.tolist(),
        }

    @classmethod
    def _rebuild(cls, data: dict[str, Any]) -> StandardisedNetwork:
        return cls(Network.from_dict(data["layer"]), data["centre"], data["scale"])

    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Sequential:
        """``Sequential(Standardise, inner module)``; images and sequences have their channels first."""
        from bidual.networks.torch_bridge import standardised_module

        return standardised_module(self, dtype)
