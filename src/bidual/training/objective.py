r"""What is minimised, by anybody: the one place where a training problem is posed.

.. math:: \sum_i w_i \, \ell(f(x_i), y_i) + \beta \, R(f)

over the networks f of an architecture and of any width, with R its weight decay. What goes together is checked
before any arithmetic: :class:`Combination` is the one gate that every training passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bidual._util.checks import FREE
from bidual._util.ranges import check_range
from bidual._util.typing import Array, FloatArray
from bidual.architectures import Architecture, TwoLayer
from bidual.atoms import FreeBias
from bidual.atoms.abilities import OF_LOSS, WORDS, Ability, Needs, needs, offered
from bidual.bounds.evidence import Evidence
from bidual.losses import LOSSES, Loss
from bidual.problem import Problem
from bidual.solvers import METHODS
from bidual.training.activations import ACTIVATIONS
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
        Whether neurons have biases; "free" ones cost nothing (:mod:`bidual.atoms.free_bias`).
    fit_intercept : bool
        Whether outputs have a free intercept; free biases give them one in any case, and ask for it to be written down.
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
        measured = self.architecture.measured(rows.X, rows.w.reshape(rows.X.shape[0], -1).sum(axis=1))
        settled = measured.settled(
            rows.X, rows.Y, rows.w, loss=self.loss, beta=float(self.beta), fit_intercept=self.fit_intercept
        )
        if self.bias == FREE:
            lift = settled.free_lift(rows.X)
        else:
            lift = settled.lift(rows.X, bias=bool(self.bias), counts=rows.counts)
        problem = Problem(
            atoms=lift.atoms(rows.w),
            Y=rows.Y,
            w=rows.w,
            loss=self.acting_loss,
            beta=self.acting_beta,
            fit_intercept=self.fit_intercept,
        )
        return TrainingSet(rows.X, problem, replace(self, architecture=measured), rows.faint, lift)

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


@dataclass(frozen=True)
class Combination:
    """What is to be trained and how, as far as it is known before any arithmetic.

    Attributes
    ----------
    objective : Objective
    n_outputs : int
    activation : str
    method : str or None
        None where none was chosen yet.
    """

    objective: Objective
    n_outputs: int
    activation: str = "relu"
    method: str | None = None

    def check(self) -> None:
        """Raise ValueError, with the things that do not go together and what to do, if there are such."""
        for part, need in self._unmet():
            missing = sorted(need)
            lacking, remedies = zip(*(self._lacks(ability) for ability in missing), strict=True)
            words = " or ".join(WORDS[ability] for ability in missing)
            advice = ", or ".join(dict.fromkeys([*self._instead(part), *remedies]))
            raise ValueError(
                f"{part}={self._parts[part][0]!r} does not go with {' and '.join(dict.fromkeys(lacking))}: it needs "
                f"{words}; use {advice}"
            )

    @cached_property
    def _parts(self) -> dict[str, tuple[Any, Needs]]:
        """What needs something of the rest, and what it needs."""
        architecture, activation = self.objective.architecture, ACTIVATIONS[self.activation]
        parts: dict[str, tuple[Any, Needs]] = {
            "architecture": (architecture.plain, architecture.needs),
            "activation": (self.activation, activation.needs),
        }
        if self.objective.bias == FREE:
            parts = {"bias": (FREE, needs("free biases", "intercept")), **parts}
        if self.method is not None and not activation.gated:  # gates leave nothing for a method to choose
            parts["method"] = (self.method, METHODS[self.method].needs)
        return parts

    @cached_property
    def _offered(self) -> frozenset[Ability]:
        """All that this combination can do."""
        objective = self.objective
        there = offered(objective.acting_loss, self.n_outputs, objective.fit_intercept)
        can = objective.architecture.can
        if objective.bias == FREE:
            can &= FreeBias.can
        return can | there | ({"weight decay"} if objective.beta > 0 else set())

    def _unmet(self) -> Iterator[tuple[str, frozenset[Ability]]]:
        """Which part needs what that is not there."""
        for part, (_, needed) in self._parts.items():
            yield from ((part, need) for need in needed if not need & self._offered)

    def _lacks(self, ability: Ability) -> tuple[str, str]:
        """What lacks this ability, as the user has set it, and what to set it to."""
        loss = self.objective.loss
        if ability in OF_LOSS and not getattr(loss, OF_LOSS[ability]):
            others = (repr(name) for name, other in LOSSES.items() if getattr(other, OF_LOSS[ability]))
            return f"loss={loss.name!r}", f"loss={' or '.join(others)}"
        if ability in OF_LOSS or ability == "weight decay":
            return "beta=0", "beta > 0"
        if ability == "one output":
            return f"{self.n_outputs} outputs", "one network for each output"
        if ability in ("no intercept", "intercept"):
            there = ability == "no intercept"
            return f"fit_intercept={there}", f"fit_intercept={not there}"
        if self.objective.bias == FREE and ability in self.objective.architecture.can:
            return f"bias={FREE!r}", "bias=True"
        return f"architecture={self.objective.architecture.plain!r}", "another architecture"

    def _instead(self, part: str) -> list[str]:
        """The other activations or methods in the place of this one with which all goes together."""
        others: dict[str, Iterable[Any]] = {"activation": ACTIVATIONS, "method": METHODS}
        suited = [repr(v) for v in others.get(part, ()) if not any(replace(self, **{part: v})._unmet())]
        return [f"{part}={' or '.join(suited)}"] if suited else []
