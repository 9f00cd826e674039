r"""The fully corrective step for losses with kinks, as one cone program.

The Moreau envelope of the loss, :math:`L_\epsilon(F) = \min_D L(F - D) + \tfrac1{2\epsilon} \sum_i w_i \|d_i\|^2`,
keeps the dual point from jumping between vertices while cuts arrive (it adds :math:`\tfrac\epsilon2 v^2` to the
conjugate), and

.. math:: \min_{t \ge 0, b, D} \; L\Big(\sum_k t_k \Phi_k + 1 b^T - D\Big) + \sum_k t_k c_k
          + \tfrac1{2\epsilon} \sum_i w_i \|d_i\|^2

is solved by Clarabel with the cone form of the loss. Its dual point is :math:`V = -w D / \epsilon`.
"""

from __future__ import annotations

import clarabel
import numpy as np
import scipy.sparse as sp

from bidual.problem import Neurons, Problem
from bidual.solvers.adaptive.corrective import Corrected

_CONES = {"zero": clarabel.ZeroConeT, "nonnegative": clarabel.NonnegativeConeT}


def corrected_conic(problem: Problem, epsilon: float, atoms: Neurons, tol: float) -> Corrected | None:
    """Magnitudes of ``atoms`` (reduced coordinates) for a loss without curvature; None if Clarabel fails."""
    X, Y, w = problem.reduced, problem.Y, problem.w
    n, C = Y.shape
    form = problem.loss.cone_form(Y, w)
    if form is None or form.G_e is None or form.G_t is None or form.quadratic_e.any():
        return None
    m, k, extra = len(atoms), n * C, form.G_t.shape[1]
    dense = problem.contributions(np.maximum(X @ atoms.U.T, 0.0), atoms.alpha).reshape(k, m)
    free = problem.fit_intercept
    ones = sp.csc_array(np.tile(np.eye(C), (n, 1)) if free else np.zeros((k, 0)))
    # E = dense t + 1 b - D - offset, variables (t, b, D, extra)
    G = form.G_e
    columns = [G @ sp.csc_array(dense), G @ ones, -G, form.G_t]
    shift = form.h + G @ form.offset.ravel()
    bound = sp.hstack([-sp.eye_array(m), sp.csc_array((m, ones.shape[1] + k + extra))])
    A = sp.csc_matrix(sp.vstack([sp.hstack(columns), bound]))
    W = np.repeat(w, C)
    quadratic_t = form.quadratic_t if len(form.quadratic_t) else np.zeros(extra)
    linear_t = form.linear_t if len(form.linear_t) else np.zeros(extra)
    P = np.concatenate([np.zeros(m + ones.shape[1]), W / epsilon, quadratic_t])
    q = np.concatenate([problem.beta * atoms.costs, np.zeros(ones.shape[1] + k), linear_t])
    # weights are 1/n: bring the costs to order one
    scale = 1.0 / float(w.mean())
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = max(min(1e-2 * tol, 1e-6), 1e-9)
    cones = [_CONES[kind](size) for kind, size in form.cones] + [clarabel.NonnegativeConeT(m)]
    solution = clarabel.DefaultSolver(
        sp.csc_matrix(sp.diags_array(scale * P)), scale * q, A, np.concatenate([shift, np.zeros(m)]), cones, settings
    ).solve()
    x = np.asarray(solution.x)
    if not (len(x) and np.isfinite(x).all()):
        return None
    t, b = x[:m], x[m : m + C] if free else np.zeros(C)
    t = np.where(t * atoms.costs > 1e-6 * float((t * atoms.costs).max(initial=0.0)), t, 0.0)
    D = x[m + ones.shape[1] : m + ones.shape[1] + k].reshape(n, C)
    F = (dense @ t).reshape(n, C) + b
    value = problem.loss_value(F) + problem.beta * float(atoms.costs @ t)
    return Corrected(t, b, F, value, V=-w[:, None] * D / epsilon)
