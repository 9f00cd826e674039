r"""What an architecture is: a lift of the data, and the way back to a network.

``architecture.lift(X, bias=..., counts=...)`` looks at the training data and returns a :class:`Lift`. It holds the
features M and the pooling A on which the training problem is posed (see :mod:`bidual.problem`), applies the same
map to new rows, and turns neurons on M into a network on X. Architectures are plain parameter holders; what is
learned from the data lives in the lift.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import scipy.sparse as sp

from bidual._typing import Array, FloatArray
from bidual.losses import Loss
from bidual.networks import Network
from bidual.problem import GatedNeurons, Neurons, Problem


class Lift(ABC):
    """Features of the training rows, and how to recover a network.

    Attributes
    ----------
    M : ndarray, shape (N, p)
    A : sparse array (n, N) or None
    """

    M: FloatArray
    A: sp.csr_array | None = None
    #: What the neurons compute on M.
    problem_type: Callable[..., Problem] = Problem

    @abstractmethod
    def recover(self, neurons: Neurons) -> Network:
        """The network on the original inputs that computes what ``neurons`` compute on M, at the same cost."""

    @abstractmethod
    def neurons(self, network: Network) -> Neurons:
        """Inverse of :meth:`recover`: the neurons on M of a network of this architecture (for warm starts)."""

    def gates(self, gates: Array | Network) -> FloatArray:
        """Gate vectors ``(P, p)`` on M, from vectors on the inputs or from the neurons of a network."""
        raise ValueError(f"{type(self).__name__} knows no gated networks: use architecture='two_layer'")

    def recover_gated(self, neurons: GatedNeurons) -> Network:
        """The gated network on the original inputs that computes what ``neurons`` compute on M, at the same cost."""
        raise ValueError(f"{type(self).__name__} knows no gated networks: use architecture='two_layer'")

    def gated_neurons(self, network: Network) -> GatedNeurons:
        """Inverse of :meth:`recover_gated`."""
        raise ValueError(f"{type(self).__name__} knows no gated networks: use architecture='two_layer'")


class Architecture(ABC):
    """Base class of the architectures."""

    #: The name it is registered by; the string stands for the default instance, if there is one.
    name: ClassVar[str]
    #: Whether inputs may have more axes than two.
    tensors: ClassVar[bool] = False

    @classmethod
    def of(cls, network: Network) -> Architecture:
        """The architecture of a network of this kind."""
        return cls()

    def stack(self, shape: tuple[int, ...], y: Array) -> Array | None:
        """Targets, one row for each place with outputs, for X of this shape; None if every sample has one."""
        return None

    def settled(
        self, X: FloatArray, Y: FloatArray, w: FloatArray, *, loss: Loss, beta: float, fit_intercept: bool
    ) -> Architecture:
        """The same architecture with every option that depends on the training problem decided."""
        return self

    @abstractmethod
    def lift(self, X: FloatArray, *, bias: bool, counts: FloatArray | None = None) -> Lift:
        """Lift training data, whose rows stand for ``counts`` rows each (their sample weights; None: for one)."""

    def __repr__(self) -> str:
        parameters = ", ".join(f"{k}={v!r}" for k, v in vars(self).items())
        return f"{type(self).__name__}({parameters})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), tuple(sorted(vars(self).items()))))
