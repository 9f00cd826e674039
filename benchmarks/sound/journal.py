"""Outcomes of problems in a file, line by line: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bidual import Certificate
from bidual.networks import Network
from sound import duality, oracles
from sound.checking import CHECKERS, Claim, ask

Record = dict[str, Any]


class Journal:
    """The records so far, by part and number.

    Parameters
    ----------
    path : Path or None
        The file; None keeps them in memory only.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.records: dict[tuple[str, int], Record] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                self.records[record["part"], record["k"]] = record

    def add(self, part: str, k: int, work: Callable[[], Record]) -> None:
        """Do a piece of work, unless it has been done."""
        if (part, k) in self.records:
            return
        record = self.records[part, k] = {"part": part, "k": k, **work()}
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def of(self, part: str) -> Iterator[Record]:
        """The records of a part."""
        return (record for (name, _), record in self.records.items() if name == part)


def bound(k: int, seed: int) -> Record:
    """One maximum, bounded in all ways."""
    case = oracles.MAKERS[k % len(oracles.MAKERS)](np.random.default_rng([seed, k]))
    return {"kind": case.kind, "short": oracles.violations(case)}


def train(k: int, seed: int) -> Record:
    """One problem, trained in all ways, with one of the certificates."""
    kind = list(duality.KINDS)[k % len(duality.KINDS)]
    found = duality.KINDS[kind](np.random.default_rng([seed, k]), kind)
    stored = [pair for pair in found.trained if pair[0].evidence is not None]
    return {
        "kind": kind,
        "trained": len(found.trained),
        "bounds": len(found.bounds),
        "bare": len(found.trained) - len(stored),
        "worst": found.worst[0],
        "found": [*found.errors, *filter(None, [found.false])],
        "honest": _document(found.given, *stored[k % len(stored)]) if stored else None,
    }


def show(honest: Record) -> Record:
    """What the checkers say of a certificate with its data and network."""
    weight = honest["weight"]
    claim = Claim(
        "",
        honest["certificate"],
        np.array(honest["X"]),
        np.array(honest["y"]),
        None if weight is None else np.array(weight),
        Network.from_dict(honest["network"]),
    )
    answers = {name: ask(checker, claim) for name, checker in CHECKERS.items()}
    return {"denied": [f"{name} says: {answer.reason}" for name, answer in answers.items() if not answer.accepted]}


def _document(given: duality.Data, certificate: Certificate, network: Network) -> Record:
    weight = None if given.weight is None else given.weight.tolist()
    documents = {"certificate": certificate.to_dict(), "network": network.to_dict()}
    return {"X": given.X.tolist(), "y": given.y.tolist(), "weight": weight, **documents}
