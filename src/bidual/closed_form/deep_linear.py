r"""Deep linear networks: what is solved globally, and what is not (001 sec. 3).

The problem is that of :mod:`bidual.closed_form.linear`. It is solved to a proven optimum

- at ``beta = 0``: :math:`W = X^+ Y` at every depth, because projecting W onto the row space of X makes no singular
  value larger (001 eq. 14, Thm 3.1 and 3.4);
- for a white X (all singular values equal): every singular value on its own (Thm 3.6);
- for one output: along the ridge path (Thm 3.3, where the paper leaves :math:`t_j^*` open);
- for two layers: the nuclear norm is convex (sec. 2.2.1).

Otherwise (several outputs, more than two layers, any X) the penalty is not convex and singular values interact: then
local minima of several starts are compared, and the lower bound, though proven, is not tight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bidual._util.clock import clock
from bidual._util.data import normalise_weights
from bidual._util.exact_rank import exact_rank
from bidual._util.ranges import MODERATE, check_range
from bidual._util.typing import FloatArray
from bidual.atoms import Relu
from bidual.bounds import ByFormula, Certificate, lower_bound
from bidual.closed_form.layers import aligned_layers
from bidual.closed_form.linear import LinearProblem, proximal_gradient, separable, singular_values
from bidual.closed_form.scalar import chain_cost, minimise_chain
from bidual.losses import Squared
from bidual.networks import DeepNetwork
from bidual.problem import Problem

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class LinearOptions:
    """How well to solve."""

    tol: float = 1e-6
    max_iter: int = 20_000


@dataclass(frozen=True)
class LinearSolution:
    """Z of a :class:`LinearProblem`, a lower bound on the optimum, and where both come from."""

    Z: FloatArray
    lower_bound: float
    method: str
    n_iter: int = 1


def solve_linear(problem: LinearProblem, beta: float, depth: int, options: LinearOptions) -> LinearSolution:
    """The best known Z, by the first method of this module's list that applies."""
    if beta == 0:
        Z = problem.B / problem.S
        # no singular value moves by more than the matrix, in norm
        least = np.maximum(singular_values(Z) - problem.uncertainty(Z), 0.0)
        return LinearSolution(Z, chain_cost(least, depth) * (1.0 - 64 * _EPS), "smallest norm: pseudo-inverse")
    if not (problem.B**2).any():
        zero = 0.0 * problem.B
        return LinearSolution(zero, problem.loss(zero) * (1.0 - 64 * _EPS), "zero: Y is orthogonal to X")
    if problem.white:
        return _white(problem, beta, depth)
    if problem.B.shape[1] == 1:
        return _one_output(problem, beta, depth)
    if depth == 2:
        return nuclear(problem, beta, options)
    return _local(problem, beta, depth, options)


def _white(problem: LinearProblem, beta: float, depth: int) -> LinearSolution:
    Z, sigma = separable(problem, beta, depth)
    value = problem.loss(Z) + beta * chain_cost(sigma, depth)
    # Singular values of X equal to rounding only: what this may change at any Z no worse than zero.
    spread = float(np.ptp(problem.S)) if problem.S.size else 0.0
    size = 2.0 * float(np.linalg.norm(problem.B)) / float(problem.S.min(initial=np.inf))
    slack = spread * size * (float(problem.S.max(initial=0.0)) * size + float(np.linalg.norm(problem.B)))
    rounding = 64 * np.finfo(float).eps * (value + problem.loss(0.0 * Z))
    return LinearSolution(Z, value - slack - rounding, "closed form: white X, every singular value on its own")


def _one_output(problem: LinearProblem, beta: float, depth: int) -> LinearSolution:
    r"""The search along the ridge path :math:`z(\mu) = (S^2 + \mu)^{-1} S b`, 001 eq. 16 and Thm 3.3.

    A stationary point has :math:`\mu = \beta \|z\|^{2/L - 2}`, so that every optimum is on the path;
    :math:`\varphi(\rho)`, the least loss within norm :math:`\rho`, is convex with slope :math:`-\mu \rho`.
    """
    S, b = problem.S, problem.B

    def ridge(rho: float) -> tuple[FloatArray, float]:
        """The best z of norm ``rho`` and its multiplier: Newton on 1/norm, which rises from below."""
        mu = 0.0
        for _ in range(200):
            z = S * b / (S**2 + mu)
            norm = float(np.linalg.norm(z))
            change = (norm / rho - 1.0) * norm**2 / float((z**2 / (S**2 + mu)).sum())
            if not change > 4 * np.finfo(float).eps * mu:
                break
            mu += change
        return z, mu

    def curve(rho: float) -> tuple[float, float]:
        if rho == 0.0:
            return problem.loss(0.0 * b), -float(np.linalg.norm(S * b))
        z, mu = ridge(rho)
        return problem.loss(z), -mu * rho

    longest = float(np.linalg.norm(b / S))
    best = minimise_chain(curve, beta, depth, longest)
    Z = ridge(best.s)[0] if best.s > 0 else 0.0 * b
    return LinearSolution(Z, best.lower_bound, "branch and bound along the ridge path")


