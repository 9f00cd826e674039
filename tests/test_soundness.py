"""A slice of the soundness suite (`make soundness`): nothing that is called proven is false."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from sound import duality, oracles, tampering
from sound.checking import refusals
from sound.exact import greatest_square

#: Of the ways to tamper with a certificate every so manieth is tried here.
_EVERY = 23
#: The certificates that are tampered with.
_NAMES = ("norms", "patterns", "outputs", "logistic")


@pytest.mark.parametrize("make", oracles.MAKERS, ids=lambda make: make.__name__)
def test_no_proven_bound_is_below_the_maximum_in_rational_arithmetic(make):
    for k in range(3):
        case = make(np.random.default_rng([7, k]))
        short = oracles.violations(case, seconds=0.01)
        assert max(short.values()) <= 0.0, (k, short)


def test_the_rational_maximum_is_that_of_a_hand_made_case():
    # (1, 0) and (0, 1) with weights 3 and 4: the maximum is 5, at (0.6, 0.8)
    assert greatest_square(np.eye(2), np.array([3.0, 4.0])) == 25


def test_the_planted_maximum_is_missed_by_local_search():
    # otherwise the suite would not test what it says
    found = [oracles.planted(np.random.default_rng([1, k])) for k in range(20)]
    missed = 0
    for case in found:
        U = np.random.default_rng(0).standard_normal((200, case.M.shape[1]))
        U /= np.linalg.norm(U, axis=1, keepdims=True)
        best = np.linalg.norm(np.maximum(U @ case.M.T, 0.0) @ case.V, axis=1).max()
        missed += best < 0.9 * float(case.square) ** 0.5
    assert missed >= 10


@pytest.mark.parametrize("kind", duality.KINDS)
def test_no_proven_lower_bound_is_above_a_network(kind):
    found = duality.KINDS[kind](np.random.default_rng([11, 0]), kind, 0.02)
    assert not found.violated, (found.worst, found.errors)
    for certificate, network in found.trained:
        if certificate.evidence is not None:
            assert refusals(certificate, found.given.X, found.given.y, found.given.weight, network) == []


@pytest.fixture(scope="module")
def cases():
    return {case.name: case for case in tampering.honest(_NAMES)}


@pytest.mark.parametrize("name", _NAMES)
def test_honest_certificates_are_accepted_and_false_ones_refused(cases, name):
    case = cases[name]
    assert refusals(case.certificate, case.X, case.y, case.weight, case.network) == []
    tallies = {}
    tampering.attack(case, islice(tampering.tampered(case), 0, None, _EVERY), tallies, lambda: False)
    for tally in tallies.values():
        assert tally.tried > 20
        assert [*tally.forged, *tally.failed] == []


def test_there_are_more_than_two_hundred_kinds_of_tampering(cases):
    assert len({claim.kind for case in cases.values() for claim in tampering.tampered(case)}) > 200
