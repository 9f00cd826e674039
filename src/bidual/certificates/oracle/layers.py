"""The constraint of branches over all their cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bidual._typing import FloatArray
from bidual.arrangements.layered import enumerate_layered
from bidual.certificates.layered import LayeredBounds
from bidual.certificates.oracle.base import DualConstraint, Proof
from bidual.problem import ParallelProblem, Problem


@dataclass(frozen=True)
class LayerProof(Proof):
    """All activation patterns of both layers of a branch: nothing needs to be stored."""

    kind = "layers"

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The maximum over all cells, with slack."""
        if not isinstance(problem, ParallelProblem) or len(problem.tree.widths) > 1:
            raise ValueError("a proof by layers is about parallel networks of three layers")
        cells = enumerate_layered(problem.reduced, problem.tree.leaves)
        return LayeredBounds(problem, cells).lower_bound(V).oracle_bound

    def evaluate(self, constraint: DualConstraint) -> float:
        """Not from the constraint of plain neurons."""
        raise ValueError("a proof by layers is about parallel networks")

    def to_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LayerProof:
        """Inverse of :meth:`to_dict`."""
        return cls()
