r"""The dual constraint in rational arithmetic: floats are fractions, so nothing here is rounded.

The maximum of :math:`v^T (Mu)_+` over the unit ball lies in the relative interior of a face of a cell: it is attained
at the projection of the cell's gradient onto the span of a face, :math:`u = P_F c_\sigma`, where its
square is rational.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np

from bidual._util.typing import FloatArray

#: Candidates looked at in exact arithmetic, best first as floats order them.
_TOP = 12


def rational(values: FloatArray) -> list[Fraction]:
    """The same numbers as fractions."""
    return [Fraction(float(x)) for x in values]


def dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    """The sum of products."""
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def square_at(M: FloatArray, G: FloatArray, u: list[Fraction]) -> Fraction:
    r""":math:`\|G^T (Mu)_+\|^2 / \|u\|^2`; zero at zero."""
    size = dot(u, u)
    if size == 0:
        return size
    hidden = [max(dot(rational(row), u), Fraction(0)) for row in M]
    outputs = [dot(rational(column), hidden) for column in G.T]
    return dot(outputs, outputs) / size


def greatest_square(M: FloatArray, v: FloatArray) -> Fraction:
    """The square of the dual constraint of one output, ``max |v^T (Mu)_+|`` over the unit ball; at most 10 rows."""
    used = (v != 0) & M.any(axis=1)
    M, v = M[used], v[used]
    n, d = M.shape
    if not n:
        return Fraction(0)
    active = (np.arange(2**n)[:, None] >> np.arange(n)) % 2 == 1
    gradients = (active * v) @ M
    units = M / np.linalg.norm(M, axis=1, keepdims=True)
    found: list[tuple[float, int, tuple[int, ...]]] = []
    for size in range(min(d, n + 1)):
        for face in combinations(range(n), size):
            Q = np.linalg.qr(units[list(face)].T)[0] if face else np.zeros((d, 0))
            U = gradients - (gradients @ Q) @ Q.T
            length = np.linalg.norm(U, axis=1)
            values = np.abs(np.maximum(U @ M.T, 0.0) @ v) / np.maximum(length, 1e-300)
            found += [(values[k], int(k), face) for k in np.argsort(-values)[:3]]
    found.sort(reverse=True)
    best = Fraction(0)
    for _, pattern, face in found[:_TOP]:
        u = _projected(M, v, active[pattern], face)
        best = max(best, square_at(M, v[:, None], u))
    return best


def _projected(M: FloatArray, v: FloatArray, active: FloatArray, face: tuple[int, ...]) -> list[Fraction]:
    """The gradient of a pattern, projected onto the span of the face on which the rows ``face`` vanish."""
    rows = [rational(row) for row in M]
    weights = rational(np.where(active, v, 0.0))
    u = [dot(weights, list(column)) for column in zip(*rows, strict=True)]
    basis: list[list[Fraction]] = []
    for i in face:
        basis.append(_orthogonal(rows[i], basis))
    return _orthogonal(u, basis)


def _orthogonal(u: list[Fraction], basis: list[list[Fraction]]) -> list[Fraction]:
    for q in basis:
        size = dot(q, q)
        if size:
            share = dot(u, q) / size
            u = [a - share * b for a, b in zip(u, q, strict=True)]
    return u


def shortfall(bound: float, square: Fraction) -> float:
    """By how much a bound is below the root of ``square``, relative to it; negative if it is above, as it must be."""
    if square == 0:
        return -1.0
    return 0.5 * float(1 - Fraction(float(bound)) ** 2 / square) if np.isfinite(bound) else -np.inf
