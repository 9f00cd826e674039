r"""Cutting planes with the spike-free relaxation (004 Algorithm 1, A.7, A.7.3).

The dual constraint is asked for on a growing set of neurons. The most violating neuron is looked for where that is
easy, among those active on every row (:mod:`bidual.geometry.relaxation`), and at the tips of the spikes along the axes
(:mod:`bidual.geometry.extreme_points`), as in the experiments of 004 (A.2). With spike-free features this is training
to the global optimum, proven (Prop. 3.2). Otherwise what it converges to is only the best network made of such neurons:
the relaxed dual is a bound from the wrong side, and the certificate of the network is found as for any other network.

Where it falls behind column generation with a search for neurons (``method="adaptive"``): on data that are not
spike-free, i.e. nearly always, by the difference of the objectives; and on spike-free data too, because with one output
the relaxation is a single small cone program (all neurons share the pattern 1...1) that needs no cuts at all. Measured
(``examples/geometry.py``, squared loss, beta = 0.01):

====================== ========================== ==========================
data                   cutting planes             adaptive
====================== ========================== ==========================
spike-free, 30 x 40    0.067335, proven           0.067336, gap 5e-5
Gaussian, 30 x 40      0.023738                   0.015827, gap 1e-4
Gaussian, 60 x 4       0.422884                   0.107298, gap 9e-5
====================== ========================== ==========================

004 Algorithm 3 has a free bias, for which the relaxation leaves nothing but linear neurons
(:func:`bidual.geometry.relaxed_neuron_free_bias`). Here ``bias=True`` is a regularised weight, as everywhere in the
library: Algorithm 1 on the rows :math:`(x_i, 1)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from bidual._util.typing import FloatArray
from bidual._util.watch import Stopped, checkpoint, watching
from bidual.arrangements import Patterns, patterns_of
from bidual.atoms import Neurons
from bidual.bounds import bound_by_norms, lower_bound
from bidual.bounds.oracle import DualConstraint
from bidual.bounds.proof import FormulaProof
from bidual.geometry.extreme_points import ExtremePoints, extreme_points
from bidual.geometry.relaxation import RelaxedNeurons, relaxed_neurons, relaxed_neurons_joint
from bidual.geometry.spike_free import SpikeFree, is_spike_free
from bidual.problem import Problem
from bidual.programs.box_corrective import best_magnitudes
from bidual.programs.corrective import fit_intercept
from bidual.programs.smoothing import first_epsilon, sharper, smoothed
from bidual.solvers.base import Options, Solution
from bidual.solvers.bounding import GlobalBound, global_bound
from bidual.solvers.finite import solve_finite
from bidual.solvers.proving import NORMS
from bidual.solvers.reduce import reduce_neurons
from bidual.solvers.run import Run, Status

#: Up to this many lifted rows the tips of the spikes are computed.
_SPIKES = 5000
#: Tips that may become cuts in one round.
_TIPS = 20
#: In units of ``tol``: the gap of the relaxation to end with, the accuracy of magnitudes, and what fewer neurons may
#: cost. All are small beside it, as the certificate that follows is of another bound.
_TARGET, _ACCURACY, _BUDGET = 0.1, 1e-3, 0.01
#: Newton steps for the magnitudes: more than elsewhere, as nothing else moves.
_STEPS = 30
#: Neurons above which those without magnitude are dropped; below they serve as cuts.
_MOST = 500
#: Share of the largest violation from which on one becomes a cut.
_VIOLATION = 1e-3


def solve_cutting_plane(problem: Problem, options: Options) -> Solution:
    """Cutting planes; with several outputs the neurons of eq. 50."""
    return _solve(problem, options, joint=problem.n_outputs > 1)


def solve_cutting_plane_l1(problem: Problem, options: Options) -> Solution:
    r"""The variant of A.7.3, with :math:`\sum_j \|u_j\| \|\alpha_j\|_1`: each neuron feeds one output.

    Its cuts are convex problems. What it minimises is an upper bound on the objective of the library, in which the
    certificate is.
    """
    return _solve(problem, options, joint=False)


def _solve(problem: Problem, options: Options, joint: bool) -> Solution:
    if not problem.loss.finite:
        return _interpolate(problem, options)
    with threadpool_limits(1, user_api="blas"):
        with watching(options.time_limit):
            planes = _CuttingPlanes(problem, options, joint)
            planes.cut()
        neurons = reduce_neurons(problem, planes.neurons, _BUDGET * options.tol)
        try:
            found = _certified(problem, planes.bound.V, options, planes.spike_free)
        except Stopped:
            found = GlobalBound(bound_by_norms(problem, planes.bound.V), NORMS)
    planes.bound = found.bound
    return planes.solution(found.method, neurons, n_patterns=found.n_patterns)


def _certified(problem: Problem, V: FloatArray, options: Options, spike_free: SpikeFree) -> GlobalBound:
    """A bound on all networks: the relaxation's own where it is exact, else as for any dual point."""
    if spike_free and problem.n_outputs == 1:
        value = relaxed_neurons(problem.atoms.reduced, problem.atoms.spread(V)).best
        constraint = DualConstraint.at(problem, V)
        how = "spike-free features, projection on their cone"
        bound = lower_bound(problem, V, value, constraint.safe(value * spike_free.factor), FormulaProof(how))
        return GlobalBound(bound, how)
    return global_bound(problem, V, options.random_state)


