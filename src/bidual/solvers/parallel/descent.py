"""Moving all branches downhill: the usual training, by L-BFGS. It has no guarantee, but finds good cells quickly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from bidual._typing import FloatArray
from bidual.losses import Loss
from bidual.problem import ParallelProblem, SubNetworks


def descend(
    problem: ParallelProblem,
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
    M, Y, w, beta, tree = problem.M, problem.Y, problem.w, problem.beta, problem.tree
    shapes = branches.U.shape, branches.alpha.shape
    cut = branches.U.size, branches.U.size + branches.alpha.size

    def unpack(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        return x[: cut[0]].reshape(shapes[0]), x[cut[0] : cut[1]].reshape(shapes[1]), x[cut[1] :]

    def value(x: FloatArray) -> tuple[float, FloatArray]:
        U, alpha, b = unpack(x)
        pre = problem.leaves(U)
        phi, gates = tree.gates(pre, branches.signs)
        F = phi @ alpha + (b if len(b) else 0.0)
        penalised = x[: cut[1]]
        objective = loss.value(F, Y, w) + 0.5 * beta * float(penalised @ penalised)
        dF = loss.gradient(F, Y, w)
        gates *= (dF @ alpha.T)[:, :, None]
        dU = gates.reshape(len(M), -1).T @ M
        parts = [dU.ravel() + beta * U.ravel(), (phi.T @ dF + beta * alpha).ravel()]
        return objective, np.concatenate([*parts, dF.sum(axis=0) if len(b) else b])

    def ask(x: FloatArray) -> None:
        if stop():
            raise StopIteration

    free = branches.intercept if problem.fit_intercept else np.zeros(0)
    start = np.concatenate([branches.U.ravel(), branches.alpha.ravel(), free])
    options = {"maxiter": max_iter, "maxcor": 20, "maxfun": 2 * max_iter, "ftol": tol, "gtol": 1e-10}
    found = minimize(value, start, jac=True, method="L-BFGS-B", callback=ask, options=options)
    U, alpha, b = unpack(found.x)
    return replace(branches, U=U, alpha=alpha, intercept=b if len(b) else branches.intercept)
