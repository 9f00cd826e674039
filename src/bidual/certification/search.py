"""The search for the best provable lower bound."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bidual._typing import FloatArray
from bidual.certificates import Certificate, DualBound, lower_bound, relative_gap, sufficient
from bidual.certificates.oracle import CONE_RANK, OracleBound, bound_oracle
from bidual.certificates.oracle.joint import relaxed_dual
from bidual.certification.blending import Blend
from bidual.certification.case import Case
from bidual.networks import Network
from bidual.problem import Neurons
from bidual.progress import closed, note
from bidual.solvers import Options, Solution, solve_adaptive
from bidual.solvers.adaptive.pricing import Pricer

#: Share of the time limit for a better dual point.
_DUAL_SHARE = 0.4


@dataclass
class Search:
    """The best lower bound so far, in natural units, and where it comes from."""

    case: Case
    tol: float
    deadline: float
    method: str
    random_state: int | np.random.RandomState | None
    verbose: int
    began: float = field(default_factory=time.perf_counter)
    dual: DualBound | None = None
    oracle: OracleBound | None = None
    V: FloatArray | None = None
    better: Solution | None = None

    @cached_property
    def objective(self) -> float:
        """Of the network, in natural units."""
        return self.case.objective(self.case.network) / self.case.scale

    @property
    def done(self) -> bool:
        """Whether the bound is as good as asked for: close to the lowest objective known."""
        return self.dual is not None and relative_gap(self.lowest, self.dual.value) <= self.tol

    @property
    def lowest(self) -> float:
        """The lowest objective known, in natural units."""
        better = np.inf if self.better is None else self.case.problem.objective(self.better.neurons)  # type: ignore[arg-type]
        return min(self.objective, better)

    def say(self, what: str, value: float) -> None:
        """A line of progress."""
        if self.verbose:
            gap = relative_gap(self.objective, value)
            note(f"{time.perf_counter() - self.began:8.2f} s  {what}: gap {gap:.2e}", closed(gap, self.tol))

    def improve(self) -> None:
        """A better dual point, and a better network, by column generation from the given one."""
        limit = max(0.0, self.deadline - time.perf_counter())
        share = 1.0 if self.method == "local" else _DUAL_SHARE
        options = Options(
            tol=0.3 * self.tol,
            max_iter=1000,
            time_limit=None if limit == np.inf else share * limit,
            random_state=self.random_state,
            start=self.case.neurons,
            # what cannot be proven afterwards is at least looked at carefully
            audit=self.method == "local" or not self.case.problem.plain,
        )
        self.better = solve_adaptive(self.case.problem, options)
        self.say(f"{self.better.method}{'' if self.better.rigorous else ', not proven'}", self.better.bound.value)
        if self.better.rigorous and self.method in ("auto", "local"):
            self.dual = self.better.bound

    def dual_points(self) -> Iterator[FloatArray]:
        """The most promising first; where the relaxation stays loose, one that suits it."""
        p = self.case.problem
        own = -p.loss.gradient(p.outputs(self.case.neurons), p.Y, p.w)
        yield self.found
        if self.relaxes:
            now = time.perf_counter()
            yield relaxed_dual(p, self.found, deadline=now + 0.4 * (self.deadline - now))
        yield from (own, 0.5 * (own + self.found))

    @property
    def found(self) -> FloatArray:
        """The dual point of column generation; that of the network if there was no time to find one."""
        p = self.case.problem
        assert self.better is not None
        V = self.better.bound.V
        return V if V.any() else -p.loss.gradient(p.outputs(self.case.neurons), p.Y, p.w)

    @property
    def relaxes(self) -> bool:
        """Whether there is a relaxed problem."""
        p = self.case.problem
        return p.n_coefficients == 1 and p.loss.smooth and self.method in ("auto", "compact", "signs")

    @property
    def blends(self) -> bool:
        """Whether points between the relaxed one and the best one are worth a try."""
        rank = self.case.problem.reduced.shape[1]
        branches = self.method == "signs" or (self.method == "auto" and rank > CONE_RANK)
        return self.relaxes and branches and np.isfinite(self.deadline)

    def prove(self) -> None:
        """Bound the dual constraint at one point after the other until the gap is proven or the time is up."""
        p = self.case.problem
        if not p.plain:  # neurons of another kind, which the oracle knows nothing of
            return
        directions = [self.case.neurons.U]
        if self.better is not None and isinstance(self.better.neurons, Neurons):
            directions.append(self.better.neurons.U)
        incumbents = np.vstack(directions)
        incumbents = incumbents[np.argsort(-np.linalg.norm(incumbents, axis=1), kind="stable")[:50]]
        goal = (1.0 - self.tol) * self.lowest
        if self.blends:

            def easy(until: float) -> FloatArray:
                return relaxed_dual(p, self.found, deadline=until)

            blend = Blend(p, easy, self.found, goal, 0.1 * self.tol, incumbents)
            blend.run(self.deadline, self.offer)
            return
        for raw in self.dual_points():
            V = p.loss.dual_point(raw, p.Y, p.w, centred=p.fit_intercept)
            now = time.perf_counter()
            if self.done or (self.dual is not None and now >= self.deadline):
                return
            until = now + 0.5 * (self.deadline - now) if np.isfinite(self.deadline) else np.inf
            target = sufficient(p, V, goal)
            oracle = bound_oracle(
                p, V, method=self.method, target=target, rtol=0.1 * self.tol, deadline=until, incumbent=incumbents
            )
            self.offer(raw, lower_bound(p, V, oracle.value, oracle.bound), oracle)

    def offer(self, V: FloatArray, dual: DualBound, oracle: OracleBound) -> bool:
        """Keep the bound if it is the best so far; whether it is good enough."""
        self.say(oracle.method, dual.value)
        if self.dual is None or dual.value > self.dual.value:
            self.dual, self.oracle, self.V = dual, oracle, V
        return self.done

    def witness(self) -> FloatArray | None:
        """The neuron that helps the given network most, in the coordinates of M."""
        p = self.case.problem
        V = -p.loss.gradient(p.outputs(self.case.neurons), p.Y, p.w)
        pricer = Pricer(p, np.random.default_rng(0))
        found = pricer.quick(V, self.case.neurons.U @ p.basis, 32)
        return p.basis @ found.directions[0] if len(found) else None

    def certificate(self, network: Network) -> Certificate:
        """What is known about ``network``, which is the given one or a better one."""
        case = self.case
        scale = case.scale
        unit = float(case.units.outputs ** (case.units.power - 1) * case.units.inputs)
        objective = case.objective(network)
        assert self.better is not None
        dual = self.better.bound if self.dual is None else self.dual
        method, proof = self.better.method, self.better.proof
        if self.oracle is not None and self.V is not None:
            method, proof = self.oracle.method, (self.V, self.oracle.proof)
        given = network is case.network
        witness = self.witness() if given and case.problem.plain else None
        return Certificate(
            objective=objective,
            lower_bound=min(dual.value * scale, objective),
            rigorous=self.dual is not None,
            scope="global",
            method=method,
            oracle_value=dual.oracle_value * unit,
            oracle_bound=dual.oracle_bound * unit,
            beta=case.data.beta,
            loss=case.data.problem.loss.name,
            elapsed=time.perf_counter() - self.began,
            witness=None if witness is None else tuple(map(float, witness)),
            likely_bound=min(self.better.bound.value * scale, objective),
            rescaled_objective=case.rescaled_objective() if given else None,
            evidence=None if proof is None or self.dual is None else case.data.evidence(*proof, case.classes),
        )
