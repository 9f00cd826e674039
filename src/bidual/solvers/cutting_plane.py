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

import time
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from bidual._typing import FloatArray
from bidual._watch import Stopped, Watch, watching
from bidual.arrangements import Patterns, patterns_of
from bidual.certificates import bound_by_norms, lower_bound, relative_gap
from bidual.certificates.oracle import DualConstraint
from bidual.certificates.proof import FormulaProof
from bidual.geometry.extreme_points import ExtremePoints, extreme_points
from bidual.geometry.relaxation import RelaxedNeurons, relaxed_neurons, relaxed_neurons_joint
from bidual.geometry.spike_free import SpikeFree, is_spike_free
from bidual.losses import Loss
from bidual.problem import Neurons, Problem
from bidual.progress import closed, note
from bidual.solvers.adaptive.box_corrective import best_magnitudes
from bidual.solvers.adaptive.corrective import Corrected, fit_intercept
from bidual.solvers.adaptive.smoothing import SmoothedLoss, first_epsilon, sharper
from bidual.solvers.base import HistoryEntry, Options, Solution
from bidual.solvers.bounding import GlobalBound, global_bound
from bidual.solvers.finite import dual_point, solve_finite
from bidual.solvers.proving import NORMS
from bidual.solvers.reduce import reduce_neurons

#: Up to this many lifted rows the tips of the spikes are computed.
_SPIKES = 5000
#: Tips that may become cuts in one round.
_TIPS = 20


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
    began = time.perf_counter()
    if not problem.loss.finite:
        return _interpolate(problem, options)
    with threadpool_limits(1, user_api="blas"):
        with watching(options.time_limit) as watch:
            planes = _CuttingPlanes(problem, options, joint, began)
            try:
                status = planes.run(watch)
            except Stopped:
                status = watch.status
        neurons = replace(planes.neurons, U=planes.neurons.U @ problem.basis.T)
        neurons = reduce_neurons(problem, neurons, 0.01 * options.tol)
        try:
            found = _certified(problem, planes.V, options, planes.spike_free)
        except Stopped:
            found = GlobalBound(bound_by_norms(problem, planes.V), NORMS)
    history = [
        *planes.history,
        HistoryEntry(time.perf_counter() - began, problem.objective(neurons), found.bound.value, len(neurons)),
    ]
    return Solution(
        neurons=neurons,
        bound=found.bound,
        scope="global",
        method=found.method,
        status=status,
        n_iter=max(1, len(planes.history)),
        n_patterns=found.n_patterns,
        history=history,
    )


def _certified(problem: Problem, V: FloatArray, options: Options, spike_free: SpikeFree) -> GlobalBound:
    """A bound on all networks: the relaxation's own where it is exact, else as for any dual point."""
    if spike_free and problem.n_outputs == 1:
        value = relaxed_neurons(problem.reduced, problem.spread(V)).best
        constraint = DualConstraint.at(problem, V)
        how = "spike-free features, projection on their cone"
        bound = lower_bound(problem, V, value, constraint.safe(value * spike_free.factor), FormulaProof(how))
        return GlobalBound(bound, how)
    return global_bound(problem, V, options.random_state)


def _interpolate(problem: Problem, options: Options) -> Solution:
    """beta = 0: the smallest network on the patterns of the relaxation and of the spikes, where the cuts would lead."""
    rows = problem.relu_inputs
    spike_free = is_spike_free(problem.M)
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


