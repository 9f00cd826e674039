r"""All faces of the cells into which the rows of a matrix cut the space of weights.

Where several outputs share a neuron, the dual constraint on a closed cell is the largest value of a *convex* function
:math:`\|V^T D_i X u\|` of unit vectors: not a program, but its maximiser lies inside of some face of the cell, and
there it is the leading right singular vector of :math:`V^T D_i X N` on the face's subspace :math:`u = N s`. With all
faces at hand the constraint is maximised by one small singular value decomposition for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from bidual._util.typing import BoolArray, FloatArray
from bidual._util.watch import checkpoint
from bidual.arrangements.enumerate import Hyperplanes, enumerate_patterns
from bidual.arrangements.patterns import count_patterns

#: What counts as on a hyperplane, relative to the norm of its row.
_ON = 1e-9


@dataclass(frozen=True)
class Faces:
    """Faces of one dimension d.

    Attributes
    ----------
    bases : ndarray, shape (F, r, d)
        Orthonormal columns: the subspaces they lie in.
    active : ndarray of bool, shape (F, N)
        Rows that are positive inside; those that vanish on all of the face are not.
    """

    bases: FloatArray
    active: BoolArray

    def __len__(self) -> int:
        return len(self.bases)

    def maximisers(self, X: FloatArray, G: FloatArray) -> FloatArray:
        r"""Where :math:`\|G^T (Xu)_+\|` is largest inside of the faces that have such a point: unit rows, (k, r)."""
        weighted = (X[:, :, None] * G[:, None, :]).reshape(len(X), -1)
        B = (self.active.astype(np.float64) @ weighted).reshape(len(self), X.shape[1], G.shape[1])
        s = np.linalg.svd(np.einsum("frc,frd->fcd", B, self.bases))[2][:, 0]
        u = np.einsum("frd,fd->fr", self.bases, s)
        heights, slack = u @ X.T, _ON * np.linalg.norm(X, axis=1)
        side = np.where(self.active, 1.0, -1.0)
        found = [sign * u[((sign * side * heights) >= -slack).all(axis=1)] for sign in (1.0, -1.0)]
        return np.concatenate(found)


def count_faces(n: int, rank: int) -> int:
    r"""Number of faces, of all dimensions, of ``n`` rows of a given rank in general position.

    .. math:: \sum_{k=1}^r \binom{n}{r-k} P(n - r + k, k)

    with P of :func:`bidual.count_patterns`; an upper bound for any other data.
    """
    return sum(comb(n, rank - k) * count_patterns(n - rank + k, k) for k in range(1, rank + 1) if n >= rank - k)


def few_faces(X: FloatArray, limit: int) -> list[Faces] | None:
    """All faces of the rows of ``X (N, r)``, which span the space, if they are at most ``limit``; by dimension.

    The rays, faces of dimension one, come last: every closed cell is what they span.
    """
    N, r = X.shape
    if min(N, r) >= limit.bit_length() or count_faces(N, r) > limit:  # at least 2^r cells
        return None
    levels: list[list[tuple[FloatArray, BoolArray]]] = [[] for _ in range(r)]
    norms = np.linalg.norm(X, axis=1)

    def descend(basis: FloatArray, last: int) -> None:
        """The faces in a subspace, then those on its hyperplanes; each is met first on its lowest rows."""
        inside, d = X @ basis, basis.shape[1]
        if d == 1:
            heights = np.where(np.abs(inside[:, 0]) > _ON * norms, inside[:, 0], 0.0)
            levels[r - 1].append((np.stack([basis, -basis]), np.stack([heights > 0, heights < 0])))
            return
        checkpoint()
        there = np.linalg.norm(inside, axis=1) > _ON * norms
        active = enumerate_patterns(np.where(there[:, None], inside, 0.0)).active & there
        levels[r - d].append((np.broadcast_to(basis, (len(active), r, d)), active))
        lines = Hyperplanes(inside, norms)
        for normal, row in zip(lines.normals, lines.representatives, strict=True):
            if row > last:
                descend(basis @ np.linalg.svd(normal[None])[2][1:].T, int(row))

    if r:
        descend(np.eye(r), -1)
    return [
        Faces(np.concatenate([b for b, _ in level]), np.concatenate([a for _, a in level])) for level in levels if level
    ]
