r"""What an architecture is: a lift of the data, and the way back to a network.

``architecture.lift(X, bias=..., counts=...)`` looks at the training data and returns a :class:`Lift`. It holds the
features M and the pooling A on which the training problem is posed (see :mod:`bidual.problem`), applies the same
map to new rows, and turns neurons on M into a network on X. Architectures are plain parameter holders; what is
learned from the data lives in the lift.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import scipy.sparse as sp

from bidual._util.registry import Registry
from bidual._util.sparse import is_sparse
from bidual._util.typing import Array, FloatArray
from bidual.atoms import Atoms, GatedNeurons, Neurons, Relu, SparseRelu
from bidual.atoms.abilities import Ability, Needs
from bidual.losses import Loss
from bidual.networks import Network


class Lift(ABC):
    """Features of the training rows, and how to recover a network.

    Attributes
    ----------
    M : ndarray or sparse array, shape (N, p)
    A : sparse array (n, N) or None
    """

    M: FloatArray
    A: sp.csr_array | None = None
    #: By how much rounding may have moved each row of M, ``(N,)``, or all of them.
    rounding: FloatArray | float = 0.0
    #: Whether networks on M do not see the scale of the columns of X.
    scale_free: ClassVar[bool] = False

    def atoms(self, w: FloatArray) -> Atoms:
        """What neurons compute on M, for samples of weights ``w (n,)`` that sum to one."""
        return SparseRelu(self.M) if is_sparse(self.M) else Relu(self.M, self.A)

    @property
    def restriction(self) -> str:
        """What networks on M cannot do although the architecture could, as a scope names it; "" if nothing."""
        return ""

    @abstractmethod
    def recover(self, neurons: Neurons) -> Network:
        """The network on the original inputs that computes what ``neurons`` compute on M, at the same cost."""

    def restarted(self, network: Network) -> Network:
        """What training on this lift may start from, in the place of a network that was trained on other rows."""
        return network

    @abstractmethod
    def neurons(self, network: Network) -> Neurons:
        """Inverse of :meth:`recover`: the neurons on M of a network of this architecture (for warm starts)."""

    def gates(self, gates: Array | Network) -> FloatArray:
        """Gate vectors ``(P, p)`` on M, from vectors on the inputs or from the neurons of a network."""
        raise ValueError(f"{type(self).__name__} knows no gated networks: use architecture='two_layer'")

    def recover_gated(self, neurons: GatedNeurons) -> Network:
        """The gated network on the original inputs that computes what ``neurons`` compute on M, at the same cost."""
        raise NotImplementedError

    def gated_neurons(self, network: Network) -> GatedNeurons:
        """Inverse of :meth:`recover_gated`."""
        raise NotImplementedError


class Architecture(ABC):
    """Base class of the architectures; subclass it to train with your own.

    With a :attr:`name` of its own, certificates of it can be saved, loaded and verified in any process that has
    imported its class; its attributes are its parameters, stored as the arguments of ``__init__``. The networks that
    its lift recovers do the same with their ``kind`` (:class:`bidual.networks.Network`); where that equals the name,
    :func:`bidual.certify` finds the architecture of a network by itself.
    """

    #: All architectures that have a name.
    registry: ClassVar[Registry[Architecture]] = Registry("architecture")
    #: The name it is registered by; the string stands for the default instance, if there is one.
    name: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            Architecture.registry.add(cls.name, cls)

    @property
    def plain(self) -> Architecture:
        """What the user speaks of: without a standardisation that defaults have put before it."""
        return self

    @property
    def keeps_sparse(self) -> bool:
        """Whether it takes sparse rows as they are: features are the columns, or multiples of them."""
        return False

    @property
    def tensors(self) -> bool:
        """Whether inputs may have more axes than two."""
        return False

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that rebuild it, as certificates store them."""
        return dict(vars(self))

    @property
    def can(self) -> frozenset[Ability]:
        """What training may do with it: what its neurons can, and "gates" if they may have some."""
        return Relu.can - {"gates"}

    @property
    def needs(self) -> Needs:
        """What it needs of the rest of a training problem."""
        return ()

    @classmethod
    def of(cls, network: Network) -> Architecture:
        """The architecture of a network of this kind."""
        return cls()

    def stated(self, network: Network) -> Network:
        """The same network with its weights in the units in which this architecture charges them."""
        return network

    def stack(self, shape: tuple[int, ...], y: Array) -> Array | None:
        """Targets, one row for each place with outputs, for X of this shape; None if every sample has one."""
        return None

    def measured(self, X: FloatArray, w: FloatArray) -> Architecture:
        """The same architecture with what it takes from the rows, of weights ``w`` that sum to one."""
        return self

    def settled(
        self, X: FloatArray, Y: FloatArray, w: FloatArray, *, loss: Loss, beta: float, fit_intercept: bool
    ) -> Architecture:
        """The same architecture with every option that depends on the training problem decided."""
        return self

    @abstractmethod
    def lift(self, X: FloatArray, *, bias: bool, counts: FloatArray | None = None) -> Lift:
        """Lift training data, whose rows stand for ``counts`` rows each (their sample weights; None: for one)."""

    def free_lift(self, X: FloatArray) -> Lift:
        """Lift training data for neurons with free biases, if this architecture :attr:`can` have "free biases"."""
        raise NotImplementedError

    def __repr__(self) -> str:
        parameters = ", ".join(f"{k}={v!r}" for k, v in vars(self).items())
        return f"{type(self).__name__}({parameters})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), tuple(sorted(vars(self).items()))))
