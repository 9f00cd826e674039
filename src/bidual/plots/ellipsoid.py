"""Pictures of the rectified ellipsoid, its spike-free relaxation and its polar (004 Figures 2-5 and 11b)."""

from __future__ import annotations

from typing import Any

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual.geometry import extreme_points, is_spike_free
from bidual.geometry.ellipsoid import support_function

_SETS = {"set": "#1f4e79", "relaxation": "#9ecae1", "hull": "#d95f02", "spike": "#c0392b"}


def plot_rectified_ellipsoid(X: Array, ax: Any = None) -> Any:
    r"""The set :math:`\{(Xu)_+ : \|u\| \le 1\}` for two or three rows, its convex hull and its spikes.

    Two rows: the ellipse :math:`\{Xu\}` (dashed), its part in the positive quadrant, which is the spike-free relaxation
    (filled), the spikes along the axes that the rest of the ellipse folds up to (thick), and the convex hull of it all.
    Three rows: the surface that the ellipsoid is folded to, the relaxation in another colour, and the spikes.

    Parameters
    ----------
    X : array of shape (2, d) or (3, d)
    ax : matplotlib axes, optional
        With ``projection="3d"`` for three rows.

    Returns
    -------
    The axes.
    """
    X = _few_rows(X)
    ax = _axes(ax, len(X))
    (_draw_flat if len(X) == 2 else _draw_solid)(X, ax)
    answer = is_spike_free(X)
    ax.set_title({"yes": "spike-free", "no": "not spike-free"}.get(answer.status, "rectified ellipsoid"), fontsize=10)
    return ax


def plot_polar(X: Array, ax: Any = None) -> Any:
    r"""The feasible set of the dual, :math:`Q_X^\circ \cap -Q_X^\circ`, for two or three rows (004 Figures 3-5).

    Two rows: also the polar :math:`Q_X^\circ` itself, which is unbounded (the part in the window). Boundaries are drawn
    from the exact support function.

    Parameters
    ----------
    X : array of shape (2, d) or (3, d)
    ax : matplotlib axes, optional
        With ``projection="3d"`` for three rows.

    Returns
    -------
    The axes.
    """
    X = _few_rows(X)
    ax = _axes(ax, len(X))
    ax.set_title("feasible set of the dual", fontsize=10)
    if len(X) == 3:
        V = _sphere(4000)
        radius = 1.0 / np.maximum(support_function(X, V), support_function(X, -V))
        _draw_hull(V * radius[:, None], ax)
        _label(ax, "v")
        return ax
    angle = np.linspace(0, 2 * np.pi, 721)
    V = np.column_stack([np.cos(angle), np.sin(angle)])
    up, down = support_function(X, V), support_function(X, -V)
    both = V / np.maximum(up, down)[:, None]
    window = 1.35 * float(np.abs(both).max())
    polar = V / np.maximum(up, 1.0 / (4.0 * window))[:, None]
    ax.fill(*polar.T, facecolor="0.9", edgecolor="0.6", lw=0.8, label=r"polar $Q^\circ$")
    ax.fill(*both.T, color="#8da0cb", label=r"$Q^\circ \cap -Q^\circ$, the dual's feasible set")
    ax.plot(*both.T, color="#3b4f7a", lw=1.5)
    ax.set(xlim=(-window, window), ylim=(-window, window), aspect="equal")
    _label(ax, "v")
    ax.legend(framealpha=0.85, edgecolor="none", fontsize=8, loc="lower left")
    return ax


def _corners(points: FloatArray) -> FloatArray:
    """Corners of the convex hull of points in the plane, in order; of points on a line through the origin, its ends."""
    from scipy.spatial import ConvexHull

    if np.linalg.matrix_rank(points) < 2:
        return points[[int(np.argmin(points.sum(axis=1))), int(np.argmax(points.sum(axis=1)))]]
    return points[ConvexHull(points).vertices]


def _draw_flat(X: FloatArray, ax: Any) -> None:
    # the ellipse {Xu} from its own axes, whatever d is
    left, singular, _ = np.linalg.svd(X, full_matrices=False)
    angle = np.linspace(0, 2 * np.pi, 2001)
    ellipse = (np.column_stack([np.cos(angle), np.sin(angle)])[:, : len(singular)] * singular) @ left.T
    Q = np.maximum(ellipse, 0.0)
    inside = ellipse[(ellipse > 0).all(axis=1)]
    ax.plot(*ellipse.T, color="0.6", ls="--", lw=1.2, label=r"ellipsoid $\{Xu\}$")
    if len(inside):
        # from the axis to the arc and back to the origin
        order = np.argsort(np.arctan2(inside[:, 1], inside[:, 0]))
        corners = _crossings(X)
        region = np.vstack([[0.0, 0.0], [corners[0], 0.0], inside[order], [0.0, corners[1]]])
        ax.fill(*region.T, color=_SETS["relaxation"], label="spike-free relaxation")
    heights = extreme_points(X, bias=False).heights
    for end, label in zip(np.diag(heights), (r"rectified: $\{(Xu)_+\}$", None), strict=True):
        ax.plot([0, end[0]], [0, end[1]], color=_SETS["set"], lw=3.5, solid_capstyle="round", label=label, zorder=3)
    if len(inside):
        ax.plot(*region[1:].T, color=_SETS["set"], lw=2)
    points = np.vstack([[0.0, 0.0], Q])
    hull = _corners(points)
    ax.plot(*np.vstack([hull, hull[:1]]).T, color=_SETS["hull"], lw=1.3, label="convex hull", zorder=4)
    ax.plot(*np.diag(heights).T, "o", color=_SETS["spike"], ms=6, zorder=5, label="extreme points along the axes")
    size = 1.15 * float(np.abs(ellipse).max())
    ax.set(xlim=(-size, size), ylim=(-size, size), aspect="equal")
    _label(ax, "z")
    ax.legend(framealpha=0.85, edgecolor="none", fontsize=8, loc="lower left")


