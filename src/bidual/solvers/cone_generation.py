r"""Training on fixed patterns of many rows, by generating neurons inside their cones.

The program on patterns (003 eq. 8) has N cone constraints for each block, millions where rows are the patches of
images. Its dual asks one thing of every block: that the projection of its gradient onto its cone be no longer than
beta (003 Lemma 4). So directions inside the cones take the place of the constraints: the best magnitudes of those at
hand give a dual point, the projections at it (:class:`~bidual.bounds.rowwise.RowwiseBounds`) the lower bound and
the directions that are missing. Sums of neurons of a block stay in its cone, cost less, and join them.

A loss with kinks is followed by smooth ones, as in :mod:`bidual.solvers.engine.loop`; objective and bound are of
the loss itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bidual._util.memory import require_memory
from bidual._util.tuning import tuning
from bidual._util.typing import BoolArray, FloatArray, IntArray
from bidual.arrangements import Patterns
from bidual.atoms import Neurons
from bidual.bounds.rowwise import RowwiseBounds
from bidual.problem import Problem
from bidual.programs.box_corrective import best_magnitudes
from bidual.programs.corrective import fit_intercept
from bidual.programs.smoothing import first_epsilon, sharper, smoothed
from bidual.solvers.run import Run, Status

#: Entries of all cone constraints beyond which this is the faster way (by a factor of 100 at half a million, unless
#: beta is tiny) to all but tiny gaps.
WORTHWHILE = 250_000
#: The smallest of such gaps.
_SMALL = 1e-5
#: Rounds without progress after which it ends (beta is tiny), and the share of the gap that is left without it.
_PATIENCE, _PROGRESS = 20, 0.9
#: Share of the time limit that is left for what follows the last round.
_RESERVE = 0.05
#: Accuracy of the magnitudes in units of the gap, which counts as this at most: they need not be better than the bound.
_ACCURACY, _ROUGH = 0.01, 0.1
#: Share of beta above which the slope of a direction out of use is worth keeping it: it may be of use again.
_CLOSE = 0.9


def suits(problem: Problem, patterns: Patterns, tol: float) -> bool:
    """Whether this is the way: the constraints of all cones are many."""
    if not (
        "plain oracle" in problem.atoms.can and problem.n_coefficients == problem.n_outputs and problem.loss.finite
    ):
        return False
    written = patterns.complete or patterns.cone_rows is not None  # the facets are known, or all that is proven needed
    return not written and entries(problem, patterns) > (WORTHWHILE if tol >= _SMALL else tuning().written_entries)


def entries(problem: Problem, patterns: Patterns) -> int:
    """Of all cone constraints."""
    return len(patterns) * problem.atoms.reduced.size


@dataclass(frozen=True)
class _Atoms:
    """Directions ``U (k, r)`` inside the cones of their blocks, flat indices into (sign, output, pattern)."""

    U: FloatArray
    block: IntArray

    def neurons(self, shape: tuple[int, int, int], intercept: FloatArray) -> Neurons:
        _, C, _ = shape
        sign, c, _ = np.unravel_index(self.block, shape)
        return Neurons(self.U, np.where(sign == 0, 1.0, -1.0)[:, None] * np.eye(C)[c], intercept)

    def take(self, index: IntArray | BoolArray) -> _Atoms:
        return _Atoms(self.U[index], self.block[index])

    def joined(self, other: _Atoms) -> _Atoms:
        return _Atoms(np.concatenate([self.U, other.U]), np.concatenate([self.block, other.block]))


def generate(run: Run, patterns: Patterns) -> None:
    """Solve the program on ``patterns``, from nothing, to the gap that ``run`` asks for."""
    problem, options = run.problem, run.options
    C, tol = problem.n_outputs, options.tol
    shape = (2, C, len(patterns))
    # three square matrices over all directions that a round begins with
    require_memory(
        24.0 * (2 * C * len(patterns)) ** 2,
        f"training on {len(patterns):,} patterns of {len(problem.atoms.M):,} rows",
        "Use a smaller n_patterns, or method='adaptive', which needs no patterns",
    )
    bounds = RowwiseBounds(problem, patterns)
    witnesses = patterns.witnesses @ problem.atoms.basis
    atoms = _Atoms(np.tile(witnesses, (2 * C, 1)), np.arange(2 * C * len(patterns)))
    t = np.zeros(len(atoms.U))
    epsilon = first_epsilon(problem)
    intercept = fit_intercept(problem, smoothed(problem.loss, epsilon))
    run.adopt(replace(run.neurons, intercept=intercept), np.inf)
    with run.going(1.0 - _RESERVE) as watch:
        for _ in range(options.max_iter):
            candidates = atoms.neurons(shape, intercept)
            step = best_magnitudes(problem, epsilon, candidates, t, _ACCURACY * min(max(run.gap, tol), _ROUGH))
            intercept, used = step.intercept, step.t > 0
            sums = _sums(atoms.take(used), step.t[used])
            found = sums.neurons(shape, intercept)
            run.offer(replace(found, U=found.U @ problem.atoms.basis.T))
            V = -problem.loss.gradient(step.F, problem.Y, problem.w) if step.V is None else step.V
            run.bounded(bounds.bound(problem.dual_point(V), watch.late))
            run.note(words=f"on {len(patterns)} patterns")
            run.n_iter += 1
            if run.closed:
                run.status = Status.CONVERGED
                return
            if run.n_iter > _PATIENCE and run.gap > _PROGRESS * run.history[-1 - _PATIENCE].gap:
                run.status = Status.STALLED
                return
            watch.check()
            # directions that the dual point came close to, those in use, their sums, and what is missing
            slopes = np.einsum("bi,bi->b", bounds.gradients[atoms.block], atoms.U) / np.linalg.norm(atoms.U, axis=1)
            kept = used | (slopes > _CLOSE * problem.beta)
            fresh = _Atoms(
                np.array(list(bounds.directions.values())).reshape(-1, atoms.U.shape[1]),
                np.array([np.ravel_multi_index(k, shape) for k in bounds.directions], dtype=np.int64),
            )
            t = np.concatenate([np.zeros(int(kept.sum())), np.ones(len(sums.U)), np.zeros(len(fresh.U))])
            atoms = atoms.take(kept).joined(sums).joined(fresh)
            if epsilon:
                epsilon = sharper(epsilon, run.gap, run.objective, tol)


def _sums(atoms: _Atoms, t: FloatArray) -> _Atoms:
    """The neurons of each block added up: inside its cone they are one neuron, no dearer."""
    blocks, where = np.unique(atoms.block, return_inverse=True)
    U = np.zeros((len(blocks), atoms.U.shape[1]))
    np.add.at(U, where, t[:, None] * atoms.U)
    return _Atoms(U, blocks)
