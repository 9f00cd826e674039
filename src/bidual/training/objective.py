r"""What is minimised, by anybody: the one place where a training problem is posed.

.. math:: \sum_i w_i \, \ell(f(x_i), y_i) + \beta \, R(f)

over the networks f of an architecture and of any width, with R its weight decay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from bidual._util.ranges import check_range
from bidual._util.typing import Array, FloatArray
from bidual.architectures import Architecture, TwoLayer
from bidual.bounds.evidence import Evidence
from bidual.losses import Loss
from bidual.problem import Problem
from bidual.training.combinations import Combination
from bidual.training.rows import Rows
from bidual.training.train import TrainingSet


@dataclass(frozen=True)
class Objective:
    """Loss, weight decay and the networks among which the best one is sought.

    Attributes
    ----------
    loss : Loss
    beta : float
        0 asks for the network of least weight decay that minimises the loss exactly.
    architecture : Architecture
    bias : bool or "free"
        Whether neurons have biases; "free" ones cost nothing (:mod:`bidual.splines`).
    fit_intercept : bool
        Whether outputs have a free intercept.
    """

    loss: Loss
    beta: float
    architecture: Architecture = field(default_factory=TwoLayer)
    bias: bool | str = True
    fit_intercept: bool = True

    @cached_property
    def acting_loss(self) -> Loss:
        """The loss that is minimised; at beta = 0 its limit."""
        return self.loss if self.beta > 0 else self.loss.limit()

    @property
    def acting_beta(self) -> float:
        """What the weight decay is multiplied with; of an exact fit it is all there is."""
        return float(self.beta) if self.beta > 0 else 1.0

    def check(self, n_outputs: int, activation: str = "relu", method: str | None = None) -> None:
        """Raise ValueError unless it goes with so many outputs, this activation and method (None: not chosen yet)."""
        Combination(self, n_outputs, activation, method).check()

    def pose(
        self,
        X: FloatArray,
        Y: FloatArray,
        sample_weight: Array | None = None,
        *,
        activation: str = "relu",
        method: str | None = None,
    ) -> TrainingSet:
        """Pose the training problem on rows ``X (n, d)`` in memory and encoded targets ``Y (n, C)``.

        Images and sequences have more axes. ``Y``, and then ``sample_weight``, may have several rows for each sample.
        ``activation`` and ``method``, if one is to be used, are checked to go with the rest.
        """
        self.check(Y.shape[1], activation, method)
        check_range(X=X, y=Y)
        rows = Rows.of(X, Y, sample_weight, exact=self.beta == 0)
        settled = self.architecture.settled(
            rows.X, rows.Y, rows.w, loss=self.loss, beta=float(self.beta), fit_intercept=self.fit_intercept
        )
        lift = settled.lift(rows.X, bias=self.bias is True, counts=rows.counts)
        problem = Problem(
            atoms=lift.atoms(rows.w),
            Y=rows.Y,
            w=rows.w,
            loss=self.acting_loss,
            beta=self.acting_beta,
            fit_intercept=self.fit_intercept,
        )
        return TrainingSet(rows.X, problem, self, rows.faint, lift)

    @classmethod
    def of(cls, evidence: Evidence, beta: float) -> Objective:
        """What the evidence of a certificate is about; of an exact fit it holds the loss of the limit."""
        kind = Architecture.registry.find(evidence.architecture)
        try:
            architecture = kind(**evidence.options)
        except TypeError as error:
            raise ValueError(
                f"the architecture {kind.name!r} has other options than {sorted(evidence.options)}"
            ) from error
        return cls(evidence.loss, beta, architecture, evidence.bias, evidence.fit_intercept)