def nuclear(problem: LinearProblem, beta: float, options: LinearOptions) -> LinearSolution:
    """The network of two layers: the nuclear norm in place of the penalty."""
    start, _ = separable(problem, beta, 2)
    Z, n_iter = proximal_gradient(problem, beta, 2, start, options.tol, options.max_iter)
    return LinearSolution(Z, problem.dual_bound(Z, beta), "dual of the nuclear norm", n_iter)


def _local(problem: LinearProblem, beta: float, depth: int, options: LinearOptions) -> LinearSolution:
    r"""Local minima from several starts; the bound replaces :math:`\sigma^{2/L}` by its chord.

    No singular value of an optimum exceeds the R of :meth:`LinearProblem.reach`, and up to there
    :math:`\sigma^{2/L} \ge R^{2/L-1} \sigma`: the two-layer problem with :math:`\tfrac L2 R^{2/L-1} \beta` in place of
    beta bounds this one from below.
    """
    starts = [separable(problem, beta, depth)[0], problem.B / problem.S, nuclear(problem, beta, options).Z]
    ends = [proximal_gradient(problem, beta, depth, Z, options.tol, options.max_iter) for Z in starts]
    Z = min((Z for Z, _ in ends), key=lambda Z: problem.objective(Z, beta, depth))
    most = problem.reach(Z, beta, depth)
    relaxed = nuclear(problem, 0.5 * depth * most ** (2.0 / depth - 1.0) * beta, options)
    return LinearSolution(Z, relaxed.lower_bound, "chord of the penalty, which is not convex", sum(k for _, k in ends))


def _rounding(sizes: FloatArray) -> float:
    """By how much centring and weighting may have moved entries of these sizes, in norm."""
    return (8 + len(sizes)) * _EPS * float(np.linalg.norm(sizes))


def train_linear(
    X: FloatArray,
    Y: FloatArray,
    *,
    beta: float,
    depth: int = 2,
    sample_weight: FloatArray | None = None,
    fit_intercept: bool = True,
    widths: Sequence[int] | None = None,
    options: LinearOptions | None = None,
) -> tuple[DeepNetwork, Certificate, int]:
    r"""A linear network of ``depth`` layers for the *mean* of squares: beta of the papers is n times ours.

    Parameters
    ----------
    X : ndarray, shape (n, d)
    Y : ndarray, shape (n, C)
    beta : float
        Weight decay; 0 asks for the network of smallest penalty among those of least squared error, and the objective
        is then that penalty.
    depth : int
        L, at least 2.
    sample_weight : ndarray, shape (n,), or None
    fit_intercept : bool
        Whether the output bias is free or zero.
    widths : sequence of L - 1 ints or None
        See :func:`bidual.closed_form.layers.aligned_layers`.
    options : LinearOptions or None

    Returns
    -------
    network : DeepNetwork
        Balanced and aligned.
    certificate : Certificate
        The bound is proven even where it is not tight.
    n_iter : int
    """
    began = clock()
    check_range(MODERATE, X=X, y=Y)
    w = normalise_weights(sample_weight, len(X))
    x_mean, y_mean = (w @ X, w @ Y) if fit_intercept else (np.zeros(X.shape[1]), np.zeros(Y.shape[1]))
    root = np.sqrt(w)[:, None]
    problem = LinearProblem.of(
        root * (X - x_mean),
        root * (Y - y_mean),
        _rounding(root * (np.abs(X) + np.abs(x_mean))),
        _rounding(root * (np.abs(Y) + np.abs(y_mean))),
    )
    if beta == 0 and len(problem.S) < min(len(X) - fit_intercept, X.shape[1]):
        rows = X[w > 0]
        rank = exact_rank(np.column_stack([rows, np.ones(len(rows))])) - 1 if fit_intercept else exact_rank(rows)
        problem = replace(problem, certain=rank == len(problem.S))
    solution = solve_linear(problem, beta, depth, options or LinearOptions())

    P, sigma, Qt = np.linalg.svd(solution.Z, full_matrices=False)
    sigma = np.where(sigma > sigma.max(initial=0.0) * max(X.shape) * np.finfo(float).eps, sigma, 0.0)
    layers = aligned_layers(problem.V @ P, sigma, Qt, depth, widths)
    biases = [None] * (depth - 1) + [y_mean - x_mean @ problem.V @ solution.Z if fit_intercept else None]
    network = DeepNetwork(layers, biases, activation="linear")

    objective = network.penalty()
    bound = ByFormula(solution.lower_bound)
    if beta > 0:
        loss, F = Squared(), network.forward(X)
        used = w > 0
        posed = Problem(Relu(X[used]), Y[used], w[used], loss, beta, fit_intercept)
        objective = posed.loss_value(F[used]) + beta * objective
        bound = ByFormula(max(0.0, bound.value - problem.slack(solution.Z, beta, depth)))
        if depth == 2:
            V = loss.dual_point(w[used, None] * (Y - F)[used], posed.Y, posed.w, centred=fit_intercept)
            value = float(np.linalg.norm((X[used] - x_mean).T @ V, 2))
            mass = float(posed.atoms.row_norms @ np.linalg.norm(V, axis=1))
            limit = value + 8 * max(X.shape) * np.finfo(float).eps * mass
            bound = ByFormula(max(bound.value, lower_bound(posed, V, value, limit).value), value, limit)
    certificate = Certificate.of(
        objective, bound, scope="global", beta=beta, loss="squared", method=solution.method, began=began
    )
    return network, certificate, solution.n_iter
