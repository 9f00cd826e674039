r"""Quasi-Newton steps on pairs (u_k, a_k): the way to move neurons with several outputs.

.. math:: \min_{U, \alpha, b} \; L(A (M U^T)_+ \alpha + 1 b^T) + \tfrac\beta2 \sum_k (\|u_k\|^2 + \|\alpha_k\|^2),

which equals the training problem at balanced weights (003 Lemma 2) and has no kink in the penalty. L-BFGS from a small
random start needs a fifth to a tenth of the gradients that Adam needs for the same objective, and no rate; a gradient
method with momentum, whose one step length the steepest mode of all neurons together limits, lies between the two.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from bidual._util.cores import over_pieces
from bidual._util.typing import Array, FloatArray
from bidual._util.watch import Stopped, current
from bidual.atoms import Neurons, Relu
from bidual.losses import Loss
from bidual.problem import Problem
from bidual.solvers.engine._kernels import soften, soften_back

#: Rows of a piece of work, which has its hidden layer in memory: a share of all, so that threads have something to do,
#: within bounds between which matrix products are fast and memory is small.
SHARE, PIECES = 8, (512, 8192)
#: Neurons of the start, and the size of their outputs together relative to that of the targets: small enough to turn
#: where they are needed, large enough to be seen.
WIDTH, SIZE = 200, 0.3
#: Most steps of the start, and the gain of ten, relative, at which it ends: pricing does more from there.
STEPS, GAIN = 600, 2e-4
#: Least number of steps: the first ones know no curvature.
LEAST = 100
#: Steps that L-BFGS remembers: more pay with many neurons, at little cost beside a gradient.
MEMORY = 20


class PairGradient:
    """Quasi-Newton steps on (U, alpha, b), in reduced coordinates and float32.

    Parameters
    ----------
    problem : Problem
    loss : Loss
        A smooth loss: that of the problem, or a smoothed version of it.
    neurons : Neurons
        Where to start, in reduced coordinates.
    """

    def __init__(
        self, problem: Problem, loss: Loss, neurons: Neurons, delta: float = 0.0, dtype: Any = np.float32
    ) -> None:
        self.problem, self.loss, self.dtype = problem, loss, dtype
        self.delta = dtype(delta)
        X = problem.atoms.reduced
        self.unit = float(np.sqrt((X**2).mean()))
        # With u in units of `unit`, both halves of the penalty keep the same weight.
        self.X = np.ascontiguousarray(X / self.unit, dtype=self.dtype)
        self.beta = problem.beta / self.unit
        size_u, size_a = np.linalg.norm(neurons.U, axis=1) * self.unit, np.linalg.norm(neurons.alpha, axis=1)
        ratio = np.sqrt(np.maximum(size_a, 1e-300) / np.maximum(size_u, 1e-300))[:, None]
        self.state: tuple[Array, Array, FloatArray] = (
            np.asarray(neurons.U * self.unit * ratio, dtype=self.dtype),
            np.asarray(neurons.alpha / ratio, dtype=self.dtype),
            neurons.intercept.copy(),
        )
        # Pooled rows belong together; others are taken some at a time, the same ones whatever the number of threads.
        whole = type(problem.atoms) is not Relu or problem.atoms.A is not None
        self._piece = max(1, len(X)) if whole else int(np.clip(len(X) // SHARE, *PIECES))

    def _gradient(self, U: Array, A: Array, b: FloatArray) -> tuple[float, tuple[Array, Array, FloatArray]]:
        p, beta = self.problem, self.dtype(self.beta)
        parts: dict[int, tuple[float, Array, Array, FloatArray]] = {}
        size: Array = np.linalg.norm(U, axis=1)
        width = self.delta * size

        def work(start: int, stop: int) -> None:
            rows = slice(None) if stop - start == len(self.X) else slice(start, stop)
            X, Y, w = self.X[rows], p.Y[rows], p.w[rows]
            Z = X @ U.T
            H, D = self._activate(Z, width)
            F = p.atoms.pool((H @ A).astype(np.float64)) + b
            g = self.loss.gradient(F, Y, w)
            G = np.asarray(p.atoms.spread(g), dtype=self.dtype)
            back = G @ A.T
            widths = np.zeros(len(U), dtype=self.dtype)
            if self.delta:
                soften_back(back, D, widths)
            else:
                back *= D
            of_U = back.T @ X + (widths * width / np.maximum(size, 1e-30) ** 2)[:, None] * U
            parts[start] = self.loss.value(F, Y, w), of_U, H.T @ G, g.sum(axis=0)

        over_pieces(work, len(self.X), self._piece)
        value = 0.5 * self.beta * float(np.vdot(U, U) + np.vdot(A, A))
        step_U, step_A, step_b = beta * U, beta * A, np.zeros_like(b)
        for start in sorted(parts):  # always in this order: rounding must not depend on the threads
            of_rows, of_U, of_A, of_b = parts[start]
            value += of_rows
            step_U += of_U
            step_A += of_A
            if p.fit_intercept:
                step_b += of_b
        return value, (step_U, step_A, step_b)

    def _activate(self, Z: Array, width: Array) -> tuple[Array, Array]:
        """Activations and their slopes."""
        if not self.delta:
            return np.maximum(Z, 0), Z > 0
        D = np.empty_like(Z)
        soften(Z, np.maximum(width, 1e-30), D, 0, len(Z))
        return Z, D

    def bfgs(self, iterations: int, tol: float = 0.0) -> float:
        """At most ``iterations`` steps of L-BFGS, until ten of them gain less than ``tol`` relative."""
        shapes = [v.shape for v in self.state]
        ends = np.cumsum([v.size for v in self.state])[:-1]
        values: list[float] = []
        watch = current()
        start = np.concatenate([np.ravel(v) for v in self.state]).astype(np.float64)
        lowest, best = np.inf, start

        def unpack(x: FloatArray) -> tuple[Array, Array, FloatArray]:
            U, A, b = (v.reshape(s) for v, s in zip(np.split(x, ends), shapes, strict=True))
            return U.astype(self.dtype), A.astype(self.dtype), b

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
            slow = len(values) > LEAST and values[-1] > values[-11] * (1.0 - tol)
            if slow:
                raise StopIteration

        options = {"maxiter": iterations, "maxcor": MEMORY, "ftol": 0.0, "gtol": 0.0}
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
    problem: Problem, loss: Loss, intercept: FloatArray, rng: np.random.Generator, *, scale: float
) -> Neurons:
    """A good network with several outputs from scratch (reduced coordinates); ``scale`` is the size of the outputs."""
    r, C = problem.atoms.reduced.shape[1], problem.n_coefficients
    unit = float(np.sqrt((problem.atoms.reduced**2).mean()))
    size = SIZE / np.sqrt(WIDTH) * scale / problem.atoms.gain
    U = rng.standard_normal((WIDTH, r)) / np.sqrt(r) * size / unit
    solver = PairGradient(problem, loss, Neurons(U, rng.standard_normal((WIDTH, C)) / np.sqrt(C), intercept))
    solver.bfgs(STEPS, GAIN)
    return solver.result()
