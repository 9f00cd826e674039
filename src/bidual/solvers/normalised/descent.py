"""Moving all neurons downhill: the usual training, by L-BFGS. It has no guarantee, but finds good patterns quickly."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from bidual._util.typing import FloatArray
from bidual._util.watch import current
from bidual.atoms import Neurons, Normalised
from bidual.atoms.normalised import statistics
from bidual.problem import Problem


def descend(problem: Problem[Normalised], neurons: Neurons, max_iter: int) -> Neurons:
    r"""Lower :math:`L(F) + \tfrac\beta2 \sum_j (\gamma_j^2 + a_j^2 + \alpha_j^2)` from ``neurons``.

    The variables are directions :math:`q_j` (any length), scales, shifts, output weights and the intercept.
    """
    X, k, w, beta = problem.atoms.relu_inputs, float(problem.atoms.M[0, -1]), problem.w, problem.beta
    m, p = len(neurons), X.shape[1]
    if not m:
        return neurons

    def unpack(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        return x[: m * p].reshape(m, p), x[m * p : m * (p + 3)].reshape(3, m), x[m * (p + 3) :]

    def value(x: FloatArray) -> tuple[float, FloatArray]:
        Q, (gamma, shift, alpha), b = unpack(x)
        pre = X @ Q.T
        z = np.maximum(pre, 0.0)
        mean, deviation = statistics(z, w)
        inverse = np.where(deviation > 0, 1.0, 0.0) / np.where(deviation > 0, deviation, 1.0)
        z = (z - mean) * inverse
        h = k * (gamma * z + shift)
        F = (h @ alpha + b.sum())[:, None]
        objective = problem.loss_value(F) + 0.5 * beta * float((x[m * p : m * (p + 3)] ** 2).sum())
        dF = problem.loss.gradient(F, problem.Y, w)
        total = float(dF.sum())
        d_z = k * gamma * alpha * dF
        d_z = (d_z - w[:, None] * (d_z.sum(axis=0) + z * (d_z * z).sum(axis=0))) * inverse
        outer = [k * alpha * (z.T @ dF[:, 0]), k * alpha * total, h.T @ dF[:, 0]]
        inner = ((d_z * (pre > 0)).T @ X).ravel()
        scales = np.concatenate(outer) + beta * x[m * p : m * (p + 3)]
        return objective, np.concatenate([inner, scales, [total] if problem.fit_intercept else []])

    watch = current()

    def ask(x: FloatArray) -> None:
        if watch.late():
            raise StopIteration

    balanced = neurons.balanced()
    if len(balanced) != m:  # neurons that do nothing have no direction
        return descend(problem, balanced, max_iter)
    lengths = np.linalg.norm(balanced.U[:, :-1], axis=1)
    units = balanced.U[:, :-1] / np.where(lengths > 0, lengths, 1.0)[:, None]
    free = balanced.intercept if problem.fit_intercept else np.zeros(0)
    start = np.concatenate([units.ravel(), lengths, balanced.U[:, -1], balanced.alpha[:, 0], free])
    options = {"maxiter": max_iter, "maxcor": 20}
    found = minimize(value, start, jac=True, method="L-BFGS-B", callback=ask, options=options)
    Q, (gamma, shift, alpha), b = unpack(found.x)
    sign = np.where(gamma < 0, -1.0, 1.0)
    lengths = np.linalg.norm(Q, axis=1)
    Q = Q * (np.abs(gamma) / np.where(lengths > 0, lengths, 1.0))[:, None]
    intercept = b if problem.fit_intercept else neurons.intercept
    moved = Neurons(np.column_stack([Q, sign * shift]), (sign * alpha)[:, None], intercept)
    return moved if problem.objective(moved) <= problem.objective(neurons) else neurons
