r"""Two-layer networks with leaky ReLUs: :math:`\sigma(t) = (t)_+ - s (-t)_+`.

A pure change of features. With the rows of M and their opposites, pooled in pairs,

.. math:: \sigma(M u) = A' (M' u)_+, \qquad M' = \begin{pmatrix} M \\ -M \end{pmatrix}, \qquad
          A' = \begin{pmatrix} I & -s I \end{pmatrix},

at the same cost :math:`\|u\| \|\alpha\|`, because :math:`\sigma` is positively homogeneous.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bidual._util.typing import FloatArray
from bidual.architectures.base import Architecture, Lift
from bidual.architectures.two_layer import TwoLayer
from bidual.atoms import Neurons
from bidual.atoms.abilities import Ability
from bidual.networks import LeakyReLUNetwork, Network
from bidual.networks.leaky import check_slope


class LeakyReLU(Architecture):
    r"""Fully connected with leaky ReLUs: :math:`f(x) = \sum_j \sigma(u_j^T x + b_j) \alpha_j + b`.

    Parameters
    ----------
    slope : float, default=0.01
        The slope s of :math:`\sigma` for negative inputs, from -1 to 1: 0 is the ReLU, -1 the absolute value, 1 a
        linear neuron.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLURegressor
    >>> from bidual.architectures import LeakyReLU
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> est = ReLURegressor(1e-3, architecture=LeakyReLU(-1.0), bias=False, fit_intercept=False).fit(X, abs(X[:, 0]))
    >>> est.network_.n_neurons, est.predict([[-3.0]]).round(2).tolist()
    (1, [3.0])
    """

    name = "leaky_relu"

    def __init__(self, slope: float = 0.01) -> None:
        self.slope = check_slope(slope)

    @property
    def can(self) -> frozenset[Ability]:
        # Not all that a Relu can: opposite rows have no gate in common, are never white (so that there is no formula),
        # and no neuron is active on both of them, as cutting planes want it.
        return frozenset({"plain oracle", "finite program", "all patterns"})

    @classmethod
    def of(cls, network: Network) -> LeakyReLU:
        return cls(_checked(network).slope)

    def lift(self, X: FloatArray, *, bias: bool, counts: FloatArray | None = None) -> LeakyReLULift:
        return LeakyReLULift(TwoLayer().lift(X, bias=bias), self.slope)


class LeakyReLULift(Lift):
    """The rows of a two-layer network and their opposites, pooled in pairs; the neurons are the same."""

    def __init__(self, layer: Lift, slope: float) -> None:
        self.layer, self.slope = layer, slope
        eye = sp.eye_array(len(layer.M))
        self.M, self.A = np.vstack([layer.M, -layer.M]), sp.csr_array(sp.hstack([eye, -slope * eye]))

    def recover(self, neurons: Neurons) -> LeakyReLUNetwork:
        weights: dict[str, Any] = self.layer.recover(neurons).weights()
        return LeakyReLUNetwork(**weights, slope=self.slope)

    def neurons(self, network: Network) -> Neurons:
        network = _checked(network)
        if network.slope != self.slope:
            raise ValueError(f"the network has the slope {network.slope:g}, the architecture asks for {self.slope:g}")
        return self.layer.neurons(network.layer)


def _checked(network: Network) -> LeakyReLUNetwork:
    """The network, if it is one of this architecture."""
    if not isinstance(network, LeakyReLUNetwork):
        raise TypeError(f"expected a network with leaky ReLUs, got {type(network).__name__}")
    return network
