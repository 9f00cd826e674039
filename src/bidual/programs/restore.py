r"""From a network that nearly fits to one that fits, by a smallest change of its weights.

In balanced weights :math:`\|u_j\| = \|\alpha_j\|` a change costs V times what it does to the outputs, to first order,
and its squared length beyond that. Optimal neurons lie on the hyperplanes of many rows, where the tangent is that of
one side: lengths are those of the cone of the neuron, in which a step of one ends at its next wall,

.. math:: \|\delta u\|_j^2 = \|\delta u\|^2 + \tau \sum_i \|u_j\|^2 \Big(\frac{x_i^T \delta u}{x_i^T u_j}\Big)^2
          = \delta u^T W_j^{-1} \delta u.

The shortest change whose first order moves the outputs by R comes from the tangent kernel in this metric,

.. math:: K_{ic,kd} = \sum_j 1[x_i^T u_j > 0] \, x_i^T W_j x_k \, 1[x_k^T u_j > 0] \, \alpha_{jc} \alpha_{jd}
          + \delta_{cd} \Big(\sum_j (x_i^T u_j)_+ (x_k^T u_j)_+ + \kappa\Big), \qquad K \lambda = R,

with :math:`\kappa` for a free intercept. A few such steps end in rounding, be the weights more or fewer than targets.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bidual._util.typing import BoolArray, FloatArray
from bidual.atoms import Neurons, Relu
from bidual.problem import Problem

#: What walls count for beside lengths, and the angle to one below which a neuron is on it.
_WALLS, _ON = 0.1, 1e-5
#: Most steps, and halvings of each.
_STEPS, _HALVINGS = 15, 8
#: Residuals that are rounding, and those that still count as a fit, relative to the largest target.
_ROUNDING, _FITS = 1e-13, 1e-9
#: Eigenvalues of the kernel below this share of the largest are rounding.
_RANK = 1e-12
#: Share of the largest multiplier below which a target that is not missed is left alone.
_SLACK = 1e-6
#: Targets beyond which the kernel is too large to be decomposed; entries of tangents in memory at a time.
MOST, _ENTRIES = 4000, 4_000_000


def restored(problem: Problem[Relu], neurons: Neurons, V: FloatArray) -> Neurons | None:
    """The network (reduced coordinates) moved to where its loss, an indicator, is zero; None if that is far away.

    Targets with multipliers ``V`` stay where they are, the others within what the loss allows.
    """
    atoms, Y, loss = problem.atoms, problem.Y, problem.loss
    if Y.size > MOST:
        return None
    now = neurons.balanced()
    tight = np.abs(V) > _SLACK * np.abs(V).max(initial=0.0)
    size = max(float(np.abs(Y).max(initial=0.0)), np.finfo(float).tiny)

    def missing(network: Neurons) -> FloatArray:
        F = atoms.combine(np.maximum(atoms.reduced @ network.U.T, 0.0), network.alpha) + network.intercept
        return loss.nearest_outputs(F, Y) - F

    R = missing(now)
    for _ in range(_STEPS):
        largest = float(np.abs(R).max(initial=0.0))
        if largest <= _ROUNDING * size or not len(now):
            break
        U, alpha, b = _Tangents(problem, now).change(R, tight | (R != 0.0))
        for length in 0.5 ** np.arange(_HALVINGS):
            trial = Neurons(now.U + length * U, now.alpha + length * alpha, now.intercept + length * b)
            left = missing(trial)
            if float(np.abs(left).max()) < largest:
                break
        else:
            break
        now, R = trial, left
    return now if float(np.abs(R).max(initial=0.0)) <= _FITS * size else None


class _Tangents:
    """What small changes of balanced weights do to the outputs."""

    def __init__(self, problem: Problem[Relu], neurons: Neurons) -> None:
        self.problem, self.neurons = problem, neurons
        self.X = problem.atoms.reduced
        Z = self.X @ neurons.U.T
        self.D = Z > 0.0
        self.H = problem.atoms.pool(np.maximum(Z, 0.0))
        long = problem.atoms.row_norms > 0  # of other rows there are no walls
        lengths = np.where(long, problem.atoms.row_norms, 1.0)[:, None]
        heights = np.abs(Z) / (lengths * np.linalg.norm(neurons.U, axis=1))
        self.walls = _WALLS * long[:, None] / (lengths * np.maximum(heights, _ON)) ** 2

    def _pieces(self) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
        """Some neurons at a time, the factors of their W and their tangents, ``(k, r, r)`` and ``(k, n, r)``."""
        N, r = self.X.shape
        step = max(1, _ENTRIES // max(N * r, 1))
        for start in range(0, len(self.neurons), step):
            some = slice(start, start + step)
            metric = np.einsum("ik,ir,is->krs", self.walls[:, some], self.X, self.X, optimize=True) + np.eye(r)
            factor = np.linalg.inv(np.linalg.cholesky(metric)).swapaxes(1, 2)
            tangents = self.D.T[some, :, None] * (self.X @ factor)
            pooled = (
                tangents if self.problem.atoms.A is None else np.stack([self.problem.atoms.pool(t) for t in tangents])
            )
            yield some, factor, pooled

    def change(self, R: FloatArray, wanted: BoolArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The shortest change of U, alpha and intercept that moves the ``wanted`` outputs by R."""
        n, C = R.shape
        alpha, K = self.neurons.alpha, np.zeros((n, C, n, C))
        outer = self.H @ self.H.T
        for some, _, tangents in self._pieces():
            flat = tangents.swapaxes(0, 1).reshape(n, -1)
            r = tangents.shape[2]
            for c in range(C):
                for d in range(c, C):
                    K[:, c, :, d] += (flat * np.repeat(alpha[some, c] * alpha[some, d], r)) @ flat.T
        for c in range(C):
            K[:, c, :, c] += outer
            for d in range(c):
                K[:, c, :, d] = K[:, d, :, c]
        free = float(self.problem.fit_intercept) * float(np.einsum("icic->ic", K).max(initial=0.0))
        for c in range(C):
            K[:, c, :, c] += free
        rows = np.flatnonzero(wanted)
        values, vectors = np.linalg.eigh(K.reshape(n * C, n * C)[np.ix_(rows, rows)])
        kept = values > _RANK * values.max(initial=0.0)
        multipliers = np.zeros(n * C)
        multipliers[rows] = vectors[:, kept] @ ((vectors[:, kept].T @ R.ravel()[rows]) / values[kept])
        G = multipliers.reshape(n, C)
        U = np.zeros_like(self.neurons.U)
        for some, factor, tangents in self._pieces():
            pulls = np.einsum("inr,ni->ir", tangents, G @ alpha[some].T, optimize=True)
            U[some] = np.einsum("krs,ks->kr", factor, pulls)
        return U, self.H.T @ G, free * G.sum(axis=0)
