r"""The rank of a matrix of floating-point numbers, as of the rational numbers they are.

Singular values tell the rank up to rounding only: a direction that is :math:`10^{-17}` of the others and one that is
not there look alike. Batch normalisation, which undoes scales, tells them apart. Modulo a prime arithmetic is exact,
the rank is never above that over the rationals, and below it only if the prime divides a minor that is not zero.
"""

from __future__ import annotations

from itertools import combinations, islice
from math import comb

import numpy as np

from bidual._util.typing import FloatArray, IntArray

#: Large primes below :math:`2^{31}`, so that products fit in 64 bits; the largest rank modulo any of them counts.
_PRIMES = (2147483647, 2147483629, 2147483587)
#: Bits of the random multipliers of rows, and rows whose products with 16-bit numbers add up exactly in 53 bits.
_BITS, _ROWS = 20, 2**16
#: Sets of rows that are looked at, and how many at a time: more would take longer than they are worth.
_MOST_SETS, _SETS = 100_000, 4096


def exact_rank(X: FloatArray) -> int:
    """The rank of ``X (n, d)`` over the rationals.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual._util.exact_rank import exact_rank
    >>> a = np.array([1.0, 2.0, 3.0])
    >>> exact_rank(np.column_stack([a, 2 * a])), exact_rank(np.column_stack([a, [1.0, 2.0, np.nextafter(3.0, 4.0)]]))
    (1, 2)
    """
    rng = np.random.default_rng(0)
    return max((_rank(_residues(X, p), p, rng) for p in _PRIMES), default=0)


def nearly_dependent(X: FloatArray, tol: float) -> bool:
    r"""Whether rows of ``X (n, d)`` are dependent up to ``tol`` but not exactly, or too many to know.

    Such rows, of length one, have a singular value of at most ``tol``, and cut the space into cells that are no wider.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual._util.exact_rank import nearly_dependent
    >>> nearly_dependent(np.array([[1.0, 0.0], [-1.0, 0.0]]), 1e-10)
    False
    >>> nearly_dependent(np.array([[1.0, 0.0], [-1.0, 1e-12]]), 1e-10)
    True
    """
    X = X[X.any(axis=1)]
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    rank = exact_rank(X)
    if int((np.linalg.svd(units, compute_uv=False) > tol * np.sqrt(len(X))).sum()) != rank:
        return True
    known: set[frozenset[int]] = set()  # dependent
    for size in range(2, rank + 1):
        rows = [i for i in range(len(X)) if not any(max(pair) == i for pair in known if len(pair) == 2)]
        if comb(len(rows), size) > _MOST_SETS:
            return True
        sets = combinations(rows, size)
        while chunk := list(islice(sets, _SETS)):
            smallest = np.linalg.svd(units[np.array(chunk)], compute_uv=False)[:, -1]
            for k in np.flatnonzero(smallest <= 2 * tol * np.sqrt(len(X))):
                found = frozenset(chunk[k])
                if not any(smaller <= found for smaller in known):
                    if exact_rank(X[sorted(found)]) == size:
                        return True
                    known.add(found)
    return False


def _residues(X: FloatArray, p: int) -> IntArray:
    """Entries modulo p, after multiplying columns by powers of two that make them integers."""
    fractions, exponents = np.frexp(X)
    mantissas = np.ldexp(fractions, 53).astype(np.int64) % p
    exponents = exponents - np.where(X != 0, exponents, 2**15).min(axis=0, initial=2**15)
    powers, which = np.unique(np.where(X != 0, exponents, 0), return_inverse=True)
    factors = np.array([pow(2, int(power), p) for power in powers], dtype=np.int64)
    return mantissas * factors[which.reshape(X.shape)] % p


def _rank(A: IntArray, p: int, rng: np.random.Generator) -> int:
    """The rank of A modulo p, by elimination."""
    n, d = A.shape
    if n > 2 * d + 16:  # as many random combinations of the rows have the same rank
        A = _combined(A, d, p, rng)
    rank = 0
    for column in range(d):
        below = np.flatnonzero(A[rank:, column])
        if not len(below):
            continue
        first = rank + below[0]
        A[[rank, first]] = A[[first, rank]]
        A[rank] = A[rank] * pow(int(A[rank, column]), p - 2, p) % p
        A[rank + 1 :] = (A[rank + 1 :] - A[rank + 1 :, column : column + 1] * A[rank] % p) % p
        rank += 1
        if rank == len(A):
            break
    return rank


def _combined(A: IntArray, count: int, p: int, rng: np.random.Generator) -> IntArray:
    """So many random combinations of the rows of A, modulo p."""
    total = np.zeros((count, A.shape[1]), dtype=np.int64)
    for start in range(0, len(A), _ROWS):
        part = A[start : start + _ROWS]
        R = rng.integers(2**_BITS, size=(count, len(part))).astype(np.float64)
        low, high = ((R @ half.astype(np.float64)).astype(np.int64) % p for half in (part & 0xFFFF, part >> 16))
        total = (total + low + high * 2**16 % p) % p
    return total
