r"""Extreme points of the rectified ellipsoid (004 sec. 2.4): neurons as residuals of convex approximation.

The rectified ellipsoid :math:`\{(Xu + b 1)_+ : \|u\| \le 1\}` has spikes along the axes. The neuron at the tip of axis
i is active on row i only, and is what row i has beyond the others (Lemma 2.7): its weights point from the nearest point
of the convex hull of the other rows to :math:`x_i`. Without a bias the cone of the other rows takes the place of the
hull.
"""

from __future__ import annotations

from dataclasses import dataclass

import clarabel
import numpy as np
import scipy.sparse as sp

from bidual._util.typing import Array, BoolArray, FloatArray
from bidual.arrangements import few_patterns
from bidual.geometry.simplex import project_on_cone, project_on_hull

#: A row is this far from the hull of the others, relative to the farthest of them, or it is inside.
INSIDE = 1e-9


@dataclass(frozen=True)
class ExtremePoints:
    r"""Neurons active on one row each.

    Attributes
    ----------
    U : ndarray, shape (k, d)
        Unit vectors; zero for a row inside the hull (cone) of the others, which no neuron singles out.
    bias : ndarray, shape (k,)
        :math:`b_i = \min_{j \ne i} (-x_j^T u_i)`; zeros if there is no bias.
    heights : ndarray, shape (k,)
        :math:`x_i^T u_i + b_i`, the length of the spike: the distance of row i from the hull (cone) of the others.
    weights : sparse array, shape (k, n)
        The :math:`\lambda` of the approximation :math:`\sum_j \lambda_j x_j` of row i.
    """

    U: FloatArray
    bias: FloatArray
    heights: FloatArray
    weights: sp.csr_array


