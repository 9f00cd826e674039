"""Whether anything that is called proven is false: bounds against known truths, and forged certificates.

python benchmarks/soundness.py [--problems N] [--seconds S] [--seed K]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from report import machine, table, write_section
from sound import duality, oracles, tampering

#: Shares of the time: bounds on the dual constraint, weak duality, tampering.
_SHARES = (0.25, 0.5, 0.25)
#: Of four problems one is a training: bounds alone are cheaper.
_TRAININGS = 0.25

INTRODUCTION = """\
`make soundness`. **Oracles**: every proven upper bound on the dual constraint (norms, spectral norms, activation
patterns, cones, relaxation, relaxation with signs; each when found and again from its proof) against the maximum in
rational arithmetic: planted in cones so narrow that local search misses them, integers with duplicated, opposite and
zero rows, ill-conditioned floats, ties broken at the size of rounding. **Weak duality**: every `lower_bound_` of the
scope "global" against the best objective of all methods, seeds and descents on the same problem (losses, scales of
columns and targets 1e-6 to 1e6, weights, ties, beta from 1e-6 beta_max); a crash counts as a violation. **Tampering**:
certificates of every kind of proof, each field changed in every way that makes sense or none, with the claim as it is
and with a false one, before `Certificate.verify` and before the independent checker; a forgery is one that is accepted
though its claim is false. Violations are counted above 1e-12, relative."""


@dataclass
class Count:
    """What was tried, and what was false."""

    problems: int = 0
    claims: int = 0
    violations: int = 0
    worst: float = -np.inf

    @property
    def cells(self) -> list[object]:
        """As a row of a table."""
        return [self.problems, self.claims, self.violations, f"{self.worst:.1e}" if self.claims else "none"]


@dataclass
class Suite:
    """The tables."""

    bounds: dict[tuple[str, str], Count] = field(default_factory=lambda: defaultdict(Count))
    trainings: dict[str, Count] = field(default_factory=lambda: defaultdict(Count))
    tallies: dict[str, tampering.Tally] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    beyond: set[str] = field(default_factory=set)
    honest: int = 0
    found: list[str] = field(default_factory=list)

    def bound(self, k: int, seed: int) -> None:
        """One maximum, bounded in all ways."""
        case = oracles.MAKERS[k % len(oracles.MAKERS)](np.random.default_rng([seed, k]))
        for name, short in oracles.violations(case).items():
            count = self.bounds[case.kind, name.removesuffix(", again")]
            count.problems += not name.endswith("again")
            count.claims += 1
            count.worst = max(count.worst, short)
            if short > duality.ROUNDING:
                count.violations += 1
                self.found.append(f"{case.kind} {k}: {name} is below the maximum by {short:.1e}")

    def train(self, k: int, seed: int) -> None:
        """One problem, trained in all ways."""
        kind = list(duality.KINDS)[k % len(duality.KINDS)]
        found = duality.KINDS[kind](np.random.default_rng([seed, k]), kind)
        count = self.trainings[kind]
        count.problems += 1
        count.claims += len(found.bounds)
        count.worst = max(count.worst, found.worst[0])
        if found.violated:
            count.violations += 1
            self.found.append(f"{kind} {k}: {found.worst[1]} {'; '.join(found.errors)}")

    def tamper(self, late: Callable[[], bool], share: float) -> None:
        """All honest certificates, and what can be made of them in a share of the time each."""
        cases = list(tampering.honest())
        for case in cases:
            for model in (case.network, None):
                self.honest += 1
                claim = tampering.Claim(case.name, case.data, case.X, case.y, case.weight, model)
                for name, checker in tampering.checkers().items():
                    if tampering.ask(checker, claim)[0]:
                        continue
                    if name == "check" and tampering.beyond(claim):
                        self.beyond.add(case.name)
                    else:
                        self.refused.append(f"{name} refuses the honest certificate {case.name!r}")
        for case in cases:
            claims = list(tampering.tampered(case))
            np.random.default_rng(0).shuffle(claims)  # type: ignore[arg-type]
            end = time.perf_counter() + share / len(cases)
            tampering.attack(case, iter(claims), self.tallies, lambda e=end: late() or time.perf_counter() > e)

    @property
    def failed(self) -> list[str]:
        """Everything that is false."""
        tallies = self.tallies.items()
        forged = [f"{name} accepts {what}" for name, t in tallies for what in (*t.forged, *t.hung, *t.raised)]
        return [*self.found, *self.refused, *forged]

    def text(self) -> str:
        """The section of the results."""
        heads = ("problems", "bounds", "violations", "largest violation, relative (negative: none)")
        parts = [
            f"## Soundness\n\n{INTRODUCTION}\n\n{machine()}.",
            table(("maximum", "bound by", *heads), [[*k, *c.cells] for k, c in sorted(self.bounds.items())]),
            table(("trained", *heads), [[k, *c.cells] for k, c in self.trainings.items()]),
            table(
                ("checker", "kinds of tampering", "tried", "accepted", "false ones accepted", "hung", "crashed"),
                [
                    [n, len(t.kinds), t.tried, t.accepted, len(t.forged), len(t.hung), len(t.raised)]
                    for n, t in self.tallies.items()
                ],
            ),
            f"Honest certificates: {self.honest} shown, with and without their networks, {len(self.refused)} refused.",
            f"Not covered by the independent checker, in its own words: {', '.join(sorted(self.beyond)) or 'none'}.",
            *(f"- {what}" for what in self.failed[:50]),
        ]
        return "\n".join(parts)


def main() -> int:
    """Run, print, write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=2000, help="maxima and trainings together, at most")
    parser.add_argument("--seconds", type=float, default=600.0, help="for everything, about")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    suite, began = Suite(), time.perf_counter()
    trainings = int(_TRAININGS * options.problems)
    ends = began + options.seconds * np.cumsum(_SHARES)
    for work, number, end in ((suite.bound, options.problems - trainings, ends[0]), (suite.train, trainings, ends[1])):
        for k in range(number):
            if time.perf_counter() > end:
                break
            work(k, options.seed)
    suite.tamper(lambda: False, _SHARES[2] * options.seconds)
    text = suite.text()
    print(text)
    write_section("soundness", text)
    return int(bool(suite.failed))


if __name__ == "__main__":
    sys.exit(main())
