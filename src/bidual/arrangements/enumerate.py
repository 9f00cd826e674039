r"""All activation patterns of a matrix, by recursion over the dimension.

Every cell of an arrangement of hyperplanes through the origin is bounded by facets, and the facets on
one hyperplane are the cells of the arrangement that the other hyperplanes cut out of it, one dimension
lower. So: for each hyperplane, enumerate the arrangement restricted to it, and take both sides of each
of its cells. The facets of every cell come with it: these are the only rows its cone needs.

The restricted arrangements need no facets of their own. They grow by one hyperplane after the other: the cells
that a new one cuts in two are those of the arrangement restricted to it, again one dimension lower, and the others stay
(Zaslavsky's deletion and restriction). In the plane the cells are the arcs between sorted angles.

Degenerate data need no special treatment beyond one rule applied at every level: rows that are zero are
dropped, and rows that are parallel within a tolerance are one hyperplane.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.linalg import qr

from bidual._util.memory import require_memory
from bidual._util.typing import Array, BoolArray, FloatArray, IntArray
from bidual._util.watch import checkpoint
from bidual.arrangements.patterns import Patterns, count_patterns, row_space


class TooManyPatternsError(ValueError):
    """There are more activation patterns than the caller wants to enumerate."""


#: Sine of the angle below which two hyperplanes are one.
PARALLEL_TOL = 1e-10


def enumerate_patterns(X: Array, *, max_patterns: int | None = 2_000_000) -> Patterns:
    r"""All activation patterns :math:`1[Xu \ge 0]` of ``X``, each with a witness and its facets.

    Parameters
    ----------
    X : array of shape (n, d)
    max_patterns : int or None, default=2_000_000
        Refuse to start when :func:`count_patterns` promises more than this.

    Returns
    -------
    Patterns
        With ``complete=True`` and ``cone_rows`` set to the facets.

    Raises
    ------
    ValueError
        If there may be more than ``max_patterns`` patterns.

    Notes
    -----
    Output-sensitive: about 2r facets for each of the P patterns, r being the rank, each found once.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import enumerate_patterns
    >>> enumerate_patterns(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    Patterns(all 6 of 3 rows)
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix, got an array with {X.ndim} dimensions")
    if not np.isfinite(X).all():
        raise ValueError("X contains NaN or infinity: remove or impute these entries first")
    n, d = X.shape
    basis = row_space(X)
    rank = basis.shape[1]
    if rank == 0:
        return Patterns(
            active=np.ones((1, n), dtype=bool),
            witnesses=np.eye(1, d),
            complete=True,
            cone_rows=(np.zeros(2, dtype=np.int64), np.zeros(0, dtype=np.int64)),
        )
    lines = Hyperplanes(X @ basis, np.linalg.norm(X, axis=1))
    bound = count_patterns(len(lines), rank)
    if max_patterns is not None and bound > max_patterns:
        raise TooManyPatternsError(
            f"X has {len(lines)} distinct rows of rank {rank}: up to {bound:,} activation patterns, more than "
            f"max_patterns={max_patterns:,}. Use method='sampled' (or sample_patterns), fewer rows or columns, or "
            "raise max_patterns if the memory allows it"
        )
    # every pattern as signs of all rows, and about 2r facets of each: signs of the hyperplanes, and a point
    require_memory(
        float(bound) * (n + 8 * d + 2 * rank * (len(lines) / 8 + 8 * rank + 8)),
        f"the enumeration of up to {bound:,} activation patterns of {n:,} rows",
        "Use method='sampled' (or sample_patterns), or fewer rows or columns",
    )
    signs, witnesses, facets = _cells(lines.normals, want_facets=True)
    witnesses = witnesses @ basis.T
    indptr, indices = facets
    return Patterns(
        active=lines.expand(signs),
        witnesses=witnesses / np.linalg.norm(witnesses, axis=1, keepdims=True),
        complete=True,
        cone_rows=(indptr, lines.representatives[indices]),
        tol=PARALLEL_TOL,
    )


def few_patterns(X: FloatArray, limit: int, *, patient: bool = False) -> Patterns | None:
    """All activation patterns of ``X`` if there are at most ``limit``, else None.

    Beyond rank 4 a pattern takes several times as long: unless ``patient``, the limit then is an eighth.
    """
    for rows in (X[:: max(1, len(X) // 64)], X):  # some of them may be enough to know
        rank = row_space(rows).shape[1]
        allowed = limit if patient or rank <= 4 else limit // 8
        if count_patterns(len(X), rank) > 1000 * allowed:
            return None
    X = np.ascontiguousarray(X, dtype=np.float64)
    return _few_patterns(X.tobytes(), X.shape, allowed)


@lru_cache(maxsize=2)  # a path asks for the same patterns at every beta
def _few_patterns(X: bytes, shape: tuple[int, ...], limit: int) -> Patterns | None:
    try:
        return enumerate_patterns(np.frombuffer(X).reshape(shape), max_patterns=limit)
    except TooManyPatternsError:
        return None


class Hyperplanes:
    """The distinct hyperplanes among the rows of a matrix.

    Attributes
    ----------
    normals : ndarray, shape (m, r)
        Unit normals, one per hyperplane.
    representatives : ndarray of int, shape (m,)
        A row of the matrix that lies on each hyperplane's normal line.
    """

    def __init__(self, X: FloatArray, scale: FloatArray | float, tol: float = PARALLEL_TOL) -> None:
        # Rows that have shrunk to nothing in these coordinates, against their length before, are zero.
        norms = np.linalg.norm(X, axis=1)
        nonzero = np.flatnonzero(norms > tol * scale)
        units = X[nonzero] / norms[nonzero, None]
        group, side, representatives = _group_parallel(units, tol)
        self._n = len(X)
        self._rows, self._group, self._side = nonzero, group, side
        self.normals = units[representatives]
        self.representatives = nonzero[representatives]

    def __len__(self) -> int:
        return len(self.normals)

    @property
    def members(self) -> tuple[IntArray, IntArray, BoolArray]:
        """The rows that are not zero, the hyperplane of each, and whether it points the way of the normal."""
        return self._rows, self._group, self._side

    def expand(self, signs: BoolArray) -> BoolArray:
        """Signs of the hyperplanes ``(P, m)`` as signs of all rows ``(P, n)``; zero rows are active."""
        active = np.ones((len(signs), self._n), dtype=bool)
        active[:, self._rows] = signs[:, self._group] == self._side
        return active


def _group_parallel(units: FloatArray, tol: float) -> tuple[IntArray, BoolArray, IntArray]:
    """Group unit rows that are parallel up to sign.

    Returns the group of each row, whether the row points the way of its group's first row, and the index
    of that row.
    """
    n = len(units)
    group = np.arange(n)
    side = np.ones(n, dtype=bool)
    # Parallel unit rows agree, up to sign, in a fixed random projection: only rows that are neighbours
    # there need a comparison.
    probe = np.random.default_rng(0).standard_normal(units.shape[1])
    keys = np.abs(units @ (probe / np.linalg.norm(probe)))
    order = np.argsort(keys, kind="stable")
    breaks = np.flatnonzero(np.diff(keys[order]) > 2 * tol) + 1
    if len(breaks) == n - 1:  # no two of them
        return group, side, group
    starts = np.concatenate([[0], breaks])
    stops = np.concatenate([breaks, [n]])
    for start, stop in zip(starts[stops - starts > 1], stops[stops - starts > 1], strict=True):
        waiting = np.sort(order[start:stop])
        while len(waiting) > 1:
            checkpoint()
            first = waiting[0]
            cosines = units[waiting] @ units[first]
            residual = units[waiting] - cosines[:, None] * units[first]
            parallel = np.einsum("ij,ij->i", residual, residual) <= tol**2
            group[waiting[parallel]] = first
            side[waiting[parallel]] = cosines[parallel] > 0
            waiting = waiting[~parallel]
    representatives, group = np.unique(group, return_inverse=True)
    return group, side, representatives


def _cells(normals: FloatArray, *, want_facets: bool) -> tuple[BoolArray, FloatArray, tuple[IntArray, IntArray]]:
    """Cells of the arrangement of distinct hyperplanes with unit ``normals``, of full rank.

    Returns signs ``(P, m)``, unit witnesses ``(P, r)``, and facets in compressed form (empty unless
    wanted).
    """
    m, r = normals.shape
    flat = _flat_directions(normals)
    if flat is not None:  # merged hyperplanes have taken a dimension with them
        lines = Hyperplanes(normals @ flat, 1.0)
        inner, witnesses, (indptr, indices) = _cells(lines.normals, want_facets=want_facets)
        return lines.expand(inner), witnesses @ flat.T, (indptr, lines.representatives[indices])
    if r == 1:
        signs = np.array([[True], [False]])
        facets = (np.array([0, 1, 2]), np.zeros(2, dtype=np.int64))
        return signs, np.where(signs, normals[:, :1], -normals[:, :1]), facets
    if r == 2:
        return _arcs(normals)
    if m == r:  # bounded by all rows
        return *_orthants(normals), (m * np.arange(2**m + 1), np.tile(np.arange(m), 2**m))
    if not want_facets and r > 3:  # in space, going over the facets is as quick
        return *_grown(normals), (np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64))
    found_signs: list[Array] = []
    found_witnesses: list[FloatArray] = []
    found_facet: list[IntArray] = []
    for k in range(m):
        signs, witnesses = _facets_on(normals, k)
        for side in (True, False):
            signs[:, k] = side
            found_signs.append(np.packbits(signs, axis=1))
            found_witnesses.append(witnesses)
            found_facet.append(np.full(len(signs), k))
    packed = np.concatenate(found_signs)
    boundary = np.concatenate(found_witnesses)
    facet = np.concatenate(found_facet)
    _, first, cell = np.unique(_keys(packed), return_index=True, return_inverse=True)
    signs = np.unpackbits(packed[first], axis=1, count=m).astype(bool)
    # The mean of points in the relative interiors of all facets lies inside the cell.
    sizes = np.bincount(cell)
    witnesses = np.zeros((len(first), r))
    np.add.at(witnesses, cell, boundary)
    witnesses /= np.linalg.norm(witnesses, axis=1, keepdims=True)
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return signs, witnesses, (indptr, facet[np.argsort(cell, kind="stable")])


def _orthants(normals: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Cells of as many independent hyperplanes as there are dimensions: every combination of signs."""
    m = len(normals)
    signs = (np.arange(2**m)[:, None] >> np.arange(m)) % 2 == 1
    corners = np.linalg.solve(normals, np.where(signs, 1.0, -1.0).T).T
    return signs, corners / np.linalg.norm(corners, axis=1, keepdims=True)


def _grown(normals: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Signs and witnesses of the cells, without facets, hyperplane by hyperplane."""
    m, r = normals.shape
    order = qr(normals.T, mode="r", pivoting=True)[1]  # r independent rows first
    ordered = normals[order]
    signs, witnesses = _orthants(ordered[:r])
    for k in range(r, m):
        cut, inside = _facets_on(ordered[: k + 1], k)
        cut = cut[:, :k]
        stays = ~_member(signs, cut)
        side = witnesses[stays] @ ordered[k] > 0
        # from a point on the new hyperplane so far to both sides that no other one is crossed
        room = 0.5 * np.abs(inside @ ordered[:k].T).min(axis=1)[:, None] * ordered[k]
        halves = np.concatenate([inside + room, inside - room])
        new = np.repeat([True, False], len(cut))
        signs = np.column_stack([np.concatenate([signs[stays], cut, cut]), np.concatenate([side, new])])
        witnesses = np.concatenate([witnesses[stays], halves / np.linalg.norm(halves, axis=1, keepdims=True)])
    return signs[:, np.argsort(order)], witnesses


def _member(rows: BoolArray, others: BoolArray) -> BoolArray:
    """Which rows are also rows of ``others``; both have no row twice."""
    packed = np.packbits(np.concatenate([rows, others]), axis=1)
    _, group, sizes = np.unique(_keys(packed), return_inverse=True, return_counts=True)
    return np.asarray(sizes[group[: len(rows)]] > 1)


def _keys(packed: Array) -> Array:
    """Rows of bytes as one value each, which sorts."""
    return packed.view(np.dtype((np.void, packed.shape[1]))).ravel()


def _flat_directions(normals: FloatArray) -> FloatArray | None:
    """Basis of the span of ``normals`` if it is not the whole space, else None."""
    m, r = normals.shape
    spread = np.linalg.eigvalsh(normals.T @ normals)[0] if m >= r else 0.0
    if spread > 1e-12:  # far from flat: the usual case, found cheaply
        return None
    _, s, Vt = np.linalg.svd(normals, full_matrices=False)
    rank = int((s > PARALLEL_TOL * s[0]).sum())
    return None if rank == r else Vt[:rank].T


def _facets_on(normals: FloatArray, k: int) -> tuple[BoolArray, FloatArray]:
    """Facets on hyperplane ``k``: signs of all hyperplanes (column k is free) and points inside them."""
    checkpoint()
    r = normals.shape[1]
    # Orthonormal basis of the hyperplane, by a Householder reflection that maps its normal to an axis.
    reflector = normals[k].copy()
    reflector[0] += 1.0 if reflector[0] >= 0 else -1.0
    basis = np.eye(r) - np.outer(reflector, reflector) * (2.0 / (reflector @ reflector))
    basis = basis[:, 1:]
    restricted = Hyperplanes(normals @ basis, 1.0)
    # Row k itself is the one that vanishes; the others have rank r - 1.
    signs, witnesses, _ = _cells(restricted.normals, want_facets=False)
    return restricted.expand(signs), witnesses @ basis.T


def _arcs(normals: FloatArray) -> tuple[BoolArray, FloatArray, tuple[IntArray, IntArray]]:
    """Cells in the plane: arcs between the sorted directions of the lines."""
    m = len(normals)
    angles = np.mod(np.arctan2(normals[:, 0], -normals[:, 1]), np.pi)  # directions along the lines
    order = np.argsort(angles, kind="stable")
    ends = np.concatenate([angles[order], angles[order] + np.pi])
    middle = 0.5 * (ends + np.concatenate([ends[1:], [ends[0] + 2 * np.pi]]))
    witnesses = np.column_stack([np.cos(middle), np.sin(middle)])
    line = np.concatenate([order, order])
    if m == 1:
        return witnesses @ normals.T > 0, witnesses, (np.array([0, 1, 2]), line)
    facets = np.column_stack([line, np.roll(line, -1)]).ravel()
    return witnesses @ normals.T > 0, witnesses, (np.arange(0, 4 * m + 1, 2), facets)
