"""Certificates of networks in closed form."""

from __future__ import annotations

import time

import numpy as np

from bidual.certificates import Certificate


def certificate_of(
    objective: float,
    proven: float,
    *,
    beta: float,
    loss: str,
    method: str,
    began: float,
    scope: str = "global",
    oracle: tuple[float, float] = (np.nan, np.nan),
) -> Certificate:
    """The certificate of a network with this ``objective`` and the ``proven`` lower bound.

    Parameters
    ----------
    objective, proven : float
    beta, loss, method, scope
        As in :class:`Certificate`.
    began : float
        When training began, of ``time.perf_counter``.
    oracle : tuple of two floats
        Largest value of the dual constraint and its bound; NaN where the proof needs no dual point.

    Raises
    ------
    RuntimeError
        If the bound is above the objective by more than rounding.
    """
    if proven > objective + 1e-9 * abs(objective) + np.finfo(float).tiny:
        raise RuntimeError(
            f"contradiction: the lower bound {proven:.12g} is above the network's objective {objective:.12g} "
            f"({method}); please report this"
        )
    return Certificate(
        objective=float(objective),
        lower_bound=float(min(proven, objective)),
        rigorous=True,
        scope=scope,
        method=method,
        oracle_value=float(oracle[0]),
        oracle_bound=float(oracle[1]),
        beta=float(beta),
        loss=loss,
        elapsed=time.perf_counter() - began,
    )
