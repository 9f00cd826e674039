"""Proofs over activation patterns: all of them, which anybody can list again, or those that are written down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint
from bidual.arrangements import Patterns, enumerate_patterns
from bidual.atoms import Normalised
from bidual.bounds import parsing
from bidual.bounds.normalised import NormalisedBounds
from bidual.bounds.patterns import ConeBounds, gate_bound, spectral_bound
from bidual.bounds.proof import Proof
from bidual.bounds.rowwise import RowwiseBounds
from bidual.problem import Problem


@dataclass(frozen=True)
class AllPatterns(Proof):
    """A proof over all activation patterns; at hand or listed again, they are the same."""

    patterns: Patterns | None = field(default=None, compare=False, repr=False)

    def every(self, problem: Problem) -> Patterns:
        """All patterns of the problem."""
        return enumerate_patterns(problem.atoms.relu_inputs) if self.patterns is None else self.patterns


@dataclass(frozen=True)
class PatternProof(AllPatterns):
    r"""The largest value over all activation patterns, for one output.

    On the cone of pattern i the constraint is :math:`\max c^T u \le \|c + M^T (2 D_i - I) \lambda\|` for every
    :math:`\lambda \ge 0`, with :math:`c = M^T D_i A^T v`.
    """

    kind = "patterns"

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The maximum over all cones, with slack."""
        if problem.n_coefficients != 1 or "plain oracle" not in problem.atoms.can:
            raise ValueError("a proof by patterns is about neurons with one output")
        return ConeBounds(problem, self.every(problem)).own(V).limit


@dataclass(frozen=True)
class SpectralProof(AllPatterns):
    r"""Spectral norms :math:`\|V^T A D_i M\|_2` over all activation patterns, for several outputs."""

    kind = "spectral"

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The largest norm, with slack."""
        if "plain oracle" not in problem.atoms.can or problem.n_coefficients != problem.n_outputs:
            raise ValueError("a proof by spectral norms is about neurons that compute A (M u)_+")
        return spectral_bound(problem, self.every(problem), V)[1]


@dataclass(frozen=True)
class NormalisedProof(AllPatterns):
    """The constraint of neurons that are normalised after the ReLU, over all activation patterns."""

    kind = "normalised"

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The maximum over all cones, with slack."""
        normalised = problem.of(Normalised)
        if normalised is None:
            raise ValueError("a proof of the kind 'normalised' is about batch normalisation after the ReLU")
        return _beyond_doubt(NormalisedBounds(normalised, self.every(problem)), V)


@dataclass(frozen=True)
class WrittenPatterns(Proof):
    """A proof over patterns that are written down: which rows are active in each."""

    patterns: Patterns

    def given(self, problem: Problem) -> Patterns:
        """The patterns, if they are of as many rows as the problem has."""
        if self.patterns.active.shape[1] != len(problem.atoms.M):
            raise ValueError(f"the patterns of the certificate have {self.patterns.active.shape[1]} rows, "
                             f"these data {len(problem.atoms.M)}: give the data it was made for")  # fmt: skip
        return self.patterns

    def to_dict(self) -> dict[str, Any]:
        """The bits."""
        return {"active": parsing.pack_bits(self.patterns.active)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> WrittenPatterns:
        """Inverse of :meth:`to_dict`."""
        active = parsing.unpack_bits(data, "active")
        return cls(Patterns(active, np.zeros((len(active), 0))))


@dataclass(frozen=True)
class SampledProof(WrittenPatterns):
    """The constraint over the cones of the patterns in use; of several outputs, over neurons that feed one of them."""

    kind = "sampled"

    def scope(self, problem: Problem) -> str:
        """Networks on these patterns."""
        return "patterns" if problem.n_outputs == 1 else "patterns, separate"

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The maximum over their cones, with slack."""
        patterns = self.given(problem)
        normalised = problem.of(Normalised)
        if normalised is not None:
            return _beyond_doubt(NormalisedBounds(normalised, patterns), V)
        if "plain oracle" not in problem.atoms.can or problem.n_coefficients != problem.n_outputs:
            raise ValueError("a proof of the kind 'sampled' is about neurons that compute A (M u)_+")
        if len(problem.atoms.reduced) > 4 * problem.atoms.reduced.shape[1]:
            return RowwiseBounds(problem, patterns).bound(V, _in_time).limit
        return ConeBounds(problem, patterns).own(V).limit


@dataclass(frozen=True)
class GateProof(WrittenPatterns):
    r"""All gates: :math:`\max_i \|M^T D_i A^T V\|_F` is the constraint of a gated network itself."""

    kind = "gates"

    def scope(self, problem: Problem) -> str:
        """Networks with these gates."""
        return "gates"

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The largest norm, with slack."""
        if "plain oracle" not in problem.atoms.can or problem.n_coefficients != problem.n_outputs:
            raise ValueError("a proof by gates is about gated neurons that compute A D_i M w")
        return gate_bound(problem, self.given(problem), V)


def _in_time() -> bool:
    """Never to be stopped halfway: a stored proof is evaluated to its end, or not at all."""
    checkpoint()
    return False


def _beyond_doubt(bounds: NormalisedBounds, V: FloatArray) -> float:
    found = bounds.own(V)
    return found.limit if found.proven else np.inf
