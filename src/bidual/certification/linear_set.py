r"""Linear networks of two layers and their dual constraint: :math:`\|X^T V\|_2 \le \beta` (001 sec. 2.2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bidual._rounding import spectral_norm
from bidual._typing import Array, FloatArray
from bidual.certificates import Bound, Certificate, lower_bound
from bidual.certificates.evidence import Evidence
from bidual.certificates.proof import Proof
from bidual.losses import Loss, Squared
from bidual.networks import DeepNetwork, Network
from bidual.problem import Problem
from bidual.training import Faint, distinct_rows
from bidual.units import Units

#: The architecture, as evidence names it.
LINEAR_NET = "linear_net"
#: Bounds that differ by less, relatively, differ by the order of summation.
SAME = 1e-10


@dataclass(frozen=True)
class LinearNeurons(Problem):
    """Neurons that compute M u, without a ReLU."""

    plain: ClassVar[bool] = False

    def norm_limit(self, V: FloatArray) -> float:
        r""":math:`\|M^T V\|_2`, which is the constraint itself, with rounding.

        Where V sums to zero M may be centred, which keeps more digits.
        """
        M = self.M - self.w @ self.M if self.fit_intercept else self.M
        rounding = 2 * (len(M) + 16) * np.finfo(float).eps
        return spectral_norm(M.T @ V) + rounding * float(np.linalg.norm(V, axis=1) @ np.linalg.norm(M, axis=1))


@dataclass(frozen=True)
class LinearProof(Proof):
    r"""The spectral norm :math:`\|X^T V\|_2`: nothing needs to be stored."""

    kind = "linear"

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The norm, with rounding."""
        if not isinstance(problem, LinearNeurons):
            raise ValueError("a proof of the kind 'linear' is about linear networks")
        return problem.norm_limit(V)


@dataclass(frozen=True)
class LinearSet:
    """The distinct rows, with the problem posed on them."""

    X: FloatArray
    problem: LinearNeurons
    faint: Faint
    restriction: ClassVar[str] = ""

    @classmethod
    def pose(
        cls, X: FloatArray, Y: FloatArray, sample_weight: Array | None, *, loss: Loss, beta: float, fit_intercept: bool
    ) -> LinearSet:
        """Pose the problem on rows ``X (n, d)`` and targets ``Y (n, C)``."""
        faint = Faint.of(X, Y, sample_weight, beta)
        X, Y, counts = distinct_rows(X, Y, sample_weight)
        return cls(X, LinearNeurons(X, None, Y, counts / counts.sum(), loss, beta, fit_intercept), faint)

    def evidence(self, bound: Bound) -> Evidence:
        """What it takes to check a bound in natural units again."""
        problem = self.problem
        return Evidence(
            bound.V, bound.scale, LinearProof(), problem.loss, None, LINEAR_NET, {"depth": 2}, False,
            problem.fit_intercept,
        )  # fmt: skip

    def objective(self, network: Network) -> float:
        """The objective of a network on all rows of the user."""
        problem = self.problem
        value = problem.loss_value(network.evaluate(self.X)) + problem.beta * network.penalty()
        return value + self.faint.loss(network, problem.loss)

    def accounted(self, bound: Bound) -> Bound:
        """The bound itself: the rows are as the user gave them."""
        return bound

    def check_network(self, network: Network, gated: bool) -> None:
        """Raise if the network is not one of those that the problem is about."""
        if not isinstance(network, DeepNetwork) or network.activation != "linear" or len(network.layers) != 2 or gated:
            raise TypeError(f"expected a linear network of two layers, got {network!r}")


def linear_evidence(
    network: DeepNetwork, X: FloatArray, Y: FloatArray, sample_weight: Array | None, fit_intercept: bool,
    certificate: Certificate,
) -> Evidence | None:  # fmt: skip
    """The residual of the network as a dual point, if it proves the bound of the certificate; two layers only."""
    if certificate.beta == 0 or len(network.layers) != 2:
        return None
    posed = LinearSet.pose(X, Y, sample_weight, loss=Squared(), beta=certificate.beta, fit_intercept=fit_intercept)
    units = Units.of(posed.problem)
    natural = units.normalise(posed.problem)
    residual = natural.Y - (network.forward(posed.X) - units.shift) / units.outputs
    V = natural.loss.dual_point(natural.w[:, None] * residual, natural.Y, natural.w, centred=fit_intercept)
    bound = lower_bound(natural, V, 0.0, natural.norm_limit(V), LinearProof())
    enough = (1.0 - SAME) * certificate.lower_bound
    return posed.evidence(bound) if bound.value * units.outputs**units.power >= enough else None
