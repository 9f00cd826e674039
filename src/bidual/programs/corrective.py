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

from bidual._util.typing import BoolArray, FloatArray
from bidual._util.watch import Stopped, checkpoint, current
from bidual.atoms import Directional, Neurons, Relu
from bidual.losses import Loss
from bidual.problem import Problem


def nonnegative_quadratic(Q: FloatArray, q: FloatArray, t: FloatArray, tol: float, max_iter: int = 40) -> FloatArray:
    r"""Minimise :math:`\tfrac12 t^T Q t + q^T t` over :math:`t \ge 0` to a gap of ``tol``.

    A primal-dual interior point method (Mehrotra): a few Cholesky factorisations whatever the conditioning, where
    active sets and coordinate descent crawl among nearly parallel atoms.
    """
    m = len(q)
    if not m:
        return q.copy()
    # unit diagonal: atoms of any length, and the scale of the targets, look the same
    size = 1.0 / np.sqrt(np.maximum(np.diag(Q), max(1e-12 * float(np.diag(Q).max()), 1e-300)))
    Q, q = Q * np.outer(size, size), q * size
    Q[np.diag_indices_from(Q)] += 1e-12
    scale = max(float(np.abs(q).max()), 1e-300)
    t = np.maximum(t / size, 1e-2 * max(float((t / size).mean()), 1e-3 * scale))
    s = np.maximum(Q @ t + q, 1e-2 * scale)
    for _ in range(max_iter):
        checkpoint()
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
        a_t, a_s = longest_step(t, dt), longest_step(s, ds)
        sigma = (float((t + a_t * dt) @ (s + a_s * ds)) / m / mu) ** 3
        target = (sigma * mu - dt * ds) / t
        dt = cho_solve(factor, -residual - s + target, check_finite=False)
        ds = -s + target - s / t * dt
        a = 0.995 * min(longest_step(t, dt), longest_step(s, ds))
        t, s = np.maximum(t + a * dt, 1e-200), np.maximum(s + a * ds, 1e-200)
    return np.asarray(np.where(t * scale > s * float(t.max()) * 1e-3, t, 0.0) * size)


def longest_step(x: FloatArray, step: FloatArray) -> float:
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
    problem: Problem, loss: Loss, atoms: Neurons, t: FloatArray, steps: int = 8, tol: float = 1e-9
) -> Corrected:
    """Proximal Newton on the magnitudes of ``atoms`` (reduced coordinates), starting from ``t``."""
    Y, w = problem.Y, problem.w
    C, free = Y.shape[1], problem.fit_intercept
    phi = problem.atoms.columns(atoms)
    costs = problem.beta * atoms.costs
    b = atoms.intercept
    F = phi.outputs(t) + b
    now = loss.value(F, Y, w) + float(costs @ t)
    watch = current()
    for k in range(steps):
        if k and len(atoms) and watch.late():  # any magnitudes are an answer; the intercept alone takes no time
            break
        g, c = loss.gradient(F, Y, w), loss.curvature(F, Y, w)
        q = phi.slopes(g) + costs
        # rows on which the loss is flat would leave the model unbounded below
        c = np.maximum(c, 1e-6 * max(float(c.max(initial=0.0)), 1e-6 * float(w.max())))
        total = c.sum(axis=0)
        Q = phi.gram(c)
        if free:  # the intercept follows the magnitudes: Schur complement
            means = np.stack([phi.of_output(j).T @ c[:, j] for j in range(C)])
            Q -= means.T @ (means / total[:, None])
            q -= (g.sum(axis=0) / total) @ means
        try:
            step = nonnegative_quadratic(Q, q - Q @ t, t, 0.3 * tol * abs(now)) - t
        except Stopped:
            break
        step_b = np.zeros(C)
        if free:
            step_b = -(g + c * phi.outputs(step)).sum(axis=0) / total
        length, trial, trial_F = 1.0, np.inf, F
        while length > 1e-4:
            t_new = np.maximum(t + length * step, 0.0)
            trial_F = phi.outputs(t_new) + b + length * step_b
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
    # without the features, which would have to be decomposed first
    bare = Problem(Relu(np.zeros((len(problem.Y), 0))), problem.Y, problem.w, loss, problem.beta, fit_intercept=True)
    return corrected(bare, loss, bare.atoms.none(0, b), np.zeros(0), steps=100, tol=1e-15).intercept


def merged(problem: Problem[Directional], neurons: Neurons, budget: float, cosine: float = 0.98) -> Neurons:
    """Replace nearly parallel neurons by their sum while the objective rises by at most ``budget``.

    Reduced coordinates; output weights are unit vectors.
    """
    if len(neurons) < 2:
        return neurons
    loss, Y, w = problem.loss, problem.Y, problem.w
    U, alpha = neurons.U.copy(), neurons.alpha.copy()
    norms, lengths = neurons.lengths.copy(), np.linalg.norm(U, axis=1)
    Phi = problem.atoms.contributions(problem.atoms.activations(U), alpha)
    F = Phi.sum(axis=2) + neurons.intercept
    value = loss.value(F, Y, w)
    alive = np.ones(len(U), dtype=bool)
    likeness = (U @ U.T) / np.outer(lengths, lengths) * (alpha @ alpha.T)
    i, j = np.nonzero(np.triu(likeness > cosine, 1))
    watch = current()
    for e in np.argsort(-likeness[i, j], kind="stable"):
        a, b = int(i[e]), int(j[e])
        if not (alive[a] and alive[b]):
            continue
        if watch.late():  # some mergers are as good as all
            break
        # the rank-one matrix nearest to u_a alpha_a^T + u_b alpha_b^T, nearly
        out = norms[a] * alpha[a] + norms[b] * alpha[b]
        out /= np.linalg.norm(out)
        total = U[a] * (alpha[a] @ out) + U[b] * (alpha[b] @ out)
        phi = problem.atoms.contributions(problem.atoms.activations(total[None]), out[None])[:, :, 0]
        F_new = F + phi - Phi[:, :, a] - Phi[:, :, b]
        norm = float(problem.atoms.neurons(total[None], out[None], neurons.intercept).lengths[0])
        value_new = loss.value(F_new, Y, w)
        rise = value_new - value + problem.beta * (norm - norms[a] - norms[b])
        if rise <= budget:
            budget -= max(rise, 0.0)
            value, F = value_new, F_new
            U[a], alpha[a], Phi[:, :, a], norms[a], alive[b] = total, out, phi, norm, False
    return replace(neurons, U=U[alive], alpha=alpha[alive])
