"""Two-layer ReLU networks (003)."""

from __future__ import annotations

import numpy as np

from bidual._util.sparse import with_ones
from bidual._util.typing import Array, FloatArray
from bidual.architectures.base import Architecture, Lift
from bidual.architectures.free_bias import FreeBiasLift
from bidual.atoms import GatedNeurons, Neurons, Relu
from bidual.atoms.abilities import Ability
from bidual.networks import GatedNetwork, Network, TwoLayerNetwork


class TwoLayer(Architecture):
    r"""Fully connected: :math:`f(x) = \sum_j (u_j^T x + b_j)_+ \alpha_j + b`, 003 eq. 1.

    With ``bias``, M = [X, 1]: hidden biases are regularised like the other weights; free ones (``bias="free"``)
    are not (:mod:`bidual.atoms.free_bias`).
    """

    name = "two_layer"

    @property
    def can(self) -> frozenset[Ability]:
        return Relu.can | {"free biases"}

    @property
    def keeps_sparse(self) -> bool:
        return type(self) is TwoLayer

    def lift(self, X: FloatArray, *, bias: bool, counts: FloatArray | None = None) -> TwoLayerLift:
        return TwoLayerLift(X, bias)

    def free_lift(self, X: FloatArray) -> FreeBiasLift:
        return FreeBiasLift(X)


class TwoLayerLift(Lift):
    """M = X, or X with a column of ones."""

    def __init__(self, X: FloatArray, bias: bool) -> None:
        self.bias = bias
        self.M = with_ones(X) if bias else X

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

    def gates(self, gates: Array | Network) -> FloatArray:
        d = self.M.shape[1] - self.bias
        if isinstance(gates, Network):
            gates = gates.gate_vectors()
        vectors = np.asarray(gates, dtype=np.float64)
        if vectors.ndim != 2 or vectors.shape[1] not in (d, d + 1) or not len(vectors):
            raise ValueError(f"gates must have shape (P, {d}), or (P, {d + 1}) with biases; got {vectors.shape}")
        if not np.isfinite(vectors).all():
            raise ValueError("gates contain NaN or infinity")
        offsets = vectors[:, d] if vectors.shape[1] > d else np.zeros(len(vectors))
        if not self.bias:
            if np.any(offsets):
                raise ValueError("the gates have biases, but bias=False asks for none")
            return vectors[:, :d]
        return np.column_stack([vectors[:, :d], offsets])

    def recover_gated(self, neurons: GatedNeurons) -> GatedNetwork:
        alive = neurons.balanced()
        d = self.M.shape[1] - self.bias
        return GatedNetwork(
            gate_weights=alive.gates[:, :d],
            gate_bias=alive.gates[:, d] if self.bias else None,
            linear_weights=alive.W[:, :d],
            linear_bias=alive.W[:, d] if self.bias else None,
            intercept=alive.intercept,
        )

    def gated_neurons(self, network: Network) -> GatedNeurons:
        if not isinstance(network, GatedNetwork):
            raise TypeError(f"expected a gated network, got {type(network).__name__}")
        if network.n_inputs != self.M.shape[1] - self.bias:
            raise ValueError(f"the network takes {network.n_inputs} inputs, the data have another number")
        W = network.linear_weights
        offsets = np.zeros((len(W), network.n_outputs)) if network.linear_bias is None else network.linear_bias
        if self.bias:
            W = np.concatenate([W, offsets[:, None, :]], axis=1)
        elif np.any(offsets):
            raise ValueError("the network has hidden biases, but bias=False asks for none")
        return GatedNeurons(self.gates(network) if len(W) else np.zeros((0, W.shape[1])), W, network.intercept)
