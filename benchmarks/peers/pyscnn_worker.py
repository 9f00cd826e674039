"""pyscnn: its augmented Lagrangian for the ReLU program, its R-FISTA for gated ReLU.

python pyscnn_worker.py input.npz output.npz    (options: model = "relu" with patterns, or "gated" with gates)

The columns are not rescaled (``unitize_data=False``): with rescaled columns the penalty would be another one.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import numpy as np
import scnn.optimize
from common import Clock, gate_patterns, gated_objective, lifted_objective
from scnn.metrics import Metrics
from scnn.models import ConvexGatedReLU, ConvexReLU
from scnn.regularizers import NeuronGL1
from scnn.solvers import AL, RFISTA


class TimeIsUp(Exception):
    """Raised from the callback."""


def main(inputs: str, outputs: str) -> None:
    warnings.simplefilter("ignore")
    with np.load(inputs) as data:
        X, y, beta, limit = data["X"], data["y"], float(data["beta"]), float(data["limit"])
        seed, gated = int(data["seed"]), str(data["model"]) == "gated"
        if gated:
            gates = data["gates"]
        else:
            gates = np.random.default_rng(seed).standard_normal((X.shape[1], int(data["patterns"])))
    times, objectives = [], []
    active, neurons = gate_patterns(X, gates), 0

    def record(internal: Any) -> None:
        nonlocal neurons, active
        weights = np.asarray(internal.weights, dtype=np.float64)
        if gated:
            V = weights[0]
            active = np.asarray(internal.D)
            value = gated_objective(X, y, beta, V, active)
        else:
            V = weights[:, 0].reshape(-1, X.shape[1])
            value = lifted_objective(X, y, beta, V, np.repeat([1.0, -1.0], len(V) // 2))
        neurons = int((np.linalg.norm(V, axis=1) > 0).sum())
        times.append(clock.seconds)
        objectives.append(value)

    clock, next_point = Clock(), 0.0

    def callback(internal: Any, *_: Any) -> Any:
        nonlocal next_point
        if clock.seconds >= next_point or clock.seconds > limit:
            with clock.paused():
                record(internal)
            next_point = clock.seconds + limit / 100
        if clock.seconds > limit:
            raise TimeIsUp
        return internal

    build = scnn.optimize.build_optimizer

    def watched(*args: Any) -> Any:
        procedure = build(*args)

        def run(*arguments: Any) -> Any:
            result = procedure(*arguments, callback=callback)
            with clock.paused():
                record(result[1])
            return result

        return run

    scnn.optimize.build_optimizer = watched
    model = ConvexGatedReLU(gates) if gated else ConvexReLU(gates)
    solver = RFISTA(model, max_iters=10**6, tol=1e-9) if gated else AL(model, max_primal_iters=10**6)
    note = ""
    try:
        scnn.optimize.optimize_model(
            model,
            solver,
            Metrics(),
            X,
            y,
            regularizer=NeuronGL1(beta),
            unitize_data=False,
            return_convex=True,
            seed=seed,
        )
    except TimeIsUp:
        note = "stopped by the time limit"
    np.savez(outputs, times=times, objectives=objectives, neurons=neurons, note=note)


if __name__ == "__main__":
    os.environ.setdefault("TQDM_DISABLE", "1")
    main(*sys.argv[1:])
