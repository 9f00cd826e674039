r"""Activation patterns of branches: who is active in every layer of a tree (002 sec. 3, A.10).

With the activities of all nodes fixed, what a branch computes is linear in the weights of its leaves, and the set of
weights with these activities is a cone. For three layers all cells can be listed: a pattern of the data and a sign for
each of the m1 leaves, and a pattern of the effective data matrix
:math:`[s_1 D_1 X, \dots, s_{m_1} D_{m_1} X]` for the node above them. Leaves can be exchanged, so that multisets of
(pattern, sign) are enough, and only rows that leaves of both signs reach leave the node a choice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb

import numpy as np

from bidual._util.typing import BoolArray, FloatArray, IntArray
from bidual._util.watch import checkpoint
from bidual.arrangements.enumerate import TooManyPatternsError, enumerate_patterns
from bidual.arrangements.patterns import Patterns, count_patterns, unique_rows
from bidual.atoms.tree import Tree

#: Cells that :func:`enumerate_layered` lists at most, unless told otherwise.
MAX_CELLS = 400_000


@dataclass(frozen=True)
class LayeredPatterns:
    """Cells of a tree on the rows of one matrix.

    Attributes
    ----------
    tree : Tree
    masks : ndarray of bool, shape (P, n, nodes)
        Which nodes are active on which rows.
    signs : ndarray, shape (P, edges)
    facets : ndarray of bool, shape (P, n, T), or None
        Rows that the cones of the leaves need; None: all of them.
    complete : bool
        Whether these are all the cells of the matrix.
    tol : float
        Angle below which the enumeration took hyperplanes for equal.
    """

    tree: Tree
    masks: BoolArray
    signs: FloatArray
    facets: BoolArray | None = None
    complete: bool = False
    tol: float = 0.0

    def __len__(self) -> int:
        return len(self.masks)

    def __repr__(self) -> str:
        kind = "all" if self.complete else "some"
        return f"LayeredPatterns({kind} {len(self)} of {self.masks.shape[1]} rows, tree {self.tree.widths})"

    @property
    def active(self) -> BoolArray:
        """Rows on which the root is active, ``(P, n)``."""
        return self.masks[:, :, -1]

    @cached_property
    def coefficients(self) -> list[FloatArray]:
        """Of the leaves in every level, ``(P, n, T)`` each; see :meth:`bidual.atoms.tree.Tree.coefficients`."""
        return self.tree.coefficients(self.masks, self.signs[:, None, :])

    @property
    def gates(self) -> FloatArray:
        """What the branches compute: the sum over leaves of gate times pre-activation, ``(P, n, T)``."""
        return self.coefficients[-1]

    def take(self, index: IntArray, *, complete: bool = False) -> LayeredPatterns:
        """Some of the cells, which are ``complete`` if no others count."""
        facets = None if self.facets is None else self.facets[index]
        return replace(self, masks=self.masks[index], signs=self.signs[index], facets=facets, complete=complete)

    def normals(self, rows: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Inward unit normals of the cones on leaf weights ``(T r)``, sorted by cell.

        Of a node above the leaves only rows that it sees through leaves of both signs say more than the leaves do.

        Returns
        -------
        cell, row : ndarray, shape (Q,)
        normals : ndarray, shape (Q, T r)
        """
        T, r = self.tree.leaves, rows.shape[1]
        cells, at, found, start = [], [], [], 0
        for level, (size, coefficient) in enumerate(zip(self.tree.sizes, self.coefficients, strict=False)):
            below = T // size
            for node in range(size):
                t = np.arange(node * below, (node + 1) * below)
                seen = coefficient[:, :, t]
                if level == 0:
                    needed = np.ones(seen.shape[:2], dtype=bool) if self.facets is None else self.facets[:, :, node]
                else:
                    needed = np.logical_and((seen > 0).any(axis=2), (seen < 0).any(axis=2))
                cell, row = np.nonzero(needed)
                side = np.where(self.masks[cell, row, start + node], 1.0, -1.0)
                block = np.zeros((len(cell), T, r))
                block[:, t] = (side[:, None] * seen[cell, row])[:, :, None] * rows[row][:, None, :]
                cells.append(cell)
                at.append(row)
                found.append(block.reshape(len(cell), T * r))
            start += size
        cell, row, normals = np.concatenate(cells), np.concatenate(at), np.concatenate(found)
        lengths = np.linalg.norm(normals, axis=1)
        order = np.argsort(cell, kind="stable")
        order = order[lengths[order] > 0]
        return cell[order], row[order], normals[order] / lengths[order, None]


