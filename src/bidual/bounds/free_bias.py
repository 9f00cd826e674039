r"""The dual constraint of neurons with free biases, by that of ordinary ones.

With :math:`f = (1 + R^2 / s^2)^{1/2}` the constraint is at most f times that of ordinary neurons on the rows
:math:`(x_i, s)` (:meth:`bidual.atoms.FreeBias.ordinary`), whatever the price s of a bias. So every dual point of theirs
with the limit :math:`\beta / f` is one here, and every proof about ordinary neurons becomes one about free biases. Over
activation patterns s may be so large that nothing is lost; the relaxations of oracles become loose with s, which costs
them about as much as f does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bidual._util.typing import FloatArray
from bidual.arrangements import Patterns, enumerate_patterns
from bidual.atoms import FreeBias, Relu
from bidual.bounds import parsing
from bidual.bounds.dual import Bound
from bidual.bounds.patterns import ConeBounds
from bidual.bounds.proof import Proof, proof_from_dict, proof_to_dict
from bidual.bounds.stored import AllPatterns, GateProof
from bidual.problem import Problem

#: Prices of a bias, in units of the largest row: over patterns, where a high one costs nothing but digits; of branch
#: and bound, first one that makes the cones fat, then one that loses nothing; and of relaxations.
SHARP, BRANCHING, RELAXED = 1e4, (10.0, 100.0), (1.0,)


@dataclass(frozen=True)
class Priced:
    """A problem with free biases at a price: ordinary neurons with the limit :math:`\\beta / f`.

    Attributes
    ----------
    free : Problem
    price : float
        s.
    problem : Problem
        That of ordinary neurons.
    factor : float
        f.
    """

    free: Problem[FreeBias]
    price: float
    problem: Problem[Relu]
    factor: float

    @classmethod
    def at(cls, free: Problem[FreeBias], multiple: float) -> Priced:
        """A price in units of the largest row."""
        return cls.of(free, multiple * (free.atoms.radius or float(free.atoms.M[0, -1])))

    @classmethod
    def of(cls, free: Problem[FreeBias], price: float) -> Priced:
        """A price."""
        ordinary, factor = free.atoms.ordinary(price)
        problem = Problem(ordinary, free.Y, free.w, free.loss, free.beta / factor, free.fit_intercept)
        return cls(free, price, problem, factor)

    def ordinary(self, U: FloatArray) -> FloatArray:
        """Hidden weights in the coordinates of the rows at the price."""
        scale = np.ones(U.shape[1])
        scale[-1] = self.free.atoms.M[0, -1] / self.price
        return U * scale

    def patterns(self, found: Patterns) -> Patterns:
        """Those of the rows (x_i, k) as those of the rows at the price: rows that are one within an angle.

        The angle counts :math:`\\|m_i\\| \\|(u, b / k)\\| \\le (R^2 + k^2) / k` in the one, at least s in the other.
        """
        R, k = self.free.atoms.radius, float(self.free.atoms.M[0, -1])
        return replace(found, tol=2.0 * found.tol * (R * (R / k) + k) / self.price)

    def proven(self, bound: Bound) -> Bound:
        """A bound on the problem of ordinary neurons as one on that of free biases."""
        if isinstance(bound.proof, PricedProof):
            return bound
        proof = None if bound.proof is None else PricedProof(self.price, bound.proof)
        return replace(bound, limit=bound.limit * self.factor, proof=proof)


@dataclass(frozen=True)
class PricedProof(Proof):
    """A proof about ordinary neurons whose biases have a price."""

    kind = "priced"
    price: float
    inner: Proof

    @property
    def stored(self) -> bool:  # type: ignore[override]
        """As that is."""
        return self.inner.stored

    def scope(self, problem: Problem) -> str:
        """That of the proof."""
        return self.inner.scope(problem)

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """Its bound times f."""
        free = problem.of(FreeBias)
        if free is None or not self.price > 0 or isinstance(self.inner, PricedProof | GateProof):
            raise ValueError("a proof at a price is about networks with free biases, without gates")
        priced = Priced.of(free, self.price)
        inner = self.inner
        if isinstance(inner, AllPatterns):  # rows at a high price are nearly parallel: patterns are listed without it
            inner = replace(inner, patterns=priced.patterns(enumerate_patterns(free.atoms.relu_inputs)))
        return priced.factor * inner.bound(priced.problem, V)

    def to_dict(self) -> dict[str, Any]:
        """The price, and that proof."""
        return {"price": self.price, "inner": proof_to_dict(self.inner)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PricedProof:
        """Inverse of :meth:`to_dict`."""
        return cls(parsing.number(data, "price"), proof_from_dict(parsing.field(data, "inner")))


class FreeBiasBounds(ConeBounds):
    """Bounds of the constraint over the cones, those of ordinary neurons at a high price."""

    kind = FreeBias

    def __init__(self, problem: Problem[FreeBias], patterns: Patterns) -> None:
        self.priced = Priced.at(problem, SHARP)
        super().__init__(self.priced.problem, self.priced.patterns(patterns))

    def lower_bound(self, V: FloatArray, known: FloatArray | None = None) -> Bound:
        """See :meth:`ConeBounds.lower_bound`."""
        return self.priced.proven(super().lower_bound(V, known))

    def own(self, V: FloatArray, known: FloatArray | None = None) -> Bound:
        """See :meth:`ConeBounds.own`."""
        return self.priced.proven(super().own(V, known))
