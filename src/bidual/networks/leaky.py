"""The two-layer network with leaky ReLUs."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bidual._util.checks import shown
from bidual._util.typing import Array, FloatArray
from bidual.networks.base import Network
from bidual.networks.two_layer import TwoLayerNetwork

if TYPE_CHECKING:
    import torch

    from bidual.networks.onnx_bridge import Graph


class LeakyReLUNetwork(Network):
    r""":math:`f(x) = \sum_j \sigma(u_j^T x + b_j) \alpha_j + b` with :math:`\sigma(t) = (t)_+ - s (-t)_+`.

    Parameters
    ----------
    hidden_weights, output_weights, hidden_bias, intercept
        As those of :class:`~bidual.TwoLayerNetwork`, and charged like them.
    slope : float
        The slope s for negative inputs: 0 is the ReLU, -1 the absolute value.
    """

    kind = "leaky_relu"

    def __init__(
        self,
        hidden_weights: ArrayLike,
        output_weights: ArrayLike,
        hidden_bias: ArrayLike | None = None,
        intercept: ArrayLike | None = None,
        slope: Any = 0.01,
    ) -> None:
        #: The same weights with ReLUs: what they are and cost does not depend on the slope.
        self.layer = TwoLayerNetwork(hidden_weights, output_weights, hidden_bias, intercept)
        self.slope = check_slope(slope)

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
    def output_weights(self) -> FloatArray:
        """Rows are the output weights of the neurons."""
        return self.layer.output_weights

    @property
    def hidden_bias(self) -> FloatArray | None:
        """Hidden biases, None if there are none."""
        return self.layer.hidden_bias

    @property
    def intercept(self) -> FloatArray:
        """Free output bias."""
        return self.layer.intercept

    @cached_property
    def unfolded(self) -> TwoLayerNetwork:
        r"""The ReLU network with neurons :math:`(u, \alpha)` and :math:`(-u, -s \alpha)`, which computes the same."""
        U, b, alpha = self.layer.hidden_weights, self.layer.bias_vector, self.output_weights
        return TwoLayerNetwork(
            np.vstack([U, -U]), np.vstack([alpha, -self.slope * alpha]), np.concatenate([b, -b]), self.intercept
        )

    def hidden(self, X: FloatArray) -> FloatArray:
        """Activations of the hidden layer, ``(n, m)``."""
        above, below = np.split(self.unfolded.hidden(X), 2, axis=1)
        return above - self.slope * below

    def forward(self, X: FloatArray) -> FloatArray:
        return self.unfolded.forward(X)

    def evaluate(self, X: FloatArray) -> FloatArray:
        return self.unfolded.evaluate(X)

    def penalty(self) -> float:
        r""":math:`\tfrac12 \sum_j (\|u_j\|^2 + b_j^2 + \|\alpha_j\|^2)`."""
        return self.layer.penalty()

    def weights(self) -> dict[str, Array | None]:
        return {**self.layer.weights(), "slope": np.asarray(self.slope)}

    @classmethod
    def _rebuild(cls, data: dict[str, Any]) -> LeakyReLUNetwork:
        layer = TwoLayerNetwork._rebuild(data)
        return cls(**layer.weights(), slope=data["weights"]["slope"])  # type: ignore[arg-type]

    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Sequential:
        """``Sequential(Linear, LeakyReLU, Linear)``."""
        module = self.layer.to_torch(dtype)  # says what to do where there is no torch
        from torch.nn import LeakyReLU

        module[1] = LeakyReLU(self.slope)
        return module

    def onnx_hidden(self, graph: Graph, x: str) -> str:
        # ONNX has LeakyRelu with a slope in single precision only
        z = graph.affine(x, self.layer.hidden_weights.T, self.layer.hidden_bias)
        below = graph.add("Mul", graph.add("Relu", graph.add("Neg", z)), graph.constant(np.asarray(self.slope)))
        return graph.add("Sub", graph.add("Relu", z), below)


def check_slope(slope: Any) -> float:
    """The slope as a float; ValueError if it is none."""
    number = np.asarray(slope)
    if number.shape != () or number.dtype.kind not in "iuf" or not -1 <= number <= 1:
        raise ValueError(f"slope must be a number from -1 (the absolute value) to 1, got {shown(slope)}")
    return float(number)
