r"""Accelerated gradient on pairs (u_k, a_k): the way to move neurons with several outputs.

.. math:: \min_{U, \alpha, b} \; L(A (M U^T)_+ \alpha + 1 b^T) + \tfrac\beta2 \sum_k (\|u_k\|^2 + \|\alpha_k\|^2),

which equals the training problem at balanced weights (003 Lemma 2) and has no kink in the penalty. Adam breaks the
symmetry of a random start, Nesterov's method with restarts and a Gauss-Newton step length goes on from there.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from bidual._util.typing import Array, FloatArray
from bidual._util.watch import Stopped, current
from bidual.atoms import Neurons, Relu
from bidual.losses import Loss
from bidual.problem import Problem
from bidual.solvers.adam import adam_step

#: Rows whose hidden layer is in memory at a time.
PIECE = 8192


class PairGradient:
    """Gradient methods on (U, alpha, b), in reduced coordinates and float32.

    Parameters
    ----------
    problem : Problem
    loss : Loss
        A smooth loss: that of the problem, or a smoothed version of it.
    neurons : Neurons
        Where to start, in reduced coordinates.
    """

    def __init__(self, problem: Problem, loss: Loss, neurons: Neurons) -> None:
        self.problem, self.loss = problem, loss
        X = problem.atoms.reduced
        self.unit = float(np.sqrt((X**2).mean()))
        # With u in units of `unit`, both halves of the penalty keep the same weight.
        self.X = np.ascontiguousarray(X / self.unit, dtype=np.float32)
        self.beta = problem.beta / self.unit
        size_u, size_a = np.linalg.norm(neurons.U, axis=1) * self.unit, np.linalg.norm(neurons.alpha, axis=1)
        ratio = np.sqrt(np.maximum(size_a, 1e-300) / np.maximum(size_u, 1e-300))[:, None]
        self.state: tuple[Array, Array, FloatArray] = (
            np.asarray(neurons.U * self.unit * ratio, dtype=np.float32),
            np.asarray(neurons.alpha / ratio, dtype=np.float32),
            neurons.intercept.copy(),
        )
        self._direction: tuple[Array, Array] | None = None
        self.L = 0.0
        # Pooled rows belong together; others are taken some at a time, in bounded memory.
        whole = type(problem.atoms) is not Relu or problem.atoms.A is not None
        self._pieces = [slice(None)] if whole else [slice(i, i + PIECE) for i in range(0, len(X), PIECE)]

    def _gradient(self, U: Array, A: Array, b: FloatArray) -> tuple[float, tuple[Array, Array, FloatArray]]:
        p, beta = self.problem, np.float32(self.beta)
        value = 0.5 * self.beta * float(np.vdot(U, U) + np.vdot(A, A))
        step_U, step_A, step_b = beta * U, beta * A, np.zeros_like(b)
        for rows in self._pieces:
            X, Y, w = self.X[rows], p.Y[rows], p.w[rows]
            Z = X @ U.T
            H = np.maximum(Z, 0)
            F = p.atoms.pool((H @ A).astype(np.float64)) + b
            value += self.loss.value(F, Y, w)
            g = self.loss.gradient(F, Y, w)
            G = np.asarray(p.atoms.spread(g), dtype=np.float32)
            back = G @ A.T
            back *= Z > 0
            step_U += back.T @ X
            step_A += H.T @ G
            if p.fit_intercept:
                step_b += g.sum(axis=0)
        return value, (step_U, step_A, step_b)

    def _raise_step(self, at: Array, iterations: int) -> None:
        """Power iterations for the largest eigenvalue of the Gauss-Newton matrix at hidden weights ``at``."""
        p = self.problem
        U, A, _ = self.state
        rng = np.random.default_rng(0)
        P, Q = self._direction or tuple(rng.standard_normal(x.shape).astype(np.float32) for x in (U, A))
        size = 0.0
        for _ in range(iterations):
            norm = np.float32(max(float(np.sqrt(np.vdot(P, P) + np.vdot(Q, Q))), 1e-30))
            P, Q = P / norm, Q / norm
            next_P, next_Q = np.zeros_like(P), np.zeros_like(Q)
            for rows in self._pieces:
                X = self.X[rows]
                Z = X @ at.T
                H, D = np.maximum(Z, 0), Z > 0
                T = p.atoms.pool(((D * (X @ P.T)) @ A + H @ Q).astype(np.float64)) * p.w[rows, None]
                G = np.asarray(p.atoms.spread(T), dtype=np.float32)
                next_P += (D * (G @ A.T)).T @ X
                next_Q += H.T @ G
            P, Q = next_P, next_Q
            size = float(np.sqrt(np.vdot(P, P) + np.vdot(Q, Q)))
        self._direction = (P, Q)
        self.L = max(self.L, size * self.loss.lipschitz)

    def adam(self, steps: int, rate: float = 0.02) -> None:
        """Full-batch Adam with a linearly falling rate."""
        x = [v.copy() for v in self.state]
        first, second = [np.zeros_like(v) for v in x], [np.zeros_like(v) for v in x]
        watch = current()
        for k in range(1, steps + 1):
            if watch.late():
                break
            _, gradient = self._gradient(*x)
            adam_step(x, gradient, first, second, rate * (1.0 - (k - 1) / steps), k, epsilon=1e-12)
        self.state = (x[0], x[1], x[2])

    def nesterov(self, iterations: int, tol: float = 0.0) -> float:
        """Accelerated gradient with restarts, until 50 steps gain less than ``tol`` relative."""
        x, y = self.state, self.state
        momentum, last, value = 1.0, np.inf, np.inf
        share = 2.0 if self.problem.fit_intercept else 1.0
        rates, watch = (1.0, 1.0, 1.0), current()
        for k in range(iterations):
            value, gradient = self._gradient(*y)
            if watch.late():
                break
            if k % 50 == 0:
                if not value < last * (1.0 - tol):
                    break
                last = value
                self._raise_step(y[0], 10 if self._direction is None else 3)
                step = 1.0 / (1.5 * share * self.L + 2.0 * self.beta)
                rates = (step, step, 1.0 / (share * self.loss.lipschitz))
            new = tuple((v - r * g).astype(v.dtype) for v, r, g in zip(y, rates, gradient, strict=True))
            uphill = sum(float(np.vdot(v - n, n - o)) / r for v, n, o, r in zip(y, new, x, rates, strict=True))
            if uphill > 0:
                momentum = 1.0
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            ahead = (momentum - 1.0) / following
            y = tuple((n + ahead * (n - o)).astype(n.dtype) for n, o in zip(new, x, strict=True))
            x, momentum = (new[0], new[1], new[2]), following
        self.state = x
        return value

    def bfgs(self, iterations: int, tol: float = 0.0) -> float:
        """Quasi-Newton steps, until ten of them gain less than ``tol`` relative.

        The way where samples pool many rows: all neurons then share a large mean output, and the step of a gradient
        method, which that mode limits, is tiny.
        """
        shapes = [v.shape for v in self.state]
        ends = np.cumsum([v.size for v in self.state])[:-1]
        values: list[float] = []
        watch = current()
        start = np.concatenate([np.ravel(v) for v in self.state]).astype(np.float64)
        lowest, best = np.inf, start

        def unpack(x: FloatArray) -> tuple[Array, Array, FloatArray]:
            U, A, b = (v.reshape(s) for v, s in zip(np.split(x, ends), shapes, strict=True))
            return U.astype(np.float32), A.astype(np.float32), b

        def evaluate(x: FloatArray) -> tuple[float, FloatArray]:
            nonlocal lowest, best
            value, gradient = self._gradient(*unpack(x))
            if value < lowest:
                lowest, best = value, x.copy()
            if watch.late():
                raise Stopped
            return value, np.concatenate([np.ravel(g) for g in gradient]).astype(np.float64)

        def stop(intermediate_result: OptimizeResult) -> None:
            values.append(float(intermediate_result.fun))
            slow = len(values) > 10 and values[-1] > values[-11] * (1.0 - tol)
            if slow:
                raise StopIteration

        options = {"maxiter": iterations, "maxcor": 20}
        with suppress(Stopped):  # the best point is kept
            minimize(evaluate, start, jac=True, method="L-BFGS-B", callback=stop, options=options)
        self.state = unpack(best)
        return lowest

    def result(self, smallest: float = 1e-5) -> Neurons:
        """Neurons with unit output weights, without those that have all but vanished."""
        U, A, b = (np.asarray(v, dtype=np.float64) for v in self.state)
        size = np.linalg.norm(A, axis=1)
        cost = size * np.linalg.norm(U, axis=1)
        kept = cost > smallest * cost.max(initial=0.0)
        return Neurons(U[kept] * size[kept, None] / self.unit, A[kept] / size[kept, None], b)


def pair_start(
    problem: Problem,
    loss: Loss,
    intercept: FloatArray,
    rng: np.random.Generator,
    *,
    scale: float,
    width: int = 200,
    adam_steps: int = 150,
    iterations: int = 600,
    tol: float = 2e-3,
) -> Neurons:
    """A good network with several outputs from scratch (reduced coordinates); ``scale`` is the size of the outputs."""
    r, C = problem.atoms.reduced.shape[1], problem.n_coefficients
    unit = float(np.sqrt((problem.atoms.reduced**2).mean()))
    size = 0.3 / np.sqrt(width) * scale / problem.atoms.gain
    U = rng.standard_normal((width, r)) / np.sqrt(r) * size / unit
    solver = PairGradient(problem, loss, Neurons(U, rng.standard_normal((width, C)) / np.sqrt(C), intercept))
    if problem.atoms.pools:
        solver.bfgs(iterations, tol)
        return solver.result()
    solver.adam(adam_steps, 0.03 * np.sqrt(scale))
    solver.nesterov(iterations, tol)
    return solver.result()
