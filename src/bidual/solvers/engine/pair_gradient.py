r"""Quasi-Newton steps on pairs (u_k, a_k): the way to move neurons with several outputs.

.. math:: \min_{U, \alpha, b} \; L(A h_\delta(M U^T) \alpha + 1 b^T)
          + \tfrac\beta2 \sum_k (\|u_k\|^2 + \|\alpha_k\|^2),

which without smoothing (:math:`\delta = 0`) equals the training problem at balanced weights (003 Lemma 2) and has no
kink in the penalty. Two things make L-BFGS need far fewer gradients than Adam for the same objective:

- the kinks of the ReLU are smoothed, less and less (:math:`h_\delta`, see :mod:`bidual.solvers.engine.newton`), so that
  neurons cross hyperplanes where steps on the ReLU itself stop at them;
- u is measured in the axes of the data, where directions in which the rows are long are no steeper than others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from bidual._util.cores import over_pieces
from bidual._util.typing import Array, FloatArray
from bidual._util.watch import Stopped, current
from bidual.atoms import Neurons, Relu, SparseRelu
from bidual.losses import Loss
from bidual.problem import Problem
from bidual.solvers.engine._kernels import soften, soften_back

#: Rows of a piece of work, which has its hidden layer in memory: a share of all, so that threads have something to do,
#: within bounds between which matrix products are fast and memory is small.
SHARE, PIECES = 8, (512, 8192)
#: Entries of the hidden layer of a piece of sparse rows.
HIDDEN = 4_000_000
#: Neurons of the start, and the size of their outputs together relative to that of the targets: small enough to turn
#: where they are needed, large enough to be seen.
WIDTH, SIZE = 200, 0.3
#: Widths of the kinks and the most steps at each of them, of the start.
SCHEDULE = ((0.1, 150), (0.03, 100), (0.01, 100), (0.003, 60))
#: The gain of ten steps, relative, at which a stage of the start ends, and the least number of steps of any stage: the
#: first ones know no curvature.
GAIN, LEAST = 1e-5, 20
#: What an axis without length counts for, relative to the mean: .01 and 1 are as good on most data.
FLOOR = 0.1
#: Share of the largest cost below which a neuron has vanished.
VANISHED = 1e-5
#: Numbers that L-BFGS remembers, and the least and most steps: more pay with many neurons, at little cost beside a
#: gradient.
REMEMBERED, MEMORIES = 20_000_000, (5, 20)


@dataclass(frozen=True)
class PairSpace:
    """The rows of a problem in single precision and in their own axes.

    Attributes
    ----------
    problem : Problem
    X : ndarray, shape (N, r)
        Rows in units of ``unit``.
    axes : ndarray, shape (r, r)
        The axes, as rows, in reduced coordinates.
    lengths : ndarray, shape (r,)
        What a step of one is along each of them.
    unit : float
    """

    problem: Problem[Relu]
    X: Array
    axes: FloatArray
    lengths: Array
    unit: float

    @classmethod
    def of(cls, problem: Problem[Relu]) -> PairSpace:
        """That of a problem."""
        X = problem.atoms.reduced
        unit = problem.atoms.unit
        s, axes = problem.atoms.axes
        lengths = np.sqrt((1.0 + FLOOR) / (s**2 / max(float((s**2).mean()), 1e-300) + FLOOR))
        rows = X.astype(np.float32) @ (axes.T / unit).astype(np.float32)
        return cls(problem, rows, axes, lengths.astype(np.float32), unit)

    def costly(self, U: Array) -> Array:
        """The weights without those that cost nothing."""
        charged = self.problem.atoms.charged
        return U if charged == U.shape[1] else U * (np.arange(U.shape[1]) < charged).astype(U.dtype)

    def inside(self, neurons: Neurons) -> tuple[Array, Array, FloatArray]:
        """Pairs of balanced weights in these coordinates: both halves of the penalty keep the same weight."""
        U = neurons.U @ (self.axes.T * self.unit)
        size_u, size_a = np.linalg.norm(self.costly(U), axis=1), np.linalg.norm(neurons.alpha, axis=1)
        ratio = np.sqrt(np.maximum(size_a, 1e-300) / np.maximum(size_u, 1e-300))[:, None]
        return (U * ratio).astype(np.float32), (neurons.alpha / ratio).astype(np.float32), neurons.intercept.copy()

    def outside(self, U: Array, A: Array, b: FloatArray) -> Neurons:
        """Neurons with unit output weights in reduced coordinates, without those that have all but vanished."""
        U, A = U.astype(np.float64), A.astype(np.float64)
        size = np.linalg.norm(A, axis=1)
        cost = size * np.linalg.norm(self.costly(U), axis=1)
        kept = cost > VANISHED * cost.max(initial=0.0)
        back = self.axes / self.unit
        return self.problem.atoms.neurons((U[kept] * size[kept, None]) @ back, A[kept] / size[kept, None], b.copy())


class PairGradient:
    """Quasi-Newton steps on (U, alpha, b).

    Parameters
    ----------
    space : PairSpace
    loss : Loss
        A smooth loss: that of the problem, or a smoothed version of it.
    neurons : Neurons
        Where to start, in reduced coordinates.
    """

    def __init__(self, space: PairSpace, loss: Loss, neurons: Neurons) -> None:
        self.space, self.problem, self.loss = space, space.problem, loss
        self.delta = np.float32(0.0)
        self.beta = np.float32(space.problem.beta / space.unit)
        self.state = space.inside(neurons)
        self._piece = self._rows_at_a_time()
        self._memory = int(np.clip(REMEMBERED // max(sum(v.size for v in self.state), 1), *MEMORIES))

    def _rows_at_a_time(self) -> int:
        """Pooled rows belong together; others are taken some at a time, the same ones whatever the number of threads.

        Of sparse rows more: what a piece adds to the gradient is larger than they are.
        """
        atoms, n = self.problem.atoms, self.space.X.shape[0]
        if isinstance(atoms, SparseRelu):
            return int(np.clip(n // 2, PIECES[0], max(PIECES[1], HIDDEN // max(len(self.state[0]), 1))))
        whole = type(atoms) is not Relu or atoms.A is not None
        return max(1, n) if whole else int(np.clip(n // SHARE, *PIECES))

    def _gradient(self, U: Array, A: Array, b: FloatArray) -> tuple[float, tuple[Array, Array, FloatArray]]:
        p, beta, everything, n = self.problem, self.beta, self.space.X, self.space.X.shape[0]
        parts: dict[int, tuple[float, Array, Array, FloatArray]] = {}
        costly = self.space.costly(U)
        size: Array = np.linalg.norm(costly, axis=1)
        width = self.delta * size

        def work(start: int, stop: int) -> None:
            rows = slice(None) if stop - start == n else slice(start, stop)
            X, Y, w = everything[rows], p.Y[rows], p.w[rows]
            H, D = self._activate(X @ U.T, width)
            F = p.atoms.pool((H @ A).astype(np.float64)) + b
            g = self.loss.gradient(F, Y, w)
            G = np.asarray(p.atoms.spread(g), dtype=np.float32)
            back = G @ A.T
            widths = np.zeros(len(U), dtype=np.float32)
            if self.delta:
                soften_back(back, D, widths)
            else:
                back *= D
            of_U = back.T @ X + (widths * width / np.maximum(size, 1e-30) ** 2)[:, None] * costly
            parts[start] = self.loss.value(F, Y, w), of_U, H.T @ G, g.sum(axis=0)

        over_pieces(work, n, self._piece)
        value = 0.5 * float(beta) * float(np.vdot(costly, costly) + np.vdot(A, A))
        step_U, step_A, step_b = beta * costly, beta * A, np.zeros_like(b)
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

    def descend(
        self, stages: Iterable[tuple[float, int]], tol: float, watch: Callable[[Neurons], None] | None = None
    ) -> None:
        """Stages of kinks that wide, of at most so many steps, which end when ten of them gain less than ``tol``.

        ``watch`` is shown the neurons after each of them.
        """
        with suppress(Stopped):  # the best point is kept
            for delta, steps in stages:
                self.delta = np.float32(delta)
                self._bfgs(steps, tol)
                if watch is not None:
                    watch(self.result())

    def _bfgs(self, steps: int, tol: float) -> None:
        shapes = [v.shape for v in self.state]
        ends = np.cumsum([v.size for v in self.state])[:-1]
        values: list[float] = []
        watch, lengths = current(), self.space.lengths
        U, A, b = self.state
        start = np.concatenate([np.ravel(v) for v in (U / lengths, A, b)]).astype(np.float64)
        lowest, best = np.inf, start

        def unpack(x: FloatArray) -> tuple[Array, Array, FloatArray]:
            T, A, b = (v.reshape(s) for v, s in zip(np.split(x, ends), shapes, strict=True))
            return T.astype(np.float32) * lengths, A.astype(np.float32), b

        def evaluate(x: FloatArray) -> tuple[float, FloatArray]:
            nonlocal lowest, best
            value, (of_U, of_A, of_b) = self._gradient(*unpack(x))
            if value < lowest:
                lowest, best = value, x.copy()
            if watch.late():
                raise Stopped
            return value, np.concatenate([np.ravel(g) for g in (of_U * lengths, of_A, of_b)]).astype(np.float64)

        def stop(intermediate_result: OptimizeResult) -> None:
            values.append(float(intermediate_result.fun))
            slow = len(values) > LEAST and values[-1] > values[-11] * (1.0 - tol)
            if slow:
                raise StopIteration

        options = {"maxiter": steps, "maxcor": self._memory, "ftol": 0.0, "gtol": 0.0}
        try:
            minimize(evaluate, start, jac=True, method="L-BFGS-B", callback=stop, options=options)
        finally:
            self.state = unpack(best)

    def result(self) -> Neurons:
        """What there is now."""
        return self.space.outside(*self.state)


def random_pairs(
    problem: Problem[Relu], width: int, intercept: FloatArray, rng: np.random.Generator, scale: float
) -> Neurons:
    """Many small neurons (reduced coordinates); ``scale`` is the size of the outputs."""
    r, C = problem.atoms.reduced.shape[1], problem.n_coefficients
    unit = problem.atoms.unit
    size = SIZE / np.sqrt(width) * scale / problem.atoms.gain
    U = rng.standard_normal((width, r)) / np.sqrt(r) * size / unit
    return problem.atoms.neurons(U, rng.standard_normal((width, C)) / np.sqrt(C), intercept)
