r"""Dual points that suit the relaxation.

The compact bound (:mod:`bidual.bounds.oracle.compact`) is the largest value of a linear function of the dual
point v over relaxed neurons, :math:`g_{rel}(v) = \max_h v^T h`, so that maximising the dual objective subject to
:math:`g_{rel}(\pm v) \le \beta` is training again, with relaxed neurons: one conic program
(:mod:`bidual.bounds.oracle.interior`), or column generation where its Newton systems are too large for the time there
is. Where the bound is loose, the v found so proves more than the residual of the best network, which has to be scaled
down.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from bidual._util.clock import clock
from bidual._util.typing import FloatArray
from bidual._util.watch import current
from bidual.bounds.dual import lower_bound
from bidual.bounds.oracle.base import DualConstraint
from bidual.bounds.oracle.interior import RelaxedTraining, affordable
from bidual.bounds.oracle.outputs import RelaxationSearch
from bidual.problem import Problem


def relaxed_dual(
    problem: Problem,
    V: FloatArray,
    *,
    deadline: float = np.inf,
    rounds: int = 40,
    tol: float = 1e-3,
    incumbent: FloatArray | None = None,
) -> FloatArray:
    r"""The dual point with the best lower bound by the compact relaxation, or nearly so.

    Parameters
    ----------
    problem : Problem
        With one output and a smooth loss.
    V : ndarray, shape (n, 1)
        A dual point, such as the negative gradient of the loss at a network's outputs: column generation begins there.
    deadline : float
        Moment of :func:`~bidual._util.clock.clock` at which to stop.
    rounds : int
        Relaxed neurons are added so many times at most.
    tol : float
        Stop when the relaxed constraint is met up to this, relative to beta.
    incumbent : ndarray or None
        Directions to start from, see :func:`bidual.bounds.oracle.bound_oracle`.

    Returns
    -------
    ndarray, shape (n, 1)
        That of the relaxed training, or, by column generation, the best of those tried, ``V`` and midpoints with it
        included. Any is valid; its bound is that of :func:`~bidual.bounds.oracle.bound_oracle`.
    """
    if problem.n_coefficients != 1 or not problem.loss.smooth:
        raise ValueError("the relaxed problem needs one output and a smooth loss")
    first = problem.dual_point(V)
    with threadpool_limits(1, user_api="blas"):
        if affordable(problem, deadline - clock()):
            found = RelaxedTraining(problem).run(deadline)
            return first if found is None else problem.dual_point(found)
        return _by_columns(problem, first, deadline, rounds, tol, incumbent)


def _by_columns(
    problem: Problem, first: FloatArray, deadline: float, rounds: int, tol: float, incumbent: FloatArray | None
) -> FloatArray:
    columns, alpha = np.zeros((len(first), 0)), np.zeros(int(problem.fit_intercept))
    best, best_value, point = first, -np.inf, first
    for _ in range(rounds):
        search = _relax(problem, point, incumbent)
        value = _proven(problem, point, search)
        if value > best_value:
            best, best_value = point, value
        found = _neurons(problem, point, search)
        found = found[:, point[:, 0] @ found > (1.0 + tol) * problem.beta]
        if not found.shape[1] or current().late() or clock() >= deadline:
            break
        columns = np.column_stack([columns, found])
        alpha, point = _refit(problem, columns, np.concatenate([alpha, np.zeros(found.shape[1])]), deadline)
    if best is first:
        return first
    middle = 0.5 * (first + best)
    return middle if _proven(problem, middle, _relax(problem, middle, incumbent)) > best_value else best


def _relax(problem: Problem, V: FloatArray, incumbent: FloatArray | None) -> RelaxationSearch:
    constraint = DualConstraint.at(problem, V)
    return RelaxationSearch(constraint, constraint.start(incumbent), 0.0, 0.0)


def _proven(problem: Problem, V: FloatArray, search: RelaxationSearch) -> float:
    return lower_bound(problem, V, search.value, search.constraint.safe(search.bound)).value


def _neurons(problem: Problem, V: FloatArray, search: RelaxationSearch) -> FloatArray:
    """Outputs of the relaxed neurons of both signs at ``V``, ``(n, 2)``; those of the negative one negated."""
    X, v = problem.atoms.M @ search.constraint.basis, problem.atoms.spread(V)[:, 0]
    outputs = [
        a * problem.atoms.pool(tree.root.relaxed.neuron(X, a * v))
        for a, tree in zip(search.cover.directions[:, 0], search.trees, strict=True)
    ]
    return np.column_stack(outputs)


def _refit(problem: Problem, columns: FloatArray, alpha: FloatArray, deadline: float) -> tuple[FloatArray, FloatArray]:
    r"""Minimise :math:`L(H \alpha + b) + \beta \sum_j \alpha_j` over :math:`\alpha \ge 0`; the weights and -grad L."""
    free = int(problem.fit_intercept)
    H = np.column_stack([np.ones((len(columns), free)), columns])
    cost = np.concatenate([np.zeros(free), np.full(columns.shape[1], problem.beta)])
    # Columns are given only by their direction: one scale for all makes a good start for the quasi-Newton method.
    size = float(np.sqrt((columns**2).mean())) or 1.0

    def gradient(a: FloatArray) -> FloatArray:
        return problem.loss.gradient((H @ a)[:, None], problem.Y, problem.w)

    def objective(a: FloatArray) -> tuple[float, FloatArray]:
        a = a / size
        value = problem.loss_value((H @ a)[:, None]) + float(cost @ a)
        return value, (H.T @ gradient(a)[:, 0] + cost) / size

    limits = [(None, None)] * free + [(0.0, None)] * columns.shape[1]
    options = {"maxiter": 3000, "maxfun": 6000, "ftol": 1e-13, "gtol": 1e-9}
    watch = current()

    def ask(a: FloatArray) -> None:
        if watch.late() or clock() >= deadline:
            raise StopIteration

    search = minimize(
        objective, alpha * size, jac=True, bounds=limits, method="L-BFGS-B", callback=ask, options=options
    )
    found = search.x / size
    V = problem.loss.dual_point(-gradient(found), problem.Y, problem.w, centred=problem.fit_intercept)
    return found, V
