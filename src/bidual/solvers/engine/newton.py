r"""Newton's method on the neurons, with the kinks of the ReLU smoothed and patterns free to move.

For one output and fixed signs :math:`s_k = \pm 1`, minimise

.. math:: L\Big(A \sum_k s_k h_{\delta_k}(M w_k) + b\Big) + \beta \sum_k \|w_k\|, \qquad
          h_\delta(z) = \tfrac{(z + \delta)^2}{4\delta} \text{ if } |z| < \delta, \; (z)_+ \text{ else},

with :math:`\delta_k = \delta \|w_k\| \operatorname{rms}(M)`. The Hessian model is the Gauss-Newton matrix plus a block
per neuron holding only positive curvature: kinks on which the gradient pulls inwards, the norm, and a Levenberg term.
At a minimum the slopes h' on rows within :math:`\delta_k` of zero are the fractional multipliers of the dual problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual._util.watch import current
from bidual.atoms import Neurons, Relu
from bidual.losses import Loss
from bidual.problem import Problem
from bidual.solvers.engine import _kernels

#: Entries of the row outer products kept at once.
_BLOCK_ENTRIES = 8_000_000
#: The Levenberg term, relative to the curvature of the norm.
_LEVENBERG = 0.1


@dataclass(frozen=True)
class _Point:
    """Neurons with everything the smoothed objective computes on the way."""

    W: Array
    b: float
    D: Array
    F: FloatArray
    value: float


class SmoothedNewton:
    """Newton's method for one output in reduced coordinates.

    Parameters
    ----------
    problem : Problem
    loss : Loss
        A smooth loss: that of the problem, or a smoothed version of it.
    dtype : numpy dtype, default=float32
        Precision of the matrix products; float32 is enough for gaps of 1e-5.
    """

    def __init__(self, problem: Problem[Relu], loss: Loss, dtype: Any = np.float32) -> None:
        self.problem, self.loss, self.dtype = problem, loss, dtype
        X = problem.atoms.reduced
        self.unit = float(np.sqrt((X**2).mean()))
        self.X: Array = np.ascontiguousarray(X / self.unit, dtype=dtype)
        self.beta = problem.beta / self.unit
        self.N, self.r = X.shape
        self.charged = problem.atoms.charged
        self._upper = np.triu_indices(self.r)
        self._outer: Array | None = None
        if self.N * len(self._upper[0]) <= _BLOCK_ENTRIES:
            self._outer = self.X[:, self._upper[0]] * self.X[:, self._upper[1]]

    def _pieces(self, m: int) -> int:
        return 1 + self.N // 2 if self.N * m > 60_000 else self.N

    def _norms(self, W: Array) -> Array:
        """Of the weights that cost something."""
        return np.linalg.norm(W[:, : self.charged], axis=1)

    def _costly(self, W: Array) -> Array:
        """The weights without those that cost nothing."""
        return W * (np.arange(self.r) < self.charged)

    # ---- the smoothed objective ----------------------------------------------------------------

    def _evaluate(self, W: Array, b: float, signs: Array, delta: Array) -> _Point:
        Z = self.X @ W.T
        D = np.empty_like(Z)
        out: Array = np.empty(self.N, dtype=self.dtype)
        _kernels.over_pieces(
            lambda i, j: _kernels.smooth_relu(Z, signs, delta, D, out, i, j), self.N, self._pieces(len(W))
        )
        F = self.problem.atoms.pool(out.astype(np.float64))[:, None] + b
        norms = self._norms(W).astype(np.float64)
        value = self.loss.value(F, self.problem.Y, self.problem.w) + self.beta * float(norms.sum())
        return _Point(W, b, D, F, value)

    def _blocks(self, weights: Array) -> Array:
        """``sum_i weights_ik x_i x_i^T`` for every neuron k, ``(m, r, r)``."""
        m = weights.shape[1]
        i, j = self._upper
        if self.problem.atoms.A is not None and np.count_nonzero(weights) < 0.1 * weights.size:
            kinks = (np.flatnonzero(w) for w in weights.T)
            return np.stack([(self.X[k].T * w[k]) @ self.X[k] for k, w in zip(kinks, weights.T, strict=True)])
        if self._outer is not None:
            half = weights.T @ self._outer
        else:
            half = np.zeros((m, len(i)), dtype=self.dtype)
            rows = max(1, _BLOCK_ENTRIES // len(i))
            for a in range(0, self.N, rows):
                part = self.X[a : a + rows]
                half += weights[a : a + rows].T @ (part[:, i] * part[:, j])
        full: Array = np.empty((m, self.r, self.r), dtype=self.dtype)
        full[:, i, j] = half
        full[:, j, i] = half
        return full

    def _gauss_newton(self, D: Array, c: FloatArray, weights: Array) -> Array:
        """The blocks :math:`M^T D_k A^T diag(c) A D_k M` of the neurons; without pooling, ``weights`` are D^2 c."""
        A = self.problem.atoms.A
        if A is None:
            return self._blocks(weights)
        A, root = A.astype(self.dtype), np.sqrt(c).astype(self.dtype)[:, None]
        J = (root * (A @ (D[:, k, None] * self.X)) for k in range(D.shape[1]))  # fewer rows than X has
        return np.stack([j.T @ j for j in J])

    # ---- one step --------------------------------------------------------------------------------

    def _gradient(self, point: _Point, g: FloatArray) -> tuple[Array, Array, float]:
        lifted: Array = np.asarray(self.problem.atoms.spread(g)[:, 0], dtype=self.dtype)
        G = (point.D * lifted[:, None]).T @ self.X
        norms = self._norms(point.W)[:, None]
        return (
            G + self.dtype(self.beta) * self._costly(point.W) / norms,
            lifted,
            float(g.sum()) if self.problem.fit_intercept else 0.0,
        )

    def _direction(
        self, point: _Point, delta: Array, g_W: Array, g_b: float, lifted: Array, cg: int
    ) -> tuple[Array, float] | None:
        """Preconditioned conjugate gradients on the Hessian model; None where it has no minimum.

        (Steps up to there are no help: in a program with kinks they led away from what the corrective step had found.)
        """
        problem, D, X = self.problem, point.D, self.X
        c = self.loss.curvature(point.F, problem.Y, problem.w)[:, 0]
        E, K = np.empty_like(D), np.empty_like(D)
        row_c = np.asarray(c if problem.atoms.A is None else np.zeros(self.N), dtype=self.dtype)
        _kernels.over_pieces(
            lambda i, j: _kernels.curvatures(D, lifted, row_c, delta, E, K, i, j), self.N, self._pieces(D.shape[1])
        )
        norms = self._norms(point.W)
        unit = self._costly(point.W) / norms[:, None]
        own = self._blocks(K)
        pull = (self.dtype(self.beta) / norms)[:, None, None]
        eye: Array = np.eye(self.r, dtype=self.dtype)
        own += pull * (self._costly(eye) + self.dtype(_LEVENBERG) * eye - unit[:, :, None] * unit[:, None, :])
        blocks = self._gauss_newton(D, c, E) + own
        # a preconditioner: any positive definite matrix will do, and beside long rows rounding loses what the norm adds
        lift = self.r * np.finfo(self.dtype).eps * np.einsum("kii->k", blocks)
        M = np.linalg.inv(blocks + lift[:, None, None] * eye)
        total_c = float(c.sum())
        free = problem.fit_intercept and total_c > 0
        q: Array = np.empty(self.N, dtype=self.dtype)
        scratch = np.empty_like(D)

        def times(P: Array, p: float) -> tuple[Array, float]:
            np.einsum("ik,ik->i", X @ P.T, D, out=q)
            t = c * (problem.atoms.pool(q) + p)
            np.multiply(D, np.asarray(problem.atoms.spread(t), dtype=self.dtype)[:, None], out=scratch)
            return scratch.T @ X + np.matmul(own, P[:, :, None])[:, :, 0], float(t.sum()) if free else 0.0

        def precondition(R: Array, rho: float) -> tuple[Array, float]:
            return np.matmul(M, R[:, :, None])[:, :, 0], rho / total_c if free else 0.0

        P_sum, p_sum = np.zeros_like(g_W), 0.0
        R, rho = -g_W, -g_b if free else 0.0
        S, sigma = precondition(R, rho)
        P, p = S, sigma
        now = float(np.vdot(R, S)) + rho * sigma
        first = now
        for _ in range(cg):
            if not now > 1e-4 * first:
                break
            T, tau = times(P, p)
            curvature = float(np.vdot(P, T)) + p * tau
            if not curvature > 1e-30 * now:  # rounding has made the model flat or indefinite
                return None
            step = now / curvature
            P_sum, p_sum = P_sum + self.dtype(step) * P, p_sum + step * p
            R, rho = R - self.dtype(step) * T, rho - step * tau
            S, sigma = precondition(R, rho)
            before, now = now, float(np.vdot(R, S)) + rho * sigma
            P, p = S + self.dtype(now / before) * P, sigma + now / before * p
        return P_sum, p_sum

    def run(
        self, neurons: Neurons, delta: float, iterations: int, target: float, *, cg: int = 25
    ) -> tuple[Neurons, FloatArray, float]:
        r"""At most ``iterations`` Newton steps, until :math:`\sum_k \|\nabla_k\| \|w_k\| \le` ``target``.

        Returns the neurons, the gradient of the loss at the smoothed outputs, and the last value of that sum.
        """
        signs: Array = np.asarray(neurons.alpha[:, 0], dtype=self.dtype)
        W: Array = np.asarray(neurons.U * self.unit, dtype=self.dtype)
        b = float(neurons.intercept[0])
        g = np.zeros_like(self.problem.Y)
        slack, watch = np.inf, current()
        for k in range(iterations + 1):
            norms = self._norms(W)
            alive = norms > 1e-7 * norms.max(initial=0.0)
            W, signs, norms = W[alive], signs[alive], norms[alive]
            widths = (self.dtype(delta) * norms).astype(self.dtype)
            point = self._evaluate(W, b, signs, widths)
            g = self.loss.gradient(point.F, self.problem.Y, self.problem.w)
            if not len(W):
                break
            g_W, lifted, g_b = self._gradient(point, g)
            slack = float(np.linalg.norm(g_W, axis=1) @ norms) + abs(g_b) * float(np.abs(point.F).max())
            if slack <= target or k == iterations or watch.late():
                break
            direction = self._direction(point, widths, g_W, g_b, lifted, cg)
            if direction is None:
                break
            P, p = direction
            size = np.linalg.norm(P, axis=1)
            P *= np.minimum(1.0, 1.5 * norms / np.maximum(size, 1e-30)).astype(self.dtype)[:, None]
            slope = float(np.vdot(P, g_W)) + p * g_b
            t = 1.0
            for _ in range(12):
                trial = self._evaluate(W + self.dtype(t) * P, b + t * p, signs, widths)
                if trial.value <= point.value + 1e-4 * t * min(slope, 0.0):
                    W, b = trial.W, trial.b
                    break
                t *= 0.5
            else:
                break
        moved = W.astype(np.float64) / self.unit
        return self.problem.atoms.neurons(moved, signs.astype(np.float64)[:, None], np.array([b])), g, slack
