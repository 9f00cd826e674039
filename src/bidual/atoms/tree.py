r"""Sub-networks as trees: what a path-regularised branch computes (002).

A branch of a parallel network is a tree. Its leaves are ReLU neurons on the data with weights :math:`w_t`; every other
node adds what its children compute, each with a sign, and applies a ReLU,

.. math:: \phi(W) = \Big( \sum_j s_j \big( \cdots (M w_t)_+ \cdots \big)_+ \Big)_+ .

By homogeneity all weights on the way from a leaf to the root can be moved into the leaf (002 eq. 7), so that the path
regulariser of the branch is :math:`\|W\|_F`. Three layers are one level of nodes above m1 leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from bidual._util.typing import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Tree:
    """The shape of a branch.

    Attributes
    ----------
    widths : tuple of int
        Children of a node, from the level above the leaves up to the root; ``(m1,)`` for three layers.

    Notes
    -----
    Nodes are numbered level by level, leaves first, the root last; the children of a node are neighbours. Activities
    (``masks``) have one entry for every node, signs one for every node but the root.
    """

    widths: tuple[int, ...]

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return prod(self.widths)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of each level, from the leaves to the root."""
        sizes = [self.leaves]
        for m in self.widths:
            sizes.append(sizes[-1] // m)
        return tuple(sizes)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return sum(self.sizes)

    @property
    def edges(self) -> int:
        """Number of signs."""
        return self.nodes - 1

    @cached_property
    def parents(self) -> IntArray:
        """The node above each node but the root."""
        starts = np.cumsum(self.sizes)
        return np.concatenate(
            [start + np.arange(size) // m for m, size, start in zip(self.widths, self.sizes, starts, strict=False)]
        )

    def masks(self, pre: FloatArray, signs: FloatArray) -> BoolArray:
        """Which nodes are active, ``(n, K, nodes)``, for pre-activations of the leaves ``(n, K, T)``."""
        masks = np.empty((pre.shape[1], self.nodes, pre.shape[0]), dtype=np.bool_)
        _kernels().activities(_rows_last(pre), _plain(signs), self.parents, masks)
        return masks.transpose(2, 0, 1)

    def value(self, pre: FloatArray, signs: FloatArray) -> FloatArray:
        """What the roots compute, ``(n, K)``."""
        value = np.empty(pre.shape[1::-1])
        _kernels().climb(_rows_last(pre), _plain(signs), self.parents, value, np.empty((0, 0, 0)))
        return value.T

    def gates(self, pre: FloatArray, signs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What the roots compute, and its derivatives by the pre-activations of the leaves, ``(n, K, T)``."""
        rows_last = _rows_last(pre)
        value, gates = np.empty(pre.shape[1::-1]), np.empty(rows_last.shape)
        _kernels().climb(rows_last, _plain(signs), self.parents, value, gates)
        return value.T, gates.transpose(2, 0, 1)

    def coefficients(self, masks: BoolArray, signs: FloatArray) -> list[FloatArray]:
        r"""How the leaves enter the levels on a fixed pattern.

        Entry l is an array ``(..., T)``: the pre-activation of a node of level l is the sum over the leaves t below it
        of coefficient times :math:`x_i^T w_t`. The last entry holds the gates: what the root computes.

        Parameters
        ----------
        masks : ndarray of bool, shape (..., nodes)
        signs : ndarray, shape (..., edges), broadcast against ``masks``
        """
        now = np.ones((*masks.shape[:-1], self.leaves))
        levels, start, below = [now], 0, 1
        for size in self.sizes[:-1]:
            step = masks[..., start : start + size] * signs[..., start : start + size]
            now = now * np.repeat(step, below, axis=-1)
            levels.append(now)
            start, below = start + size, self.leaves // self.sizes[len(levels) - 1]
        return [*levels, now * masks[..., -1:]]


def _kernels() -> Any:
    """The compiled loops; ``import bidual`` does without the compiler."""
    from bidual.atoms import _tree_kernels as _kernels

    return _kernels


def _plain(array: FloatArray) -> FloatArray:
    """One layout in memory: the loops are compiled once."""
    return np.ascontiguousarray(array, dtype=np.float64)


def _rows_last(pre: FloatArray) -> FloatArray:
    """``(n, K, T)`` as ``(K, T, n)``: the loops over rows are the innermost ones, which the compiler vectorises."""
    return _plain(pre.transpose(1, 2, 0))
