"""CVXPY + Clarabel on random activation patterns: the program of 003 eq. 8 (with the mean instead of the sum).

python cvxpy_worker.py input.npz output.npz    (options: patterns)
"""

from __future__ import annotations

import sys

import cvxpy as cp
import numpy as np
from common import Clock, gate_patterns, lifted_objective


def main(inputs: str, outputs: str) -> None:
    with np.load(inputs) as data:
        X, y, beta, limit = data["X"], data["y"], float(data["beta"]), float(data["limit"])
        rng, count = np.random.default_rng(int(data["seed"])), int(data["patterns"])
    clock = Clock()
    D = gate_patterns(X, rng.standard_normal((X.shape[1], count))).astype(float)
    P, d = D.shape[1], X.shape[1]
    v, w = cp.Variable((P, d)), cp.Variable((P, d))
    fit = cp.sum(cp.multiply(D, X @ (v - w).T), axis=1)
    penalty = cp.sum(cp.norm(v, 2, axis=1)) + cp.sum(cp.norm(w, 2, axis=1))
    cones = [cp.multiply(2 * D - 1, X @ v.T) >= 0, cp.multiply(2 * D - 1, X @ w.T) >= 0]
    program = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(fit - y) / len(y) + beta * penalty), cones)
    note = ""
    try:
        program.solve(solver=cp.CLARABEL, time_limit=max(1.0, limit - clock.seconds))
        note = "" if program.status == cp.OPTIMAL else program.status
    except cp.SolverError as error:
        note = str(error)[:100]
    seconds = clock.seconds
    if v.value is None:
        np.savez(outputs, times=[], objectives=[], note=note or "no solution in the time limit")
        return
    # interior points stop next to zero: neurons that small are zero
    V, signs = np.concatenate([v.value, w.value]), np.repeat([1.0, -1.0], P)
    norms = np.linalg.norm(V, axis=1)
    keep = norms > 1e-6 * norms.max()
    objective = lifted_objective(X, y, beta, V[keep], signs[keep])
    np.savez(outputs, times=[seconds], objectives=[objective], neurons=int(keep.sum()), note=note)


if __name__ == "__main__":
    main(*sys.argv[1:])
