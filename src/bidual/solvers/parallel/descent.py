"""Moving all branches downhill: the usual training. It has no guarantee, but finds good cells quickly.

L-BFGS is fast until it meets the kinks of the ReLUs, at which it ends. Adam, whose steps have their length whatever
they bring, then gets across them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from bidual._util.typing import FloatArray
from bidual.atoms import Branches, SubNetworks
from bidual.losses import Loss
from bidual.problem import Problem
from bidual.solvers.adam import adam_step

#: Adam: steps, and the length of the first one relative to the weights; it falls to zero along a cosine.
STEPS, RATE = 200, 0.04


def descend(
    problem: Problem[Branches],
    loss: Loss,
    branches: SubNetworks,
    max_iter: int,
    tol: float = 1e-10,
    stop: Callable[[], bool] = lambda: False,
) -> SubNetworks:
    r"""Lower :math:`L(F) + \tfrac\beta2 \sum_k (\|W_k\|_F^2 + \|\alpha_k\|^2)` from ``branches``; signs stay.

    Parameters
    ----------
    loss : Loss
        A smooth one: that of the problem, or a smoothed version of it.
    tol : float
        Relative decrease of one step at which to stop.
    stop : callable
        Asked after every step.
    """
    branches = branches.balanced()  # type: ignore[assignment]
    if not len(branches):
        return branches
    M, Y, w, beta, tree = problem.atoms.M, problem.Y, problem.w, problem.beta, problem.atoms.tree
    shapes = branches.U.shape, branches.alpha.shape
    cut = branches.U.size, branches.U.size + branches.alpha.size

    def unpack(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        return x[: cut[0]].reshape(shapes[0]), x[cut[0] : cut[1]].reshape(shapes[1]), x[cut[1] :]

    def value(x: FloatArray) -> tuple[float, FloatArray]:
        U, alpha, b = unpack(x)
        pre = problem.atoms.leaves(U)
        phi, gates = tree.gates(pre, branches.signs)
        F = phi @ alpha + (b if len(b) else 0.0)
        penalised = x[: cut[1]]
        objective = loss.value(F, Y, w) + 0.5 * beta * float(penalised @ penalised)
        dF = loss.gradient(F, Y, w)
        gates *= (alpha @ dF.T).T[:, :, None]
        dU = gates.transpose(1, 2, 0).reshape(-1, len(M)) @ M
        parts = [dU.ravel() + beta * U.ravel(), (phi.T @ dF + beta * alpha).ravel()]
        return objective, np.concatenate([*parts, dF.sum(axis=0) if len(b) else b])

    def ask(x: FloatArray) -> None:
        if stop():
            raise StopIteration

    free = branches.intercept if problem.fit_intercept else np.zeros(0)
    start = np.concatenate([branches.U.ravel(), branches.alpha.ravel(), free])
    options = {"maxiter": max_iter, "maxcor": 20, "maxfun": 2 * max_iter, "ftol": tol, "gtol": 1e-10}
    found = minimize(value, start, jac=True, method="L-BFGS-B", callback=ask, options=options)
    U, alpha, b = unpack(_adam(value, found.x, stop))
    return replace(branches, U=U, alpha=alpha, intercept=b if len(b) else branches.intercept)


def _adam(
    value: Callable[[FloatArray], tuple[float, FloatArray]], x: FloatArray, stop: Callable[[], bool]
) -> FloatArray:
    """The best point that Adam meets on its way from ``x``."""
    best, lowest, x = x, np.inf, x.copy()
    mean, square = np.zeros_like(x), np.zeros_like(x)
    length = RATE * float(np.sqrt(np.mean(x**2)))
    for k in range(1, STEPS + 1):
        now, slope = value(x)
        if now < lowest:
            best, lowest = x.copy(), now
        if stop():
            break
        cosine = 0.5 * (1.0 + np.cos(np.pi * (k - 1) / STEPS))
        adam_step([x], [slope], [mean], [square], length * cosine, k, epsilon=1e-12)
    return best
