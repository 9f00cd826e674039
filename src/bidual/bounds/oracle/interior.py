r"""Training with relaxed neurons, as one conic program.

The compact bound (:mod:`bidual.bounds.oracle.compact`) is the largest value of a linear function over relaxed neurons.
Of cost :math:`\alpha`, direction u and second moments U, and with unit rows :math:`x_i`, :math:`t_i = x_i^T u` and
:math:`q_i = x_i^T U x_i`, these have outputs :math:`\tfrac12 \|m_i\| (t_i + r_i)` with

.. math:: Z = \begin{pmatrix} \alpha & u^T \\ u & U \end{pmatrix} \succeq 0, \quad \operatorname{tr} U \le \alpha, \quad
          r_i^2 \le \alpha q_i, \quad |t_i| \le r_i, \quad q_i \le r_i .

They form a convex cone, so that one of each sign is enough, and the dual point of

.. math:: \min \; L(A (h_+ - h_-) + 1 b) + \beta (\alpha_+ + \alpha_-)

is the one with the best bound by the compact relaxation. It is found by a barrier method: Newton steps in
:math:`L^{-1} \, dZ \, L^{-T}`, :math:`Z = L L^T`, in which the barrier of Z is round; the :math:`r_i` and the loss of
every sample are eliminated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from bidual._util.clock import clock
from bidual._util.typing import FloatArray, IntArray
from bidual._util.watch import current
from bidual.problem import Problem

#: The barrier's weight falls by this factor: more at once leaves Z so near the boundary that it turns too slowly.
SHRINK = 0.5
#: Steps with one weight at most, and the squared Newton decrement with which it is done.
STEPS, CENTRED = 15, 1.0
#: Relative gap of the relaxed problem with which to stop, and weights at most: where the optimum is zero there is none.
ENOUGH, WEIGHTS = 4e-3, 30
#: A start of so large a share of the cost at which beta alone is the loss of the zero network.
_START = 0.1
#: Share of the largest possible second moments to start from.
_INSIDE = 0.9
#: Shares of the diagonal that are added until the Cholesky factors of a Hessian exist.
_RIDGES = (1e-14, 1e-12, 1e-10, 1e-8, 1e-6)
#: Steps that a problem takes, about, and multiplications of a second, on a slow machine.
_TYPICAL, _SPEED = 60, 1e10
#: Seconds that it may take at most, and entries of its largest arrays.
_LONG, _LARGEST = 60.0, 2e7
#: A start is no smaller than this, in natural units.
_SMALLEST = 1e-12


def affordable(problem: Problem, seconds: float) -> bool:
    """Whether training with relaxed neurons takes no longer than so many seconds, and samples do not share rows."""
    N, r = problem.atoms.reduced.shape
    A = problem.atoms.A
    if A is not None and (A.tocsc().indptr[1:] - A.tocsc().indptr[:-1]).max(initial=0) > 1:
        return False
    P = (r + 1) * (r + 2) / 2
    work = _TYPICAL * (3.0 * N * P**2 + 1.4 * P**3)
    return bool(work <= _SPEED * min(seconds, _LONG) and N * P <= _LARGEST)


@dataclass
class _Neuron:
    """A relaxed neuron that feeds the outputs with a sign."""

    sign: float
    Z: FloatArray
    r: FloatArray

    def moved(self, step: float, dZ: FloatArray, dr: FloatArray) -> _Neuron:
        return _Neuron(self.sign, self.Z + step * dZ, self.r + step * dr)


@dataclass
class _Newton:
    """What is left of a neuron's part of the Newton system: Hessian, gradient, outputs ``rows``, and the way back."""

    L: FloatArray
    features: tuple[FloatArray, FloatArray, FloatArray, FloatArray]
    couplings: tuple[FloatArray, FloatArray, FloatArray]
    curvature: FloatArray
    slope: FloatArray
    gradient: FloatArray
    hessian: FloatArray
    rows: FloatArray = field(repr=False)


