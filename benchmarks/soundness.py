"""Whether anything that is called proven is false: bounds against known truths, and forged certificates.

python benchmarks/soundness.py [--problems N] [--seconds S] [--seed K] [--journal FILE]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from report import machine, table, write_section
from sound import duality, tampering
from sound.checking import refusals
from sound.journal import Journal, bound, show, train

#: Shares of the time: bounds on the dual constraint, weak duality, tampering.
_SHARES = (0.25, 0.5, 0.25)
#: Share of the problems that are trainings: one takes as long as six maxima.
_TRAININGS = 0.2

INTRODUCTION = """\
`make soundness`. **Oracles**: every proven upper bound on the dual constraint (norms, spectral norms, activation
patterns, cones, relaxation, relaxation with signs; each when found and again from its proof) against the maximum in
rational arithmetic: planted in cones so narrow that local search misses them, integers with duplicated, opposite and
zero rows, ill-conditioned floats, ties broken at the size of rounding. **Weak duality**: every `lower_bound_` of the
scope "global" against the best objective of all methods, seeds and descents on the same problem (losses, scales of
columns and targets 1e-6 to 1e6, weights, ties, beta from 1e-6 beta_max, exact fits); a crash counts as a violation. One
certificate of every problem is shown, with its network, to `Certificate.verify` and to the independent checker.
**Tampering**: certificates of every kind of proof, each field changed in every way that makes sense or none, with the
claim as it is and with a false one, before both; a forgery is one that is accepted though its claim is false.
Violations are counted above 1e-12, relative (1e-4 where networks fit exactly up to a tolerance)."""


@dataclass
class Count:
    """What was tried, and what was false."""

    problems: int = 0
    claims: int = 0
    violations: int = 0
    worst: float = -np.inf
    shown: int = 0
    denied: int = 0
    bare: int = 0

    @property
    def cells(self) -> list[object]:
        """As a row of a table."""
        return [self.problems, self.claims, self.violations, f"{self.worst:.1e}" if self.claims else "none"]

    @property
    def honest(self) -> list[object]:
        """What the checkers said of honest certificates."""
        return [self.shown, self.denied, self.bare]


@dataclass
class Suite:
    """The tables."""

    bounds: dict[tuple[str, str], Count] = field(default_factory=lambda: defaultdict(Count))
    trainings: dict[str, Count] = field(default_factory=lambda: defaultdict(Count))
    tallies: dict[str, tampering.Tally] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    honest: int = 0
    maxima: int = 0
    found: list[str] = field(default_factory=list)

    def read(self, journal: Journal) -> None:
        """Count what the records say."""
        for record in journal.of("bound"):
            self.maxima += 1
            for name, short in record["short"].items():
                count = self.bounds[record["kind"], name.removesuffix(", again")]
                count.problems += not name.endswith("again")
                count.claims += 1
                count.worst = max(count.worst, short)
                if short > duality.ROUNDING:
                    count.violations += 1
                    self.found.append(f"{record['kind']} {record['k']}: {name} is below the maximum by {short:.1e}")
        for record in journal.of("train"):
            if not (record["trained"] or record["found"]):
                continue  # refused by every method: no problem
            count = self.trainings[record["kind"]]
            count.problems += 1
            count.claims += record["bounds"]
            count.worst = max(count.worst, record["worst"])
            count.violations += bool(record["found"])
            count.bare += record["bare"]
            self.found += [f"{record['kind']} {record['k']}: {what}" for what in record["found"]]
        for record in journal.of("show"):
            count = self.trainings[record["kind"]]
            count.shown += 1
            count.denied += bool(record["denied"])
            self.refused += [f"{record['kind']} {record['k']}: {what}" for what in record["denied"]]

    def tamper(self, share: float) -> None:
        """All honest certificates, and what can be made of them in a share of the time each."""
        cases = list(tampering.honest())
        for case in cases:
            for model in (case.network, None):
                self.honest += 1
                self.refused += refusals(case.certificate, case.X, case.y, case.weight, model)
        for case in cases:
            claims = list(tampering.tampered(case))
            np.random.default_rng(0).shuffle(claims)  # type: ignore[arg-type]
            end = time.process_time() + share / len(cases)
            tampering.attack(case, iter(claims), self.tallies, lambda e=end: time.process_time() > e)

    @property
    def failed(self) -> list[str]:
        """Everything that is false."""
        tallies = self.tallies.items()
        forged = [f"{name} accepts {what}" for name, t in tallies for what in (*t.forged, *t.failed)]
        return [*self.found, *self.refused, *forged]

    def text(self) -> str:
        """The section of the results."""
        heads = ("problems", "bounds", "violations", "largest violation, relative (negative: none)")
        parts = [
            f"## Soundness\n\n{INTRODUCTION}\n\n{machine()}.",
            table(("maximum", "bound by", *heads), [[*k, *c.cells] for k, c in sorted(self.bounds.items())]),
            table(
                ("trained", *heads, "certificates shown", "refused", "without evidence"),
                [[k, *c.cells, *c.honest] for k, c in self.trainings.items()],
            ),
            table(
                ("checker", "kinds of tampering", "tried", "accepted", "false ones accepted", "hung or crashed"),
                [[n, len(t.kinds), t.tried, t.accepted, len(t.forged), len(t.failed)] for n, t in self.tallies.items()],
            ),
            f"{self.maxima} maxima, {sum(c.problems for c in self.trainings.values())} trained problems.",
            f"Honest certificates before tampering: {self.honest}; refused in all: {len(self.refused)}.",
            *(f"- {what}" for what in self.failed[:50]),
        ]
        return "\n".join(parts)


def main() -> int:
    """Run, print, write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=2000, help="maxima and trainings together, at most")
    parser.add_argument("--seconds", type=float, default=600.0, help="of processor time, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--journal", type=Path, help="file of outcomes, with which a run goes on")
    options = parser.parse_args()
    suite, journal, began = Suite(), Journal(options.journal), time.process_time()
    ends = began + options.seconds * np.cumsum(_SHARES)
    trainings = int(_TRAININGS * options.problems)
    for part, work, number, end in (
        ("bound", bound, options.problems - trainings, ends[0]),
        ("train", train, trainings, ends[1]),
    ):
        for k in range(number):
            if time.process_time() > end:
                break
            journal.add(part, k, partial(work, k, options.seed))
    for record in list(journal.of("train")):
        if record["honest"] is not None:
            journal.add("show", record["k"], lambda r=record: {"kind": r["kind"], **show(r["honest"])})
    suite.read(journal)
    suite.tamper(_SHARES[2] * options.seconds)
    text = suite.text()
    print(text)
    write_section("soundness", text)
    return int(bool(suite.failed))


if __name__ == "__main__":
    sys.exit(main())
