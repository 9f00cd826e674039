r"""The fully corrective step for losses with kinks, by its dual.

The conjugate of such a loss is linear on a box (:class:`~bidual.losses.base.DualBox`; a threshold makes two rows of
one). Its Moreau envelope, which keeps the dual point from jumping between vertices while cuts arrive, adds
:math:`\tfrac\epsilon2 \|v\|^2`. The magnitudes of atoms :math:`\Phi_k` of costs :math:`c_k` are then the multipliers of
a small quadratic program in :math:`V = -w u`,

.. math:: \min_u \; \sum_i w_i \big( \tfrac{q + \epsilon}2 \|u_i\|^2 + u_i^T y_i \big) \quad \text{s.t.} \quad
          l \le u \le h, \quad -\langle \Phi_k, w u \rangle \le \beta c_k, \quad \sum_i w_i u_i = 0
          \text{ if there is an intercept,}

solved by a primal-dual interior point method that stays inside the box and the cuts, so that its point can be used
whenever it stops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint
from bidual.atoms import Neurons
from bidual.problem import Problem
from bidual.programs.corrective import Corrected, corrected, longest_step
from bidual.programs.smoothing import smoothed

#: Interior point iterations at most.
MAX_ITER = 60
#: Share of the way to the boundary, and what keeps factors positive definite.
STEP, LIFT = 0.99, 1e-13


def best_magnitudes(
    problem: Problem, epsilon: float, atoms: Neurons, t: FloatArray, tol: float, steps: int = 8
) -> Corrected:
    """The corrective step from ``t`` for any loss: for one with kinks (``epsilon`` not zero) by its dual."""
    step = corrected_on_box(problem, epsilon, atoms, tol) if epsilon else None
    if step is not None:
        return step
    return corrected(problem, smoothed(problem.loss, epsilon), atoms, t, steps, tol)


def corrected_on_box(problem: Problem, epsilon: float, atoms: Neurons, tol: float) -> Corrected | None:
    """Magnitudes of ``atoms`` (reduced coordinates) for the loss smoothed by ``epsilon``, to a gap below ``tol``.

    The gap is relative. None if the conjugate is not of this form.
    """
    Y, w = problem.Y, problem.w
    box = problem.loss.dual_box(Y)
    if box is None:
        return None
    n, C = Y.shape
    Phi = problem.atoms.columns(atoms).full()
    targets, box = box.sided(Y)
    N, k = targets.size, len(targets) // n
    count = 1.0 / float(w.mean())
    W = count * np.repeat(w, k * C)  # of order one
    price = problem.beta * atoms.costs
    rows, alive = np.flatnonzero(W > 0), np.flatnonzero(price > 0)  # a neuron without weights is none
    A = np.repeat(Phi, k, axis=0).reshape(N, -1)[np.ix_(rows, alive)] * -(W[rows, None] / (count * price[alive]))
    E = W[:, None] * np.tile(np.eye(C), (n * k, 1)) if problem.fit_intercept else np.zeros((N, 0))
    program = BoxProgram(
        curvature=((box.curvature + epsilon) * W)[rows],
        linear=(W * targets.ravel())[rows],
        lower=box.lower.ravel()[rows],
        upper=box.upper.ravel()[rows],
        A=A,
        E=E[rows],
    )
    u, t = np.zeros(N), np.zeros(len(atoms))
    u[rows], z, b = program.solve(min(0.1 * tol, 1e-6))
    t[alive] = z / (count * price[alive])
    intercept = -b if problem.fit_intercept else np.zeros(C)
    F = (Phi.reshape(n * C, -1) @ t).reshape(n, C) + intercept
    value = problem.loss_value(F) + float(price @ t)
    return Corrected(t, intercept, F, value, V=-w[:, None] * u.reshape(n, k, C).sum(axis=1))


@dataclass(frozen=True)
class BoxProgram:
    r"""Minimise :math:`\tfrac12 u^T \mathrm{diag}(q) u + f^T u` over :math:`l \le u \le h, A^T u \le 1, E^T u = 0`.

    The box has an inside and contains zero, so that small points are feasible.
    """

    curvature: FloatArray
    linear: FloatArray
    lower: FloatArray
    upper: FloatArray
    A: FloatArray
    E: FloatArray

    def solve(self, tol: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The point and the multipliers of the cuts and of the equations."""
        A, E = self.A, self.E
        u = 0.5 * (self.lower + self.upper)
        u *= min(1.0, 0.5 / max(float((A.T @ u).max(initial=0.0)), 1e-300))
        m, N = A.shape[1], len(u)
        # all inequalities as one stack: cuts, upper bounds, lower bounds
        s = np.concatenate([1.0 - A.T @ u, self.upper - u, u - self.lower])
        scale = float((np.abs(self.linear) + self.curvature * np.abs(u)).mean()) or 1.0
        # the multipliers of the box make up for whatever those of the cuts leave: no residual from the start
        z = np.full(m, scale * N / (m + N))
        slope = self.curvature * u + self.linear + A @ z
        z = np.concatenate([z, np.maximum(-slope, 0.0) + scale, np.maximum(slope, 0.0) + scale])
        y = np.zeros(E.shape[1])

        def along(step: FloatArray) -> FloatArray:
            return np.concatenate([A.T @ step, step, -step])

        def back(multipliers: FloatArray) -> FloatArray:
            return np.asarray(A @ multipliers[:m] + multipliers[m : m + N] - multipliers[m + N :])

        for _ in range(MAX_ITER):
            checkpoint()
            mu = float(s @ z) / len(s)
            residual = self.curvature * u + self.linear + back(z) + E @ y
            value = abs(float(0.5 * u @ (self.curvature * u) + self.linear @ u))
            loose = float(np.abs(residual) @ np.abs(u)) + float(np.abs(y) @ np.abs(E.T @ u))
            if mu * len(s) + loose <= tol * max(value, 1e-12 * scale * N):
                break
            try:
                newton = _Newton(self, z / s)
            except LinAlgError:  # as exact as floating point allows
                break
            du, dy, pull = newton.solve(-(residual - back(z)), -(E.T @ u))
            ds = -along(du)
            dz = -z + np.concatenate([pull, -(z / s * ds)[m:]])
            a = min(longest_step(s, ds), longest_step(z, dz))
            sigma = (float((s + a * ds) @ (z + a * dz)) / len(s) / mu) ** 3
            centre = (max(sigma, 1e-6) * mu - ds * dz) / s
            du, dy, pull = newton.solve(-(residual - back(z) + back(centre)), -(E.T @ u))
            ds = -along(du)
            dz = centre - z + np.concatenate([pull, -(z / s * ds)[m:]])
            a = STEP * min(longest_step(s, ds), longest_step(z, dz))
            if a < 1e-8:
                break
            u, s, z, y = u + a * du, s + a * ds, z + a * dz, y + a * dy
        cuts = z[:m]
        return u, np.where(cuts > s[:m] * float(cuts.max(initial=0.0)), cuts, 0.0), y