def _interpolate(problem: Problem, options: Options) -> Solution:
    """beta = 0: the smallest network on the patterns of the relaxation and of the spikes, where the cuts would lead."""
    rows = problem.atoms.relu_inputs
    spike_free = is_spike_free(problem.atoms.M)
    spiky = not spike_free and 2 <= len(rows) <= _SPIKES
    tips = extreme_points(rows, bias=False).U if spiky else np.zeros((0, rows.shape[1]))
    spikes = patterns_of(rows, tips[tips.any(axis=1)])
    # every row active: the cone may have no interior, and the origin stands for it
    active = np.vstack([np.ones((1, len(rows)), dtype=bool), spikes.active])
    found = solve_finite(
        problem, Patterns(active, np.vstack([np.zeros((1, rows.shape[1])), spikes.witnesses])), options
    )
    bound = _certified(problem, found.bound.V, options, spike_free)
    last = replace(found.history[-1], likely_bound=bound.bound.value)
    return replace(
        found,
        bound=bound.bound,
        scope="global",
        method=bound.method,
        history=[*found.history[:-1], last],
    )


@dataclass
class _Cuts:
    """Neurons that may violate the constraint: directions, output directions, values."""

    U: FloatArray
    outputs: FloatArray
    values: FloatArray


class _CuttingPlanes(Run):
    """A run whose bound is that of the relaxation."""

    def __init__(self, problem: Problem, options: Options, joint: bool) -> None:
        nothing = problem.atoms.none(problem.atoms.M.shape[1], np.zeros(problem.n_outputs))
        super().__init__(problem, options, nothing)
        self.joint = joint
        self.spike_free = is_spike_free(problem.atoms.M)
        rows = problem.atoms.reduced
        self.tips: ExtremePoints | None = None
        if not self.spike_free and 2 <= len(rows) <= _SPIKES and rows.shape[1]:
            self.tips = extreme_points(rows, bias=False)
        self.epsilon = first_epsilon(problem)
        self.adopt(replace(nothing, intercept=fit_intercept(problem, smoothed(problem.loss, self.epsilon))))

    def cut(self) -> None:
        """Cut until the relaxed gap is a tenth of the tolerance."""
        p, target = self.problem, _TARGET * self.options.tol
        atoms, t = Neurons.none(p.atoms.reduced.shape[1], self.neurons.intercept), np.zeros(0)
        with self.going():
            for _ in range(self.options.max_iter):
                # the best magnitudes of the neurons so far (004 Algorithm 1, step 5)
                step = best_magnitudes(p, self.epsilon, atoms, t, _ACCURACY * self.options.tol, _STEPS)
                t, atoms = step.t, replace(atoms, intercept=step.intercept)
                used = step.neurons(atoms)
                self.offer(replace(used, U=used.U @ p.atoms.basis.T), step.value, ties=True)
                V = -smoothed(p.loss, self.epsilon).gradient(step.F, p.Y, p.w) if step.V is None else step.V
                V = p.dual_point(V)
                cuts = self._cuts(V)
                best = float(cuts.values.max(initial=0.0))
                self.bounded(lower_bound(p, V, best, best))
                self.note(words="of the relaxation")
                self.n_iter += 1
                if self.gap <= target:
                    self.status = Status.EXHAUSTED
                    return
                checkpoint()
                kept = t > 0 if len(t) > _MOST else np.ones(len(t), dtype=bool)
                new = cuts.values > p.beta * (1.0 + _VIOLATION * max(best / p.beta - 1.0, 0.0))
                if not new.any():
                    new = cuts.values >= best
                atoms = Neurons(
                    np.vstack([atoms.U[kept], cuts.U[new]]),
                    np.vstack([atoms.alpha[kept], cuts.outputs[new]]),
                    atoms.intercept,
                )
                t = np.concatenate([t[kept], np.zeros(int(new.sum()))])
                if self.epsilon:  # follow a loss with kinks by smooth ones, ever closer
                    self.epsilon = sharper(self.epsilon, self.gap, self.objective, target)

    def _cuts(self, V: FloatArray) -> _Cuts:
        p = self.problem
        G = p.atoms.spread(V)
        find = relaxed_neurons_joint if self.joint else relaxed_neurons
        found: RelaxedNeurons = find(p.atoms.reduced, G)
        alive = found.U.any(axis=1)
        U, outputs, values = found.U[alive], found.outputs[alive], found.values[alive]
        if self.tips is not None:
            heads, sizes = _heads(G, self.joint)
            reach = sizes * self.tips.heights
            i = np.argsort(-reach, kind="stable")[:_TIPS]
            i = i[reach[i] > 0]
            U, outputs = np.vstack([U, self.tips.U[i]]), np.vstack([outputs, heads[i]])
            values = np.concatenate([values, reach[i]])
        return _Cuts(U, outputs, values)


def _heads(G: FloatArray, joint: bool) -> tuple[FloatArray, FloatArray]:
    """The best output direction for a neuron active on one row, and what the row then contributes."""
    if joint:
        sizes = np.linalg.norm(G, axis=1)
        return G / np.where(sizes > 0, sizes, 1.0)[:, None], sizes
    k = np.argmax(np.abs(G), axis=1)
    largest = G[np.arange(len(G)), k]
    return np.where(largest >= 0, 1.0, -1.0)[:, None] * np.eye(G.shape[1])[k], np.abs(largest)
