r"""Linear networks of two layers and their dual constraint: :math:`\|X^T V\|_2 \le \beta` (001 sec. 2.2.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bidual._util.typing import Array, FloatArray
from bidual.atoms import Linear
from bidual.bounds import Bound, Certificate, lower_bound
from bidual.bounds.evidence import Evidence
from bidual.bounds.proof import Proof
from bidual.losses import Squared
from bidual.networks import DeepNetwork, Network
from bidual.problem import Problem
from bidual.training.objective import Objective
from bidual.training.posed import Posed
from bidual.training.rows import Rows

#: The architecture, as evidence names it.
LINEAR_NET = "linear_net"
#: Bounds that differ by less, relatively, differ by the order of summation.
SAME = 1e-10


@dataclass(frozen=True)
class LinearProof(Proof):
    r"""The spectral norm :math:`\|X^T V\|_2`: nothing needs to be stored."""

    kind = "linear"

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The norm, with rounding."""
        if not isinstance(problem.atoms, Linear):
            raise ValueError("a proof of the kind 'linear' is about linear networks")
        return problem.atoms.norm_limit(V)


@dataclass(frozen=True)
class LinearSet(Posed):
    """The distinct rows, with the problem of linear networks posed on them."""

    @classmethod
    def of(cls, objective: Objective, X: FloatArray, Y: FloatArray, sample_weight: Array | None) -> LinearSet:
        """Pose the problem on rows ``X (n, d)`` and targets ``Y (n, C)``."""
        rows = Rows.of(X, Y, sample_weight)
        atoms = Linear(rows.X, centre=rows.w if objective.fit_intercept else None)
        problem = Problem(atoms, rows.Y, rows.w, objective.acting_loss, objective.acting_beta, objective.fit_intercept)
        return cls(rows.X, problem, objective, rows.faint)

    def evidence(self, bound: Bound, classes: tuple[Any, ...] | None = None) -> Evidence | None:
        """As evidence names such networks."""
        kept = super().evidence(bound, classes)
        return None if kept is None else replace(kept, architecture=LINEAR_NET, options={"depth": 2})

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
    objective = Objective(Squared(), certificate.beta, bias=False, fit_intercept=fit_intercept)
    posed = LinearSet.of(objective, X, Y, sample_weight)
    units, natural = posed.units, posed.natural
    residual = natural.Y - (network.forward(posed.X) - units.shift) / units.outputs
    V = natural.loss.dual_point(natural.w[:, None] * residual, natural.Y, natural.w, centred=fit_intercept)
    bound = lower_bound(natural, V, 0.0, natural.atoms.norm_limit(V), LinearProof())
    return posed.evidence(bound) if bound.value * units.value >= (1.0 - SAME) * certificate.lower_bound else None
