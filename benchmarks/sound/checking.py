"""The two checkers of certificates, and what they say of a claim."""

from __future__ import annotations

import copy
import json
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual import Certificate
from bidual._util.typing import Array
from bidual.certification import refusal
from bidual.certification.check_certificate import check
from bidual.networks import Network

#: Seconds after which a checker has failed.
PATIENCE = 60.0


@dataclass(frozen=True)
class Claim:
    """What a checker is given."""

    kind: str
    data: Any
    X: Array
    y: Array
    weight: Array | None
    model: Network | None


@dataclass(frozen=True)
class Answer:
    """Whether a claim is accepted, why not, and whether the checker has hung or crashed rather than answered."""

    accepted: bool
    reason: str = ""
    failed: bool = False


class Hung(Exception):
    """A checker that takes too long."""


def _ring(number: int, frame: Any) -> None:
    raise Hung


def verify(claim: Claim) -> str:
    """Why the package does not accept a claim; "" if it does."""
    certificate = Certificate.from_dict(copy.deepcopy(claim.data))
    return refusal(certificate, claim.X, claim.y, claim.weight, claim.model) or ""


def independent(claim: Claim) -> str:
    """Why the independent checker does not accept a claim; "" if it does."""
    model = None if claim.model is None else json.loads(json.dumps(claim.model.to_dict()))
    proven, reason = check(copy.deepcopy(claim.data), claim.X, claim.y, claim.weight, model)
    return "" if proven else reason


CHECKERS: dict[str, Callable[[Claim], str]] = {"verify": verify, "check": independent}


def ask(checker: Callable[[Claim], str], claim: Claim) -> Answer:
    """What a checker says, in the time that it has."""
    previous = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            reason = checker(claim)
            return Answer(not reason, reason)
    except Hung:
        return Answer(False, "hung", failed=True)
    except (ValueError, RuntimeError) as error:  # refused in words; RuntimeError: the claim contradicts itself
        return Answer(False, str(error))
    except Exception as error:
        return Answer(False, f"{type(error).__name__}: {error}", failed=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def refusals(certificate: Certificate, X: Array, y: Array, weight: Array | None, network: Network | None) -> list[str]:
    """Who does not accept a certificate with its data and its network, as files hold them, and why."""
    claim = Claim("", json.loads(json.dumps(certificate.to_dict())), X, y, weight, network)
    answers = {name: ask(checker, claim) for name, checker in CHECKERS.items()}
    return [f"{name} says: {answer.reason}" for name, answer in answers.items() if not answer.accepted]
