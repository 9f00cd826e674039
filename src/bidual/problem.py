r"""The training problem every solver and certificate works on: atoms, a loss of their sum, and what they cost.

.. math:: \min \; L\Big(\sum_j \phi(\theta_j) \alpha_j^T + 1 b^T\Big) + \beta \sum_j \|\alpha_j\|,

which for ordinary neurons :math:`\phi = A (M u)_+` is :math:`L(F) + \beta \sum_j \|u_j\| \|\alpha_j\|` and equals
the weight-decay objective :math:`L(F) + \tfrac\beta2 \sum_j (\|u_j\|^2 + \|\alpha_j\|^2)` at balanced weights (003
Lemma 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, cast

from bidual._util.typing import FloatArray
from bidual.atoms import Atoms, Neurons
from bidual.losses import Loss

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # defaults of type variables: Problem alone is Problem[Atoms]

    AtomsT = TypeVar("AtomsT", bound=Atoms, covariant=True, default=Atoms)
else:
    from typing import TypeVar

    AtomsT = TypeVar("AtomsT", bound=Atoms, covariant=True)

KindT = TypeVar("KindT", bound=Atoms)


@dataclass(frozen=True)
class Problem(Generic[AtomsT]):
    """Atoms, targets, loss and weight decay.

    Attributes
    ----------
    atoms : Atoms
        What neurons compute on the rows of the data.
    Y : ndarray, shape (n, C)
        Encoded targets.
    w : ndarray, shape (n,)
        Positive weights that sum to one.
    loss : Loss
    beta : float
        Strength of weight decay, positive.
    fit_intercept : bool
        Whether b is free (unregularised) or zero.
    """

    atoms: AtomsT
    Y: FloatArray
    w: FloatArray
    loss: Loss
    beta: float
    fit_intercept: bool

    def of(self, kind: type[KindT]) -> Problem[KindT] | None:
        """The same problem, if its neurons are of that kind."""
        return cast("Problem[KindT]", self) if isinstance(self.atoms, kind) else None

    @property
    def n_outputs(self) -> int:
        """Number of outputs, C."""
        return int(self.Y.shape[1])

    @property
    def n_coefficients(self) -> int:
        """Output weights of a neuron: columns of alpha."""
        return self.atoms.n_coefficients(self.n_outputs)

    def outputs(self, neurons: Neurons) -> FloatArray:
        """``F`` of the neurons, ``(n, C)``."""
        return self.atoms.outputs(neurons)

    def loss_value(self, F: FloatArray) -> float:
        """The loss of these outputs."""
        return self.loss.value(F, self.Y, self.w)

    def objective(self, neurons: Neurons) -> float:
        """Loss plus beta times the cost of the neurons."""
        return self.loss_value(self.outputs(neurons)) + self.beta * float(neurons.costs.sum())

    def dual_value(self, V: FloatArray) -> float:
        r"""The dual objective :math:`-L^*(-V)` (003 Theorem 6)."""
        return -self.loss.conjugate(-V, self.Y, self.w)

    def dual_point(self, V: FloatArray) -> FloatArray:
        """V moved into the domain of the dual."""
        return self.loss.dual_point(V, self.Y, self.w, centred=self.fit_intercept)