class RelaxedTraining:
    """The barrier method for a problem with one output and a smooth loss, whose samples do not share rows of M."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        rows = problem.atoms.reduced
        norms = np.linalg.norm(rows, axis=1)
        self.half = 0.5 * norms
        N, d = rows.shape
        self.X = np.hstack([np.zeros((N, 1)), rows / np.where(norms > 0, norms, 1.0)[:, None]])
        self.some = norms > 0  # rows of zeros stay out of the barrier
        self.upper: tuple[IntArray, IntArray] = np.triu_indices(d + 1)
        self.weight = np.where(self.upper[0] == self.upper[1], 1.0, np.sqrt(2.0))
        size = max(_START * problem.loss_value(np.zeros_like(problem.Y)) / problem.beta, _SMALLEST)
        Z = np.diag(np.concatenate([[1.0], np.full(d, _INSIDE / d)]))
        r: FloatArray = np.full(N, (_INSIDE / d) ** 0.75)  # between q and its square root
        self.neurons = [_Neuron(a, size * Z, size * r) for a in (1.0, -1.0)]
        self.intercept = 0.0

    @cached_property
    def parameter(self) -> float:
        """Of the barrier: the gap of a centred point, in units of its weight."""
        N, r = self.problem.atoms.reduced.shape
        return 2.0 * (5 * N + r + 2)

    def run(self, deadline: float) -> FloatArray | None:
        """The dual point of the last weight that there was time for; None if there was none."""
        found, tau = None, self._objective(self.neurons, self.intercept) / self.parameter
        watch = current()
        for _ in range(WEIGHTS):
            for _ in range(STEPS):
                if watch.late() or clock() >= deadline:
                    return found
                if self._step(tau) < CENTRED:
                    break
            F = self._outputs(self.neurons, self.intercept)
            p = self.problem
            found = -p.loss.gradient(F, p.Y, p.w)
            if self.parameter * tau <= ENOUGH * self._objective(self.neurons, self.intercept):
                break
            tau *= SHRINK
        return found

    def _outputs(self, neurons: list[_Neuron], intercept: float) -> FloatArray:
        hidden = sum(n.sign * self.half * (self.X @ n.Z[0] + n.r) for n in neurons)
        return self.problem.atoms.pool(np.asarray(hidden)[:, None]) + intercept

    def _objective(self, neurons: list[_Neuron], intercept: float) -> float:
        cost = sum(float(n.Z[0, 0]) for n in neurons)
        return self.problem.loss_value(self._outputs(neurons, intercept)) + self.problem.beta * cost

    def _moments(self, neuron: _Neuron) -> tuple[float, FloatArray, FloatArray]:
        XZ = self.X @ neuron.Z
        return float(neuron.Z[0, 0]), XZ[:, 0], np.einsum("ij,ij->i", XZ, self.X)

    def _barrier(self, neuron: _Neuron) -> float:
        alpha, t, q = self._moments(neuron)
        t, q, r = t[self.some], q[self.some], neuron.r[self.some]
        parts = np.array([alpha * q - r * r, (r - t) * (r + t), r - q])
        left = 2.0 * alpha - float(np.trace(neuron.Z))
        if not (alpha > 0 and left > 0 and (parts > 0).all() and (r > 0).all()):
            return np.inf
        try:
            L = np.linalg.cholesky(neuron.Z)
        except np.linalg.LinAlgError:
            return np.inf
        return -float(2.0 * np.log(np.diag(L)).sum() + np.log(left) + np.log(parts).sum())

    def _flat(self, S: FloatArray) -> FloatArray:
        """A symmetric matrix as a vector with the same scalar product."""
        return S[self.upper] * self.weight

    def _newton(self, neuron: _Neuron, tau: float, slope: FloatArray) -> _Newton:
        r"""Second order of the barrier, and of the loss with the ``slope`` of every row, with r eliminated."""
        (i, j), X, D, r = self.upper, self.X, len(neuron.Z), neuron.r
        alpha, t, q = self._moments(neuron)
        L: FloatArray = np.asarray(np.linalg.cholesky(neuron.Z), dtype=np.float64)
        Y, first = X @ L, L[0]
        on = self.some.astype(float)
        # how alpha, t = Y @ turn and q = products depend on the step, as vectors
        cost = self._flat(np.outer(first, first))
        products = Y[:, i] * Y[:, j] * self.weight
        turn, k = np.zeros((D, len(i))), np.arange(len(i))
        turn[i, k] += 0.5 * first[j] * self.weight
        turn[j, k] += 0.5 * first[i] * self.weight
        A, C, E = (np.where(self.some, part, 1.0) for part in (alpha * q - r * r, (r - t) * (r + t), r - q))
        # derivatives of -log A - log C - log E in (alpha, q, t, r)
        ga, gq, gt, gr = -q / A * on, (1 / E - alpha / A) * on, 2 * t / C, (2 * r / A - 2 * r / C - 1 / E) * on
        ar, qr, tr = -2 * r * q / A**2 * on, (-2 * r * alpha / A**2 - 1 / E**2) * on, -4 * r * t / C**2
        rr = 4 * r * r / A**2 + 2 / A + 2 * (r * r + t * t) / C**2 + 1 / E**2
        aa, aq = q * q / A**2 - ar * ar / rr, (q * alpha / A**2 - 1 / A) * on - ar * qr / rr
        qq = (alpha * alpha / A**2 + 1 / E**2) * on - qr * qr / rr
        qt, at = -qr * tr / rr, -ar * tr / rr
        tt = (4 * t * t / C**2 + 2 / C) * on - tr * tr / rr
        left = 2.0 * alpha - float(np.trace(neuron.Z))
        trace = 2.0 * cost - self._flat(L.T @ L)
        root = np.sqrt(np.maximum(qq, 0.0))[:, None] * products
        H = root.T @ root + turn.T @ ((Y.T * tt) @ Y) @ turn + np.outer(trace, trace) / left**2
        H[np.diag_indices_from(H)] += 1.0
        mixed = turn.T @ ((Y.T * qt) @ products)
        mixed += np.outer(cost, aq @ products + (at @ Y) @ turn + 0.5 * aa.sum() * cost)
        H += mixed + mixed.T
        out = neuron.sign * self.half
        gradient = -self._flat(np.eye(D)) - trace / left + ga.sum() * cost + (gt @ Y) @ turn + gq @ products
        gradient = tau * gradient + self.problem.beta * cost + ((out * slope) @ Y) @ turn
        rows = (-out * qr / rr)[:, None] * products
        rows += ((out * (1.0 - tr / rr))[:, None] * Y) @ turn + np.outer(-out * ar / rr, cost)
        features, couplings = (cost, Y, turn, products), (tau * ar, tau * tr, tau * qr)
        return _Newton(L, features, couplings, tau * rr, tau * gr + out * slope, gradient, tau * H, rows)

    def _step(self, tau: float) -> float:
        """A Newton step with the best of ever shorter lengths; the squared decrement."""
        p, pool = self.problem, self.problem.atoms.pool
        F = self._outputs(self.neurons, self.intercept)
        gradient, curvature = p.loss.gradient(F, p.Y, p.w), p.loss.curvature(F, p.Y, p.w)[:, 0]
        slope = p.atoms.spread(gradient)[:, 0]
        parts = [self._newton(neuron, tau, slope) for neuron in self.neurons]
        # the outputs that eliminating r leaves, per unit of force on a sample
        give = sum(self.half**2 / part.curvature for part in parts)
        give = give if p.atoms.A is None else np.asarray(p.atoms.A.multiply(p.atoms.A) @ give)
        stiff = curvature / (1.0 + curvature * give)
        J = pool(np.hstack([part.rows for part in parts]))
        J = np.hstack([J, np.ones((len(J), int(p.fit_intercept)))])
        # what r alone would do, and the outputs that this moves
        lone = [part.slope / part.curvature for part in parts]
        drift = pool(sum(n.sign * self.half * x for n, x in zip(self.neurons, lone, strict=True))[:, None])[:, 0]
        weighted = np.sqrt(stiff)[:, None] * J
        H, rhs, P = weighted.T @ weighted, J.T @ (stiff * drift), len(self.weight)
        for k, (part, x) in enumerate(zip(parts, lone, strict=True)):
            here, (cost, Y, turn, products), (ar, tr, qr) = slice(k * P, (k + 1) * P), part.features, part.couplings
            H[here, here] += part.hessian
            rhs[here] += -part.gradient + (ar @ x) * cost + ((tr * x) @ Y) @ turn + (qr * x) @ products
        if p.fit_intercept:
            rhs[-1] -= gradient.sum()
        d = _solved(H, rhs)
        force = stiff * (J @ d - drift)
        pull = p.atoms.spread(force[:, None])[:, 0]
        shift = float(d[-1]) if p.fit_intercept else 0.0
        moves, descent = [], float(gradient.sum()) * shift
        for k, (neuron, part) in enumerate(zip(self.neurons, parts, strict=True)):
            e, (cost, Y, turn, products) = d[k * P : (k + 1) * P], part.features
            ar, tr, qr = part.couplings
            along = ar * (cost @ e) + tr * (Y @ (turn @ e)) + qr * (products @ e)
            dr = -(part.slope + along + neuron.sign * self.half * pull) / part.curvature
            dr = np.where(self.some, dr, 0.0)
            S = np.zeros_like(neuron.Z)
            S[self.upper] = e / self.weight
            moves.append((part.L @ (S + np.triu(S, 1).T) @ part.L.T, dr))
            descent += float(part.gradient @ e + part.slope @ dr)
        return -descent / tau if self._search(tau, moves, shift, descent) else 0.0

    def _search(self, tau: float, moves: list[tuple[FloatArray, FloatArray]], shift: float, descent: float) -> bool:
        """Take the best of ever shorter steps; whether one is better than none."""

        def merit(neurons: list[_Neuron], intercept: float) -> float:
            barrier = sum(map(self._barrier, neurons))
            return tau * barrier + self._objective(neurons, intercept) if barrier < np.inf else np.inf

        now, best, kept, step = merit(self.neurons, self.intercept), np.inf, (self.neurons, self.intercept), 1.0
        while step > 1e-8:
            trial = [n.moved(step, *move) for n, move in zip(self.neurons, moves, strict=True)]
            value = merit(trial, self.intercept + step * shift)
            if best < np.inf and value >= best:
                break
            if value <= now + 1e-4 * step * descent:
                best, kept = value, (trial, self.intercept + step * shift)
            step *= 0.7
        self.neurons, self.intercept = kept
        return best < np.inf


def _solved(H: FloatArray, rhs: FloatArray) -> FloatArray:
    """Of a system with a positive definite matrix, or nearly so."""
    diagonal = np.diag(H).copy()
    for ridge in _RIDGES:
        H[np.diag_indices_from(H)] = diagonal * (1.0 + ridge) + ridge * np.finfo(float).eps * diagonal.max()
        try:
            return np.asarray(cho_solve(cho_factor(H), rhs))
        except np.linalg.LinAlgError:
            continue
    return np.asarray(rhs / np.maximum(diagonal, np.finfo(float).tiny))
