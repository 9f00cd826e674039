r"""The dual constraint at one point, and what it means to have bounded it.

For a dual point V and :math:`G = A^T V` the constraint of the dual (003 Theorem 6) asks for

.. math:: g(V) = \max_{\|u\| \le 1} \| G^T (M u)_+ \|_2 .

Local search finds lower bounds on g; a certificate needs upper bounds, and a proof of each that can be evaluated again.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bidual._util.rounding import VANISHED, gamma, stretch
from bidual._util.typing import FloatArray, IntArray
from bidual.bounds.proof import Proof
from bidual.problem import Problem

#: Directions improved by an ascent before the search begins.
_STARTS = 12


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
        Orthonormal up to rounding; ``basis @ u`` is the direction u in the coordinates of M.
    stretch : float
        At least its spectral norm.
    slack : float
        What rounding and the change of coordinates may hide from a bound, see :meth:`safe`.
    group : ndarray of int, shape (N',)
        For every row of M the row of X that it is taken together with, -1 for idle ones.
    """

    X: FloatArray
    G: FloatArray
    basis: FloatArray
    stretch: float
    slack: float
    group: IntArray

    @classmethod
    def at(cls, problem: Problem, V: FloatArray, group: IntArray | None = None) -> DualConstraint:
        r"""The constraint of ``problem`` at the dual point ``V (n, C)``.

        Rows are taken together that are equal, or as a ``group`` says: what they differ by is slack then.

        With the matrices X, B, G as they are in memory, whatever rounding has made of them, and for every u in the unit
        ball, :math:`m_i^T u = x_i^T (B^T u) + (m_i - B x_i)^T u`, where :math:`x_i` is the row of X that stands for
        row i. So the constraint is at most that of (X, G), times :math:`\|B\|_2`, plus
        :math:`\sum_i \|(|A|^T|V|)_i\| \|m_i - B x_i\|`. The residuals are computed up to
        :math:`\gamma_{r+1} (\|m_i\| + \|x_i\| \|B\|_F)`. G sums up at most n + N terms, an error of
        :math:`\gamma_{n+N} \sum_i \|(|A|^T|V|)_i\| \|m_i\|`; a few units more are those of the data (M and V were
        divided by scales) and of the norms.
        """
        if "plain oracle" not in problem.atoms.can:
            raise ValueError(
                "the oracles know neurons that compute (Mu)_+ on the rows of M, pooled: no normalised ones, no branches"
            )
        V = np.asarray(V, dtype=np.float64)
        if V.shape != problem.Y.shape:
            raise ValueError(f"V must have the shape of the targets, {problem.Y.shape}; got {V.shape}")
        if not np.isfinite(V).all():
            raise ValueError("V contains NaN or infinity: it is no dual point")
        M, weights, basis = problem.atoms.M, problem.atoms.spread(V), problem.atoms.basis
        if basis.shape[1]:
            basis = basis @ problem.atoms.axes[1].T
        p, r = basis.shape
        X = M @ basis
        group = _equal_rows(X, M, weights) if group is None else _checked_group(group, len(M))
        kept, first = group >= 0, _first_of(group)
        G, mass = np.zeros((len(first), weights.shape[1])), problem.atoms.loads(V)
        np.add.at(G, group[kept], weights[kept])
        residual = np.linalg.norm(M[kept] - X[first][group[kept]] @ basis.T, axis=1)
        relative = gamma((r + 2) * (3 + np.sqrt(r))) + gamma(len(V) + 2 * len(M) + 2 * p + 16)
        slack = float(mass[kept] @ residual + relative * (mass @ problem.atoms.row_norms)) + _idle(
            M[~kept], weights[~kept]
        )
        slack = slack * (1.0 + gamma(len(M) + p + 4)) + problem.atoms.vanished(V)
        return cls(np.ascontiguousarray(X[first]), G, basis, stretch(basis), slack, group)

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

    @cached_property
    def mass(self) -> float:
        r""":math:`\sum_i \|g_i\| \|x_i\|`, not rounded down: at least the slope of the function, and its values."""
        size = float(np.linalg.norm(self.G, axis=1) @ self.row_norms)
        return size * (1.0 + gamma(len(self.X) + self.rank + self.n_outputs + 4)) + VANISHED * bool(len(self.X))

    def safe(self, bound: float, units: float = 0.0) -> float:
        r"""A bound on the function of X and G as one on the constraint, see :meth:`at`.

        It may be off by :math:`\gamma_{units}` of the :attr:`mass`.
        """
        return float((bound + gamma(units + 4) * self.mass) * self.stretch + self.slack)

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


def _equal_rows(X: FloatArray, M: FloatArray, G: FloatArray) -> IntArray:
    """Equal rows of M numbered in the order of their appearance, -1 where a row or its weight is zero."""
    group = np.unique(M, axis=0, return_inverse=True)[1].ravel()
    merged = np.zeros((len(M), G.shape[1]))
    np.add.at(merged, group, G)
    used = X.any(axis=1) & merged[group].any(axis=1)
    _, first, group[used] = np.unique(group[used], return_index=True, return_inverse=True)
    group[used] = np.argsort(np.argsort(first, kind="stable"), kind="stable")[group[used]]
    group[~used] = -1
    return group


def _checked_group(group: IntArray, n_rows: int) -> IntArray:
    """A group from a file, if it is one of so many rows."""
    numbers = np.unique(group[group >= 0])
    if len(group) != n_rows or not np.array_equal(numbers, np.arange(len(numbers))):
        raise ValueError(f"the proof is about {len(group)} rows, these data have {n_rows}: give those it was made for")
    return group


def _idle(M: FloatArray, weights: FloatArray) -> float:
    """What rows that are left out may add to the constraint: where equal ones cancel each other, nothing."""
    rows, group = np.unique(M, axis=0, return_inverse=True)
    merged = np.zeros((len(rows), weights.shape[1]))
    np.add.at(merged, group.ravel(), weights)
    return float(np.linalg.norm(merged, axis=1) @ np.linalg.norm(rows, axis=1))


def _first_of(group: IntArray) -> IntArray:
    """The first row of each group."""
    numbers, first = np.unique(group, return_index=True)
    return first[numbers >= 0]


class ConstraintProof(Proof):
    """A proof about the constraint of neurons :math:`A (Mu)_+`, whatever the data."""

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """A bound on the constraint of ``problem`` at ``V``."""
        constraint = self.constraint(problem, V)
        return self.evaluate(constraint) if len(constraint.X) else constraint.safe(0.0)

    def constraint(self, problem: Problem, V: FloatArray) -> DualConstraint:
        """The constraint that the proof is about."""
        return DualConstraint.at(problem, V)

    @abstractmethod
    def evaluate(self, constraint: DualConstraint) -> float:
        """The upper bound on the constraint that this proves, slack included. Holds for *any* constraint."""


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
        A direction of norm one in the coordinates of the columns of M (zero if nothing was found): the
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

    def recheck(self, problem: Problem, V: FloatArray) -> float:
        """The upper bound, evaluated again from the proof alone."""
        return self.proof.bound(problem, V)
