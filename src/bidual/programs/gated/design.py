r"""The linear map of a gated network, without its matrix.

With gates :math:`D_i` the outputs are :math:`F = \sum_i A D_i M W_i`. Because a gate multiplies rows, both this map
and its transpose :math:`V \mapsto (M^T D_i A^T V)_i` are one matrix product with the 0/1 matrix of the gates:

.. math:: F_n = A \, [\, m_n^T (D^T W)_n \,]_n, \qquad M^T D_i A^T V = \sum_n D_{in} \, m_n (A^T V)_n^T ,

so that ``[D_1 M, ..., D_P M]``, n x (P p), never exists.
"""

from __future__ import annotations

import numpy as np

from bidual._util.typing import Array, BoolArray, FloatArray, IntArray
from bidual.problem import Problem

#: Entries of the gate matrix that are converted to floating point at a time.
BLOCK = 2**22


class GatedDesign:
    """The blocks of some gates of a problem, in the coordinates of ``problem.atoms.reduced``.

    Parameters
    ----------
    problem : Problem
    active : ndarray of bool, shape (P, N)
        Row i is the diagonal of ``D_i``.
    """

    def __init__(self, problem: Problem, active: BoolArray) -> None:
        self.problem = problem
        self.active = active
        self.rows = problem.atoms.reduced
        self._gates: dict[type, Array] = {}

    def __len__(self) -> int:
        return len(self.active)

    def take(self, index: IntArray) -> GatedDesign:
        """Some of the gates."""
        return GatedDesign(self.problem, self.active[index])

    def gates(self, dtype: type = np.float64) -> Array:
        """The 0/1 matrix of the gates, kept in floating point (for sets that are used over and over)."""
        if dtype not in self._gates:
            self._gates[dtype] = self.active.astype(dtype)
        return self._gates[dtype]

    def outputs(self, W: FloatArray) -> FloatArray:
        """``sum_i A D_i M W_i`` for weights ``W (P, r, C)``."""
        P, r, C = W.shape
        mixed = (self.gates().T @ W.reshape(P, r * C)).reshape(len(self.rows), r, C)
        return self.problem.atoms.pool(np.einsum("nr,nrc->nc", self.rows, mixed))

    def correlations(self, V: FloatArray) -> FloatArray:
        """``M^T D_i A^T V`` for all gates, ``(P, r, C)``."""
        return (self.gates() @ self._weighted(V, np.float64)).reshape(len(self), self.rows.shape[1], V.shape[1])

    def norms(self, V: FloatArray, dtype: type = np.float64) -> FloatArray:
        r""":math:`\|M^T D_i A^T V\|_F` for all gates, a block of gates at a time: the dual constraint.

        In single precision this takes half the time; good for choosing gates, not for a certificate.
        """
        weighted = self._weighted(V, dtype)
        result = np.empty(len(self))
        step = max(1, BLOCK // max(1, self.active.shape[1]))
        for start in range(0, len(self), step):
            block: Array = self.active[start : start + step].astype(dtype) @ weighted
            result[start : start + step] = np.sqrt(np.einsum("ij,ij->i", block, block))
        return result

    def _weighted(self, V: FloatArray, dtype: type) -> Array:
        """``m_n (A^T V)_n^T`` for every lifted row, ``(N, r C)``."""
        spread = self.problem.atoms.spread(V)
        return (self.rows[:, :, None] * spread[:, None, :]).reshape(len(self.rows), -1).astype(dtype, copy=False)
