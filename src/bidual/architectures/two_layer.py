"""Two-layer ReLU networks (003)."""

from __future__ import annotations

import numpy as np

from bidual._typing import FloatArray
from bidual.architectures.base import Architecture, Lift
from bidual.networks import Network, TwoLayerNetwork
from bidual.problem import Neurons


class TwoLayer(Architecture):
    r"""Fully connected: :math:`f(x) = \sum_j (u_j^T x + b_j)_+ \alpha_j + b`, 003 eq. 1.

    With ``bias``, M = [X, 1]: hidden biases are regularised like the other weights.
    """

    name = "two_layer"

    def lift(self, X: FloatArray, *, bias: bool) -> TwoLayerLift:
        return TwoLayerLift(X, bias)


class TwoLayerLift(Lift):
    """M = X, or X with a column of ones."""

    def __init__(self, X: FloatArray, bias: bool) -> None:
        self.bias = bias
        self.M = np.column_stack([X, np.ones(len(X))]) if bias else X

    def recover(self, neurons: Neurons) -> TwoLayerNetwork:
        balanced = neurons.balanced()
        U = balanced.U
        return TwoLayerNetwork(
            hidden_weights=U[:, :-1] if self.bias else U,
            hidden_bias=U[:, -1] if self.bias else None,
            output_weights=balanced.alpha,
            intercept=balanced.intercept,
        )

    def neurons(self, network: Network) -> Neurons:
        if not isinstance(network, TwoLayerNetwork):
            raise TypeError(f"expected a two-layer network, got {type(network).__name__}")
        U = network.hidden_weights
        if self.bias:
            U = np.column_stack([U, network.bias_vector])
        elif np.any(network.bias_vector):
            raise ValueError("the network has hidden biases, but bias=False asks for none")
        if U.shape[1] != self.M.shape[1]:
            raise ValueError(f"the network takes {network.n_inputs} inputs, the data have another number")
        return Neurons(U, network.output_weights, network.intercept)
