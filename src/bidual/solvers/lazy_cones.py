r"""Cone constraints as they are needed.

A neuron on a pattern of N rows has N constraints :math:`(2 D_i - I) M z \ge 0`, of which a solution touches fewer than
r. Where patterns and rows are many (the patches of images are), the program starts with the rows nearest to each
pattern's witness and gets those that its solution violates, until there are none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bidual._typing import FloatArray, IntArray
from bidual.arrangements import Patterns
from bidual.problem import Problem

#: Entries of the cone constraints that are given to the conic solver at once.
LARGEST = 4_000_000
#: A margin below minus this, relative to the row and the weights, is a violation.
_TOL = 1e-7


class LazyCones:
    """The rows in use for each pattern.

    Parameters
    ----------
    problem : Problem
    patterns : Patterns
        Without known facets.
    """

    def __init__(self, problem: Problem, patterns: Patterns) -> None:
        norms = np.where(problem.row_norms > 0, problem.row_norms, 1.0)[:, None]
        self.units = problem.reduced / norms
        self.patterns = patterns
        self.signs = np.where(patterns.active, 1.0, -1.0)
        near = np.abs(patterns.witnesses @ (problem.M / norms).T)
        self.count = min(2 * self.units.shape[1], near.shape[1])
        self.used = np.zeros(near.shape, dtype=bool)
        np.put_along_axis(self.used, np.argpartition(near, self.count - 1, axis=1)[:, : self.count], True, axis=1)

    @staticmethod
    def needed(problem: Problem, patterns: Patterns) -> bool:
        """Whether all constraints at once would be too many."""
        plain = problem.plain and patterns.cone_rows is None
        return plain and len(patterns) * problem.reduced.size > LARGEST

    def take(self, working: IntArray) -> Patterns:
        """Some of the patterns, with the rows in use as the description of their cones."""
        used = self.used[working]
        indptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        return replace(self.patterns.take(working), cone_rows=(indptr, np.nonzero(used)[1]))

    def add_violated(self, working: IntArray, Z: FloatArray) -> bool:
        """Use the rows that the weights ``Z (2, C, P, r)`` of the working patterns violate most; False if none."""
        changed = False
        blocks = Z.swapaxes(0, 2).reshape(len(working), -1, Z.shape[-1])  # (P, 2 C, r)
        largest = float(np.linalg.norm(blocks, axis=2).max(initial=0.0))
        for i, block in zip(working, blocks, strict=True):
            sizes = np.linalg.norm(block, axis=1)
            block = block[sizes > 1e-6 * largest]
            if not len(block):
                continue
            margins = (self.signs[i, :, None] * (self.units @ block.T) / np.linalg.norm(block, axis=1)).min(axis=1)
            worst = np.flatnonzero((margins < -_TOL) & ~self.used[i])
            if len(worst):
                worst = worst[np.argsort(margins[worst], kind="stable")[: self.count]]
                self.used[i, worst] = changed = True
        return changed
