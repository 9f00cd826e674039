"""What parts of the library need of each other, and what they can do.

Kinds of neurons and architectures state what they ``can`` do; methods, activations and architectures state what they
need. :mod:`bidual.combinations` compares the two before anything is computed.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Ability: TypeAlias = Literal[
    "all patterns",
    "finite loss",
    "finite program",
    "formula",
    "gates",
    "no intercept",
    "one output",
    "ordinary neurons",
    "smooth loss",
    "squared loss",
    "weight decay",
]

#: Of each set at least one must be there.
Needs: TypeAlias = tuple[frozenset[Ability], ...]


def needs(*alternatives: Ability | tuple[Ability, ...]) -> Needs:
    """All of these; of a tuple one is enough."""
    return tuple(frozenset((one,) if isinstance(one, str) else one) for one in alternatives)
