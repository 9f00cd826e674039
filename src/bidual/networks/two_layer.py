"""The two-layer ReLU network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bidual._util.sparse import is_sparse
from bidual._util.tuning import tuning
from bidual._util.typing import Array, FloatArray
from bidual.networks.base import Network, far_from_zero, moved_bias

if TYPE_CHECKING:
    import torch


def _finite(name: str, values: ArrayLike, shape: tuple[int | None, ...]) -> FloatArray:
    wanted = ", ".join("any" if s is None else str(s) for s in shape)
    try:
        array = np.array(values)
        real = array.dtype.kind in "biufO"  # complex numbers would lose a part in silence
        array = array.astype(np.float64, copy=False) if real else array
    except (TypeError, ValueError, OverflowError):  # ragged lists, objects that are no numbers, integers beyond all
        real = False
    if not real:
        raise ValueError(f"{name} must hold real numbers in the shape ({wanted})")
    if array.ndim != len(shape) or any(s not in (None, k) for s, k in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{name} must have shape ({wanted}), got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinity")
    return array


class TwoLayerNetwork(Network):
    r""":math:`f(x) = \sum_j (u_j^T x + b_j)_+ \alpha_j + b` (003 eq. 1).

    Parameters
    ----------
    hidden_weights : array of shape (m, d)
        Rows are the :math:`u_j`.
    output_weights : array of shape (m, C)
        Rows are the :math:`\alpha_j`.
    hidden_bias : array of shape (m,) or None
        The :math:`b_j`, regularised like weights unless ``free_bias``; None if the network has none.
    intercept : array of shape (C,) or None
        Free output bias; None is zero.
    free_bias : bool
        Whether the penalty leaves out the hidden biases (004).
    """

    kind = "two_layer"
    takes_sparse = True

    def __init__(
        self,
        hidden_weights: ArrayLike,
        output_weights: ArrayLike,
        hidden_bias: ArrayLike | None = None,
        intercept: ArrayLike | None = None,
        free_bias: bool = False,
    ) -> None:
        self.hidden_weights = _finite("hidden_weights", hidden_weights, (None, None))
        m = len(self.hidden_weights)
        self.output_weights = _finite("output_weights", output_weights, (m, None))
        self.hidden_bias = None if hidden_bias is None else _finite("hidden_bias", hidden_bias, (m,))
        self.intercept = (
            np.zeros(self.n_outputs) if intercept is None else _finite("intercept", intercept, (self.n_outputs,))
        )
        self.free_bias = bool(free_bias)

    @property
    def n_inputs(self) -> int:
        return int(self.hidden_weights.shape[1])

    @property
    def n_outputs(self) -> int:
        return int(self.output_weights.shape[1])

    @property
    def n_neurons(self) -> int:
        return len(self.hidden_weights)

    @property
    def bias_vector(self) -> FloatArray:
        """Hidden biases as an array, zeros if the network has none."""
        return np.zeros(self.n_neurons) if self.hidden_bias is None else self.hidden_bias

    def hidden(self, X: FloatArray) -> FloatArray:
        """Activations of the hidden layer, ``(n, m)``."""
        return np.maximum(X @ self.hidden_weights.T + self.bias_vector, 0.0)

    def forward(self, X: FloatArray) -> FloatArray:
        most = tuning().activations
        if X.shape[0] * self.n_neurons <= most:
            return self.hidden(X) @ self.output_weights + self.intercept
        if self.n_inputs == 1 and not is_sparse(X):
            return self._along_the_line(X[:, 0])
        rows = max(1, most // self.n_neurons)
        blocks = [self.hidden(X[i : i + rows]) @ self.output_weights for i in range(0, X.shape[0], rows)]
        return np.concatenate(blocks) + self.intercept

    def evaluate(self, X: FloatArray) -> FloatArray:
        origin = None if is_sparse(X) else far_from_zero(X)  # most of these are zero
        if origin is None:
            return self.forward(X)
        bias = moved_bias(self.hidden_weights, self.bias_vector, origin)
        moved = TwoLayerNetwork(self.hidden_weights, self.output_weights, bias, self.intercept, self.free_bias)
        return moved.forward(X - origin)

    def _along_the_line(self, x: FloatArray) -> FloatArray:
        """Outputs for one input, by sums over neurons sorted by their kinks instead of all pairs."""
        u, b = self.hidden_weights[:, 0], self.bias_vector
        outputs = (
            np.zeros((len(x), self.n_outputs)) + self.intercept + np.maximum(b[u == 0], 0) @ self.output_weights[u == 0]
        )
        for side in (1.0, -1.0):
            moving = np.flatnonzero(side * u > 0)
            kinks = -b[moving] / u[moving] * side
            order = moving[np.argsort(kinks, kind="stable")]
            # neurons on this side of x act: they are the first ones
            acting = np.searchsorted(np.sort(kinks), side * x, side="right")
            zero = np.zeros((1, self.n_outputs))
            slopes = np.concatenate([zero, np.cumsum(u[order, None] * self.output_weights[order], axis=0)])
            offsets = np.concatenate([zero, np.cumsum(b[order, None] * self.output_weights[order], axis=0)])
            outputs += slopes[acting] * x[:, None] + offsets[acting]
        return outputs

    def penalty(self) -> float:
        r""":math:`\tfrac12 \sum_j (\|u_j\|^2 + b_j^2 + \|\alpha_j\|^2)`, 003 eq. 2; without :math:`b_j^2` if free."""
        biases = 0.0 if self.free_bias else (self.bias_vector**2).sum()
        return 0.5 * float((self.hidden_weights**2).sum() + biases + (self.output_weights**2).sum())

    def scaled(self, factor: float) -> TwoLayerNetwork:
        """The network with outputs times a positive ``factor``, spread evenly over both layers."""
        root = np.sqrt(factor)
        bias = None if self.hidden_bias is None else root * self.hidden_bias
        return TwoLayerNetwork(
            root * self.hidden_weights, root * self.output_weights, bias, factor * self.intercept, self.free_bias
        )

    def gate_vectors(self) -> FloatArray:
        return np.column_stack([self.hidden_weights, self.bias_vector])

    def weights(self) -> dict[str, Array | None]:
        return {
            "hidden_weights": self.hidden_weights,
            "hidden_bias": self.hidden_bias,
            "output_weights": self.output_weights,
            "intercept": self.intercept,
        }

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), **({"free_bias": True} if self.free_bias else {})}

    @classmethod
    def _rebuild(cls, data: dict[str, Any]) -> TwoLayerNetwork:
        # A network without neurons is a list without rows: its widths are stored beside it.
        w = data["weights"]
        widths = (data["n_inputs"], data["n_outputs"])
        network = cls(
            hidden_weights=w["hidden_weights"] or np.zeros((0, widths[0])),
            output_weights=w["output_weights"] or np.zeros((0, widths[1])),
            hidden_bias=w["hidden_bias"],
            intercept=w["intercept"],
            free_bias=data.get("free_bias", False),
        )
        if (network.n_inputs, network.n_outputs) != widths:
            raise ValueError(f"the weights do not fit {widths[0]} inputs and {widths[1]} outputs")
        return network

    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Sequential:
        from bidual.networks.torch_bridge import two_layer_module

        return two_layer_module(self, dtype)
