"""What parts of the library need of each other, and what they can do.

Kinds of neurons and architectures state what they ``can`` do; methods, activations and architectures state what they
need. :class:`bidual.training.objective.Combination` compares the two before anything is computed.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Ability: TypeAlias = Literal[
    "all patterns",
    "finite loss",
    "finite program",
    "formula",
    "free biases",
    "gates",
    "intercept",
    "no intercept",
    "one output",
    "ordinary neurons",
    "plain oracle",
    "shared neurons",
    "smooth loss",
    "squared loss",
    "weight decay",
]

#: Abilities in words.
WORDS: dict[Ability, str] = {
    "all patterns": "activation patterns that can be enumerated",
    "finite loss": "a loss that is finite everywhere",
    "finite program": "a finite program on activation patterns",
    "formula": "a closed form",
    "free biases": "neurons whose biases may be free",
    "gates": "neurons with gates",
    "intercept": "networks with an intercept",
    "no intercept": "networks without intercept",
    "one output": "a single output",
    "ordinary neurons": "ordinary neurons",
    "plain oracle": "neurons that the oracles know",
    "shared neurons": "neurons of fixed patterns that feed all outputs",
    "smooth loss": "a smooth loss",
    "squared loss": "the squared loss",
    "weight decay": "weight decay",
}
#: Attributes of a loss that stand for abilities.
OF_LOSS: dict[Ability, str] = {"finite loss": "finite", "smooth loss": "smooth", "squared loss": "formula"}

#: Of each set at least one must be there.
Needs: TypeAlias = tuple[frozenset[Ability], ...]


def needs(*alternatives: Ability | tuple[Ability, ...]) -> Needs:
    """All of these; of a tuple one is enough."""
    return tuple(frozenset((one,) if isinstance(one, str) else one) for one in alternatives)


def offered(loss: object, n_outputs: int, fit_intercept: bool) -> frozenset[Ability]:
    """What a loss, so many outputs and networks with or without intercept offer, whatever the neurons are."""
    there: dict[Ability, bool] = {
        "one output": n_outputs == 1,
        "no intercept": not fit_intercept,
        "intercept": fit_intercept,
    }
    there |= {ability: getattr(loss, name) for ability, name in OF_LOSS.items()}
    return frozenset(ability for ability, holds in there.items() if holds)
