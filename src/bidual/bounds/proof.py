"""What it means that a bound is proven."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from bidual._util.typing import FloatArray
from bidual.bounds import parsing
from bidual.problem import Problem


class Proof(ABC):
    """Everything needed to evaluate an upper bound on the dual constraint again, without the search that found it.

    A bound is proven if and only if it carries one.
    """

    #: The name in files.
    kind: ClassVar[str]
    #: Whether a file can hold it.
    stored: ClassVar[bool] = True
    #: Whether proving has found the very digits that :meth:`bound` gives, so that it need not be called once more.
    settled: ClassVar[bool] = False
    #: All kinds of proofs, by name; a subclass joins them by being defined.
    kinds: ClassVar[dict[str, type[Proof]]] = {}

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            Proof.kinds[cls.kind] = cls

    def scope(self, problem: Problem) -> str:
        """To which networks the constraint is restricted, as a certificate's scope names it; "" if it is not."""
        return ""

    @abstractmethod
    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The upper bound on the constraint of ``problem`` at ``V`` that this proves, slack included."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings; nothing, unless there is something to store."""
        return {}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Proof:
        """Inverse of :meth:`to_dict`."""
        return cls()


class Unstored(Proof):
    """A proof that is made while training and that no file holds."""

    stored = False

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """Not without training."""
        raise ValueError(f"a proof by {self.kind} is made while training: train again to have it again")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Proof:
        """Not from a file."""
        raise ValueError(f"a proof by {cls.kind} cannot be read from a file")


@dataclass(frozen=True)
class FormulaProof(Unstored):
    """A theorem whose conditions were checked on the data, with the dual constraint in closed form."""

    kind = "formula"
    theorem: str


class UnfinishedProof(Unstored):
    """A proof that was found, but not evaluated the way a file holds it when the time was up."""

    kind = "unfinished"


@dataclass(frozen=True)
class NormProof(Proof):
    """Norms of the rows and of their weights alone: :meth:`bidual.atoms.Atoms.norm_limit`."""

    kind = "norms"
    settled = True

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The limit by norms."""
        return problem.atoms.norm_limit(V)


def proof_by(kind: str, *found: Any) -> Proof:
    """A proof of that kind, made of what a search has ``found``: searches and proofs need not know each other."""
    return Proof.kinds[kind](*found)


def proof_to_dict(proof: Proof) -> dict[str, Any]:
    """A proof as plain numbers, lists and strings."""
    return {"kind": proof.kind, **proof.to_dict()}


def proof_from_dict(data: Any) -> Proof:
    """Inverse of :func:`proof_to_dict`."""
    kind = parsing.text(data, "kind")
    if kind not in Proof.kinds:
        raise ValueError(f"unknown kind of proof {kind!r}: expected one of {', '.join(map(repr, sorted(Proof.kinds)))}")
    return Proof.kinds[kind].from_dict(data)