def extreme_points(X: Array, index: Array | None = None, *, bias: bool = True) -> ExtremePoints:
    r"""The neuron active on row i alone that is largest there (004 Lemma 2.7, eq. 10), for all rows at once.

    .. math:: \max_{u, b} \; x_i^T u + b \quad \text{s.t. } x_j^T u + b \le 0 \;\; \forall j \ne i, \; \|u\| \le 1

    Parameters
    ----------
    X : array of shape (n, d)
    index : array of ints or None
        Rows to look at; None: all.
    bias : bool, default=True
        With a free bias (it costs nothing) the others are approximated by their convex hull; without, by their cone.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual.geometry import extreme_points
    >>> tips = extreme_points(np.array([[0.0], [1.0], [3.0]]))  # the middle point has no neuron of its own
    >>> tips.U.ravel().tolist(), tips.bias.tolist(), tips.heights.tolist()
    ([-1.0, 0.0, 1.0], [1.0, 0.0, -1.0], [1.0, 0.0, 2.0])
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or len(X) < 2:
        raise ValueError(f"extreme points are about one row beside others: X needs at least two rows, got {X.shape}")
    index = np.arange(len(X)) if index is None else np.asarray(index)
    found = (project_on_hull if bias else project_on_cone)(X, X[index], index)
    size = np.abs(X - X.mean(axis=0)).max() if bias else np.abs(X[index]).max(axis=1)
    outside = found.distances > INSIDE * size
    U = np.where(outside[:, None], found.residuals / np.where(outside, found.distances, 1.0)[:, None], 0.0)
    shift = np.zeros(len(index))
    if bias:
        reach = X @ U.T  # (n, k)
        reach[index, np.arange(len(index))] = -np.inf
        shift = np.where(outside, -reach.max(axis=0), 0.0)
    return ExtremePoints(U, shift + 0.0, np.where(outside, found.distances, 0.0), found.weights)


@dataclass(frozen=True)
class ExtremePoint:
    r"""The neuron farthest in one direction (004 Lemma 2.8).

    Attributes
    ----------
    u : ndarray, shape (d,)
    bias : float
    value : float
        :math:`v^T (Xu + b 1)_+`.
    active : ndarray of bool, shape (n,)
        The set S of the lemma.
    multipliers : ndarray, shape (n,)
        :math:`\lambda_i` on S, :math:`\nu_j` off it, with
        :math:`u \propto \sum_S (v_i + \lambda_i) x_i - \sum_{S^c} \nu_j x_j`.
    exact : bool
        Whether all activation patterns were looked at.
    """

    u: FloatArray
    bias: float
    value: float
    active: BoolArray
    multipliers: FloatArray
    exact: bool


def extreme_point(X: Array, v: Array, *, bias: bool = False, max_patterns: int = 20_000) -> ExtremePoint:
    r"""Maximise :math:`v^T (Xu + b 1)_+` over :math:`\|u\| \le 1` (and b, if there is a bias): 004 eq. 9, Lemma 2.8.

    On every activation pattern S this is a convex problem, whose dual gives the multipliers; the best of all patterns
    is returned. (Finding S is the hard part, which the lemma leaves open: 004 Remark 3.1.)

    Parameters
    ----------
    X : array of shape (n, d)
    v : array of shape (n,)
        With a bias, its sum must not be positive: otherwise a growing bias makes the value as large as one likes.
    bias : bool, default=False
        A free bias, outside the norm.
    max_patterns : int
        Up to so many activation patterns are enumerated; data with more raise an error. For these,
        :func:`bidual.certify` and the solvers have a local search.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual.geometry import extreme_point
    >>> tip = extreme_point(np.array([[1.0, 0.0], [-1.0, 1.0]]), np.array([1.0, 0.0]))
    >>> tip.u.round(6).tolist(), tip.active.tolist()
    ([1.0, 0.0], [True, False])
    """
    X, v = np.asarray(X, dtype=np.float64), np.asarray(v, dtype=np.float64).ravel()
    if X.ndim != 2 or v.shape != (len(X),):
        raise ValueError(f"v must have one entry for each row of X, got shapes {v.shape} and {X.shape}")
    total, size = float(v.sum()), float(np.abs(v).sum())
    if bias and total > 1e-12 * size:
        raise ValueError(f"with a free bias the direction must not have a positive sum (here {total:.3g}): unbounded")
    rows = np.column_stack([X, np.ones(len(X))]) if bias else X
    patterns = few_patterns(rows, max_patterns, patient=True)
    if patterns is None:
        raise ValueError(
            f"{len(X)} rows have more than max_patterns={max_patterns} activation patterns: raise it, or use fewer rows"
        )
    best = ExtremePoint(np.zeros(X.shape[1]), 0.0, 0.0, np.zeros(len(X), dtype=bool), np.maximum(-v, 0.0), True)
    gradients = (patterns.active * v) @ X
    for k in np.argsort(-np.linalg.norm(gradients, axis=1)):
        active = patterns.active[k]
        if not bias and np.linalg.norm(gradients[k]) <= best.value * (1.0 + 1e-12):
            break  # no cone of the patterns that follow can do better
        point = on_pattern(X, v, active, bias=bias)
        if point.value > best.value * (1.0 + 1e-12) + 1e-12 * size:
            best = point
    return best


def on_pattern(X: FloatArray, v: FloatArray, active: BoolArray, *, bias: bool) -> ExtremePoint:
    """The best neuron with the rows of ``active`` not below zero and the others not above: Lemma 2.8 with S given."""
    sign = np.where(active, 1.0, -1.0)
    c = (active * v) @ X
    if not bias:
        found = project_on_cone(-sign[:, None] * X, c[None])
        multipliers = found.weights.toarray()[0]
        u, b = found.residuals[0], 0.0
    else:
        u, b, multipliers = _with_bias(X, sign, c, float(v[active].sum()))
    size = float(np.linalg.norm(u))
    u = u / size if size > 1e-12 * float(np.abs(v) @ np.linalg.norm(X, axis=1)) else 0.0 * u
    if bias and u.any():
        # piecewise linear in b: the best one puts a row on the kink (Cor. 2.1)
        kinks = -X @ u
        values = np.maximum(X @ u + kinks[:, None], 0.0) @ v
        b = float(kinks[np.argmax(values)])
    value = float(v @ np.maximum(X @ u + (b if u.any() else 0.0), 0.0))
    return ExtremePoint(u, b if u.any() else 0.0, value, active, multipliers, True)


def _with_bias(X: FloatArray, sign: FloatArray, c: FloatArray, s: float) -> tuple[FloatArray, float, FloatArray]:
    r"""Minimise :math:`\|c + X^T \Sigma \lambda\|` over :math:`\lambda \ge 0` with :math:`s + 1^T \Sigma \lambda = 0`.

    The dual of 004 Lemma 2.8, by Clarabel: variables :math:`(r, \lambda)` with :math:`r = c + X^T \Sigma \lambda`.
    """
    n, d = X.shape
    scale = max(float(np.linalg.norm(c)), float(np.abs(X).max(initial=0.0)), 1e-300)
    signed = (sign[:, None] * X).T
    A = sp.csc_matrix(
        sp.vstack(
            [
                sp.hstack([sp.eye_array(d), -sp.csc_array(signed)]),
                sp.hstack([sp.csc_array((1, d)), sp.csc_array(sign[None])]),
                sp.hstack([sp.csc_array((n, d)), -sp.eye_array(n)]),
            ]
        )
    )
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-12
    P = sp.csc_matrix(sp.block_diag([sp.eye_array(d), sp.csc_array((n, n))]))
    b = np.concatenate([c, [-s], np.zeros(n)]) / scale
    cones = [clarabel.ZeroConeT(d + 1), clarabel.NonnegativeConeT(n)]
    x = np.asarray(clarabel.DefaultSolver(P, np.zeros(d + n), A, b, cones, settings).solve().x) * scale
    return x[:d], 0.0, np.maximum(x[d:], 0.0)
