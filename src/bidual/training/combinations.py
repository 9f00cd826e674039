"""What goes together, checked before any arithmetic: the one gate that every training passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bidual.atoms.abilities import OF_LOSS, WORDS, Ability, Needs
from bidual.losses import LOSSES
from bidual.solvers import METHODS
from bidual.training.activations import ACTIVATIONS

if TYPE_CHECKING:
    from bidual.training.objective import Objective


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
            "architecture": (architecture, architecture.needs),
            "activation": (self.activation, activation.needs),
        }
        if self.method is not None and not activation.gated:  # gates leave nothing for a method to choose
            parts["method"] = (self.method, METHODS[self.method].needs)
        return parts

    @cached_property
    def _offered(self) -> frozenset[Ability]:
        """All that this combination can do."""
        objective = self.objective
        there: dict[Ability, bool] = {
            "one output": self.n_outputs == 1,
            "no intercept": not objective.fit_intercept,
            "weight decay": objective.beta > 0,
        }
        there |= {ability: getattr(objective.acting_loss, name) for ability, name in OF_LOSS.items()}
        return objective.architecture.can | {ability for ability, holds in there.items() if holds}

    def _unmet(self) -> Iterator[tuple[str, frozenset[Ability]]]:
        """Which part needs what that is not there."""
        for part, (_, needs) in self._parts.items():
            yield from ((part, need) for need in needs if not need & self._offered)

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
        if ability == "no intercept":
            return "fit_intercept=True", "fit_intercept=False"
        return f"architecture={self.objective.architecture!r}", "another architecture"

    def _instead(self, part: str) -> list[str]:
        """The other activations or methods in the place of this one with which all goes together."""
        others: dict[str, Iterable[Any]] = {"activation": ACTIVATIONS, "method": METHODS}
        suited = [repr(v) for v in others.get(part, ()) if not any(replace(self, **{part: v})._unmet())]
        return [f"{part}={' or '.join(suited)}"] if suited else []
