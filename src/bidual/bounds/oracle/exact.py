"""The constraint over all activation patterns of the rows that carry weight, for small rank and few rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bidual.arrangements import Patterns, enumerate_patterns
from bidual.atoms import Relu
from bidual.bounds.oracle.base import ConstraintProof, DualConstraint
from bidual.bounds.patterns import pattern_bound
from bidual.losses import get_loss
from bidual.problem import Problem


@dataclass(frozen=True)
class WeightedPatternProof(ConstraintProof):
    """All activation patterns of the rows that carry weight: nothing needs to be stored."""

    patterns: Patterns | None = field(default=None, compare=False, repr=False)
    kind = "weighted_patterns"

    def evaluate(self, constraint: DualConstraint) -> float:
        """The maximum over all patterns, with slack."""
        return exact_bound(constraint, enumerate_patterns(constraint.X) if self.patterns is None else self.patterns)


def exact_bound(constraint: DualConstraint, patterns: Patterns) -> float:
    """The maximum for one output over ``patterns``, which must be complete, with slack."""
    if constraint.n_outputs != 1:
        raise ValueError(f"activation patterns bound one output, not {constraint.n_outputs}: use method='cones'")
    N = len(constraint.X)
    if not N:
        return constraint.safe(0.0)
    # The constraint is that of any problem on these rows, at the dual point G.
    problem = Problem(Relu(constraint.X), constraint.G, np.full(N, 1.0 / N), get_loss("squared"), 1.0, False)
    return constraint.safe(pattern_bound(problem, patterns, constraint.G)[1])
