r"""Training on fixed patterns of many rows, by generating neurons inside their cones.

The program on patterns (003 eq. 8) has N cone constraints for each block, millions where rows are the patches of
images. Its dual asks one thing of every block: that the projection of its gradient onto its cone be no longer than
beta (003 Lemma 4). So directions inside the cones take the place of the constraints: the best magnitudes of those at
hand give a dual point, the projections at it (:class:`~bidual.certificates.rowwise.RowwiseBounds`) the lower bound and
the directions that are missing. Sums of neurons of a block stay in its cone, cost less, and join them.

A loss with kinks is followed by smooth ones, as in :mod:`bidual.solvers.adaptive.engine`; objective and bound are of
the loss itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from bidual._memory import require_memory
from bidual._typing import BoolArray, FloatArray, IntArray
from bidual._watch import Stopped, watching
from bidual.arrangements import Patterns
from bidual.certificates import Bound, relative_gap
from bidual.certificates.rowwise import RowwiseBounds
from bidual.problem import Neurons, Problem
from bidual.progress import closed, note
from bidual.solvers.adaptive.box_corrective import best_magnitudes
from bidual.solvers.adaptive.corrective import fit_intercept
from bidual.solvers.adaptive.smoothing import SmoothedLoss, first_epsilon, sharper
from bidual.solvers.base import HistoryEntry, Options

#: Entries of all cone constraints beyond which they are not written down, and beyond which this is the faster way (by
#: a factor of 100 at half a million, unless beta is tiny) to all but tiny gaps.
LARGEST, WORTHWHILE = 1_000_000, 250_000
#: The smallest of such gaps.
_SMALL = 1e-5
#: How it ends where beta is tiny.
STALLED = "stopped: no further progress in floating point"
#: Rounds without progress after which it ends.
_PATIENCE = 20
#: Share of the time limit that is left for what follows the last round.
_RESERVE = 0.05


@dataclass(frozen=True)
class Generated:
    """What came out: neurons in the coordinates of M, the best bound, and how it ended."""

    neurons: Neurons
    bound: Bound
    status: str
    history: list[HistoryEntry]


def suits(problem: Problem, patterns: Patterns, tol: float) -> bool:
    """Whether this is the way: the constraints of all cones are many."""
    if not (problem.plain and problem.n_coefficients == problem.n_outputs and problem.loss.finite):
        return False
    written = patterns.complete or patterns.cone_rows is not None  # the facets are known, or all that is proven needed
    return not written and entries(problem, patterns) > (WORTHWHILE if tol >= _SMALL else LARGEST)


def entries(problem: Problem, patterns: Patterns) -> int:
    """Of all cone constraints."""
    return len(patterns) * problem.reduced.size


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


def generate(problem: Problem, patterns: Patterns, options: Options, began: float) -> Generated:
    """Solve the program on ``patterns`` to the gap ``options.tol``."""
    beta, C = problem.beta, problem.n_outputs
    shape = (2, C, len(patterns))
    # three square matrices over all directions that a round begins with
    require_memory(
        24.0 * (2 * C * len(patterns)) ** 2,
        f"training on {len(patterns):,} patterns of {len(problem.M):,} rows",
        "Use a smaller n_patterns, or method='adaptive', which needs no patterns",
    )
    limit = np.inf if options.time_limit is None else (1.0 - _RESERVE) * options.time_limit
    bounds = RowwiseBounds(problem, patterns)
    witnesses = patterns.witnesses @ problem.basis
    atoms = _Atoms(np.tile(witnesses, (2 * C, 1)), np.arange(2 * C * len(patterns)))
    t = np.zeros(len(atoms.U))
    epsilon = first_epsilon(problem)
    intercept = fit_intercept(problem, SmoothedLoss(problem.loss, epsilon) if epsilon else problem.loss)
    best = Bound.nothing(problem)
    neurons = problem.no_neurons(problem.reduced.shape[1], intercept)
    objective, gap = np.inf, 1.0
    history: list[HistoryEntry] = []
    status = "stopped at max_iter"
    with watching(limit - (time.perf_counter() - began)) as watch:
        for _ in range(options.max_iter):
            candidates = atoms.neurons(shape, intercept)
            try:
                step = best_magnitudes(problem, epsilon, candidates, t, 0.01 * min(max(gap, options.tol), 0.1))
            except Stopped:
                status = watch.status
                break
            intercept, used = step.intercept, step.t > 0
            sums = _sums(atoms.take(used), step.t[used])
            found = sums.neurons(shape, intercept)
            value = problem.objective(replace(found, U=found.U @ problem.basis.T))
            if value < objective:
                objective, neurons = value, found
            V = -problem.loss.gradient(step.F, problem.Y, problem.w) if step.V is None else step.V
            V = problem.loss.dual_point(V, problem.Y, problem.w, centred=problem.fit_intercept)
            best = max(best, bounds.bound(V, watch.late), key=lambda b: b.value)
            gap = relative_gap(objective, best.value)
            history.append(HistoryEntry(time.perf_counter() - began, objective, best.value, len(neurons)))
            if options.verbose:
                note(
                    f"{history[-1].elapsed:8.2f} s  {len(neurons):5d} neurons on {len(patterns)} patterns  "
                    f"objective {objective:.8g}  gap {gap:.1e}",
                    closed(gap, options.tol),
                )
            if gap <= options.tol:
                status = "converged"
                break
            if len(history) > _PATIENCE and gap > 0.9 * relative_gap(*_bounds(history[-1 - _PATIENCE])):
                status = STALLED
                break
            if watch.late():
                status = watch.status
                break
            # directions that the dual point came close to, those in use, their sums, and what is missing
            slopes = np.einsum("bi,bi->b", bounds.gradients[atoms.block], atoms.U) / np.linalg.norm(atoms.U, axis=1)
            kept = used | (slopes > 0.9 * beta)
            fresh = _Atoms(
                np.array(list(bounds.directions.values())).reshape(-1, atoms.U.shape[1]),
                np.array([np.ravel_multi_index(k, shape) for k in bounds.directions], dtype=np.int64),
            )
            t = np.concatenate([np.zeros(int(kept.sum())), np.ones(len(sums.U)), np.zeros(len(fresh.U))])
            atoms = atoms.take(kept).joined(sums).joined(fresh)
            if epsilon:
                epsilon = sharper(epsilon, gap, objective, options.tol)
    return Generated(replace(neurons, U=neurons.U @ problem.basis.T), best, status, history)


def _bounds(entry: HistoryEntry) -> tuple[float, float]:
    return entry.objective, entry.likely_bound


def _sums(atoms: _Atoms, t: FloatArray) -> _Atoms:
    """The neurons of each block added up: inside its cone they are one neuron, no dearer."""
    blocks, where = np.unique(atoms.block, return_inverse=True)
    U = np.zeros((len(blocks), atoms.U.shape[1]))
    np.add.at(U, where, t[:, None] * atoms.U)
    return _Atoms(U, blocks)
