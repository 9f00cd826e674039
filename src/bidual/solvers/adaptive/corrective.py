r"""The fully corrective step: the best magnitudes of given neurons.

With hidden directions and output directions fixed, neuron k is an atom :math:`\Phi_k = A (M u_k)_+ a_k^T` of cost
:math:`\beta \|u_k\| \|a_k\|` and training is a small convex problem,

.. math:: \min_{t \ge 0, b} \; L\Big(\sum_k t_k \Phi_k + 1 b^T\Big) + \sum_k t_k c_k,

whose residual satisfies the dual constraint at every atom, used or not. Atoms of magnitude zero are cuts: they keep
the dual point away from directions that have been priced before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from bidual._typing import BoolArray, FloatArray
from bidual.losses import Loss
from bidual.problem import Neurons, Problem


def nonnegative_quadratic(Q: FloatArray, q: FloatArray, t: FloatArray, tol: float, max_iter: int = 40) -> FloatArray:
    r"""Minimise :math:`\tfrac12 t^T Q t + q^T t` over :math:`t \ge 0` to a gap of ``tol``.

    A primal-dual interior point method (Mehrotra): a few Cholesky factorisations whatever the conditioning, where
    active sets and coordinate descent crawl among nearly parallel atoms.
    """
    m = len(q)
    if not m:
        return q.copy()
    # unit diagonal: atoms of any length, and the scale of the targets, look the same
    size = 1.0 / np.sqrt(np.maximum(np.diag(Q), 1e-12 * max(float(np.diag(Q).max()), 1e-300)))
    Q, q = Q * np.outer(size, size), q * size
    Q[np.diag_indices_from(Q)] += 1e-12
    scale = max(float(np.abs(q).max()), 1e-300)
    t = np.maximum(t / size, 1e-2 * max(float((t / size).mean()), 1e-3 * scale))
    s = np.maximum(Q @ t + q, 1e-2 * scale)
    for _ in range(max_iter):
        residual = Q @ t + q - s
        mu = float(t @ s) / m
        if mu * m <= tol and float(np.abs(residual) @ t) <= tol:
            break
        K = Q.copy()
        K[np.diag_indices_from(K)] += s / t
        try:
            factor = cho_factor(K, overwrite_a=True, check_finite=False)
        except LinAlgError:
            break
        dt = cho_solve(factor, -residual - s, check_finite=False)
        ds = -s - s / t * dt
        a_t, a_s = _longest(t, dt), _longest(s, ds)
        sigma = (float((t + a_t * dt) @ (s + a_s * ds)) / m / mu) ** 3
        target = (sigma * mu - dt * ds) / t
        dt = cho_solve(factor, -residual - s + target, check_finite=False)
        ds = -s + target - s / t * dt
        a = 0.995 * min(_longest(t, dt), _longest(s, ds))
        t, s = np.maximum(t + a * dt, 1e-200), np.maximum(s + a * ds, 1e-200)
    return np.asarray(np.where(t * scale > s * float(t.max()) * 1e-3, t, 0.0) * size)


def _longest(x: FloatArray, step: FloatArray) -> float:
    """The longest step, at most one, that keeps x non-negative."""
    down = step < 0
    return float((x[down] / -step[down]).min(initial=1.0))


@dataclass(frozen=True)
class Corrected:
    """Magnitudes ``t`` of the atoms, intercept, outputs, value; and V if it is not minus the gradient at F."""

    t: FloatArray
    intercept: FloatArray
    F: FloatArray
    value: float
    V: FloatArray | None = None

    @property
    def support(self) -> BoolArray:
        """Which atoms are in use."""
        return np.asarray(self.t > 0)

    def neurons(self, atoms: Neurons) -> Neurons:
        """The atoms in use, scaled."""
        kept = atoms.take(self.support)
        return replace(kept, U=kept.U * self.t[self.support, None], intercept=self.intercept)


def corrected(
    problem: Problem,
    loss: Loss,
    atoms: Neurons,
    t: FloatArray,
    steps: int = 8,
    tol: float = 1e-9,
    hidden: FloatArray | None = None,
) -> Corrected:
    """Proximal Newton on the magnitudes of ``atoms``, starting from ``t``.

    ``hidden`` is what the atoms compute, ``(n, m)``; None: that of ordinary neurons in reduced coordinates.
    """
    Y, w = problem.Y, problem.w
    C, free = Y.shape[1], problem.fit_intercept
    H = problem.pool(np.maximum(problem.reduced @ atoms.U.T, 0.0)) if hidden is None else hidden
    costs = problem.beta * atoms.costs
    b = atoms.intercept

    def outputs(t: FloatArray, b: FloatArray) -> FloatArray:
        used = np.flatnonzero(t)
        return np.asarray((H[:, used] * t[used]) @ atoms.alpha[used] + b)

    F = outputs(t, b)
    now = loss.value(F, Y, w) + float(costs @ t)
    for _ in range(steps):
        g, c = loss.gradient(F, Y, w), loss.curvature(F, Y, w)
        q = np.einsum("kc,kc->k", H.T @ g, atoms.alpha) + costs
        # rows on which the loss is flat would leave the model unbounded below
        c = np.maximum(c, 1e-6 * max(float(c.max(initial=0.0)), 1e-6 * float(w.max())))
        total = c.sum(axis=0)
        if (c == c[:, :1]).all() and not free:
            Q = ((H * c[:, :1]).T @ H) * (atoms.alpha @ atoms.alpha.T)
        else:
            Q = np.zeros((len(t), len(t)))
            for j in range(C):
                Hj = H * atoms.alpha[:, j]
                Q += Hj.T @ (c[:, j, None] * Hj)
                if free:  # the intercept follows the magnitudes: Schur complement
                    mean = Hj.T @ c[:, j]
                    Q -= np.outer(mean, mean) / total[j]
                    q -= mean * g[:, j].sum() / total[j]
        step = nonnegative_quadratic(Q, q - Q @ t, t, 0.3 * tol * abs(now)) - t
        step_b = np.zeros(C)
        if free:
            used = np.flatnonzero(step)
            step_b = -(g + c * ((H[:, used] * step[used]) @ atoms.alpha[used])).sum(axis=0) / total
        length, trial, trial_F = 1.0, np.inf, F
        while length > 1e-4:
            t_new = np.maximum(t + length * step, 0.0)
            trial_F = outputs(t_new, b + length * step_b)
            trial = loss.value(trial_F, Y, w) + float(costs @ t_new)
            if trial < now:
                break
            length *= 0.5
        if not trial < now:
            break
        gained, now, F = now - trial, trial, trial_F
        t, b = t_new, b + length * step_b
        if gained <= tol * abs(now):
            break
    return Corrected(t, b, F, now)


def fit_intercept(problem: Problem, loss: Loss) -> FloatArray:
    """The best constant output (zero if the intercept is not free)."""
    C = problem.n_outputs
    b = np.zeros(C)
    if not problem.fit_intercept:
        return b
    b = problem.w @ problem.Y if not problem.loss.classification else b
    empty = Neurons(np.zeros((0, problem.reduced.shape[1])), np.zeros((0, C)), b)
    return corrected(problem, loss, empty, np.zeros(0), steps=100, tol=1e-15).intercept


def merged(problem: Problem, neurons: Neurons, budget: float, cosine: float = 0.98) -> Neurons:
    """Replace nearly parallel neurons by their sum while the objective rises by at most ``budget``.

    Reduced coordinates; output weights are unit vectors.
    """
    if len(neurons) < 2:
        return neurons
    loss, Y, w = problem.loss, problem.Y, problem.w
    X = problem.reduced
    U, alpha = neurons.U.copy(), neurons.alpha.copy()
    norms = np.linalg.norm(U, axis=1)
    H = problem.pool(np.maximum(X @ U.T, 0.0))
    F = H @ alpha + neurons.intercept
    value = loss.value(F, Y, w)
    alive = np.ones(len(U), dtype=bool)
    likeness = (U @ U.T) / np.outer(norms, norms) * (alpha @ alpha.T)
    i, j = np.nonzero(np.triu(likeness > cosine, 1))
    for e in np.argsort(-likeness[i, j], kind="stable"):
        a, b = int(i[e]), int(j[e])
        if not (alive[a] and alive[b]):
            continue
        # the rank-one matrix nearest to u_a alpha_a^T + u_b alpha_b^T, nearly
        out = norms[a] * alpha[a] + norms[b] * alpha[b]
        out /= np.linalg.norm(out)
        total = U[a] * (alpha[a] @ out) + U[b] * (alpha[b] @ out)
        h = problem.pool(np.maximum(X @ total, 0.0))
        F_new = F + np.outer(h, out) - H[:, [a, b]] @ alpha[[a, b]]
        norm = float(np.linalg.norm(total))
        value_new = loss.value(F_new, Y, w)
        rise = value_new - value + problem.beta * (norm - norms[a] - norms[b])
        if rise <= budget:
            budget -= max(rise, 0.0)
            value, F = value_new, F_new
            U[a], alpha[a], H[:, a], norms[a], alive[b] = total, out, h, norm, False
    return replace(neurons, U=U[alive], alpha=alpha[alive])
