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
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri

from bidual._util.typing import FloatArray
from bidual._util.watch import current
from bidual.atoms import Directional, Neurons
from bidual.problem import Problem
from bidual.programs.corrective import Corrected
from bidual.programs.output_cones import Cones
from bidual.programs.output_rows import rows_of
from bidual.programs.smoothing import smoothed

#: The first products of slacks and multipliers, as a share of those that would make up the gap, which is at least that.
_FIRST, _LEAST_GAP = 0.3, 1e-3
#: Newton steps in all, and iterations of conjugate gradients in each, which end at this share of the residual.
_STEPS, _CG, _RESIDUAL = 60, 30, 0.05
#: Share of the way to the boundary, and of the tolerance that products make up where the rest is rounding.
_SHARE, _ROUNDING = 0.98, 1e-2
#: What setting small groups to zero may cost, relative to the tolerance, and shares of all norms that are tried.
_DROPPING, _DROPPED = 0.3, (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)
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

    def __init__(self, problem: Problem[Directional], epsilon: float, hidden: FloatArray) -> None:
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

    def bound(self, g: FloatArray) -> tuple[float, FloatArray]:
        """A lower bound by the dual point of a gradient, and what is left of that there."""
        p = self.problem
        V = p.dual_point(-g)
        worst = float(np.linalg.norm(self.groups(self.H.T @ V), axis=1).max(initial=0.0))
        V *= min(1.0, p.beta / max(worst, 1e-300))
        return -self.loss.conjugate(-V, p.Y, p.w), -V

    def solve(self, A: FloatArray, tol: float) -> tuple[FloatArray, FloatArray]:
        """Weights to a relative gap of ``tol`` from ``A``, zeros among them; and the dual point."""
        p, rows, F = self.problem, self.rows, self.H @ A
        products = max(1, len(self.groups(A)) + rows.products)
        best, value = (np.inf, A, F, np.zeros_like(F)), self.value(A, F)
        lower, g = self.bound(self.loss.gradient(F, p.Y, p.w))
        mu = _FIRST * max(value - lower, _LEAST_GAP * abs(value)) / products
        rows.begin(F, g, mu)
        cones = Cones(self.groups(A), self.groups(self.H.T @ rows.slopes(F)), p.beta, mu)
        watch = current()
        for k in range(_STEPS):
            g, value = rows.slopes(F), self.value(A, F)
            gap, total = value - self.bound(g)[0], cones.complementarity(0.0) + rows.complementarity(0.0)
            best = min(best, (gap, A, F, g), key=lambda found: found[0])
            if gap <= tol * abs(value) or total <= _ROUNDING * tol * abs(value):
                break
            if k and watch.late():  # any weights are an answer
                break
            try:
                newton = _Newton(self, F, cones)
            except LinAlgError:  # as exact as floating point allows
                break
            length = newton.step(0.0, False)
            left = cones.complementarity(length) + rows.complementarity(length)
            length = _SHARE * newton.step(max(left / total, 0.0) ** 3 * total / products, True)
            A, F = A + length * newton.dA, F + length * newton.dF
            cones.advance(length)
            rows.advance(length)
        _, A, F, g = best
        return self._sparse(A, F, tol), -g

    def _sparse(self, A: FloatArray, F: FloatArray, tol: float) -> FloatArray:
        """Without the smallest groups, as many as hardly matter."""
        norms = np.linalg.norm(self.groups(A), axis=1)
        order = np.argsort(norms, kind="stable")
        shares = np.cumsum(norms[order]) / max(float(norms.sum()), np.finfo(float).tiny)
        value = self.value(A, F)
        for share in _DROPPED:
            few = A.copy()
            self.groups(few)[order[shares <= share]] = 0.0
            if self.value(few, self.H @ few) <= value + _DROPPING * tol * abs(value):
                return few
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
        self._times, self._inverse = times, _preconditioner(H, weights, pull, unit, K)

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
    H: FloatArray, weights: FloatArray, pull: FloatArray, unit: FloatArray, heads: int
) -> Callable[[FloatArray], FloatArray]:
    r"""The inverse for curvatures ``weights`` of each output, or of all outputs of a row alike.

    A block :math:`Q_c = H^T D_c H + P` for every output, less one rank for each group, which runs through all of them.
    """
    blocks = (_Long if len(H) < H.shape[1] else _Square)(H, weights, pull)
    size = len(unit) - len(unit) % heads  # without the intercept, which is no group
    groups = unit[:size].reshape(size // heads, heads, -1)
    factor = cho_factor(blocks.inner(groups), check_finite=False)
    ranks = np.sqrt(pull) * unit

    def apply(R: FloatArray) -> FloatArray:
        x = blocks.solve(R)
        along = (ranks * x)[:size].reshape(len(groups), -1).sum(axis=1)
        z = np.zeros((len(unit), 1))
        z[:size, 0] = np.repeat(cho_solve(factor, along, check_finite=False), heads)
        return np.asarray(x + blocks.solve(z * ranks))

    return apply


class _Square:
    """The blocks where directions are fewer than rows: their inverses."""

    def __init__(self, H: FloatArray, weights: FloatArray, pull: FloatArray) -> None:
        self.pull = pull
        self.inverses = [self._inverse(H, w, pull[:, 0]) for w in weights.T]

    @staticmethod
    def _inverse(H: FloatArray, weights: FloatArray, pull: FloatArray) -> FloatArray:
        Q = H.T @ (weights[:, None] * H)
        Q[np.diag_indices_from(Q)] += pull + _LIFT * (float(np.diag(Q).max(initial=0.0)) + pull)
        factor, wrong = dpotrf(Q, lower=1)
        if wrong:
            raise LinAlgError("not positive definite")
        lower = np.tril(dpotri(factor, lower=1)[0])
        return np.asarray(lower + np.tril(lower, -1).T)

    def solve(self, R: FloatArray) -> FloatArray:
        """All blocks at once."""
        if len(self.inverses) == 1:
            return np.asarray(self.inverses[0] @ R)
        return np.stack([inverse @ r for inverse, r in zip(self.inverses, R.T, strict=True)], axis=1)

    def inner(self, groups: FloatArray) -> FloatArray:
        """What the ranks leave of the identity, ``(m, m)``."""
        m, K, C = groups.shape
        ranks = groups.reshape(m * K, C) * np.sqrt(self.pull[: m * K])
        if len(self.inverses) == 1:
            all_of_it = self.inverses[0][: m * K, : m * K] * (ranks @ ranks.T)
        else:
            parts = zip(self.inverses, ranks.T, strict=True)
            all_of_it = sum((Q[: m * K, : m * K] * np.outer(r, r) for Q, r in parts), start=np.zeros((m * K, m * K)))
        return np.asarray(np.eye(m) * (1.0 + _LIFT) - all_of_it.reshape(m, K, m, K).sum(axis=(1, 3)))


class _Long:
    r"""The blocks where rows are fewer: factors of :math:`I + D_c^{1/2} H P^{-1} H^T D_c^{1/2}`."""

    def __init__(self, H: FloatArray, weights: FloatArray, pull: FloatArray) -> None:
        # nothing pulls the intercept: next to nothing does, and conjugate gradients see to the rest
        self.root = np.sqrt(np.where(pull > 0, pull, _LIFT * float(weights.sum()) + np.finfo(float).tiny))
        self.scaled = H / self.root.T
        gram = self.scaled @ self.scaled.T
        self.bends = np.sqrt(weights)
        self.factors = []
        for bend in self.bends.T:
            S = gram * np.outer(bend, bend)
            S[np.diag_indices_from(S)] += 1.0
            self.factors.append(cholesky(S, lower=True, check_finite=False))

    def solve(self, R: FloatArray) -> FloatArray:
        """All blocks at once."""
        R = R / self.root
        x = self.bends * (self.scaled @ R)
        if len(self.factors) == 1:
            x = cho_solve((self.factors[0], True), x, check_finite=False)
        else:
            pairs = zip(self.factors, x.T, strict=True)
            x = np.stack([cho_solve((factor, True), r, check_finite=False) for factor, r in pairs], axis=1)
        return np.asarray((R - self.scaled.T @ (self.bends * x)) / self.root)

    def inner(self, groups: FloatArray) -> FloatArray:
        """What the ranks leave of the identity, ``(m, m)``."""
        m, K, C = groups.shape
        left = np.diag(1.0 - (groups**2).sum(axis=(1, 2)))
        hidden = self.scaled[:, : m * K].reshape(-1, m, K)
        for c in range(C):
            of_output = 0 if len(self.factors) == 1 else c
            E = np.einsum("nmk,mk->nm", hidden, groups[:, :, c]) * self.bends[:, of_output, None]
            E = solve_triangular(self.factors[of_output], E, lower=True, check_finite=False)
            left += E.T @ E
        return left


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
    problem: Problem[Directional], epsilon: float, atoms: Neurons, t: FloatArray, tol: float
) -> tuple[Neurons, Corrected]:
    """The best output weights of ``atoms`` (reduced coordinates) from magnitudes ``t``, to a gap of ``tol``.

    For the loss smoothed by ``epsilon``, if it has kinks. Atoms that end without weights keep their output directions.
    """
    sizes = atoms.lengths
    hidden = problem.atoms.stacked(problem.atoms.activations(atoms.U / sizes[:, None]))
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
    value = problem.loss_value(F) + problem.beta * float(norms.sum())
    return replace(atoms, alpha=alpha, intercept=b), Corrected(norms / sizes, b, F, value, V)
