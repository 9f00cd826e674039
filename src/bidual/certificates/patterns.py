r"""The dual constraint over activation patterns.

On the cone of pattern i, :math:`v^T A (Mu)_+ = c^T u` with :math:`c = M^T D_i A^T v`. Its maximum over the cone and
the unit ball is bounded, for every :math:`\lambda \ge 0`, by

.. math:: \| c + M^T (2 D_i - I) \lambda \|,

and equals it for the best :math:`\lambda` (003 Lemma 4). A bound is always evaluated from explicit
multipliers, never taken from a solver.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from bidual._typing import FloatArray
from bidual.arrangements import Patterns
from bidual.certificates.dual import DualBound, lower_bound
from bidual.problem import Problem


def pattern_bound(
    problem: Problem, patterns: Patterns, V: FloatArray, cone_bounds: FloatArray | None = None
) -> tuple[float, float]:
    r"""Value and upper bound of :math:`\max |v_c^T A (Mu)_+|` over the cones of ``patterns`` and all outputs c.

    Parameters
    ----------
    V : ndarray, shape (n, C)
    cone_bounds : ndarray, shape (2, C, P), optional
        Upper bounds known already, from the multipliers of a solver.
    """
    rows = problem.reduced
    spread = problem.spread(V)
    C, P = V.shape[1], len(patterns)
    if P == 0:
        return 0.0, _slack(problem, patterns, spread)
    gradients = np.stack([patterns.active.astype(np.float64) @ (spread[:, c : c + 1] * rows) for c in range(C)])
    signed = np.stack([gradients, -gradients])  # (2, C, P, r)
    bounds = np.linalg.norm(signed, axis=-1)
    if cone_bounds is not None:
        bounds = np.minimum(bounds, cone_bounds)
    bounds = bounds.ravel()
    exact = np.zeros(len(bounds), dtype=bool)
    value = 0.0
    # Tighten the largest bound until it is exact, or already below what an exact one attains.
    while True:
        b = int(np.argmax(bounds))
        if exact[b] or bounds[b] <= value:
            break
        sign, c, i = np.unravel_index(b, (2, C, P))
        cone = patterns.rows_of(int(i))
        normals = np.where(patterns.active[i, cone], 1.0, -1.0)[:, None] * rows[cone]
        bounds[b] = min(bounds[b], _cone_maximum(signed[sign, c, i], normals))
        exact[b] = True
        value = max(value, float(bounds[b]))
    return value, float(bounds.max()) + _slack(problem, patterns, spread)


def spectral_bound(problem: Problem, patterns: Patterns, V: FloatArray) -> tuple[float, float]:
    r"""Upper bound of :math:`\max \|V^T A (Mu)_+\|` by spectral norms of :math:`V^T A D_i M`, ignoring the cones."""
    spread = problem.spread(V)
    worst = 0.0
    batch = max(1, 2**22 // max(1, spread.shape[0] * spread.shape[1]))
    for start in range(0, len(patterns), batch):
        active = patterns.active[start : start + batch].astype(np.float64)
        gradients = np.einsum("pn,nr,nc->prc", active, problem.reduced, spread, optimize=True)
        worst = max(worst, float(np.linalg.norm(gradients, 2, axis=(1, 2)).max()))
    return worst, worst + _slack(problem, patterns, spread)


def certify_patterns(
    problem: Problem, patterns: Patterns, V: FloatArray, cone_bounds: FloatArray | None = None
) -> DualBound:
    """Lower bound on the program over ``patterns``; on all networks if the patterns are complete.

    For several outputs the bound over complete patterns is the (weaker) spectral one, because neurons may feed all
    outputs at once; over sampled patterns it is that of the program solved, where a neuron feeds one output.
    """
    if patterns.complete and problem.n_outputs > 1:
        return lower_bound(problem, V, *spectral_bound(problem, patterns, V))
    return lower_bound(problem, V, *pattern_bound(problem, patterns, V, cone_bounds))


def _cone_maximum(c: FloatArray, normals: FloatArray) -> float:
    r"""Upper bound, tight to rounding, of :math:`\max c^T u` over :math:`\|u\| \le 1`, ``normals @ u >= 0``."""
    if not len(normals):
        return float(np.linalg.norm(c))
    scale = float(np.linalg.norm(c))
    if scale == 0.0:
        return 0.0
    lengths = np.linalg.norm(normals, axis=1)
    units = (normals / np.where(lengths > 0, lengths, 1.0)[:, None]).T
    try:
        multipliers, _ = nnls(units, -c / scale)
    except RuntimeError:  # no convergence: the bound without multipliers still holds
        return scale
    return scale * float(np.linalg.norm(c / scale + units @ multipliers))


def _slack(problem: Problem, patterns: Patterns, spread: FloatArray) -> float:
    """What rounding, the reduction to the row space and merged hyperplanes may hide."""
    lost = np.zeros(len(problem.M))
    if problem.reduced is not problem.M:
        lost = np.linalg.norm(problem.M - problem.reduced @ problem.basis.T, axis=1)
    weight = np.linalg.norm(spread, axis=1)
    rank = problem.reduced.shape[1]
    eps = np.finfo(float).eps
    relative = (rank + 1) * patterns.tol + 4 * (rank + 4) * eps
    return float(weight @ (lost + relative * problem.row_norms))
