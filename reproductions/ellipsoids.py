"""Rectified ellipsoids and their polar sets: 004 Fig. 2 to 5."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from bidual import SpikeFree, is_spike_free
from bidual.geometry import rectify_ellipsoid, support_function
from bidual.plots import plot_polar, plot_rectified_ellipsoid
from reproductions.framework import Context

Array = NDArray[np.float64]


def draw(context: Context, X: Array, name: str) -> None:
    """The set and the feasible set of the dual side by side."""
    options = {"projection": "3d"} if len(X) == 3 else None
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.3), layout="constrained", subplot_kw=options)
    plot_rectified_ellipsoid(X, axes[0])
    plot_polar(X, axes[1])
    context.save(figure, name)


def directions(d: int, count: int = 20_000) -> Array:
    """Unit vectors: evenly spaced in the plane, random in space."""
    if d == 2:
        angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
        return np.column_stack([np.cos(angle), np.sin(angle)])
    V = np.random.default_rng(0).standard_normal((count, d))
    return V / np.linalg.norm(V, axis=1, keepdims=True)


def exact_to(X: Array, V: Array) -> float:
    """Largest difference between the exact support function and the maximum over many points of the set."""
    points = rectify_ellipsoid(X, directions(X.shape[1], 40_000))
    return float(np.abs(np.maximum(V @ points.T, 0.0).max(axis=1) - support_function(X, V)).max())


def relaxed_support(X: Array, V: Array) -> Array:
    """Support function of the spike-free relaxation ``{Xu : |u| <= 1, Xu >= 0}``, over many of its points."""
    Z = directions(X.shape[1], 40_000) @ X.T
    inside = Z[(Z >= 0).all(axis=1)]
    # the relaxation ends on the axes where the ellipsoid meets them: points with one entry zero
    edges = [np.linalg.lstsq(X, e, rcond=None)[0] for e in np.eye(len(X))]
    corners = np.array([X @ u / np.linalg.norm(u) for u in edges])
    return np.maximum(np.vstack([inside, corners]) @ V.T, 0.0).max(axis=0)


def faces(X: Array, count: int = 2000) -> tuple[float, int]:
    """Share of the directions with positive entries only whose furthest point is one of few, and of how many.

    Such a point is a corner of the hull of the set, and a flat face of the polar. Directions with negative entries are
    left out: they end at zero or on the axes for every matrix.
    """
    V = directions(len(X), 2 ** len(X) * count)
    V = V[(V > 0).all(axis=1)]
    steps = 1e-6 * np.eye(len(X))  # the furthest point is the gradient of the support function
    furthest = np.column_stack([(support_function(X, V + h) - support_function(X, V - h)) / 2e-6 for h in steps])
    _, index, counts = np.unique(furthest.round(4), axis=0, return_inverse=True, return_counts=True)
    corner = counts > len(V) // 100
    return float(corner[index.ravel()].mean()), int(corner.sum())


def why(answer: SpikeFree) -> str:
    """The reason that the library gives, with what it calls K."""
    return f"{answer.reason[0].upper()}{answer.reason[1:]} (K is the inverse of the Gram matrix of the rows)."


def accuracy(X: Array, V: Array) -> str:
    """A sentence on :func:`exact_to`."""
    return f"The exact support function agrees with 40000 points of the set to {exact_to(X, V):.0e}."


__all__ = ["accuracy", "directions", "draw", "faces", "is_spike_free", "relaxed_support", "support_function", "why"]
