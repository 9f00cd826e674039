r"""The fully corrective step over output weights: the best ones of given hidden directions.

With several outputs and hidden unit directions :math:`u_k` fixed, :math:`h_k = A (M u_k)_+`, training is a group lasso,

.. math:: \min_{\alpha, b} \; L\Big(\sum_k h_k \alpha_k^T + 1 b^T\Big) + \beta \sum_k \|\alpha_k\|,

whose residual satisfies :math:`\|V^T h_k\| \le \beta` at every direction, used or not (with heads, :math:`h_k` has a
column for each position, and the norms are those of all of them). A primal-dual interior point method solves it, for
losses with kinks as for smooth ones (:mod:`bidual.programs.output_rows`, :mod:`bidual.programs.output_cones`): some
fifteen Newton steps whatever the number of nearly parallel directions, of which there are hundreds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpotrf, dpotri

from bidual._util.typing import FloatArray
from bidual._util.watch import current
from bidual.atoms import Neurons, Relu
from bidual.problem import Problem
from bidual.programs.corrective import Corrected
from bidual.programs.output_cones import Cones
from bidual.programs.output_rows import rows_of
from bidual.programs.smoothing import smoothed

#: The first products of slacks and multipliers, as a share of those that would make up the gap, which is at least that.
_FIRST, _LEAST_GAP = 0.3, 1e-3
#: Newton steps in all, and iterations of conjugate gradients in each, which end at this share of the residual.
_STEPS, _CG, _RESIDUAL = 60, 30, 0.05
#: Share of the way to the boundary, and the step below which rounding is all there is.
_SHARE, _NO_STEP = 0.98, 1e-6
#: Groups are zero that cost less than this share of the tolerance together.
_SMALL = 0.1
#: What keeps factors positive definite, relative to their diagonal.
_LIFT = 1e-10


class OutputsProgram:
    """The program of given directions.

    Parameters
    ----------
    problem : Problem
    epsilon : float
        How much the loss is smoothed, if it has kinks.
    hidden : ndarray, shape (n, m K)
        What the directions compute, K columns for each of them.
    """

    def __init__(self, problem: Problem[Relu], epsilon: float, hidden: FloatArray) -> None:
        self.problem, self.size = problem, hidden.shape[1]
        self.loss, self.rows = smoothed(problem.loss, epsilon), rows_of(problem, epsilon)
        self.heads = problem.n_coefficients // problem.n_outputs
        ones = np.ones((len(hidden), int(problem.fit_intercept)))
        self.H = np.concatenate([hidden, ones], axis=1)

    def groups(self, A: FloatArray) -> FloatArray:
        """The weights of each direction, in a row."""
        return A[: self.size].reshape(self.size // self.heads, -1)

    def value(self, A: FloatArray, F: FloatArray) -> float:
        """The objective of weights with these outputs."""
        p = self.problem
        return self.loss.value(F, p.Y, p.w) + p.beta * float(np.linalg.norm(self.groups(A), axis=1).sum())

    def gap(self, A: FloatArray, F: FloatArray, g: FloatArray) -> float:
        """The relative gap of the program, by the dual point of a gradient."""
        p = self.problem
        V = p.dual_point(-g)
        worst = float(np.linalg.norm(self.groups(self.H.T @ V), axis=1).max(initial=0.0))
        bound = -self.loss.conjugate(-V * min(1.0, p.beta / max(worst, 1e-300)), p.Y, p.w)
        value = self.value(A, F)
        return (value - bound) / max(abs(value), 1e-300)

    def solve(self, A: FloatArray, tol: float) -> tuple[FloatArray, FloatArray]:
        """Weights to a relative gap of ``tol`` from ``A``, zeros among them; and the dual point."""
        p, rows, F = self.problem, self.rows, self.H @ A
        products = max(1, len(self.groups(A)) + rows.products)
        gap = self.gap(A, F, self.loss.gradient(F, p.Y, p.w))
        mu = _FIRST * max(gap, _LEAST_GAP) * abs(self.value(A, F)) / products
        cones = Cones(self.groups(A), p.beta, mu)
        rows.begin(F, mu)
        watch = current()
        for k in range(_STEPS):
            if (k and watch.late()) or self.gap(A, F, rows.slopes(F)) <= tol:  # any weights are an answer
                break
            try:
                newton = _Newton(self, F, cones)
            except LinAlgError:  # as exact as floating point allows
                break
            total = cones.complementarity(0.0) + rows.complementarity(0.0)
            length = newton.step(0.0, False)
            left = cones.complementarity(length) + rows.complementarity(length)
            length = _SHARE * newton.step(max(left / total, 0.0) ** 3 * total / products, True)
            if length < _NO_STEP:
                break
            A, F = A + length * newton.dA, F + length * newton.dF
            cones.advance(length)
            rows.advance(length)
        return self._sparse(A, tol * abs(self.value(A, F))), -rows.slopes(F)

    def _sparse(self, A: FloatArray, tol: float) -> FloatArray:
        """Without the smallest groups, which cost next to nothing together."""
        norms = np.linalg.norm(self.groups(A), axis=1)
        order = np.argsort(norms, kind="stable")
        gone = order[self.problem.beta * np.cumsum(norms[order]) <= _SMALL * tol]
        A = A.copy()
        self.groups(A)[gone] = 0.0
        return A


class _Newton:
    """Newton steps at a point, from one factorisation."""

    def __init__(self, program: OutputsProgram, F: FloatArray, cones: Cones) -> None:
        self.program, self.F, self.cones = program, F, cones
        p, loss, H, K = program.problem, program.loss, program.H, program.heads
        cones.scale()
        _, weights = program.rows.model(F, 0.0, False)
        pull, unit = np.zeros((H.shape[1], 1)), np.zeros((H.shape[1], p.n_outputs))
        pull[: program.size, 0] = np.repeat(cones.pull, K)
        unit[: program.size] = cones.unit.reshape(program.size, -1)
        hessians = p.w[:, None, None] * loss.row_hessians(F, p.Y) if loss.coupled else None

        def times(P: FloatArray) -> FloatArray:
            t = H @ P
            t = weights * t if hessians is None else np.matmul(hessians, t[:, :, None])[:, :, 0]
            along = program.groups(unit * P).sum(axis=1)
            pulled = P.copy()
            pulled[: program.size] -= unit[: program.size] * np.repeat(along, K)[:, None]
            return np.asarray(H.T @ t + pull * pulled)

        if loss.coupled:  # one curvature for all outputs of a row
            weights = weights.sum(axis=1, keepdims=True) / max(weights.shape[1] - 1, 1)
        elif (weights == weights[:, :1]).all():
            weights = weights[:, :1]
        self._times, self._inverse = times, _preconditioner(H, weights, pull, unit)

    def step(self, mu: float, second: bool) -> float:
        """Take the step to products ``mu``; returns how long it may be."""
        g, _ = self.program.rows.model(self.F, mu, second)
        R = -(self.program.H.T @ g)
        R[: self.program.size] -= self.cones.aim(mu, second).reshape(self.program.size, -1)
        self.dA = _conjugate_gradients(self._times, self._inverse, R)
        self.dF = self.program.H @ self.dA
        self.cones.respond(self.program.groups(self.dA))
        self.program.rows.respond(self.dF)
        return min(self.cones.longest(), self.program.rows.longest())


def _preconditioner(
    H: FloatArray, weights: FloatArray, pull: FloatArray, unit: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    r"""The inverse for curvatures ``weights`` of each output, or of all outputs of a row alike.

    A block :math:`Q_c` for every output, less one rank for each group, which runs through all of them.
    """
    inverses = [_inverse(H, w, pull[:, 0]) for w in weights.T]
    ranks = np.sqrt(pull) * unit
    inner = np.eye(H.shape[1]) * (1.0 + _LIFT)
    if len(inverses) == 1:
        inner -= inverses[0] * (ranks @ ranks.T)
    else:
        for inverse, r in zip(inverses, ranks.T, strict=True):
            inner -= inverse * np.outer(r, r)
    factor = cho_factor(inner, check_finite=False)

    def blocks(R: FloatArray) -> FloatArray:
        if len(inverses) == 1:
            return np.asarray(inverses[0] @ R)
        return np.stack([inverse @ r for inverse, r in zip(inverses, R.T, strict=True)], axis=1)

    def apply(R: FloatArray) -> FloatArray:
        x = blocks(R)
        z = cho_solve(factor, (ranks * x).sum(axis=1), check_finite=False)
        return np.asarray(x + blocks(z[:, None] * ranks))

    return apply


def _inverse(H: FloatArray, weights: FloatArray, pull: FloatArray) -> FloatArray:
    """Of the positive definite matrix of one output."""
    Q = H.T @ (weights[:, None] * H)
    Q[np.diag_indices_from(Q)] += pull + _LIFT * (float(np.diag(Q).max(initial=0.0)) + pull)
    factor, wrong = dpotrf(Q, lower=1)
    if wrong:
        raise LinAlgError("not positive definite")
    lower = np.tril(dpotri(factor, lower=1)[0])
    return np.asarray(lower + np.tril(lower, -1).T)


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
    problem: Problem[Relu], epsilon: float, atoms: Neurons, t: FloatArray, tol: float
) -> tuple[Neurons, Corrected]:
    """The best output weights of ``atoms`` (reduced coordinates) from magnitudes ``t``, to a gap of ``tol``.

    For the loss smoothed by ``epsilon``, if it has kinks. Atoms that end without weights keep their output directions.
    """
    sizes = np.linalg.norm(atoms.U, axis=1)
    hidden = problem.atoms.pool(np.maximum(problem.atoms.reduced @ (atoms.U / sizes[:, None]).T, 0.0))
    program = OutputsProgram(problem, epsilon, hidden)
    start = np.zeros((program.H.shape[1], problem.n_outputs))
    start[: program.size] = (atoms.alpha * (t * sizes)[:, None]).reshape(program.size, -1)
    start[program.size :] = atoms.intercept
    A, V = program.solve(start, tol)
    groups = program.groups(A)
    norms = np.linalg.norm(groups, axis=1)
    alpha = np.where(norms[:, None] > 0, groups / np.where(norms > 0, norms, 1.0)[:, None], atoms.alpha)
    b = A[program.size] if problem.fit_intercept else atoms.intercept
    F = program.H @ A
    return replace(atoms, alpha=alpha, intercept=b), Corrected(norms / sizes, b, F, program.value(A, F), V)
