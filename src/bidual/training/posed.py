"""A training problem posed on rows in memory: what it makes of a network, and of a bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bidual._util.typing import FloatArray
from bidual.atoms import GatedNeurons, Neurons
from bidual.bounds import Bound, Certificate, joined_scope
from bidual.bounds.evidence import Evidence
from bidual.networks import Network
from bidual.problem import Problem
from bidual.training.rows import Faint
from bidual.training.units import Units

if TYPE_CHECKING:
    from bidual.training.objective import Objective


@dataclass(frozen=True)
class Posed(ABC):
    """The distinct samples of the data, with the problem posed on them.

    Attributes
    ----------
    X : ndarray, shape (n, d)
        In a canonical order (images and sequences: with more axes; or sparse).
    problem : Problem
    objective : Objective
        What is minimised, as the user gave it.
    faint : Faint
        Rows that count in the objective only.
    """

    X: FloatArray
    problem: Problem
    objective: Objective
    faint: Faint

    @cached_property
    def units(self) -> Units:
        """Units in which the problem is of order one."""
        return Units.of(self.problem)

    @cached_property
    def natural(self) -> Problem:
        """The problem in these units."""
        return self.units.normalise(self.problem)

    @property
    def restriction(self) -> str:
        """What the networks are restricted to beyond their architecture, as a scope names it."""
        return ""

    @abstractmethod
    def check_network(self, network: Network, gated: bool) -> None:
        """Raise if the network is not one of those that the problem is about."""

    def value(self, network: Network, F: FloatArray | None = None) -> float:
        """The objective of a network on all rows of the user, evaluated from scratch (``F``: its outputs)."""
        problem = self.problem
        value = problem.loss_value(network.evaluate(self.X) if F is None else F) + problem.beta * network.penalty()
        return value + self.faint.loss(network, problem.loss)

    def accounted(self, bound: Bound) -> Bound:
        """A bound on the problem as posed as one on that of exact features: the rows are as the user gave them."""
        return bound

    def evidence(self, bound: Bound, classes: tuple[Any, ...] | None = None) -> Evidence | None:
        """What it takes to check a bound in natural units again: its dual point, its proof, and how this was posed."""
        if bound.proof is None or not bound.proof.stored:
            return None
        objective = self.objective
        return Evidence(
            V=bound.V,
            scale=bound.scale,
            proof=bound.proof,
            loss=objective.acting_loss,
            classes=classes,
            architecture=objective.architecture.name,
            options=objective.architecture.options,
            bias=objective.bias,
            fit_intercept=objective.fit_intercept,
        )

    def certificate(
        self,
        network: Network,
        bound: Bound,
        *,
        likely: Bound | None = None,
        scope: str = "global",
        neurons: Neurons | GatedNeurons | None = None,
        classes: tuple[Any, ...] | None = None,
        **about: Any,
    ) -> Certificate:
        """The certificate of a network, its objective evaluated from scratch.

        Parameters
        ----------
        network : Network
        bound, likely : Bound
            What is proven and what is believed, both in natural units.
        scope : str
            Which networks they speak of, of all those that the problem is about.
        neurons : Neurons, GatedNeurons or None
            Those of the network on the features, if it is of that scope up to the accuracy of a solver only.
        classes : tuple or None
            Labels in the order of their codes.
        **about
            The other attributes of the certificate.
        """
        F = network.evaluate(self.X)

        def restored(b: Bound) -> Bound:
            return self._within(self.accounted(self.units.restore_bound(b)), F, scope, neurons)

        return Certificate.of(
            self.value(network, F),
            restored(bound),
            likely=None if likely is None else restored(likely),
            scope=joined_scope(scope, self.restriction),
            beta=self.objective.beta,
            loss=self.problem.loss.name,
            evidence=self.evidence(bound, classes),
            **about,
        )

    def _within(self, bound: Bound, F: FloatArray, scope: str, neurons: Neurons | GatedNeurons | None) -> Bound:
        r"""The bound with the network (of outputs F) among those that it speaks of, where solvers end beside them.

        Neurons lie in the cones of patterns up to the accuracy of the conic solver: the constraint is held to what
        they attain. An exact fit is one up to residuals.
        """
        problem = self.problem
        if scope.startswith("patterns") and isinstance(neurons, Neurons) and len(neurons):
            pulls = np.einsum("ncm,nc->m", problem.atoms.contributions_of(neurons), bound.V) / neurons.costs
            bound = bound.loosened(problem.beta, max(0.0, float(pulls.max()) - bound.limit))
        return bound.fitting(problem.loss, F, problem.Y)
