r"""The rank of a linear network as a function of its weight decay (001 Remark 2.1, Thm 3.6)."""

from __future__ import annotations

import numpy as np

from bidual._util.typing import FloatArray, IntArray
from bidual.closed_form.deep_linear import LinearOptions, solve_linear
from bidual.closed_form.linear import LinearProblem
from bidual.closed_form.scalar import critical_beta


def rank_jumps(X: FloatArray, Y: FloatArray, *, depth: int = 2) -> FloatArray:
    r"""Where the rank of the hidden layers would change if X were white, largest first; beta of the mean loss.

    With :math:`X^T X = s^2 I` singular value j is positive for :math:`\beta < s^2 \beta_c(\sigma_j(X^T Y) / s^2)`
    (see :func:`bidual.closed_form.scalar.critical_beta`): for two layers, up to the singular values of :math:`X^T Y`,
    as 001 Remark 2.1 has it. For any other X only the first of these is exact, and only at two layers; s is then the
    root mean square of the singular values.
    """
    n = len(X)
    S = np.linalg.svd(X / np.sqrt(n), compute_uv=False)
    s2 = float((S[1e-12 * S[0] < S] ** 2).mean())
    sigma = np.linalg.svd(X.T @ Y.reshape(n, -1) / n, compute_uv=False)
    return s2 * critical_beta(sigma / s2, depth)


def rank_path(X: FloatArray, Y: FloatArray, betas: FloatArray, *, depth: int = 2, tol: float = 1e-9) -> IntArray:
    """Rank of the hidden layers of the optimal linear network (without intercept) for each beta of the mean loss."""
    n = len(X)
    problem = LinearProblem.of(X / np.sqrt(n), Y.reshape(n, -1) / np.sqrt(n))
    ranks = []
    for beta in betas:
        sigma = np.linalg.svd(solve_linear(problem, float(beta), depth, LinearOptions(tol)).Z, compute_uv=False)
        ranks.append(int((sigma > 1e-8 * sigma.max(initial=1e-300)).sum()))
    return np.array(ranks, dtype=np.int64)
