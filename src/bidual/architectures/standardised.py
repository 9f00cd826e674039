r"""Any architecture on standardised columns: :math:`f(x) = g((x - c) / s)`, and weight decay of g only.

A pure change of features: those of the inner architecture on :math:`(X - c) / s`. The optimum then does not depend on
the units and origins of the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bidual._util.scaling import standardisation
from bidual._util.sparse import deviations, is_sparse, scaled
from bidual._util.typing import Array, FloatArray
from bidual.architectures.base import Architecture, Lift
from bidual.architectures.two_layer import TwoLayer
from bidual.atoms import Atoms, GatedNeurons, Neurons
from bidual.atoms.abilities import Ability, Needs
from bidual.losses import Loss
from bidual.networks import Network, StandardisedNetwork


class Standardised(Architecture):
    """An architecture that sees every column with mean zero and deviation one.

    Parameters
    ----------
    inner : Architecture, default=TwoLayer()
        What is trained on the standardised columns. (As a dict with "name" and "options": as files have it.)
    centre, scale : sequence of float or None, default=None
        Mean and deviation of the columns (of images and sequences: of the channels); None takes those of the training
        rows, with their weights. Constant columns keep their scale.
    centred : bool, default=True
        False leaves the columns where they are (the mean is taken as zero): zeros, of sparse rows, remain zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLURegressor
    >>> from bidual.architectures import Standardised
    >>> X, y = np.array([[-2e6], [-1e6], [0.0], [1e6], [2e6]]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    >>> est = ReLURegressor(0.01, architecture=Standardised(), tol=1e-4).fit(X, y)
    >>> again = ReLURegressor(0.01, architecture=Standardised(), tol=1e-4).fit(1e-9 * X + 3, y)
    >>> bool(abs(est.objective_ / again.objective_ - 1) < 1e-4)
    True
    """

    name = "standardised"

    def __init__(
        self,
        inner: Architecture | Mapping[str, Any] | None = None,
        centre: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        centred: bool = True,
    ) -> None:
        if isinstance(inner, Mapping):
            inner = Architecture.registry.find(inner["name"])(**inner["options"])
        self.inner: Architecture = TwoLayer() if inner is None else inner
        self.centred = bool(centred)
        if (centre is None) != (scale is None):
            raise ValueError("give both of centre and scale, or none")
        self.centre, self.scale = _numbers("centre", centre), _numbers("scale", scale)
        if self.scale is not None and not all(s > 0 for s in self.scale):
            raise ValueError("scale must be positive")
        if self.centre is not None and self.scale is not None and len(self.centre) != len(self.scale):
            raise ValueError(f"centre has {len(self.centre)} entries, scale {len(self.scale)}")

    @property
    def plain(self) -> Architecture:
        return self.inner.plain

    @property
    def keeps_sparse(self) -> bool:
        return self.inner.keeps_sparse and not (self.centred if self.centre is None else any(self.centre))

    @property
    def tensors(self) -> bool:
        return self.inner.tensors

    @property
    def can(self) -> frozenset[Ability]:
        return self.inner.can

    @property
    def needs(self) -> Needs:
        return self.inner.needs

    @property
    def options(self) -> dict[str, Any]:
        inner = {"name": self.inner.name, "options": self.inner.options}
        uncentred = {} if self.centred or self.centre is not None else {"centred": False}
        return {"inner": inner, "centre": self.centre, "scale": self.scale, **uncentred}

    @classmethod
    def of(cls, network: Network) -> Standardised:
        network = _checked(network)
        inner = Architecture.registry.get(network.layer.kind, TwoLayer).of(network.layer)
        return cls(inner, network.centre.tolist(), network.scale.tolist())

    def stated(self, network: Network) -> Network:
        if not isinstance(network, StandardisedNetwork):
            return network
        layer = self.inner.stated(network.layer)
        return network if layer is network.layer else StandardisedNetwork(layer, network.centre, network.scale)

    def stack(self, shape: tuple[int, ...], y: Array) -> Array | None:
        return self.inner.stack(shape, y)

    def measured(self, X: FloatArray, w: FloatArray) -> Standardised:
        if self.centre is not None:
            return self
        if is_sparse(X):
            return Standardised(self.inner, [0.0] * X.shape[1], deviations(X, w).tolist(), False)
        # a sequence without an axis of channels has one
        centre, scale = standardisation(X[..., None] if self.tensors and X.ndim == 2 else X, w)
        centre = centre if self.centred else np.zeros_like(centre)
        return Standardised(self.inner, centre.tolist(), scale.tolist(), self.centred)

    def settled(
        self, X: FloatArray, Y: FloatArray, w: FloatArray, *, loss: Loss, beta: float, fit_intercept: bool
    ) -> Standardised:
        inner = self.inner.settled(self._applied(X), Y, w, loss=loss, beta=beta, fit_intercept=fit_intercept)
        return self if inner == self.inner else Standardised(inner, self.centre, self.scale, self.centred)

    def lift(self, X: FloatArray, *, bias: bool, counts: FloatArray | None = None) -> StandardisedLift:
        return StandardisedLift(
            self.inner.lift(self._applied(X), bias=bias, counts=counts), np.array(self.centre), np.array(self.scale)
        )

    def free_lift(self, X: FloatArray) -> StandardisedLift:
        return StandardisedLift(self.inner.free_lift(self._applied(X)), np.array(self.centre), np.array(self.scale))

    def _applied(self, X: FloatArray) -> FloatArray:
        """The standardised columns."""
        if self.centre is None:
            raise ValueError("the columns have not been measured yet")
        if X.shape[-1] != len(self.centre) > 1:
            raise ValueError(f"X has {X.shape[-1]} columns, centre and scale have {len(self.centre)} entries")
        return scaled(X, np.array(self.centre), np.array(self.scale))


class StandardisedLift(Lift):
    """The features of the inner lift, whose networks are put behind the standardisation."""

    scale_free = True

    def __init__(self, layer: Lift, centre: FloatArray, scale: FloatArray) -> None:
        self.layer, self.centre, self.scale = layer, centre, scale
        self.M, self.A, self.rounding = layer.M, layer.A, layer.rounding

    def atoms(self, w: FloatArray) -> Atoms:
        return self.layer.atoms(w)

    @property
    def restriction(self) -> str:
        return self.layer.restriction

    def restarted(self, network: Network) -> Network:
        return self._wrapped(self.layer.restarted(getattr(network, "layer", network)))

    def recover(self, neurons: Neurons) -> Network:
        return self._wrapped(self.layer.recover(neurons))

    def neurons(self, network: Network) -> Neurons:
        return self.layer.neurons(self._inner(network))

    def gates(self, gates: Array | Network) -> FloatArray:
        if isinstance(gates, Network):
            gates = gates.gate_vectors()
        vectors = np.asarray(gates, dtype=np.float64)
        d = len(self.centre)
        if vectors.ndim == 2 and vectors.shape[1] in (d, d + 1):  # g.x + b = (g s).z + b + g.c
            offsets = vectors[:, :d] @ self.centre + (vectors[:, d] if vectors.shape[1] > d else 0.0)
            vectors = np.column_stack([vectors[:, :d] * self.scale, offsets])
        return self.layer.gates(vectors)

    def recover_gated(self, neurons: GatedNeurons) -> Network:
        return self._wrapped(self.layer.recover_gated(neurons))

    def gated_neurons(self, network: Network) -> GatedNeurons:
        return self.layer.gated_neurons(self._inner(network))

    def _wrapped(self, network: Network) -> StandardisedNetwork:
        return StandardisedNetwork(network, self.centre, self.scale)

    def _inner(self, network: Network) -> Network:
        network = _checked(network)
        if not (np.array_equal(network.centre, self.centre) and np.array_equal(network.scale, self.scale)):
            raise ValueError("the network standardises its columns by other means and deviations than these")
        return network.layer


def _checked(network: Network) -> StandardisedNetwork:
    """The network, if it is one of this architecture."""
    if not isinstance(network, StandardisedNetwork):
        raise TypeError(f"expected a network on standardised columns, got {type(network).__name__}")
    return network


def _numbers(name: str, values: Sequence[float] | None) -> tuple[float, ...] | None:
    """The values as a tuple of finite floats."""
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(f"{name} must be a list of finite numbers")
    return tuple(array.tolist())
