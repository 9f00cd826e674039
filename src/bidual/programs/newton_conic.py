r"""The finite program of any smooth loss, by damped Newton steps on quadratic programs.

Each step minimises the model :math:`\langle g, F - F_k \rangle + \tfrac12 \langle F - F_k, H (F - F_k) \rangle` plus
the penalty over the cones, and moves towards its minimiser until the true objective has decreased enough. This is how a
loss without a cone form is trained, and how one whose exponential cones stall is finished.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from bidual._util.status import Status
from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint
from bidual.losses import ConeForm
from bidual.problem import Problem
from bidual.programs.conic import ConicProgram, ConicResult

#: Curvature, relative to the loss's largest, that the model has at least: flat rows would let it run away.
FLOOR = 1e-7
#: Steps after which it ends, whatever the model still promises.
MAX_STEPS = 50
#: Share of the decrease the model promises that a step must bring, and its length below which none will.
ENOUGH, SHORTEST = 1e-4, 1e-8


def newton(
    program: ConicProgram,
    solve: Callable[[ConeForm], ConicResult],
    start: ConicResult | None = None,
    *,
    tol: float = 1e-9,
) -> ConicResult:
    """Minimise the program from the blocks of ``start`` (or zero), with ``solve`` for the quadratic programs.

    Stops when the model promises a decrease below ``tol`` relative to the objective.
    """
    problem = program.problem
    loss = problem.loss
    if not loss.smooth:
        raise TypeError(
            f"the loss {loss.name!r} has neither a cone form nor curvature: give it row_curvatures and smooth=True, or "
            "cone_form"
        )
    Z = np.zeros(program.shape) if start is None else start.Z
    intercept = np.zeros(problem.n_outputs) if start is None else start.intercept

    def penalty(Z: FloatArray) -> float:
        return problem.beta * float(program.costs(Z).sum())

    F = program.outputs(Z, intercept)
    value = problem.loss_value(F) + penalty(Z)
    iterations, status = 0, Status.MAX_ITER
    for _ in range(MAX_STEPS):
        checkpoint()
        model, gradient = _model(problem, F)
        result = solve(model)
        iterations += result.iterations
        F_new = program.outputs(result.Z, result.intercept)
        slope = float((gradient * (F_new - F)).sum()) + penalty(result.Z) - penalty(Z)
        step = 1.0
        while step > SHORTEST:
            Z_trial = Z + step * (result.Z - Z)
            F_trial = F + step * (F_new - F)
            trial = problem.loss_value(F_trial) + penalty(Z_trial)
            if trial <= value + ENOUGH * step * slope:
                break
            step /= 2
        else:
            status = Status.STALLED
            break
        Z, intercept, F, value = Z_trial, intercept + step * (result.intercept - intercept), F_trial, trial
        if -slope <= tol * max(abs(value), np.finfo(float).tiny):
            status = Status.SOLVED
            break
        if result.status in (Status.TIME_LIMIT, Status.INTERRUPTED):
            status = result.status
            break
    V = -loss.gradient(F, problem.Y, problem.w)
    return replace(result, Z=Z, intercept=intercept, V=V, status=status, iterations=iterations)


def _model(problem: Problem, F: FloatArray) -> tuple[ConeForm, FloatArray]:
    """Second-order model of the loss at ``F``, in ``e = F_new - F``, and the gradient there."""
    loss, Y, w = problem.loss, problem.Y, problem.w
    n, C = F.shape
    hessians = loss.row_hessians(F, Y) + FLOOR * min(loss.lipschitz, 1.0) * np.eye(C)
    block = np.arange(n * C * C)
    row, a, b = block // (C * C), block // C % C, block % C
    Q = sp.csc_array(((w[:, None, None] * hessians).ravel(), (row * C + a, row * C + b)), shape=(n * C, n * C))
    gradient = loss.gradient(F, Y, w)
    return ConeForm(offset=F, quadratic_e=Q, linear_e=gradient.ravel()), gradient