def layered_patterns_of(tree: Tree, pre: FloatArray, signs: FloatArray) -> LayeredPatterns:
    """The distinct cells of branches with these pre-activations of the leaves ``(n, K, T)`` and signs."""
    masks = np.ascontiguousarray(tree.masks(pre, signs).swapaxes(0, 1))
    K, n, nodes = masks.shape
    first, _ = unique_rows(np.column_stack([masks.reshape(K, n * nodes), signs > 0]))
    return LayeredPatterns(tree, masks[first], signs[first])


def enumerate_layered(X: FloatArray, m1: int, max_cells: int = MAX_CELLS) -> LayeredPatterns:
    """All cells of three-layer branches with ``m1`` leaves on the rows of ``X (n, r)``.

    Raises
    ------
    TooManyPatternsError
        If there are more than ``max_cells``.
    """
    n, rank = X.shape
    advice = f"three layers with m1={m1} on {n} rows of rank {rank} have more than {max_cells:,} activation patterns: "
    advice += "use method='adaptive' or 'sampled', fewer rows or columns, or a smaller m1"
    # degenerate data have fewer patterns than promised: some are worth counting
    if _multisets(count_patterns(n, rank) // 4, m1) > max_cells:
        raise TooManyPatternsError(advice)
    first = enumerate_patterns(X)
    real = X.any(axis=1)
    # leaves that are nowhere active are as good as leaves of weight zero, which every cone holds
    useful = np.flatnonzero((first.active & real).any(axis=1))
    A = len(useful)
    if _multisets(A, m1) > max_cells:
        raise TooManyPatternsError(advice)
    # (pattern, sign) is one number, plus first; branches of minus signs only compute nothing
    chosen = np.array(list(combinations_with_replacement(range(2 * A), m1)), dtype=np.int64).reshape(-1, m1)
    chosen = chosen[chosen[:, 0] < A]
    signs = np.where(chosen < A, 1.0, -1.0)
    pattern = useful[chosen % max(A, 1)]
    leaves = first.active[pattern].swapaxes(1, 2)  # (B, n, m1)
    plus = np.asarray((leaves & (signs > 0)[:, None, :]).any(axis=2))
    minus = np.asarray((leaves & (signs < 0)[:, None, :]).any(axis=2))
    mixed: BoolArray = np.asarray(plus & minus & real)
    free = mixed.sum(axis=1)
    dimension = m1 * rank
    counts = np.array([2**k if k <= dimension else count_patterns(k, dimension) for k in range(n + 1)], dtype=object)
    if sum(counts[free]) > max_cells:
        raise TooManyPatternsError(advice)
    owner, root, tol = [], [], first.tol
    for k in np.unique(free):
        group = np.flatnonzero(free == k)
        base = ~minus[group] | plus[group]
        if k <= dimension:
            choices = ((np.arange(2**k)[:, None] >> np.arange(k)) & 1).astype(bool)
            masks = np.repeat(base, len(choices), axis=0)
            masks[np.repeat(mixed[group], len(choices), axis=0)] = np.tile(choices, (len(group), 1)).ravel()
            owner.append(np.repeat(group, len(choices)))
            root.append(masks)
            continue
        for b, mask in zip(group, base, strict=True):
            checkpoint()
            seen = (leaves[b][:, :, None] * signs[b][None, :, None] * X[:, None, :])[mixed[b]].reshape(k, -1)
            second = enumerate_patterns(seen, max_patterns=max_cells)
            masks = np.repeat(mask[None], len(second), axis=0)
            masks[:, mixed[b]] = second.active
            owner.append(np.full(len(second), b))
            root.append(masks)
            tol = max(tol, second.tol)
    index = np.concatenate(owner) if owner else np.zeros(0, dtype=np.int64)
    above = np.concatenate(root) if root else np.zeros((0, n), dtype=bool)
    masks = np.concatenate([leaves[index], above[:, :, None]], axis=2)
    return LayeredPatterns(
        Tree((m1,)), masks, signs[index], _facets(first, n)[pattern[index]].swapaxes(1, 2), complete=True, tol=tol
    )


def _multisets(A: int, m1: int) -> int:
    """Multisets of m1 signed patterns of A with at least one plus sign."""
    return comb(2 * A + m1 - 1, m1) - comb(A + m1 - 1, m1) if A else 0


def _facets(patterns: Patterns, n: int) -> BoolArray:
    """Which rows the cone of each pattern needs, ``(P, n)``."""
    needed = np.zeros((len(patterns), n), dtype=bool)
    for i in range(len(patterns)):
        needed[i, patterns.rows_of(i)] = True
    return needed