class _Newton:
    r"""Solves :math:`H x + A p + E y = r, p = D A^T x, E^T x = e`, by the smaller of two Cholesky factors."""

    def __init__(self, program: BoxProgram, weights: FloatArray) -> None:
        A, self.E = program.A, program.E
        N, m = A.shape
        self.A, self.D = A, weights[:m]
        self.H = program.curvature + weights[m : m + N] + weights[m + N :]
        self.tall = m < N
        if self.tall:  # Woodbury
            B = A / np.sqrt(self.H)[:, None]
            K = B.T @ B
            K[np.diag_indices(m)] += 1.0 / self.D
        else:
            B = A * np.sqrt(self.D)
            K = B @ B.T
            K[np.diag_indices(N)] += self.H
        K[np.diag_indices(len(K))] *= 1.0 + LIFT
        self.factor = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
        self.equations: FloatArray = np.zeros((0, 0))
        if self.E.size:
            solved = np.column_stack([self._inverse(column)[0] for column in self.E.T])
            self.equations = np.asarray(np.linalg.inv(self.E.T @ solved), dtype=np.float64)

    def _inverse(self, r: FloatArray) -> tuple[FloatArray, FloatArray]:
        """x and p without equations."""
        if self.tall:  # p first: from x it would lose its digits where D is large
            p = cho_solve(self.factor, self.A.T @ (r / self.H), check_finite=False)
            return (r - self.A @ p) / self.H, p
        x = cho_solve(self.factor, r, check_finite=False)
        return x, self.D * (self.A.T @ x)

    def solve(self, r: FloatArray, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """x, y and p."""
        y = e
        if len(e):
            y = self.equations @ (self.E.T @ self._inverse(r)[0] - e)
            r = r - self.E @ y
        x, p = self._inverse(r)
        return x, y, p
