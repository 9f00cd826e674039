"""Splines with few knots first, more where the dual asks for them.

The optimum has few kinks unless beta is tiny. Each round solves the program on the current knots
(:mod:`bidual.splines.interior`), prices a kink at every data point by two cumulative sums, and adds a knot at every
local maximum that violates the dual constraint. Rounds end when the proven gap is small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bidual._util.typing import FloatArray, IntArray
from bidual.bounds import Bound
from bidual.losses import DualBox
from bidual.solvers.base import HistoryEntry, Options
from bidual.solvers.run import Run, Status
from bidual.splines.interior import Chain, solve_chain
from bidual.splines.problem import KINKS, SplineProblem
from bidual.splines.rows import BoxRows, Hats, QuadraticRows, SmoothRows, hessians

#: Knots of the first round; up to this many nodes all of them.
FIRST = 48
#: Gap to end with in units of ``tol``: knots are pruned afterwards, which may cost this (also in units of it).
TARGET, PRUNED = 0.3, 0.1
#: Accuracy of a round in units of the gap before it; in units of ``tol`` at best; and at worst.
ACCURACY, FINEST, ROUGHEST = 0.01, 0.05, 1e-3
#: What is taken for the objective before there is one, in natural units, and the size of ramps that are counted.
FIRST_OBJECTIVE, COUNTED = 1e-3, 1e-6
#: What rounding may add to a constraint: less is no violation.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Spline:
    """A spline with its knots.

    Attributes
    ----------
    knots : ndarray, shape (K,)
        Indices of nodes.
    chain : Chain
    F : ndarray, shape (n, C)
        Values on the rows.
    objective : float
    V : ndarray, shape (n, C)
        Dual point, minus the gradient of the loss.
    """

    knots: IntArray
    chain: Chain
    F: FloatArray
    objective: float
    V: FloatArray


@dataclass(frozen=True)
class Generated:
    """The best spline, the best bound, and how they came about."""

    spline: Spline
    bound: Bound
    history: list[HistoryEntry]
    n_iter: int
    status: str


def generate(problem: SplineProblem, options: Options) -> Generated:
    """Minimise the problem over all splines."""
    run: Run[Spline | None] = Run(problem.dense, options, None, np.inf)
    run.bound = Bound.nothing(problem.dense, KINKS)  # norms bound no ramp
    knots = _first_knots(problem)
    finest = FINEST * options.tol
    gap = np.inf
    moved: float | None = None
    with run.going() as watch:
        stop = watch.late
        for _ in range(options.max_iter):
            before = run.neurons
            tol = float(np.clip(ACCURACY * gap, finest, ROUGHEST))
            floor = finest * (FIRST_OBJECTIVE if before is None else run.objective)
            current = solve_knots(problem, knots, before, tol, stop, floor=floor, moved=moved)
            moved = None if before is None else float(np.abs(current.F - before.F).max())
            run.n_iter += current.chain.iterations
            new, values = problem.bound(current.V, exact=False)
            run.bounded(new)
            run.offer(current, current.objective, ties=before is None)
            assert run.neurons is not None
            used = int((np.linalg.norm(run.neurons.chain.right, axis=1) > COUNTED).sum())
            gap = run.note(used, size=f"{len(knots):6d} of {len(values)} knots").gap
            if gap <= TARGET * options.tol:
                run.status = Status.CONVERGED
                break
            watch.check()
            added = np.setdiff1d(_peaks(values, problem.beta), knots)
            if not len(added):
                run.status = Status.STALLED
                if tol <= finest:
                    break
                gap = 0.0  # once more, as accurately as can be
            knots = np.union1d(knots, added)
        if run.neurons is not None and not stop():
            pruned = _pruned(problem, run.neurons, options.tol, stop)
            run.adopt(pruned, pruned.objective)
    spline = run.neurons
    assert spline is not None
    final, _ = problem.bound(spline.V)
    run.bounded(final)
    return Generated(spline, run.bound, run.history, run.n_iter, run.status)


def solve_knots(
    problem: SplineProblem,
    knots: IntArray,
    start: Spline | None,
    tol: float,
    stop: Callable[[], bool],
    *,
    floor: float,
    moved: float | None = None,
) -> Spline:
    """The best spline with these knots, up to ``tol`` times its penalty plus ``floor``.

    Of a loss that is linear far from the target, rows that were there at ``start``, further than they are likely to
    move (``moved``: by how much they did last time), are taken to stay there. If one does not, this is done again with
    more care.
    """
    loss, Y, w = problem.loss, problem.Y, problem.w
    hats = Hats(problem.x, problem.nodes[knots])
    box = loss.dual_box(Y)
    zero = np.zeros((len(knots), problem.n_outputs))
    if box is None:
        return _solve_smooth(problem, hats, knots, start, tol, stop, floor)
    targets, box = box.sided(Y)
    k = len(targets) // len(Y)
    beside = hats if k == 1 else Hats(np.repeat(problem.x, k), k * problem.nodes[knots])
    if not (np.isfinite(box.lower).any() or np.isfinite(box.upper).any()):
        rows = QuadraticRows(hats, Y, 0 * Y, box.curvature * w[:, None] * np.ones_like(Y))
        chain = solve_chain(rows, problem.beta, start=zero, tol=tol, floor=floor, stop=stop)
        return _spline(problem, hats, knots, chain, None)
    size = None
    if not loss.finite and len(knots) > 1:  # a margin asks for slopes of this order
        size = float((np.abs(np.diff(Y[problem.nodes[knots]], axis=0)) / hats.spacing[:, None]).mean()) or None
    near = None if start is None else _margins(np.repeat(start.F, k, axis=0) - targets, box)
    radius = np.inf if near is None else float(np.quantile(near[0], 0.7)) if moved is None else 2.0 * moved
    for attempt in range(4):
        settled, bounds = (None, None) if near is None or attempt == 3 else (near[0] > radius, near[1])
        barrier = BoxRows(beside, targets, np.repeat(w, k), box, settled, bounds, crowded=loss.classification)
        chain = solve_chain(barrier, problem.beta, start=zero, size=size, tol=tol, floor=floor, stop=stop)
        slopes = barrier.v.reshape(len(Y), k, -1).sum(axis=1)
        spline = _spline(problem, hats, knots, chain, -w[:, None] * slopes)
        if settled is None or start is None or stop():
            break
        if not chain.solved:
            radius *= 4.0
            continue
        value, side = _margins(np.repeat(spline.F, k, axis=0) - targets, box)
        if not (settled & ((value <= 0) | (side != bounds).any(axis=1))).any():
            break
        radius = max(4.0 * radius, 2.0 * float(np.abs(spline.F - start.F).max()))
    return spline


def _margins(e: FloatArray, box: DualBox) -> tuple[FloatArray, FloatArray]:
    """By how much rows with residuals ``e`` are on the linear side of their loss, and the bound of v there."""
    # an infinite bound is never reached
    above = np.where(np.isfinite(box.upper), e - box.curvature * np.nan_to_num(box.upper), -np.inf)
    below = np.where(np.isfinite(box.lower), box.curvature * np.nan_to_num(box.lower) - e, -np.inf)
    return np.maximum(above, below).min(axis=1), np.where(above >= below, box.upper, box.lower)


def _solve_smooth(
    problem: SplineProblem,
    hats: Hats,
    knots: IntArray,
    start: Spline | None,
    tol: float,
    stop: Callable[[], bool],
    floor: float,
) -> Spline:
    """Newton steps on loss and barrier together; if these fail, on models of the loss with the penalty as it is."""
    loss = problem.loss
    if not loss.smooth:
        raise TypeError(
            f"the loss {loss.name!r} has neither a dual box nor curvature: give it dual_box, or smooth=True and "
            "row_curvatures"
        )
    zero = np.zeros((len(knots), problem.n_outputs))
    rows = SmoothRows(hats, problem.Y, problem.w, loss)
    chain = solve_chain(rows, problem.beta, start=zero, tol=tol, floor=floor, stop=stop)
    if chain.solved or stop():
        return _spline(problem, hats, knots, chain, None)
    return _newton(problem, hats, knots, start, tol, stop, floor)


def _newton(
    problem: SplineProblem,
    hats: Hats,
    knots: IntArray,
    start: Spline | None,
    tol: float,
    stop: Callable[[], bool],
    floor: float,
) -> Spline:
    """Damped Newton steps: each minimises a quadratic model of the loss plus the penalty itself."""
    loss, Y, w = problem.loss, problem.Y, problem.w
    C = problem.n_outputs
    pieces = len(knots) - 1
    zero = np.zeros((pieces, C))
    chain = Chain(np.zeros((pieces + 1, C)), zero, zero, zero, zero, zero, np.inf, False, 0)
    if start is not None and np.isin(start.knots, knots).all():
        chain = _embedded(problem, start, knots)
    now = _spline(problem, hats, knots, chain, None)
    iterations = 0
    for _ in range(50):
        F = hats.values(chain.g)
        gradient = loss.gradient(F, Y, w)
        rows = QuadraticRows(hats, F, gradient, hessians(loss, F, Y, w))
        model = solve_chain(rows, problem.beta, start=chain.g, tol=0.1 * tol, floor=0.1 * floor, stop=stop)
        iterations += model.iterations
        slope = float((gradient * (hats.values(model.g) - F)).sum())
        slope += problem.beta * (_penalty(model) - _penalty(chain))
        step = 1.0
        while step > 1e-6:
            trial = _spline(problem, hats, knots, _between(chain, model, step), None)
            if trial.objective <= now.objective + 1e-4 * step * slope:
                break
            step /= 2
        else:
            break
        chain, now = trial.chain, trial
        if -slope <= tol * problem.beta * _penalty(chain) + floor or stop():
            break
    return replace(now, chain=replace(chain, iterations=iterations))


def _between(old: Chain, new: Chain, step: float) -> Chain:
    """The point at ``step`` from old to new, with the multipliers of the new."""
    g, right, left = (a + step * (b - a) for a, b in ((old.g, new.g), (old.right, new.right), (old.left, new.left)))
    return replace(new, g=g, right=right, left=left)


def _embedded(problem: SplineProblem, start: Spline, knots: IntArray) -> Chain:
    """The same spline with more knots."""
    old, new = problem.x[problem.nodes[start.knots]], problem.x[problem.nodes[knots]]
    place = np.searchsorted(knots, start.knots)
    g = np.column_stack([np.interp(new, old, column) for column in start.chain.g.T])
    right, left = (np.zeros((len(knots) - 1, problem.n_outputs)) for _ in range(2))
    right[place[:-1]], left[place[1:] - 1] = start.chain.right, start.chain.left
    return Chain(g, right, left, 0 * right, 0 * left, 0 * right, np.inf, False, 0)


def _spline(problem: SplineProblem, hats: Hats, knots: IntArray, chain: Chain, V: FloatArray | None) -> Spline:
    """With its objective and dual point (None: the gradient); its values are those of its ramps."""
    if len(knots) > 1:
        slopes = np.cumsum(chain.right, axis=0) - np.cumsum(chain.left[::-1], axis=0)[::-1]
        rise = np.cumsum(hats.spacing[:, None] * slopes, axis=0)
        chain = replace(chain, g=chain.g[0] + np.concatenate([np.zeros((1, problem.n_outputs)), rise]))
    F = hats.values(chain.g)
    objective = problem.dense.loss_value(F) + problem.beta * _penalty(chain)
    if V is None:
        V = -problem.loss.gradient(F, problem.Y, problem.w)
    return Spline(knots, chain, F, objective, V)


def _penalty(chain: Chain) -> float:
    return float(np.linalg.norm(chain.right, axis=1).sum() + np.linalg.norm(chain.left, axis=1).sum())


def _first_knots(problem: SplineProblem) -> IntArray:
    """The ends, some in between, and all that an exact fit or a margin cannot do without."""
    count = len(problem.nodes)
    if count <= FIRST:
        return np.arange(count)
    knots = np.unique(np.linspace(0, count - 1, FIRST).astype(np.int64))
    if not problem.loss.finite:  # where a margin changes sides the spline may need a kink on both
        labels = problem.Y[problem.nodes]
        changes = np.flatnonzero((labels[1:] != labels[:-1]).any(axis=1))
        knots = np.union1d(knots, np.concatenate([changes, changes + 1]))
    return knots


def _peaks(values: FloatArray, beta: float) -> IntArray:
    """Local maxima of the dual constraint above beta."""
    padded = np.concatenate([[-np.inf], values, [-np.inf]])
    top = (values >= padded[:-2]) & (values > padded[2:]) & (values > beta * (1 + ROUNDING))
    return np.flatnonzero(top)


def _pruned(problem: SplineProblem, spline: Spline, tol: float, stop: Callable[[], bool]) -> Spline:
    """Without the knots that carry no kink, where that costs nothing."""
    chain, beta = spline.chain, problem.beta
    if len(spline.knots) <= 2:
        return spline
    weight = np.zeros(len(spline.knots))
    weight[:-1] += np.linalg.norm(chain.right, axis=1)
    weight[1:] += np.linalg.norm(chain.left, axis=1)
    slack = np.full(len(spline.knots), np.inf)
    slack[:-1] = beta - np.linalg.norm(chain.u, axis=1)
    slack[1:] = np.minimum(slack[1:], beta - np.linalg.norm(chain.z, axis=1))
    # strict complementarity: a kink's share of the objective against the slack of its constraint
    kept = weight * beta * len(weight) * beta > slack * spline.objective
    kept[[0, -1]] = True
    if kept.all():
        return spline
    floor = FINEST * tol * spline.objective
    fewer = solve_knots(problem, spline.knots[kept], spline, FINEST * tol, stop, floor=floor, moved=1e-3)
    return fewer if fewer.objective <= spline.objective * (1 + PRUNED * tol) else spline
