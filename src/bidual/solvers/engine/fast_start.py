r"""Fast start: accelerated proximal gradient on many neurons at once.

With the output signs :math:`s_k = \pm 1` fixed (one output), a neuron is one vector :math:`w_k` and training is

.. math:: \min_{W, b} \; L\Big(A \sum_k s_k (M w_k)_+ + b\Big) + \beta \sum_k \|w_k\|,

non-convex but with a closed-form prox that makes neurons exactly zero. Nesterov's momentum with restarts and a step
from the largest eigenvalue of the Gauss-Newton matrix reaches in a second what Adam needs a minute for.
With several outputs neurons are pairs :math:`(u_k, a_k)` with the smooth penalty
:math:`\tfrac\beta2 (\|u_k\|^2 + \|a_k\|^2)` (003 Lemma 2); see :mod:`bidual.solvers.engine.pair_gradient`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual._util.watch import current
from bidual.atoms import Neurons, Relu
from bidual.losses import Loss
from bidual.problem import Problem
from bidual.programs.smoothing import output_scale
from bidual.solvers.engine import _kernels


class ProximalGradient:
    """Accelerated proximal gradient for one output, in reduced coordinates and float32.

    Parameters
    ----------
    problem : Problem
    loss : Loss
        A smooth loss: that of the problem, or a smoothed version of it.
    W : ndarray, shape (m, r)
    signs : ndarray, shape (m,)
    intercept : float
    """

    def __init__(self, problem: Problem[Relu], loss: Loss, W: FloatArray, signs: FloatArray, intercept: float) -> None:
        self.problem, self.loss = problem, loss
        X = problem.atoms.reduced
        self.unit = float(np.sqrt((X**2).mean()))
        self.X = np.ascontiguousarray(X / self.unit, dtype=np.float32)
        self.beta = problem.beta / self.unit
        self.W = np.asarray(W * self.unit, dtype=np.float32)
        self.signs = np.asarray(signs, dtype=np.float32)
        self.intercept = float(intercept)
        self.charged = problem.atoms.charged
        self.L = 0.0
        self._F = np.zeros(len(X), dtype=np.float32)
        self._direction: Array | None = None
        self._piece = 1 + len(X) // 2 if X.shape[0] * len(W) > 100_000 else len(X)

    def forward(self, W: Array, intercept: float) -> tuple[Array, FloatArray]:
        """Pre-activations and outputs."""
        Z = self.X @ W.T

        def work(start: int, stop: int) -> None:
            np.matmul(np.maximum(Z[start:stop], 0), self.signs, out=self._F[start:stop])

        _kernels.over_pieces(work, len(Z), self._piece)
        return Z, self.problem.atoms.pool(self._F.astype(np.float64))[:, None] + intercept

    def _back(self, Z: Array, g: FloatArray) -> Array:
        lifted = np.asarray(self.problem.atoms.spread(g)[:, 0], dtype=np.float32)
        _kernels.over_pieces(lambda a, b: _kernels.relu_back(Z, self.signs, lifted, a, b), len(Z), self._piece)
        return Z.T @ self.X

    def objective(self, F: FloatArray, W: Array) -> float:
        """The objective of neurons with given outputs."""
        return self.loss.value(F, self.problem.Y, self.problem.w) + self.beta * float(
            np.linalg.norm(W[:, : self.charged], axis=1).sum(dtype=np.float64)
        )

    def _raise_step(self, Z: Array, iterations: int) -> None:
        """Power iterations for the largest eigenvalue of the Gauss-Newton matrix; the bound never shrinks."""
        D = np.where(Z > 0, self.signs, np.float32(0))
        rng = np.random.default_rng(0)
        P = rng.standard_normal(self.W.shape).astype(np.float32) if self._direction is None else self._direction
        q = np.empty(len(Z), dtype=np.float32)
        size = 0.0
        for _ in range(iterations):
            P = P / max(float(np.linalg.norm(P)), 1e-30)
            np.einsum("ik,ik->i", self.X @ P.T, D, out=q)
            lifted = self.problem.atoms.spread(self.problem.atoms.pool(q.astype(np.float64)) * self.problem.w)
            P = (D * np.asarray(lifted, dtype=np.float32)[:, None]).T @ self.X
            size = float(np.linalg.norm(P))
        self._direction = P
        self.L = max(self.L, 1.02 * size * self.loss.lipschitz, 1e-30)

    def run(self, iterations: int, tol: float, watch: Callable[[Neurons], None] | None = None) -> float:
        """At most ``iterations`` steps, until 50 of them gain less than ``tol`` relative; returns the objective.

        ``watch`` is shown the neurons every 50 steps.
        """
        free = self.problem.fit_intercept
        W, b = self.W, self.intercept
        Q, q = W, b
        momentum, last = 1.0, np.inf
        value, run = np.inf, current()
        for k in range(iterations):
            if k and run.late():
                break
            Z, F = self.forward(Q, q)
            if k % 50 == 0:
                value = self.objective(F, Q)
                if watch is not None and k:
                    self.W, self.intercept = W, b
                    watch(self.neurons())
                if not value < last * (1.0 - tol):
                    break
                last = value
                self._raise_step(Z, 10 if self._direction is None else 3)
                # the intercept has curvature at most `lipschitz`: its own step, halved like that of W (two blocks)
                share = 2.0 if free else 1.0
            g = self.loss.gradient(F, self.problem.Y, self.problem.w)
            step = Q - self._back(Z, g) / np.float32(share * self.L)
            costly = step[:, : self.charged]
            norms = np.sqrt(np.einsum("kr,kr->k", costly, costly))
            shrink = np.maximum(1.0 - self.beta / (share * self.L) / np.maximum(norms, 1e-30), 0.0)
            new = step * shrink.astype(np.float32)[:, None]
            new[:, self.charged :] = step[:, self.charged :] * (shrink > 0)[:, None]  # constants are the intercept's
            new_b = q - float(g.sum()) / (share * self.loss.lipschitz) if free else b
            uphill = float(np.vdot(Q - new, new - W)) * self.L + (q - new_b) * (new_b - b) * self.loss.lipschitz
            if uphill > 0:
                momentum = 1.0
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            ahead = (momentum - 1.0) / following
            Q, q = new + np.float32(ahead) * (new - W), new_b + ahead * (new_b - b)
            W, b, momentum = new, new_b, following
        self.W, self.intercept = W, b
        return value

    def neurons(self) -> Neurons:
        """The neurons that are not zero, in the problem's units."""
        alive = (self.W != 0).any(axis=1)
        W, signs = self.W[alive].astype(np.float64), self.signs[alive].astype(np.float64)
        return self.problem.atoms.neurons(W / self.unit, signs[:, None], np.array([self.intercept]))


def fast_start(
    problem: Problem[Relu],
    loss: Loss,
    intercept: FloatArray,
    rng: np.random.Generator,
    *,
    width: int,
    iterations: int = 2000,
    tol: float = 1e-4,
    watch: Callable[[Neurons], None] | None = None,
) -> Neurons:
    """A good network from scratch (reduced coordinates, one output)."""
    X = problem.atoms.reduced
    r = X.shape[1]
    unit = float(np.sqrt((X**2).mean()))
    W = rng.standard_normal((width, r)) / np.sqrt(r) * 0.3 / np.sqrt(width) * output_scale(problem) / unit
    signs = np.where(np.arange(width) % 2 == 0, 1.0, -1.0)
    solver = ProximalGradient(problem, loss, W, signs, float(intercept[0]))
    solver.run(iterations, tol, watch)
    return solver.neurons()
