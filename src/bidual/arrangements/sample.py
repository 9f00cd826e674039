"""Some activation patterns: random ones, those of a network, and their neighbours (003 sec. 6)."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from bidual._util.patches import distinct_patches
from bidual._util.typing import Array, FloatArray
from bidual._util.watch import checkpoint
from bidual.arrangements.patterns import Patterns, unique_rows


def patterns_of(X: Array, directions: Array) -> Patterns:
    """The distinct patterns of the given directions ``(m, d)``: those of a network's neurons (Alg1, Alg2)."""
    X = np.asarray(X, dtype=np.float64)
    U = np.asarray(directions, dtype=np.float64)
    if U.ndim != 2 or U.shape[1] != X.shape[1]:
        raise ValueError(f"directions must have shape (m, {X.shape[1]}), got {U.shape}")
    norms = np.linalg.norm(U, axis=1)
    U = U[norms > 0] / norms[norms > 0, None]
    active = U @ X.T >= 0
    first, _ = unique_rows(active)
    return Patterns(active=active[first], witnesses=U[first])


def cluster_directions(
    X: Array, n_clusters: int = 50, random_state: int | np.random.RandomState | None = None
) -> FloatArray:
    """Centres of clusters of the rows, ``(n_clusters, d)``: directions whose patterns tell them apart (003 A.1).

    Parameters
    ----------
    X : array of shape (n, d)
        The rows; see :meth:`bidual.Convolutional.cluster` for those of a convolutional network, its patches.
    n_clusters : int, default=50
        Fewer are returned if there are fewer distinct rows.
    random_state : int, RandomState or None

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import cluster_directions
    >>> cluster_directions(np.array([[0.0, 1.0], [0.0, 1.2], [-3.0, 0.0]]), 2, random_state=0).shape
    (2, 2)
    """
    from sklearn.cluster import MiniBatchKMeans  # slow to import

    rows = distinct_patches(np.asarray(X, dtype=np.float64))[0]
    if n_clusters < 1:
        raise ValueError(f"n_clusters must be at least 1, got {n_clusters}")
    if len(rows) <= n_clusters:
        return rows
    clusters = MiniBatchKMeans(n_clusters, random_state=random_state, n_init=3, batch_size=1024)
    return np.asarray(clusters.fit(rows).cluster_centers_)


def flip_nearest(X: Array, patterns: Patterns, n_flips: int = 1) -> Patterns:
    r"""Patterns together with neighbours across their nearest hyperplanes (003 Alg3).

    The paper flips the signs of the rows with the smallest :math:`|x_i^T u|`, which may leave the set of
    realisable patterns. Here u is moved across the hyperplane of each of the ``n_flips`` rows nearest to it
    in angle, so that every pattern keeps a witness.
    """
    X = np.asarray(X, dtype=np.float64)
    norms = np.linalg.norm(X, axis=1)
    rows = np.flatnonzero(norms > 0)
    units = X[rows] / norms[rows, None]
    if not len(units):
        return patterns
    margins = patterns.witnesses @ units.T
    nearest = np.argsort(np.abs(margins), axis=1, kind="stable")[:, : max(0, n_flips)]
    moved = [patterns.witnesses]
    for column in nearest.T:
        normal = units[column]
        t = np.take_along_axis(margins, column[:, None], axis=1)
        # Reflect across the hyperplane: the nearest row changes sign, rows farther away mostly do not.
        moved.append(patterns.witnesses - 2.0 * t * normal)
    return patterns_of(X, np.concatenate(moved))


def sample_patterns(
    X: Array,
    n_patterns: int = 100,
    random_state: int | np.random.RandomState | None = None,
    *,
    flips: int = 0,
) -> Patterns:
    """Distinct patterns of Gaussian directions (003 Remark 3.2).

    Parameters
    ----------
    X : array of shape (n, d)
    n_patterns : int, default=100
        How many distinct patterns to look for. Fewer are returned when a hundred times as many directions
        do not show more.
    random_state : int, RandomState or None
    flips : int, default=0
        Also add, for each pattern, its neighbours across this many nearest hyperplanes (003 Alg3); the
        result then holds up to ``n_patterns * (1 + flips)`` patterns.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import sample_patterns
    >>> len(sample_patterns(np.eye(2), n_patterns=50, random_state=0))
    4
    """
    X = np.asarray(X, dtype=np.float64)
    if n_patterns < 1:
        raise ValueError(f"n_patterns must be at least 1, got {n_patterns}")
    rng = check_random_state(random_state)
    d = X.shape[1]
    directions: FloatArray = np.zeros((0, d))
    drawn = 0
    while drawn < 100 * n_patterns:
        checkpoint()
        drawn += n_patterns
        directions = np.concatenate([directions, rng.standard_normal((n_patterns, d))])
        directions = patterns_of(X, directions).witnesses
        if len(directions) >= n_patterns:
            directions = directions[:n_patterns]
            break
    patterns = patterns_of(X, directions)
    return flip_nearest(X, patterns, flips) if flips else patterns
