r"""The dual constraint at one point, and what it means to have bounded it.

For a dual point V and :math:`G = A^T V` the constraint of the dual (003 Theorem 6) asks for

.. math:: g(V) = \max_{\|u\| \le 1} \| G^T (M u)_+ \|_2 .

Local search finds lower bounds on g; a certificate needs upper bounds, and a proof of each that can be evaluated again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np

from bidual._cores import cores
from bidual._typing import FloatArray
from bidual.problem import Problem

#: Directions improved by an ascent before the search begins.
_STARTS = 12
#: Every bound is raised by this much, relative to itself, on top of the slack of the rows.
INFLATION = 1e-10


@cache
def threads() -> ThreadPoolExecutor:
    """Threads for compiled work, one for each core."""
    return ThreadPoolExecutor(cores(), thread_name_prefix="bidual-oracle")


@dataclass(frozen=True)
class DualConstraint:
    r"""The function :math:`u \mapsto \|G^T (X u)_+\|` in few coordinates and without idle rows.

    Attributes
    ----------
    X : ndarray, shape (N, r)
        The distinct rows of M that carry weight, along the principal axes of the row space of M.
    G : ndarray, shape (N, C)
        Their weights; equal rows are taken together, which changes nothing and tightens every relaxation.
    basis : ndarray, shape (p, r)
        Orthonormal; ``basis @ u`` is the direction u in the coordinates of M.
    slack : float
        What rounding and the change of coordinates may hide from a bound.
    """

    X: FloatArray
    G: FloatArray
    basis: FloatArray
    slack: float

    @classmethod
    def at(cls, problem: Problem, V: FloatArray) -> DualConstraint:
        """The constraint of ``problem`` at the dual point ``V (n, C)``."""
        V = np.asarray(V, dtype=np.float64)
        if V.shape != problem.Y.shape:
            raise ValueError(f"V must have the shape of the targets, {problem.Y.shape}; got {V.shape}")
        if not np.isfinite(V).all():
            raise ValueError("V contains NaN or infinity: it is no dual point")
        G, M = problem.spread(V), problem.M
        basis = problem.basis
        if basis.shape[1]:
            basis = basis @ np.linalg.svd(problem.reduced, full_matrices=False)[2].T
        X = M @ basis
        r = X.shape[1]
        # sums over the rows, coordinates, and halvings of cones are rounded
        relative = (len(M) + 4 * r + 200) * np.finfo(float).eps
        lost = np.linalg.norm(M - X @ basis.T, axis=1) + relative * problem.row_norms
        slack = float(np.linalg.norm(G, axis=1) @ lost)
        M, group = np.unique(M, axis=0, return_inverse=True)
        X = M @ basis
        merged = np.zeros((len(M), G.shape[1]))
        np.add.at(merged, group.ravel(), G)
        used = X.any(axis=1) & merged.any(axis=1)
        return cls(np.ascontiguousarray(X[used]), np.ascontiguousarray(merged[used]), basis, slack)

    @property
    def rank(self) -> int:
        """Dimension of u."""
        return int(self.X.shape[1])

    @property
    def n_outputs(self) -> int:
        """Number C of outputs."""
        return int(self.G.shape[1])

    @cached_property
    def row_norms(self) -> FloatArray:
        """Norms of the rows of X."""
        return np.linalg.norm(self.X, axis=1)

    def value(self, u: FloatArray) -> float:
        """The function at ``u / norm(u)``; zero at zero."""
        size = float(np.linalg.norm(u))
        return float(np.linalg.norm(self.G.T @ np.maximum(self.X @ u, 0.0))) / size if size > 0 else 0.0

    def safe(self, bound: float) -> float:
        """A bound in exact arithmetic on ``X`` as a bound on the constraint itself."""
        return float(bound * (1.0 + INFLATION) + self.slack)

    def start(self, incumbent: FloatArray | None = None) -> FloatArray:
        """A good direction: ascents from the best of ``incumbent`` (in the coordinates of M), axes and rows."""
        p, r = self.basis.shape
        heaviest = np.argsort(-np.linalg.norm(self.G, axis=1) * self.row_norms)[:10]
        axes, rows = np.eye(r)[:10], self.X[heaviest]
        starts = np.vstack([axes, -axes, rows, -rows])
        if incumbent is not None:
            given = np.atleast_2d(np.asarray(incumbent, dtype=np.float64))
            if given.shape[1] != p or not np.isfinite(given).all():
                raise ValueError(f"incumbent must hold finite directions with {p} coordinates, got shape {given.shape}")
            starts = np.vstack([given @ self.basis, starts])
        values = [self.value(u) for u in starts]
        best = starts[np.argsort(values)[::-1][:_STARTS]]
        return max((self.ascend(u) for u in best), key=self.value, default=np.zeros(r))

    def ascend(self, u: FloatArray, steps: int = 30) -> FloatArray:
        """A better direction near ``u``, by steps along the gradient that are shortened when they fail."""
        size = float(np.linalg.norm(u))
        if size == 0.0:
            return u
        u, length = u / size, 1.0
        best = self.value(u)
        for _ in range(steps):
            z = self.X @ u
            c = self.X.T @ ((z > 0) * (self.G @ (self.G.T @ np.maximum(z, 0.0))))
            size = float(np.linalg.norm(c))
            if size == 0.0 or length < 1e-4:
                break
            moved = u + length * c / size
            moved /= max(float(np.linalg.norm(moved)), np.finfo(float).tiny)
            value = self.value(moved)
            if value > best:
                u, best, length = moved, value, 2.0 * length
            else:
                length *= 0.3
        return u


class Proof(ABC):
    """Everything needed to evaluate an upper bound again, without the search that found it."""

    #: The name in files.
    kind: ClassVar[str]

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """A bound on the constraint of ``problem`` at ``V``."""
        if not problem.plain:
            raise ValueError(f"a proof by {self.kind} says nothing about the neurons of this architecture")
        return self.evaluate(DualConstraint.at(problem, V))

    @abstractmethod
    def evaluate(self, constraint: DualConstraint) -> float:
        """The upper bound on the constraint that this proves, slack included. Holds for *any* constraint."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: dict[str, Any]) -> Proof:
        """Inverse of :meth:`to_dict`."""


@dataclass(frozen=True)
class OracleBound:
    r"""Both sides of :math:`g(V) = \max_{\|u\| \le 1} \|G^T (M u)_+\|`.

    Attributes
    ----------
    value : float
        The largest value found, attained at the witness.
    bound : float
        An upper bound on g(V), proven.
    witness : ndarray, shape (p,)
        A direction of norm one in the coordinates of the columns of ``problem.M`` (zero if nothing was found): the
        neuron whose addition helps most.
    method : str
        How the bound was proven, in words.
    proof : Proof
    """

    value: float
    bound: float
    witness: FloatArray
    method: str
    proof: Proof

    @property
    def ratio(self) -> float:
        """``bound / value``, at least one."""
        return max(1.0, self.bound / self.value) if self.value > 0 else np.inf if self.bound > 0 else 1.0

    @property
    def rigorous(self) -> bool:
        """Whether anything was proven."""
        return bool(np.isfinite(self.bound))

    def recheck(self, problem: Problem, V: FloatArray) -> float:
        """The upper bound, evaluated again from the proof alone."""
        return self.proof.evaluate(DualConstraint.at(problem, V))
