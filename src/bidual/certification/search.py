"""The search for the best provable lower bound."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bidual._typing import FloatArray
from bidual.certificates import Certificate, DualBound, lower_bound, relative_gap, sufficient
from bidual.certificates.oracle import OracleBound, bound_oracle
from bidual.certificates.oracle.joint import relaxed_dual
from bidual.certification.case import Case
from bidual.networks import Network
from bidual.problem import Neurons
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
    likely: DualBound | None = None
    better: Solution | None = None

    @property
    def objective(self) -> float:
        """Of the network, in natural units."""
        return self.case.objective(self.case.network) / self.case.scale

    @property
    def gap(self) -> float:
        """The gap proven so far."""
        return np.inf if self.dual is None else relative_gap(self.objective, self.dual.value)

    def say(self, what: str, value: float) -> None:
        """A line of progress."""
        if self.verbose:
            gap = relative_gap(self.objective, value)
            print(f"bidual: {time.perf_counter() - self.began:8.2f} s  {what}: gap {gap:.2e}", flush=True)

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
            audit=self.method == "local",
        )
        self.better = solve_adaptive(self.case.problem, options)
        self.likely = self.better.bound
        self.say("local search, not proven", self.likely.value)

    def dual_points(self) -> Iterator[FloatArray]:
        """The most promising first; where the relaxation stays loose, one that suits it."""
        p = self.case.problem
        assert self.better is not None
        yield self.better.bound.V
        if p.n_outputs == 1 and p.loss.smooth and self.method in ("auto", "compact", "signs"):
            now = time.perf_counter()
            yield relaxed_dual(p, self.better.bound.V, deadline=now + 0.4 * (self.deadline - now))
        own = -p.loss.gradient(p.outputs(self.case.neurons), p.Y, p.w)
        yield from (own, 0.5 * (own + self.better.bound.V))

    def prove(self) -> None:
        """Bound the dual constraint at one point after the other until the gap is proven or the time is up."""
        p = self.case.problem
        directions = [self.case.neurons.U]
        if self.better is not None and isinstance(self.better.neurons, Neurons):
            directions.append(self.better.neurons.U)
        incumbents = np.vstack(directions)
        incumbents = incumbents[np.argsort(-np.linalg.norm(incumbents, axis=1), kind="stable")[:50]]
        for raw in self.dual_points():
            V = p.loss.dual_point(raw, p.Y, p.w, centred=p.fit_intercept)
            now = time.perf_counter()
            if self.dual is not None and (self.gap <= self.tol or now >= self.deadline):
                break
            until = now + 0.5 * (self.deadline - now) if np.isfinite(self.deadline) else np.inf
            target = sufficient(p, V, (1.0 - self.tol) * self.objective)
            oracle = bound_oracle(
                p, V, method=self.method, target=target, rtol=0.1 * self.tol, deadline=until, incumbent=incumbents
            )
            dual = lower_bound(p, V, oracle.value, oracle.bound)
            self.say(oracle.method, dual.value)
            if self.dual is None or dual.value > self.dual.value:
                self.dual, self.oracle, self.V = dual, oracle, raw

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
        dual = self.dual if self.dual is not None else self.likely
        assert dual is not None
        proven = self.oracle is not None
        given = network is case.network
        witness = self.witness() if given else None
        evidence = None
        if self.oracle is not None and self.V is not None:
            evidence = case.data.evidence(self.V, self.oracle.proof, case.classes)
        return Certificate(
            objective=objective,
            lower_bound=min(dual.value * scale, objective),
            rigorous=proven,
            scope="global",
            method=self.oracle.method if self.oracle is not None else "local search",
            oracle_value=dual.oracle_value * unit,
            oracle_bound=dual.oracle_bound * unit,
            beta=case.data.beta,
            loss=case.data.problem.loss.name,
            elapsed=time.perf_counter() - self.began,
            witness=None if witness is None else tuple(map(float, witness)),
            likely_bound=None if self.likely is None else min(self.likely.value * scale, objective),
            rescaled_objective=case.rescaled_objective() if given else None,
            evidence=evidence,
        )