class _CuttingPlanes:
    """State of one run, in reduced coordinates."""

    def __init__(self, problem: Problem, options: Options, joint: bool, began: float) -> None:
        self.problem, self.options, self.joint, self.began = problem, options, joint, began
        self.spike_free = is_spike_free(problem.M)
        rows = problem.reduced
        self.tips: ExtremePoints | None = None
        if not self.spike_free and 2 <= len(rows) <= _SPIKES and rows.shape[1]:
            self.tips = extreme_points(rows, bias=False)
        self.loss: Loss = problem.loss
        self.epsilon = first_epsilon(problem)
        if self.epsilon:
            self.loss = SmoothedLoss(problem.loss, self.epsilon)
        b = fit_intercept(problem, self.loss)
        self.neurons = Neurons.none(rows.shape[1], b)
        self.objective = problem.loss_value(np.zeros_like(problem.Y) + b)
        self.V = np.zeros_like(problem.Y)
        self.relaxed = -np.inf
        self.history: list[HistoryEntry] = []

    def run(self, watch: Watch) -> str:
        """Cut until the relaxed gap is a tenth of the tolerance; why it ended."""
        p, options = self.problem, self.options
        target = 0.1 * options.tol
        atoms, t = self.neurons, np.zeros(0)
        for _ in range(options.max_iter):
            step = self._correct(atoms, t)
            t, atoms = step.t, replace(atoms, intercept=step.intercept)
            if step.value <= self.objective:
                self.objective, self.neurons = step.value, step.neurons(atoms)
            V = -self.loss.gradient(step.F, p.Y, p.w) if step.V is None else step.V
            V = dual_point(p, V)
            cuts = self._cuts(V)
            best = float(cuts.values.max(initial=0.0))
            bound = lower_bound(p, V, best, best)
            if bound.value > self.relaxed:
                self.relaxed, self.V = bound.value, V
            self._note()
            if relative_gap(self.objective, self.relaxed) <= target:
                return "no neuron of the relaxation is left to add"
            watch.check()
            kept = t > 0 if len(t) > 500 else np.ones(len(t), dtype=bool)
            new = cuts.values > p.beta * (1.0 + 1e-3 * max(best / p.beta - 1.0, 0.0))
            if not new.any():
                new = cuts.values >= best
            atoms = Neurons(
                np.vstack([atoms.U[kept], cuts.U[new]]),
                np.vstack([atoms.alpha[kept], cuts.outputs[new]]),
                atoms.intercept,
            )
            t = np.concatenate([t[kept], np.zeros(int(new.sum()))])
            self._sharpen()
        return "stopped at max_iter"

    def _correct(self, atoms: Neurons, t: FloatArray) -> Corrected:
        """The best magnitudes of the neurons so far (004 Algorithm 1, step 5)."""
        return best_magnitudes(self.problem, self.epsilon, atoms, t, 1e-3 * self.options.tol, steps=30)

    def _sharpen(self) -> None:
        """Follow a loss with kinks by smooth ones, ever closer."""
        if self.epsilon:
            gap = relative_gap(self.objective, self.relaxed)
            self.epsilon = sharper(self.epsilon, gap, self.objective, 0.1 * self.options.tol)
            self.loss = SmoothedLoss(self.problem.loss, self.epsilon)

    def _cuts(self, V: FloatArray) -> _Cuts:
        p = self.problem
        G = p.spread(V)
        find = relaxed_neurons_joint if self.joint else relaxed_neurons
        found: RelaxedNeurons = find(p.reduced, G)
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

    def _note(self) -> None:
        entry = HistoryEntry(time.perf_counter() - self.began, self.objective, self.relaxed, len(self.neurons))
        self.history.append(entry)
        if self.options.verbose:
            gap = relative_gap(self.objective, self.relaxed)
            note(
                f"{entry.elapsed:8.2f} s  {entry.n_neurons:5d} neurons  objective {entry.objective:.8g}  "
                f"gap of the relaxation {gap:.1e}",
                closed(gap, self.options.tol),
            )


def _heads(G: FloatArray, joint: bool) -> tuple[FloatArray, FloatArray]:
    """The best output direction for a neuron active on one row, and what the row then contributes."""
    if joint:
        sizes = np.linalg.norm(G, axis=1)
        return G / np.where(sizes > 0, sizes, 1.0)[:, None], sizes
    k = np.argmax(np.abs(G), axis=1)
    largest = G[np.arange(len(G)), k]
    return np.where(largest >= 0, 1.0, -1.0)[:, None] * np.eye(G.shape[1])[k], np.abs(largest)
