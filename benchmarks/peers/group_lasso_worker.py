"""Gated ReLU as a group lasso: adelie and skglm, on the same gates.

python group_lasso_worker.py input.npz output.npz    (options: solver = "adelie" or "skglm"; gates)

Neither tells its progress, so they are run from scratch to smaller and smaller tolerances; each point of the trace is
one such run with its own time.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable

import numpy as np
from common import Clock, FloatArray, gate_patterns, gated_objective, planted_warm_up

TOLERANCES = (1e-3, 1e-5, 1e-7, 1e-9)
Solve = Callable[[FloatArray, FloatArray, float, int, float], FloatArray]


def adelie(A: FloatArray, y: FloatArray, beta: float, d: int, tol: float) -> FloatArray:
    import adelie as ad

    groups = np.arange(0, A.shape[1], d)
    threads = os.cpu_count() or 1
    # the largest penalty with the zero solution, then ten steps down to the one asked for
    top = np.linalg.norm((A.T @ y).reshape(-1, d), axis=1).max() / len(y)
    state = ad.grpnet(
        X=ad.matrix.dense(A, method="naive", n_threads=threads),
        glm=ad.glm.gaussian(y),
        groups=groups,
        penalty=np.ones(len(groups)),
        lmda_path=np.geomspace(max(top, beta), beta, 10),
        intercept=False,
        early_exit=False,
        tol=tol,
        n_threads=threads,
        progress_bar=False,
    )
    if state.lmdas.shape[0] == 0 or not np.isclose(state.lmdas[-1], beta):
        raise RuntimeError("adelie stopped before the last penalty")
    return np.asarray(state.betas[-1].toarray()).ravel()


def skglm(A: FloatArray, y: FloatArray, beta: float, d: int, tol: float) -> FloatArray:
    from skglm import GroupLasso

    P = A.shape[1] // d
    model = GroupLasso(d, alpha=beta, weights=np.ones(P), tol=tol, fit_intercept=False, max_iter=1000)
    return np.asarray(model.fit(A, y).coef_)


def main(inputs: str, outputs: str) -> None:
    warnings.simplefilter("ignore")
    with np.load(inputs) as data:
        X, y, beta, limit, gates = data["X"], data["y"], float(data["beta"]), float(data["limit"]), data["gates"]
        solve: Solve = {"adelie": adelie, "skglm": skglm}[str(data["solver"])]
    X_small, y_small = planted_warm_up()
    solve(X_small, y_small, 0.1, 2, 1e-3)  # compile, load
    times: list[float] = []
    objectives: list[float] = []
    neurons, d, total = 0, X.shape[1], Clock()
    for tol in TOLERANCES:
        clock = Clock()
        active = gate_patterns(X, gates)
        P = active.shape[1]
        A = np.asfortranarray((active[:, :, None] * X[:, None, :]).reshape(len(X), P * d))
        V = solve(A, y, beta, d, tol).reshape(P, d)
        times.append(clock.seconds)
        objectives.append(gated_objective(X, y, beta, V, active))
        neurons = int((np.linalg.norm(V, axis=1) > 0).sum())
        slow = clock.seconds > limit / 2 or total.seconds + 2 * clock.seconds > 3 * limit
        note = f"stopped after tolerance {tol:g}" if slow and tol != TOLERANCES[-1] else ""
        np.savez(outputs, times=times, objectives=objectives, neurons=neurons, note=note)
        if slow:
            break


if __name__ == "__main__":
    main(*sys.argv[1:])
