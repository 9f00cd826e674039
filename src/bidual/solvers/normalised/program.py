"""The convex program of neurons that are normalised after the ReLU."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp

from bidual._typing import FloatArray, IntArray
from bidual.arrangements import Patterns
from bidual.certificates import WhiteBlocks
from bidual.problem import Neurons, NormalisedProblem
from bidual.solvers.conic import ConicResult, FiniteProgram


class NormalisedProgram(FiniteProgram):
    r"""The convex program of 000 Theorem 6.1 on fixed patterns, with the null spaces that eq. 20 leaves out.

    .. math:: \min \; L\Big(\sum_{i, \pm} \pm k (B_i s_i^\pm + a_i^\pm 1) + 1 b\Big)
              + \beta \sum_{i, \pm} \|(s_i^\pm, a_i^\pm)\|
              \quad \text{s.t.} \quad (2 D_i - I) X (V_i \Sigma_i^{-1} s_i^\pm + N_i t_i^\pm) \ge 0 .
    """

    def __init__(self, problem: NormalisedProblem, patterns: Patterns) -> None:
        self.blocks = WhiteBlocks(problem, patterns)
        super().__init__(self.blocks.plain, patterns)
        self.charged = self.blocks.charged

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the block weights: signs, outputs, patterns, coordinates (s, t, a)."""
        return 2, 1, len(self.patterns), self.rows.shape[1] + 1

    def design(self) -> sp.csc_array:
        """``k [B_i, 1]`` of all patterns, coordinate-major: ``(n, (r + 1) P)``."""
        P, n, r = self.blocks.B.shape
        columns = np.concatenate([self.blocks.B.transpose(2, 0, 1).reshape(r * P, n), np.ones((P, n))])
        return sp.csc_array(self.blocks.k * columns.T)

    def cone_matrix(self) -> sp.csc_array:
        """Inward normals of the cones, ``(Q, (r + 1) P)``."""
        pattern, row = self.cone_pairs
        normals = self.blocks.normals(pattern, row)
        Q, r = normals.shape
        P = len(self.patterns)
        columns = np.arange(r) * P + pattern[:, None]
        rows = np.repeat(np.arange(Q), r)
        return sp.csc_array((normals.ravel(), (rows, columns.ravel())), shape=(Q, (r + 1) * P))

    def neurons(self, result: ConicResult) -> Neurons:
        """One neuron per block: the direction of q with length ``norm(s)``, and the shift a."""
        blocks = self.blocks
        z = result.Z[:, 0]  # (2, P, r + 1)
        q = np.einsum("pkj,spj->spk", blocks.E, z[..., :-1])
        gamma = np.linalg.norm(z[..., :-1] * blocks.charged[:, :-1], axis=-1, keepdims=True)
        lengths = np.linalg.norm(q, axis=-1, keepdims=True)
        q = q * gamma / np.where(lengths > 0, lengths, 1.0)
        U = np.concatenate([q @ blocks.plain.basis.T, z[..., -1:]], axis=-1)
        signs = np.repeat([1.0, -1.0], len(blocks.E))[:, None]
        return Neurons(U.reshape(len(signs), U.shape[-1]), signs, result.intercept)

    def known_bounds(self, V: FloatArray, result: ConicResult) -> FloatArray:
        """None: multipliers of the solver leave the null spaces only approximately free."""
        return np.full(self.shape[:3], np.inf)


class AtomProgram(FiniteProgram):
    r"""The convex problem in the scales and shifts of neurons with fixed directions: the corrective step.

    .. math:: \min \; L\Big(\sum_{j, \pm} \pm k (c_j^\pm z_j + a_j^\pm 1) + 1 b\Big)
              + \beta \sum_{j, \pm} \|(c_j^\pm, a_j^\pm)\| \quad \text{s.t.} \quad c_j^\pm \ge 0,

    where :math:`z_j` is the standardised :math:`(X q_j)_+`.
    """

    def __init__(self, problem: NormalisedProblem, directions: FloatArray) -> None:
        lengths = np.linalg.norm(directions, axis=1, keepdims=True)
        self.units = np.column_stack([directions / lengths, np.zeros(len(directions))])
        super().__init__(problem, Patterns(np.zeros((len(directions), 0), dtype=bool), directions))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the block weights: signs, outputs, directions, coordinates (c, a)."""
        return 2, 1, len(self.units), 2

    @cached_property
    def cone_pairs(self) -> tuple[IntArray, IntArray]:
        """Directions, each with the row of its own."""
        each = np.arange(len(self.units))
        return each, each

    def memory(self) -> int:
        """Estimated bytes that assembling and factorising will take: all columns are full."""
        n, P = len(self.problem.Y), len(self.units)
        return super().memory() + 16 * 4 * 4 * n * P

    def design(self) -> sp.csc_array:
        """``k [z_j, 1]`` of all directions, coordinate-major: ``(n, 2 P)``."""
        shifts = np.repeat(self.problem.M[:, -1:], len(self.units), axis=1)
        return sp.csc_array(np.hstack([self.problem.hidden(self.units), shifts]))

    def cone_matrix(self) -> sp.csc_array:
        """Rows of ``c_j >= 0``, ``(P, 2 P)``."""
        return sp.eye_array(len(self.units), 2 * len(self.units), format="csc")

    def neurons(self, result: ConicResult) -> Neurons:
        """One neuron per block: its direction with length c, and the shift a."""
        c, a = np.maximum(result.Z[:, 0, :, 0], 0.0), result.Z[:, 0, :, 1]
        U = np.concatenate([c[..., None] * self.units[:, :-1], a[..., None]], axis=-1)
        signs = np.repeat([1.0, -1.0], len(self.units))[:, None]
        return Neurons(U.reshape(len(signs), U.shape[-1]), signs, result.intercept)
