"""Neurons that are given by a direction: what several outputs can share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from bidual._util.typing import FloatArray
from bidual.atoms.base import Atoms
from bidual.atoms.columns import Columns
from bidual.atoms.neurons import Neurons


@dataclass(frozen=True)
class Directional(Atoms):
    """Neurons that compute one vector of the length of their direction u, which output weights then multiply.

    Directions are in the coordinates of :attr:`reduced` unless it is said otherwise.
    """

    @abstractmethod
    def hidden(self, U: FloatArray) -> FloatArray:
        """What neurons with weights ``U (m, p)`` on M compute, ``(n, m)``."""

    @abstractmethod
    def preactivations(self, U: FloatArray) -> FloatArray:
        """What the ReLU sees of directions ``U (m, r)``, ``(N, m)``: signs are those of the activation pattern."""

    @abstractmethod
    def activations(self, U: FloatArray) -> FloatArray:
        """What directions ``U (m, r)`` compute on the rows of M, before these are pooled, ``(N, m)``."""

    def hidden_of(self, neurons: Neurons) -> FloatArray:
        """What these neurons compute, ``(n, m)``."""
        return self.hidden(neurons.U)

    def columns(self, neurons: Neurons) -> Columns:
        return Columns(self.pool(self.activations(neurons.U)), neurons.alpha)

    def stacked(self, activations: FloatArray) -> FloatArray:
        """What the output weights of neurons, one row under the other, are multiplied with."""
        return self.pool(activations)

    def combine(self, activations: FloatArray, alpha: FloatArray) -> FloatArray:
        """Outputs ``(n, C)`` of neurons with ``activations (N, m)``, without the intercept."""
        return self.pool(activations) @ alpha

    def contributions(self, activations: FloatArray, alpha: FloatArray) -> FloatArray:
        """What each neuron adds to the outputs, ``(n, C, m)``."""
        return self.pool(activations)[:, None, :] * alpha.T

    def constraint(self, V: FloatArray, U: FloatArray) -> FloatArray:
        r"""What the dual constraint at ``V`` is at unit directions: :math:`\|V^T \phi(u)\|`."""
        return np.linalg.norm(self.activations(U).T @ self.spread(V), axis=1)
