r"""The fully corrective step over output weights: the best ones of given hidden directions.

With several outputs and hidden unit directions :math:`u_k` fixed, :math:`h_k = A (M u_k)_+`, training is a group lasso,

.. math:: \min_{\alpha, b} \; L\Big(\sum_k h_k \alpha_k^T + 1 b^T\Big) + \beta \sum_k \|\alpha_k\|,

whose residual satisfies :math:`\|V^T h_k\| \le \beta` at every direction, used or not. Newton's method follows the
minimisers with :math:`\sqrt{\|\alpha_k\|^2 + \epsilon^2}` in the place of the norms while :math:`\epsilon` falls: their
residuals satisfy the constraints as well, and no group has to be known to be zero beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint
from bidual.atoms import Neurons, Relu
from bidual.losses import Loss
from bidual.problem import Problem
from bidual.programs.corrective import Corrected

#: The first epsilon, relative to the mean size of the groups in use, and what it is multiplied by where the smoothed
#: problem is solved to this share of what smoothing costs.
_FIRST, _FALLS, _SOLVED = 0.1, 0.1, 0.1
#: Newton steps in all, and iterations of conjugate gradients in each, which end at this share of the residual.
_STEPS, _CG, _RESIDUAL = 60, 30, 0.05
#: Halvings of a step, and the share of the promised decrease that is enough.
_HALVINGS, _ENOUGH = 12, 1e-4
#: The share of the curvature across a norm that is added along it, where a norm has none and steps may be far too long:
#: first, least and most, and by how much it falls after a full step and rises after a short one.
_DAMPING, _DAMPINGS, _LESS, _MORE = 1e-2, (1e-4, 1.0), 0.2, 10.0
#: Groups below this many epsilons, and below this share of the largest, are zero.
_ZERO, _SMALL = 100.0, 1e-4
#: What keeps factors positive definite, relative to their diagonal.
_LIFT = 1e-10


@dataclass(frozen=True)
class _Point:
    """Weights (the intercept, if there is one, in the last row) with outputs, smoothed objective and gradients."""

    A: FloatArray
    F: FloatArray
    value: float
    g: FloatArray
    slopes: FloatArray


class OutputsProgram:
    """The program of given directions.

    Parameters
    ----------
    problem : Problem
        Of neurons with one head.
    loss : Loss
        A smooth loss: that of the problem, or a smoothed version of it.
    hidden : ndarray, shape (n, K)
        What the directions compute.
    """

    def __init__(self, problem: Problem[Relu], loss: Loss, hidden: FloatArray) -> None:
        self.problem, self.loss, self.K = problem, loss, hidden.shape[1]
        ones = np.ones((len(hidden), int(problem.fit_intercept)))
        self.H = np.concatenate([hidden, ones], axis=1)

    def sizes(self, A: FloatArray, epsilon: float) -> FloatArray:
        """Smoothed norms of the groups."""
        return np.asarray(np.sqrt((A[: self.K] ** 2).sum(axis=1) + epsilon**2))

    def at(self, A: FloatArray, epsilon: float) -> _Point:
        """These weights."""
        p = self.problem
        F = self.H @ A
        value = self.loss.value(F, p.Y, p.w) + p.beta * float((self.sizes(A, epsilon) - epsilon).sum())
        g = self.loss.gradient(F, p.Y, p.w)
        return _Point(A, F, value, g, self.H.T @ g)

    def gap(self, point: _Point) -> float:
        """The relative gap of the program, by the dual point of these outputs."""
        p, K = self.problem, self.K
        V = p.dual_point(-point.g)
        worst = float(np.linalg.norm(self.H[:, :K].T @ V, axis=1).max(initial=0.0))
        bound = p.dual_value(V * min(1.0, p.beta / max(worst, 1e-300)))
        value = p.loss_value(point.F) + p.beta * float(np.linalg.norm(point.A[:K], axis=1).sum())
        return (value - bound) / max(abs(value), 1e-300)

    def solve(self, A: FloatArray, tol: float) -> tuple[FloatArray, FloatArray]:
        """Weights to a relative gap of ``tol`` from ``A``, zeros among them; and the outputs of the dual point."""
        norms = np.linalg.norm(A[: self.K], axis=1)
        epsilon = _FIRST * float(norms[norms > 0].mean()) if norms.any() else 1.0
        point, damping = self.at(A, epsilon), _DAMPING
        for _ in range(_STEPS):
            checkpoint()
            if self.gap(point) <= tol:
                break
            step, slope = self._direction(point, epsilon, damping)
            if -slope <= _SOLVED * self.problem.beta * self.K * epsilon:
                epsilon *= _FALLS
                point = self.at(point.A, epsilon)
                continue
            length = 1.0
            for _ in range(_HALVINGS):
                trial = self.at(point.A + length * step, epsilon)
                if trial.value <= point.value + _ENOUGH * length * slope:
                    break
                length *= 0.5
            else:
                if damping >= _DAMPINGS[1]:
                    break
            if trial.value < point.value:
                point = trial
            damping = float(np.clip(damping * (_LESS if length == 1.0 else _MORE if length < 0.5 else 1.0), *_DAMPINGS))
        A = point.A.copy()
        norms = np.linalg.norm(A[: self.K], axis=1)
        A[: self.K][norms <= min(_ZERO * epsilon, _SMALL * float(norms.max(initial=0.0)))] = 0.0
        return A, point.F

    def _direction(self, point: _Point, epsilon: float, damping: float) -> tuple[FloatArray, float]:
        """A Newton step and the slope along it."""
        p, H, K = self.problem, self.H, self.K
        size = self.sizes(point.A, epsilon)[:, None]
        pull = np.zeros((H.shape[1], 1))
        pull[:K] = p.beta / size
        unit = np.zeros_like(point.A)
        unit[:K] = point.A[:K] / size * np.sqrt(1.0 - damping)
        gradient = point.slopes + pull * point.A
        diagonal = self.loss.curvature(point.F, p.Y, p.w)
        weights = p.w[:, None, None] * self.loss.row_hessians(point.F, p.Y) if self.loss.coupled else diagonal

        def times(P: FloatArray) -> FloatArray:
            t = H @ P
            t = np.matmul(weights, t[:, :, None])[:, :, 0] if self.loss.coupled else weights * t
            return np.asarray(H.T @ t + pull * (P - unit * (unit * P).sum(axis=1, keepdims=True)))

        shared = diagonal.sum(axis=1) / max(diagonal.shape[1] - self.loss.coupled, 1)
        inverse = _preconditioner(H, shared, pull, unit)
        step = _conjugate_gradients(times, inverse, -gradient)
        return step, float((step * gradient).sum())


def _preconditioner(
    H: FloatArray, shared: FloatArray, pull: FloatArray, unit: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    r"""The inverse with one curvature for all outputs of a row: of :math:`Q \otimes I` less one rank for each group."""
    Q = H.T @ (shared[:, None] * H)
    Q[np.diag_indices_from(Q)] += pull[:, 0]
    Q[np.diag_indices_from(Q)] += _LIFT * float(np.diag(Q).max())
    inverse = np.linalg.inv(Q)
    ranks = np.sqrt(pull) * unit
    inner = np.eye(len(Q)) * (1.0 + _LIFT) - inverse * (ranks @ ranks.T)
    try:
        factor = cho_factor(inner, check_finite=False)
    except LinAlgError:
        return lambda R: inverse @ R

    def apply(R: FloatArray) -> FloatArray:
        x = inverse @ R
        z = cho_solve(factor, (ranks * x).sum(axis=1), check_finite=False)
        return np.asarray(x + inverse @ (z[:, None] * ranks))

    return apply


def _conjugate_gradients(
    times: Callable[[FloatArray], FloatArray], inverse: Callable[[FloatArray], FloatArray], R: FloatArray
) -> FloatArray:
    """Solve ``times(P) = R``; any iterate is a direction of descent."""
    P = np.zeros_like(R)
    Z = inverse(R)
    D, now = Z, float((R * Z).sum())
    first = now
    for _ in range(_CG):
        if not now > _RESIDUAL**2 * first:
            break
        T = times(D)
        bend = float((D * T).sum())
        if not bend > 0:
            break
        P, R = P + now / bend * D, R - now / bend * T
        Z = inverse(R)
        before, now = now, float((R * Z).sum())
        D = Z + now / before * D
    return P


def corrected_outputs(
    problem: Problem[Relu], loss: Loss, atoms: Neurons, t: FloatArray, tol: float
) -> tuple[Neurons, Corrected]:
    """The best output weights of ``atoms`` (reduced coordinates) from magnitudes ``t``, to a gap of ``tol``.

    Atoms that end without weights keep their output directions.
    """
    sizes = np.linalg.norm(atoms.U, axis=1)
    hidden = problem.atoms.pool(np.maximum(problem.atoms.reduced @ (atoms.U / sizes[:, None]).T, 0.0))
    program, K = OutputsProgram(problem, loss, hidden), len(atoms)
    start = np.concatenate([atoms.alpha * (t * sizes)[:, None], atoms.intercept[None, :][: program.H.shape[1] - K]])
    A, F = program.solve(start, tol)
    norms = np.linalg.norm(A[:K], axis=1)
    alpha = np.where(norms[:, None] > 0, A[:K] / np.where(norms > 0, norms, 1.0)[:, None], atoms.alpha)
    b = A[K] if problem.fit_intercept else atoms.intercept
    G = program.H @ A
    value = loss.value(G, problem.Y, problem.w) + problem.beta * float(norms.sum())
    V = -loss.gradient(F, problem.Y, problem.w)
    return replace(atoms, alpha=alpha, intercept=b), Corrected(norms / sizes, b, G, value, V)
