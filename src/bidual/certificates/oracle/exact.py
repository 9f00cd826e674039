"""The constraint over all activation patterns, for small rank and few rows; and the trivial bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual.arrangements import Patterns, enumerate_patterns
from bidual.certificates.oracle.base import DualConstraint, Proof
from bidual.certificates.patterns import pattern_bound
from bidual.losses import get_loss
from bidual.problem import Problem


@dataclass(frozen=True)
class PatternProof(Proof):
    """All activation patterns: nothing needs to be stored."""

    kind = "patterns"

    def evaluate(self, constraint: DualConstraint) -> float:
        """The maximum over all patterns, with slack."""
        return exact_bound(constraint, enumerate_patterns(constraint.X))

    def to_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PatternProof:
        """Inverse of :meth:`to_dict`."""
        return cls()


def exact_bound(constraint: DualConstraint, patterns: Patterns) -> float:
    """The maximum for one output over ``patterns``, which must be complete, with slack."""
    if constraint.n_outputs != 1:
        raise ValueError(f"activation patterns bound one output, not {constraint.n_outputs}: use method='cones'")
    N = len(constraint.X)
    # The constraint is that of any problem on these rows, at the dual point G.
    problem = Problem(constraint.X, None, constraint.G, np.full(N, 1.0 / N), get_loss("squared"), 1.0, False)
    return constraint.safe(pattern_bound(problem, patterns, constraint.G)[1])


@dataclass(frozen=True)
class NormProof(Proof):
    r"""The triangle inequality: :math:`\sum_i \|G_i\| \|x_i\|`."""

    kind = "norms"

    def evaluate(self, constraint: DualConstraint) -> float:
        """The sum of the norms."""
        return constraint.safe(float(np.linalg.norm(constraint.G, axis=1) @ constraint.row_norms))

    def to_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> NormProof:
        """Inverse of :meth:`to_dict`."""
        return cls()
