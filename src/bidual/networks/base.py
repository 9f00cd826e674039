"""What training returns: an ordinary network, its weights plain arrays."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bidual._util import html
from bidual._util.checks import as_numbers
from bidual._util.data import normalise_weights
from bidual._util.files import write_json
from bidual._util.registry import Registry
from bidual._util.typing import Array, FloatArray
from bidual.losses import Loss, get_loss

if TYPE_CHECKING:
    import torch

    from bidual.networks.onnx_bridge import Graph

#: Version of the file format; files of a newer one are refused.
FORMAT_VERSION = 1
#: Neurons that a bar shows one by one; the smaller ones are one piece.
_DRAWN = 60


def far_from_zero(X: FloatArray) -> FloatArray | None:
    """The middle of each column of X, if rows are further from zero than from each other somewhere; else None."""
    if X.ndim != 2 or not len(X):
        return None
    low, high = X.min(axis=0), X.max(axis=0)
    middle = 0.5 * low + 0.5 * high
    return middle if (np.abs(middle) > high - low).any() else None


def moved_bias(W: FloatArray, bias: FloatArray, origin: FloatArray) -> FloatArray:
    """``W @ origin + bias``, exactly rounded: the bias of the same affine map of ``x - origin``."""
    product = W * origin
    # what rounding took from the products (Dekker): halves of 26 bits multiply exactly
    (a, c), (b, d) = _halves(W), _halves(np.broadcast_to(origin, W.shape))
    rest = ((a * b - product) + a * d + c * b) + c * d
    return np.array([math.fsum(row) for row in np.column_stack([product, rest, bias])])


def _halves(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Upper and lower half of the bits of x (Veltkamp)."""
    fraction, exponent = np.frexp(x)
    high = np.ldexp(np.round(np.ldexp(fraction, 26)), exponent - 26)
    return high, x - high


