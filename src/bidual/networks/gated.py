"""The gated network: linear maps behind fixed gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bidual._util.typing import Array, BoolArray, FloatArray
from bidual.networks.base import Network
from bidual.networks.two_layer import _finite

if TYPE_CHECKING:
    import torch

#: Entries of the largest array that :meth:`GatedNetwork.forward` makes at a time.
BLOCK = 2**22


class GatedNetwork(Network):
    r""":math:`f(x) = \sum_i 1[g_i^T x + h_i \ge 0] \, (W_i^T x + c_i) + b` with fixed gates :math:`(g_i, h_i)`.

    Its penalty is :math:`\sum_i \sqrt{\|W_i\|_F^2 + \|c_i\|^2}`. With one output this is weight decay: for
    :math:`[W_i; c_i] = u_i \alpha_i` the smallest :math:`\tfrac12 (\|u_i\|^2 + \alpha_i^2)` is that norm.
    With several outputs a gate carries a whole matrix, not one direction :math:`u_i \alpha_i^T`, and pays its Frobenius
    norm (weight decay of many neurons :math:`u_{ik} \alpha_{ik}^T` behind one gate would be its nuclear norm).

    Parameters
    ----------
    gate_weights : array of shape (m, d)
        Rows are the :math:`g_i`.
    linear_weights : array of shape (m, d, C)
        The :math:`W_i`.
    gate_bias : array of shape (m,) or None
        The :math:`h_i`.
    linear_bias : array of shape (m, C) or None
        The :math:`c_i`, regularised like weights.
    intercept : array of shape (C,) or None
        Free output bias; None is zero.
    """

    kind = "gated"

    def __init__(
        self,
        gate_weights: ArrayLike,
        linear_weights: ArrayLike,
        gate_bias: ArrayLike | None = None,
        linear_bias: ArrayLike | None = None,
        intercept: ArrayLike | None = None,
    ) -> None:
        self.gate_weights = _finite("gate_weights", gate_weights, (None, None))
        m, d = self.gate_weights.shape
        self.linear_weights = _finite("linear_weights", linear_weights, (m, d, None))
        C = self.n_outputs
        self.gate_bias = None if gate_bias is None else _finite("gate_bias", gate_bias, (m,))
        self.linear_bias = None if linear_bias is None else _finite("linear_bias", linear_bias, (m, C))
        self.intercept = np.zeros(C) if intercept is None else _finite("intercept", intercept, (C,))

    @property
    def n_inputs(self) -> int:
        return int(self.gate_weights.shape[1])

    @property
    def n_outputs(self) -> int:
        return int(self.linear_weights.shape[2])

    @property
    def n_neurons(self) -> int:
        """Number of gates; training keeps those with weights only."""
        return len(self.gate_weights)

    def open(self, X: FloatArray) -> BoolArray:
        """Which gates are open, ``(n, m)``."""
        bias = 0.0 if self.gate_bias is None else self.gate_bias
        return np.asarray(X @ self.gate_weights.T + bias >= 0)

    def forward(self, X: FloatArray) -> FloatArray:
        m, d, C = self.linear_weights.shape
        flat = self.linear_weights.reshape(m, d * C)
        F = np.empty((len(X), C))
        step = max(1, BLOCK // max(1, d * C, m))
        for start in range(0, len(X), step):
            rows = X[start : start + step]
            gates = self.open(rows).astype(np.float64)
            mixed = (gates @ flat).reshape(len(rows), d, C)  # every row's own linear map
            F[start : start + step] = np.einsum("nd,ndc->nc", rows, mixed)
            if self.linear_bias is not None:
                F[start : start + step] += gates @ self.linear_bias
        return F + self.intercept

    def penalty(self) -> float:
        r""":math:`\sum_i \sqrt{\|W_i\|_F^2 + \|c_i\|^2}`."""
        squares = (self.linear_weights**2).sum(axis=(1, 2))
        if self.linear_bias is not None:
            squares = squares + (self.linear_bias**2).sum(axis=1)
        return float(np.sqrt(squares).sum())

    def gate_vectors(self) -> FloatArray:
        bias = np.zeros(self.n_neurons) if self.gate_bias is None else self.gate_bias
        return np.column_stack([self.gate_weights, bias])

    def weights(self) -> dict[str, Array | None]:
        return {
            "gate_weights": self.gate_weights,
            "gate_bias": self.gate_bias,
            "linear_weights": self.linear_weights,
            "linear_bias": self.linear_bias,
            "intercept": self.intercept,
        }

    @classmethod
    def _rebuild(cls, data: dict[str, Any]) -> GatedNetwork:
        # A network without gates is a list without rows: its widths are stored beside it.
        w, d, C = data["weights"], data["n_inputs"], data["n_outputs"]
        bias = w["linear_bias"]
        network = cls(
            gate_weights=w["gate_weights"] or np.zeros((0, d)),
            linear_weights=w["linear_weights"] or np.zeros((0, d, C)),
            gate_bias=w["gate_bias"],
            linear_bias=np.zeros((0, C)) if bias == [] else bias,
            intercept=w["intercept"],
        )
        if (network.n_inputs, network.n_outputs) != (d, C):
            raise ValueError(f"the weights do not fit {d} inputs and {C} outputs")
        return network

    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Module:
        from bidual.networks.torch_bridge import GatedModule

        return GatedModule(self, dtype)
