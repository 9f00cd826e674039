"""The two-layer ReLU network with batch normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bidual._util.typing import Array, FloatArray
from bidual.networks.base import Network, far_from_zero, moved_bias
from bidual.networks.two_layer import _finite

if TYPE_CHECKING:
    import torch

#: Where the normalisation may stand.
POSITIONS = ("before", "after")


class BatchNormNetwork(Network):
    r"""A hidden layer with batch normalisation before or after its ReLU (000 eq. 2), with the statistics of training.

    .. math:: f(x) = \sum_j \big(N_j(w_j^T x + b_j)\big)_+ \alpha_j + b \quad\text{or}\quad
              f(x) = \sum_j N_j\big((w_j^T x + b_j)_+\big) \alpha_j + b, \qquad
              N_j(t) = \gamma_j \frac{t - \mu_j}{\nu_j} + \frac{\sigma_j}{\sqrt n},

    where :math:`\mu_j` is the mean and :math:`\nu_j` the 2-norm of the centred values over the n training rows: the
    paper's normalisation. In torch's, by the standard deviation, scale and shift are
    :math:`\gamma_j / \sqrt n` and :math:`\sigma_j / \sqrt n`: the same with n = 1.

    Weight decay charges :math:`\gamma, \sigma` and :math:`\alpha`. The hidden weights are free: the normalisation
    undoes their scale (000 Remark 1.2).

    Parameters
    ----------
    hidden_weights : array of shape (m, d)
        Rows are the :math:`w_j`.
    output_weights : array of shape (m, C)
        Rows are the :math:`\alpha_j`.
    gamma, shift : array of shape (m,)
        The trained scales :math:`\gamma_j` and shifts :math:`\sigma_j`.
    mean, norm : array of shape (m,)
        The statistics :math:`\mu_j` and :math:`\nu_j > 0`.
    n_samples : float
        The number n of training rows, or the sum of their weights; 1 with torch's normalisation.
    position : {"before", "after"}
        Of the normalisation, as seen from the ReLU.
    hidden_bias : array of shape (m,) or None
        The :math:`b_j`; before the ReLU the normalisation would cancel them.
    intercept : array of shape (C,) or None
        Free output bias; None is zero.
    """

    kind = "batch_norm"

    def __init__(
        self,
        hidden_weights: ArrayLike,
        output_weights: ArrayLike,
        gamma: ArrayLike,
        shift: ArrayLike,
        mean: ArrayLike,
        norm: ArrayLike,
        n_samples: float,
        position: str = "before",
        hidden_bias: ArrayLike | None = None,
        intercept: ArrayLike | None = None,
    ) -> None:
        self.hidden_weights = _finite("hidden_weights", hidden_weights, (None, None))
        m = len(self.hidden_weights)
        self.output_weights = _finite("output_weights", output_weights, (m, None))
        self.gamma = _finite("gamma", gamma, (m,))
        self.shift = _finite("shift", shift, (m,))
        self.mean = _finite("mean", mean, (m,))
        self.norm = _finite("norm", norm, (m,))
        self.n_samples = float(n_samples)
        self.position = str(position)
        self.hidden_bias = None if hidden_bias is None else _finite("hidden_bias", hidden_bias, (m,))
        C = self.n_outputs
        self.intercept = np.zeros(C) if intercept is None else _finite("intercept", intercept, (C,))
        if not (self.norm > 0).all():
            raise ValueError("norm must be positive: a neuron that is constant on the training rows has none")
        if not 0 < self.n_samples < np.inf:
            raise ValueError(f"n_samples must be a positive number, got {n_samples!r}")
        if self.position not in POSITIONS:
            raise ValueError(f"position must be 'before' or 'after' (the ReLU), got {position!r}")

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
        """What the hidden layer hands to the output layer, ``(n, m)``."""
        values = X @ self.hidden_weights.T + self.bias_vector
        if self.position == "before":
            return np.maximum(self._normalise(values), 0.0)
        return self._normalise(np.maximum(values, 0.0))

    def _normalise(self, values: FloatArray) -> FloatArray:
        return self.gamma / self.norm * (values - self.mean) + self.shift / np.sqrt(self.n_samples)

    def forward(self, X: FloatArray) -> FloatArray:
        return self.hidden(X) @ self.output_weights + self.intercept

    def evaluate(self, X: FloatArray) -> FloatArray:
        moved, rows = self._moved(X)
        return moved.forward(rows)

    def _moved(self, X: FloatArray) -> tuple[BatchNormNetwork, FloatArray]:
        """The network with its origin amid the rows, and these rows seen from there, if they are far from zero."""
        origin = far_from_zero(X)
        if origin is None:
            return self, X
        if self.position == "before":
            mean = -moved_bias(self.hidden_weights, self.bias_vector - self.mean, origin)
            return self._with(mean=mean, hidden_bias=None), X - origin
        return self._with(hidden_bias=moved_bias(self.hidden_weights, self.bias_vector, origin)), X - origin

    def _with(self, **changed: Any) -> BatchNormNetwork:
        return BatchNormNetwork(**{**self.weights(), "position": self.position, **changed})

    def penalty(self) -> float:
        r""":math:`\tfrac12 \sum_j (\gamma_j^2 + \sigma_j^2 + \|\alpha_j\|^2)`, 000 eq. 3."""
        return 0.5 * float((self.gamma**2).sum() + (self.shift**2).sum() + (self.output_weights**2).sum())

    def restated(self, X: FloatArray, counts: FloatArray | None = None) -> BatchNormNetwork:
        r"""The same function with the mean :math:`\mu'`, norm :math:`\nu'` and number n' of other training rows.

        .. math:: \gamma' = \gamma \frac{\nu'}{\nu}, \qquad
                  \frac{\sigma'}{\sqrt{n'}} = \gamma \frac{\mu' - \mu}{\nu} + \frac{\sigma}{\sqrt n}

        What a neuron computes that is constant on these rows is all shift there: it is the same on them only.
        """
        counts = np.ones(len(X)) if counts is None else counts
        n = float(counts.sum())
        moved, rows = self._moved(X)
        values = rows @ moved.hidden_weights.T + moved.bias_vector
        values = (values if self.position == "before" else np.maximum(values, 0.0)) - moved.mean
        mean = self.mean + counts @ values / n
        to_mean = mean - self.mean  # rounded as the mean is, so that the shift makes up for it
        norm = np.sqrt(counts @ (values - to_mean) ** 2)
        slope, own = self.gamma / self.norm, norm > 0
        shift = np.sqrt(n) * (slope * to_mean + self.shift / np.sqrt(self.n_samples))
        # a neuron that is all shift still needs something to normalise: the statistics of another, with gamma zero
        other = np.where(own, np.arange(len(norm)), np.argmax(norm) if own.any() else 0)
        return self._with(
            hidden_weights=self.hidden_weights[other],
            hidden_bias=None if self.hidden_bias is None else self.hidden_bias[other],
            gamma=np.where(own, slope * norm, 0.0),
            shift=shift,
            mean=mean[other],
            norm=norm[other] if own.any() else np.ones_like(norm),
            n_samples=n,
        )

    def as_of(self, n_samples: float) -> BatchNormNetwork:
        """The same function with statistics, scales and shifts as of so many rows; 1: in the units of torch."""
        root = np.sqrt(n_samples / self.n_samples)
        return self._with(norm=root * self.norm, gamma=root * self.gamma, shift=root * self.shift, n_samples=n_samples)

    def gate_vectors(self) -> FloatArray:
        """Weights and bias of the affine map inside each ReLU, ``(m, d + 1)``."""
        W, b = self.hidden_weights, self.bias_vector
        if self.position == "before":
            scale = self.gamma / self.norm
            W, b = scale[:, None] * W, self._normalise(b)
        return np.column_stack([W, b])

    def weights(self) -> dict[str, Array | None]:
        return {
            "hidden_weights": self.hidden_weights,
            "hidden_bias": self.hidden_bias,
            "mean": self.mean,
            "norm": self.norm,
            "gamma": self.gamma,
            "shift": self.shift,
            "output_weights": self.output_weights,
            "intercept": self.intercept,
            "n_samples": np.asarray(self.n_samples),
            "position": np.asarray(self.position),
        }

    @classmethod
    def _rebuild(cls, data: dict[str, Any]) -> BatchNormNetwork:
        # A network without neurons is a list without rows: its widths are stored beside it.
        w, widths = dict(data["weights"]), (data["n_inputs"], data["n_outputs"])
        for name, width in zip(("hidden_weights", "output_weights"), widths, strict=True):
            w[name] = w[name] or np.zeros((0, width))
        network = cls(**w)
        if (network.n_inputs, network.n_outputs) != widths:
            raise ValueError(f"the weights do not fit {widths[0]} inputs and {widths[1]} outputs")
        return network

    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Sequential:
        """``Sequential(Linear, BatchNorm1d, ReLU, Linear)``, or with the ReLU first, in evaluation mode."""
        from bidual.networks.torch_bridge import batch_norm_module

        return batch_norm_module(self, dtype)
