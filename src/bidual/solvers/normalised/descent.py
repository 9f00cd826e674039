"""Moving all neurons downhill: the usual training, by L-BFGS. It has no guarantee, but finds good patterns quickly."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from bidual._util.typing import FloatArray
from bidual._util.watch import current
from bidual.atoms import Neurons, Normalised
from bidual.losses import Loss
from bidual.problem import Problem

#: Relative decrease of a step from which on single precision is enough; deviation of a neuron that is constant.
SINGLE, IDLE = 1e-8, 1e-12


def descend(problem: Problem[Normalised], loss: Loss, neurons: Neurons, max_iter: int, tol: float = 1e-10) -> Neurons:
    r"""Lower :math:`L(F) + \tfrac\beta2 \sum_j (\gamma_j^2 + a_j^2 + \|\alpha_j\|^2)` from ``neurons``.

    The variables are directions :math:`q_j` (any length), scales, shifts, output weights and the intercept. Neurons are
    in reduced coordinates.

    Parameters
    ----------
    loss : Loss
        That of the problem, or a smoothed version of it.
    tol : float
        Relative decrease of one step at which to stop.
    """
    neurons = neurons.balanced()
    dtype = np.float32 if tol >= SINGLE else np.float64
    X, k, w, beta = problem.atoms.plain.reduced.astype(dtype), problem.atoms.k, problem.w, problem.beta
    weights = w.astype(dtype)
    m, r, C = len(neurons), X.shape[1], problem.n_outputs
    if not m:
        return neurons
    inner, penalised = m * r, m * (r + 2 + C)

    def unpack(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        scales = x[inner : inner + 2 * m].reshape(2, m)
        return x[:inner].reshape(m, r), scales, x[inner + 2 * m : penalised].reshape(m, C), x[penalised:]

    def value(x: FloatArray) -> tuple[float, FloatArray]:
        Q, (gamma, shift), alpha, b = unpack(x)
        z = X @ Q.T.astype(dtype)
        active = z > 0
        z *= active
        z -= weights @ z
        deviation = np.sqrt(weights @ np.square(z))
        live = deviation > IDLE
        inverse = np.where(live, 1.0, 0.0) / np.where(live, deviation, 1.0)
        z *= inverse
        F = z @ (k * gamma[:, None] * alpha).astype(dtype) + (k * (shift @ alpha) + (b if len(b) else 0.0))
        objective = loss.value(F, problem.Y, w) + 0.5 * beta * float((x[inner:penalised] ** 2).sum())
        G = loss.gradient(F, problem.Y, w)
        G_ = G.astype(dtype)
        total, pulled = G.sum(axis=0), z.T @ G_  # (C,), (m, C)
        along = (pulled * alpha).sum(axis=1)
        d_alpha = k * (gamma[:, None] * pulled + shift[:, None] * total)
        # what is left of G alpha^T after centring and normalising, times the weights of rows
        z *= -along.astype(dtype)
        z -= (alpha @ total).astype(dtype)
        z *= weights[:, None]
        z += G_ @ alpha.T.astype(dtype)
        z *= active
        d_q = (z.T @ X) * (k * gamma * inverse)[:, None]
        slopes = [k * along, k * (alpha @ total), d_alpha.ravel()]
        rest = [total] if problem.fit_intercept else []
        return objective, np.concatenate([d_q.ravel(), np.concatenate(slopes) + beta * x[inner:penalised], *rest])

    watch = current()

    def ask(x: FloatArray) -> None:
        if watch.late():
            raise StopIteration

    lengths = np.linalg.norm(neurons.U[:, :-1], axis=1)
    units = neurons.U[:, :-1] / np.where(lengths > 0, lengths, 1.0)[:, None]
    free = neurons.intercept if problem.fit_intercept else np.zeros(0)
    start = np.concatenate([units.ravel(), lengths, neurons.U[:, -1], neurons.alpha.ravel(), free])
    options = {"maxiter": max_iter, "maxcor": 20, "ftol": tol, "gtol": 1e-10}
    found = minimize(value, start, jac=True, method="L-BFGS-B", callback=ask, options=options)
    Q, (gamma, shift), alpha, b = unpack(found.x)
    sign = np.where(gamma < 0, -1.0, 1.0)[:, None]
    lengths = np.linalg.norm(Q, axis=1)
    Q = Q * (np.abs(gamma) / np.where(lengths > 0, lengths, 1.0))[:, None]
    intercept = b if problem.fit_intercept else neurons.intercept
    return Neurons(np.column_stack([Q, sign * shift[:, None]]), sign * alpha, intercept)
