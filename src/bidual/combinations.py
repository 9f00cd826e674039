"""What goes together, checked before any arithmetic: the one gate that every training passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from bidual.abilities import Ability, Needs
from bidual.activations import ACTIVATIONS
from bidual.architectures import Architecture
from bidual.losses import LOSSES, Loss
from bidual.solvers import METHODS, NEEDS

#: Abilities in words.
_WORDS: dict[Ability, str] = {
    "all patterns": "activation patterns that can be enumerated",
    "finite loss": "a loss that is finite everywhere",
    "finite program": "a finite program on activation patterns",
    "formula": "a closed form",
    "gates": "neurons with gates",
    "no intercept": "networks without intercept",
    "one output": "a single output",
    "ordinary neurons": "ordinary neurons",
    "smooth loss": "a smooth loss",
    "squared loss": "the squared loss",
    "weight decay": "weight decay",
}
#: Attributes of a loss that stand for abilities.
_OF_LOSS: dict[Ability, str] = {"finite loss": "finite", "smooth loss": "smooth", "squared loss": "formula"}


@dataclass(frozen=True)
class Combination:
    """What is to be trained and how, as far as it is known before any arithmetic.

    Attributes
    ----------
    architecture : Architecture
    loss : Loss
    beta : float
    n_outputs : int
    fit_intercept : bool
    activation : str
    method : str or None
        None where none was chosen yet.
    """

    architecture: Architecture
    loss: Loss
    beta: float
    n_outputs: int
    fit_intercept: bool
    activation: str = "relu"
    method: str | None = None

    def check(self) -> None:
        """Raise ValueError, with the things that do not go together and what to do, if there are such."""
        for part, need in self._unmet():
            missing = sorted(need)
            lacking, remedies = zip(*(self._lacks(ability) for ability in missing), strict=True)
            words = " or ".join(_WORDS[ability] for ability in missing)
            advice = ", or ".join(dict.fromkeys([*self._instead(part), *remedies]))
            raise ValueError(
                f"{part}={getattr(self, part)!r} does not go with {' and '.join(dict.fromkeys(lacking))}: it needs "
                f"{words}; use {advice}"
            )

    @cached_property
    def acting_loss(self) -> Loss:
        """The loss that is minimised; at beta = 0 its limit."""
        return self.loss if self.beta > 0 else self.loss.limit()

    @cached_property
    def _offered(self) -> frozenset[Ability]:
        """All that this combination can do."""
        there: dict[Ability, bool] = {
            "one output": self.n_outputs == 1,
            "no intercept": not self.fit_intercept,
            "weight decay": self.beta > 0,
        }
        there |= {ability: getattr(self.acting_loss, name) for ability, name in _OF_LOSS.items()}
        return self.architecture.can | {ability for ability, holds in there.items() if holds}

    def _unmet(self) -> Iterator[tuple[str, frozenset[Ability]]]:
        """Which part needs what that is not there."""
        activation = ACTIVATIONS[self.activation]
        parts: dict[str, Needs] = {"architecture": self.architecture.needs, "activation": activation.needs}
        if self.method is not None and not activation.gated:  # gates leave nothing for a method to choose
            parts["method"] = NEEDS[self.method]
        yield from ((part, need) for part, needs in parts.items() for need in needs if not need & self._offered)

    def _lacks(self, ability: Ability) -> tuple[str, str]:
        """What lacks this ability, as the user has set it, and what to set it to."""
        if ability in _OF_LOSS and not getattr(self.loss, _OF_LOSS[ability]):
            others = (repr(name) for name, loss in LOSSES.items() if getattr(loss, _OF_LOSS[ability]))
            return f"loss={self.loss.name!r}", f"loss={' or '.join(others)}"
        if ability in _OF_LOSS or ability == "weight decay":
            return "beta=0", "beta > 0"
        if ability == "one output":
            return f"{self.n_outputs} outputs", "one network for each output"
        if ability == "no intercept":
            return "fit_intercept=True", "fit_intercept=False"
        return f"architecture={self.architecture!r}", "another architecture"

    def _instead(self, part: str) -> list[str]:
        """The other activations or methods in the place of this one with which all goes together."""
        others: dict[str, Iterable[Any]] = {"activation": ACTIVATIONS, "method": METHODS}
        suited = [repr(v) for v in others.get(part, ()) if not any(replace(self, **{part: v})._unmet())]
        return [f"{part}={' or '.join(suited)}"] if suited else []