def _crossings(X: FloatArray) -> FloatArray:
    """Where the ellipsoid Xu crosses the positive axes (zero if it does not reach them)."""
    lengths = np.zeros(2)
    for axis in range(2):
        e = np.eye(2)[axis]
        z = np.linalg.lstsq(X, e, rcond=None)[0]
        if np.allclose(X @ z, e):
            lengths[axis] = 1.0 / np.linalg.norm(z)
    return lengths


def _draw_solid(X: FloatArray, ax: Any) -> None:
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    ax.computed_zorder = False  # seen from the positive side the surface is in front of the planes
    theta, phi = np.meshgrid(np.linspace(0, np.pi / 2, 91), np.linspace(0, np.pi / 2, 91), indexing="ij")
    rays = np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)], axis=-1)
    gauge = np.linalg.norm(rays @ np.linalg.pinv(X).T, axis=-1, keepdims=True)
    if np.linalg.matrix_rank(X) == 3:  # the part of the ellipsoid in the positive orthant
        surface = np.moveaxis(rays / gauge, -1, 0)
        ax.plot_surface(*surface, rstride=2, cstride=2, color=_SETS["relaxation"], lw=0, alpha=0.85, zorder=3)
    Z = _sphere(40_000)[:, : min(X.shape)] @ np.linalg.svd(X, full_matrices=False)[2] @ X.T
    heights = extreme_points(X, bias=False).heights
    for k in range(3):  # what is folded on the plane z_k = 0: a convex set
        i, j = (axis for axis in range(3) if axis != k)
        flat = np.maximum(Z[Z[:, k] <= 0][:, [i, j]], 0.0)
        flat = np.vstack([flat, [[0.0, 0.0], [heights[i], 0.0], [0.0, heights[j]]]])
        flat = _corners(flat)
        corners = np.zeros((len(flat), 3))
        corners[:, [i, j]] = flat
        ax.add_collection3d(
            Poly3DCollection([corners], facecolor="#f5c99a", edgecolor=_SETS["hull"], lw=1.0, alpha=0.9, zorder=1)
        )
    for end in np.diag(heights):
        ax.plot(*np.stack([np.zeros(3), end], axis=1), color=_SETS["spike"], lw=2.5, zorder=2)
        ax.plot(*end[:, None], "o", color=_SETS["spike"], ms=5, zorder=4)
    _label(ax, "z")
    ax.set_box_aspect(np.maximum(Z.max(axis=0), 0.2))
    ax.view_init(elev=28, azim=38)


def _draw_hull(points: FloatArray, ax: Any) -> None:
    """The convex hull of points, lit from one side."""
    from matplotlib.colors import to_rgb
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection
    from scipy.spatial import ConvexHull

    hull = ConvexHull(points)
    light = 0.72 + 0.28 * hull.equations[:, :3] @ np.array([0.5, -0.55, 0.67])
    colors = np.clip(light[:, None] * np.array(to_rgb("#9fb3dd")), 0.0, 1.0)
    ax.add_collection3d(Poly3DCollection(points[hull.simplices], facecolors=colors, edgecolors=colors, lw=0.3))
    size = np.abs(points).max(axis=0)
    ax.set(xlim=(-size[0], size[0]), ylim=(-size[1], size[1]), zlim=(-size[2], size[2]))
    ax.set_box_aspect(size)
    ax.view_init(elev=22, azim=-55)


def _sphere(k: int) -> FloatArray:
    """Points spread evenly over the unit sphere."""
    i = np.arange(k) + 0.5
    z, angle = 1.0 - 2.0 * i / k, np.pi * (1.0 + np.sqrt(5.0)) * i
    return np.column_stack([np.cos(angle) * np.sqrt(1 - z**2), np.sin(angle) * np.sqrt(1 - z**2), z])


def _label(ax: Any, name: str) -> None:
    ax.set_xlabel(f"${name}_1$")
    ax.set_ylabel(f"${name}_2$")
    if hasattr(ax, "set_zlabel"):
        ax.set_zlabel(f"${name}_3$")
        ax.locator_params(nbins=4)
    else:
        ax.axhline(0, color="0.8", lw=0.8, zorder=0)
        ax.axvline(0, color="0.8", lw=0.8, zorder=0)


def _few_rows(X: Array) -> FloatArray:
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or len(X) not in (2, 3):
        raise ValueError(f"the picture is about two or three rows, got X of shape {X.shape}")
    if not X.any(axis=1).all():
        raise ValueError("X has a zero row: the picture would be flat")
    return X


def _axes(ax: Any, n: int) -> Any:
    import matplotlib.pyplot as plt

    if ax is not None:
        if (n == 3) != hasattr(ax, "get_zlim"):
            raise ValueError(f"{n} rows need axes with {'' if n == 3 else 'no '}projection='3d'")
        return ax
    return plt.subplots(layout="constrained", subplot_kw={"projection": "3d"} if n == 3 else None)[1]
