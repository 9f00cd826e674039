r"""Which dual points prove the bound of a linear network of more than two layers (:mod:`bidual.bounds.chains`).

Lines are tangents of the least loss :math:`\varphi(t)` of maps of nuclear norm t: with one output the residuals of the
ridge path, else those of problems of two layers. One is added where the bound is least, until that is enough.
"""

from __future__ import annotations

import numpy as np

from bidual._util.typing import FloatArray
from bidual.atoms import Chains
from bidual.bounds.chains import ChainProof, chain_bound, tangent, zero_loss
from bidual.closed_form.deep_linear import LinearOptions, nuclear
from bidual.closed_form.linear import LinearProblem
from bidual.problem import Problem

#: Most tangents with one output, where they cost little, and with several.
RIDGES, NUCLEAR = 80, 6
#: Below the lower bound by this, relatively: enough.
ENOUGH = 1e-9
#: Steps and tolerance of problems of two layers.
_OPTIONS = LinearOptions(1e-9, 2000)


def prove_chains(problem: Problem[Chains], W: FloatArray, goal: float) -> ChainProof:
    """Dual points that prove the lower bound ``goal``, or what they can; ``W (d, C)`` is the map of the network."""
    root = np.sqrt(problem.w)[:, None]
    w, X, Y = problem.w, problem.atoms.M, problem.Y
    centred = (X - w @ X, Y - w @ Y) if problem.fit_intercept else (X, Y)
    linear = LinearProblem.of(root * centred[0], root * centred[1])
    maps, scales, lines = [], [], []

    def add(Z: FloatArray, slope: float = np.inf) -> None:
        new = linear.V @ Z
        value, own = tangent(problem, new, 1.0)
        scale = min(1.0, slope / own) if own > 0 else 1.0
        if scale < 1.0:
            value, own = tangent(problem, new, scale)
        maps.append(new)
        scales.append(scale)
        lines.append((value, own))

    add(linear.B / linear.S)  # least squares: its line is nearly flat
    add(linear.V.T @ W)
    add(0.0 * linear.B)
    one = Y.shape[1] == 1 or len(linear.S) == 1
    cost, zero = 0.5 * problem.atoms.depth * problem.beta, zero_loss(problem)
    for _ in range(RIDGES if one else NUCLEAR):
        value, t = chain_bound(problem, lines)
        if value >= (1.0 - ENOUGH) * goal or not t > 0:
            break
        if one:
            add(_ridge(linear, t))
        else:  # the slope at which the penalty of this norm pays, and from which the chord to zero is as steep
            mu = max(cost * t ** (2.0 / problem.atoms.depth - 1.0), 1e-12 * zero / t)
            add(nuclear(linear, mu, _OPTIONS).Z, mu)
    return ChainProof(np.array(maps), np.array(scales))


def _ridge(linear: LinearProblem, t: float) -> FloatArray:
    r"""The map of norm t with the least loss: :math:`(S^2 + \mu)^{-1} S b`, with mu by bisection of its logarithm."""
    S, B = linear.S, linear.B
    if np.linalg.norm(B / S) <= t:
        return np.asarray(B / S)
    low, high = -700.0, float(np.log(np.linalg.norm(S * B) / t))
    for _ in range(200):
        middle = 0.5 * (low + high)
        Z = S * B / (S**2 + np.exp(middle))
        low, high = (middle, high) if np.linalg.norm(Z) > t else (low, middle)
    return np.asarray(Z)