class Network(ABC):
    """A network with fixed weights.

    Subclasses hold their weights as attributes and are registered under :attr:`kind`, the name that model
    files use: a network of your own is read back from a file once its class is imported.
    """

    kind: ClassVar[str]
    #: All kinds of network, by name.
    registry: ClassVar[Registry[Network]] = Registry("kind of network")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):
            Network.registry.add(cls.kind, cls)

    @property
    @abstractmethod
    def n_inputs(self) -> int: ...

    @property
    @abstractmethod
    def n_outputs(self) -> int: ...

    @property
    @abstractmethod
    def n_neurons(self) -> int: ...

    @abstractmethod
    def forward(self, X: FloatArray) -> FloatArray:
        """Outputs ``(n, C)``; where a sample has outputs at several places, ``(n K, C)``."""

    def evaluate(self, X: FloatArray) -> FloatArray:
        """Outputs as :meth:`forward` has them, with the digits that columns far from zero would cost."""
        return self.forward(X)

    @abstractmethod
    def penalty(self) -> float:
        """What weight decay charges for these weights, per unit of beta."""

    @abstractmethod
    def weights(self) -> dict[str, Array | None]:
        """The weights by name: the arguments that rebuild this network."""

    @abstractmethod
    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Module:
        """The same function as a torch module mapping ``(n, d)`` to ``(n, C)``; float64 unless said otherwise."""

    def to_onnx(
        self, path: str | os.PathLike[str], dtype: str = "float64", input_shape: tuple[int, ...] | None = None
    ) -> Path:
        """Write the network to an ONNX file; needs ``pip install 'bidual[onnx]'``.

        Parameters
        ----------
        path : str or path
            The graph has the input ``x (n, d)`` and the output ``y (n, C)``.
        dtype : {"float64", "float32"}
        input_shape : tuple of int or None
            The shape of one sample, for convolutional networks, which take samples of many sizes.

        Returns
        -------
        Path
        """
        from bidual.networks.onnx_bridge import write

        return write(path, self, dtype, input_shape)

    def onnx_hidden(self, graph: Graph, x: str) -> str:
        """Append what stands before a last linear layer ``output_weights``, ``intercept`` to a graph of operators.

        Networks of your own override it (:class:`bidual.networks.onnx_bridge.Graph` has what it takes).
        """
        raise NotImplementedError(f"ONNX export of {self.kind} networks is not available: export to_torch() with torch")

    def gate_vectors(self) -> FloatArray:
        """Weights and bias of the hidden neurons, ``(m, d + 1)``: the gates of a gated network made from this one."""
        raise ValueError(f"a {self.kind} network has no neurons that could serve as gates")

    def check_inputs(self, X: Array) -> FloatArray:
        """X as :meth:`forward` takes it; ValueError if it does not fit."""
        X = as_numbers("X", X)
        if X.ndim != 2 or X.shape[1] != self.n_inputs:
            raise ValueError(f"X must have shape (n, d), and the network takes {self.n_inputs} inputs; got {X.shape}")
        return X

    @property
    def core(self) -> Network:
        """The network inside, where one is put behind a standardisation or on patches."""
        return self

    def restated(self, X: FloatArray, counts: FloatArray | None = None) -> Network:
        """The same function in terms of training rows ``X`` that stand for ``counts`` rows each (None: for one).

        For normalised networks, whose weight decay counts in units of the statistics of the training rows; others are
        what they are.
        """
        return self

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the places with outputs, for inputs of this ``shape``: ``(n,)``, unless a sample has several."""
        return shape[:1]

    def predict(self, X: Array) -> FloatArray:
        """Outputs: ``(n,)`` for one output, ``(n, C)`` for several. For a classifier these are scores."""
        X = self.check_inputs(X)
        F = self.forward(X)
        places = self.output_shape(X.shape)
        return F.reshape(places if self.n_outputs == 1 else (*places, self.n_outputs))

    def objective(
        self,
        X: Array,
        y: Array,
        *,
        beta: float,
        loss: str | Loss = "squared",
        sample_weight: Array | None = None,
    ) -> float:
        r"""Regularised training objective :math:`L(f(X), y) + \beta \cdot` :meth:`penalty`, from scratch.

        ``y`` is what the loss encodes: numbers for regression, class codes (or -1/+1) for classification.
        """
        loss = get_loss(loss)
        F = self.evaluate(self.check_inputs(X))
        y = np.asarray(y)
        if len(F) > len(y):  # outputs at several places of a sample
            y = y.ravel() if y.size == len(F) else y.reshape(len(F), -1)
        Y = loss.encode(y, n_classes=max(2, self.n_outputs) if loss.classification else None)
        if Y.shape != F.shape:
            raise ValueError(f"y gives targets of shape {Y.shape}, but the network's outputs have {F.shape}")
        if sample_weight is not None and len(X) < len(F) and len(sample_weight) == len(X):
            sample_weight = np.repeat(sample_weight, len(F) // len(X))
        return loss.value(F, Y, normalise_weights(sample_weight, len(Y))) + beta * self.penalty()

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain lists and numbers."""
        weights = {k: None if v is None else np.asarray(v).tolist() for k, v in self.weights().items()}
        kind = Network.registry.named(type(self), self.kind)
        return {"kind": kind, "n_inputs": self.n_inputs, "n_outputs": self.n_outputs, "weights": weights}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Network:
        """Inverse of :meth:`to_dict`."""
        kind = data.get("kind")
        found = cls.registry.find(kind)
        try:
            return found._rebuild(data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the description of the {kind} network is incomplete: {error!r}") from error

    @classmethod
    def _rebuild(cls, data: dict[str, Any]) -> Network:
        return cls(**data["weights"])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the network to a JSON file, atomically; :func:`bidual.load` reads it back bit for bit."""
        return write_json(path, {"format": "bidual.network", "version": FORMAT_VERSION, "network": self.to_dict()})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_inputs} inputs, {self.n_neurons} neurons, {self.n_outputs} outputs)"

    def _repr_html_(self) -> str:
        heads = np.asarray(getattr(self, "output_weights", ()), dtype=np.float64)
        picture = ""
        if heads.ndim == 2 and heads.any():
            sizes = np.sort(((heads / np.abs(heads).max()) ** 2).sum(axis=1))[::-1]
            ends = [*(np.cumsum(sizes) / sizes.sum())[: _DRAWN - 1], 1.0][: len(sizes)]
            parts = [html.Part("neuron", end, html.LIKELY, opacity=0.9 - 0.4 * (k % 2)) for k, end in enumerate(ends)]
            picture = html.bar(parts, "neurons by the squares of their output weights, largest first")
        shapes = [(name, " x ".join(map(str, np.shape(w)))) for name, w in self.weights().items() if w is not None]
        return html.shown(
            repr(self), picture, shapes, "weights (the bar shows the neurons, by the squares of their output weights)"
        )
