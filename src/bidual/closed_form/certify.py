"""Certificates of networks in closed form."""

from __future__ import annotations

import time

from bidual.certificates import Certificate
from bidual.certificates.evidence import Evidence


def certificate_of(
    objective: float,
    proven: float,
    *,
    beta: float,
    loss: str,
    method: str,
    began: float,
    scope: str = "global",
    oracle: tuple[float, float] | None = None,
    evidence: Evidence | None = None,
) -> Certificate:
    """The certificate of a network with this ``objective`` and the ``proven`` lower bound.

    Parameters
    ----------
    objective, proven : float
    beta, loss, method, scope
        As in :class:`Certificate`.
    began : float
        When training began, of ``time.perf_counter``.
    oracle : tuple of two floats or None
        Largest value of the dual constraint and its bound; None where the proof needs no dual point.
    evidence : Evidence or None
        What proves the bound to others, if that can be written down.
    """
    return Certificate(
        objective=float(objective),
        lower_bound=float(proven),
        scope=scope,
        method=method,
        attained=None if oracle is None else float(oracle[0]),
        limit=None if oracle is None else float(oracle[1]),
        beta=float(beta),
        loss=loss,
        elapsed=time.perf_counter() - began,
        evidence=evidence,
    )
