"""Two-layer ReLU networks with free hidden biases (004)."""

from __future__ import annotations

import numpy as np

from bidual._util.typing import FloatArray
from bidual.architectures.base import Lift
from bidual.atoms import FreeBias, Neurons
from bidual.networks import Network, TwoLayerNetwork


class FreeBiasLift(Lift):
    """M = [X - 1 c^T, R 1], with the mean row c and the largest distance R from it.

    Networks do not see c, as biases make up for it; features far from zero would lose digits.
    """

    def __init__(self, X: FloatArray) -> None:
        self.centre = X.mean(axis=0)
        rows = X - self.centre
        self.radius = float(np.linalg.norm(rows, axis=1).max(initial=0.0)) or 1.0
        self.M = np.column_stack([rows, np.full(len(X), self.radius)])

    def atoms(self, w: FloatArray) -> FreeBias:
        return FreeBias(self.M)

    def recover(self, neurons: Neurons) -> TwoLayerNetwork:
        balanced = neurons.balanced()
        W = balanced.U[:, :-1]
        return TwoLayerNetwork(
            hidden_weights=W,
            hidden_bias=self.radius * balanced.U[:, -1] - W @ self.centre,
            output_weights=balanced.alpha,
            intercept=balanced.intercept,
            free_bias=True,
        )

    def neurons(self, network: Network) -> Neurons:
        if not isinstance(network, TwoLayerNetwork):
            raise TypeError(f"expected a two-layer network, got {type(network).__name__}")
        W = network.hidden_weights
        if W.shape[1] != len(self.centre):
            raise ValueError(f"the network takes {network.n_inputs} inputs, the data have another number")
        atoms = FreeBias(self.M)
        U = np.column_stack([W, (network.bias_vector + W @ self.centre) / self.radius])
        return atoms.settled(atoms.neurons(U, network.output_weights, network.intercept))
