r"""Whether any network fits at all: what ReLU neurons without biases cannot do.

On the lifted rows a network is a sum of :math:`(x^T u)_+ \alpha^T`: positively homogeneous, and its odd part
:math:`f(x) - f(-x)` is linear. Nothing else restricts its values there: they are :math:`c_i g_l` on the rows
:math:`x_i = c_i e_l` of a line l, and :math:`c_i g_l + x_i^T W` on the rows :math:`x_i = -c_i e_l` that point the other
way, for any numbers :math:`g_l` and any matrix W. (A combination V of rows that every neuron makes zero has no kink on
any line, so that its weights on the two sides of each cancel, and what they leave is linear: :math:`\sum v_i x_i = 0`
over the rows of one side.) With the pooling and the intercept outputs are therefore :math:`B z` with a known matrix B,
and that no z fits has a proof: V with :math:`V^T B = 0` and :math:`L^*(-V) < 0`. Hidden biases make all rows point one
way, and only equal ones share a line.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from bidual._util.typing import FloatArray
from bidual.arrangements.enumerate import Hyperplanes
from bidual.atoms import Relu
from bidual.problem import Problem

#: What an output may be missed by, relative to the largest target, for rounding to be the reason.
_ROUNDING = 1e-9
#: Angle below which two rows are on one line: theirs is rounding.
_SAME_LINE = 1e-14
#: Weights of a proof below this share of the largest are rounding.
_NOTHING = 1e-9


def outputs_basis(problem: Problem[Relu]) -> sp.csc_array | None:
    """B, ``(n, lines + coordinates + intercept)``; None if it is known that all outputs are possible."""
    atoms = problem.atoms
    X = atoms.reduced
    lines = Hyperplanes(X, atoms.row_norms, _SAME_LINE)
    if atoms.A is None and len(lines) == len(X):
        return None
    rows, group, side = lines.members
    sizes = np.linalg.norm(X[rows], axis=1)
    heights = sp.csc_array((sizes, (rows, group)), shape=(len(X), len(lines)))
    linear = np.zeros_like(X)
    linear[rows[~side]] = X[rows[~side]]
    lifted = sp.hstack([heights, sp.csc_array(linear)], format="csr")
    pooled = lifted if atoms.A is None else atoms.A @ lifted
    ones = np.ones((pooled.shape[0], int(problem.fit_intercept)))
    return sp.csc_array(sp.hstack([pooled, sp.csc_array(ones)]))


def contradiction(problem: Problem[Relu]) -> FloatArray | None:
    r"""A proof that no network fits, V ``(n, C)`` with entries up to one; None if there is one that does.

    The least that every network misses the targets by, :math:`\min_z \max_{ic} |F_{ic} - P(F)_{ic}|`, is a linear
    program for each output, whose dual point is V.
    """
    form = problem.loss.cone_form(problem.Y, problem.w)
    basis = outputs_basis(problem)
    if basis is None or form is None:
        return None
    n, C = problem.Y.shape
    size = max(float(np.abs(problem.Y).max(initial=0.0)), np.finfo(float).tiny)
    allowed, V = _ROUNDING * size, np.zeros((n, C))
    scale = float(abs(basis).max()) or 1.0
    for c in range(C):
        y = problem.Y[:, c]
        low, high = (problem.loss.nearest_outputs(np.full((n, 1), far), y[:, None])[:, 0] for far in (-1e300, 1e300))
        below, above = low > -1e300, high < 1e300
        ones = np.ones((n, 1))
        A = sp.vstack([sp.hstack([-basis / scale, -ones])[below], sp.hstack([basis / scale, -ones])[above]])
        b = np.concatenate([-low[below], high[above]])
        cost = np.append(np.zeros(basis.shape[1]), 1.0)
        bounds = [(None, None)] * basis.shape[1] + [(0, None)]
        found = linprog(cost, A.tocsc(), b / size, bounds=bounds, method="highs")
        if found.status == 0 and found.fun > allowed / size:
            multipliers = -found.ineqlin.marginals
            V[below, c] += multipliers[: below.sum()]
            V[above, c] -= multipliers[below.sum() :]
            V[np.abs(V) < _NOTHING * np.abs(V).max()] = 0.0
            return V
    return None
