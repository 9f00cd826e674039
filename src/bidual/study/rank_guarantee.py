"""Low-rank training of parallel networks with a guarantee (002 Theorem 2); see :mod:`bidual.architectures.low_rank`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual._util.typing import Array
from bidual.architectures import Architecture, Parallel, get_architecture
from bidual.architectures.low_rank import LowRank
from bidual.bounds import Certificate
from bidual.losses import Loss
from bidual.training.routing import pose_data
from bidual.training.train import Trainable, TrainingSet


def low_rank(
    X: Array,
    y: Array,
    *,
    beta: float,
    architecture: str | Architecture = "parallel",
    loss: str | Loss = "squared",
    fit_intercept: bool = True,
    sample_weight: Array | None = None,
) -> LowRank:
    """What training on an approximation of ``X`` may cost at most, for all its ranks.

    Parameters
    ----------
    X : array of shape (n, d)
    y : array
        Targets; labels if the loss is one for classes.
    beta : float
        Positive; for the mean loss, as everywhere.
    architecture : str or Parallel
    loss, fit_intercept, sample_weight
        As in :class:`bidual.ReLURegressor`. Hidden biases change nothing.

    Returns
    -------
    LowRank

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import Parallel, low_rank
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((8, 1)) @ rng.standard_normal((1, 3)) + 1e-4 * rng.standard_normal((8, 3))
    >>> table = low_rank(X, np.abs(X[:, 0]), beta=0.01, architecture=Parallel(2))
    >>> table.ranks.tolist(), table.rank_for(1.1)
    ([1, 2, 3], 1)
    """
    if not 0 < beta < np.inf:
        raise ValueError(f"beta must be a positive number, got {beta!r}")
    kind = get_architecture(architecture)
    if not isinstance(kind, Parallel):
        raise TypeError(f"the factor is about parallel networks, not {kind!r}")
    whole = Parallel(kind.m1, kind.m2, kind.deeper)
    data = pose_data(
        X, y, sample_weight, loss=loss, beta=beta, architecture=whole, bias=False, fit_intercept=fit_intercept
    )
    return _table(kind, data)


def _table(kind: Parallel, data: Trainable) -> LowRank:
    assert isinstance(data, TrainingSet)
    problem, objective = data.problem, data.objective
    return kind.price_of_rank(
        data.X, problem.Y, problem.w, loss=problem.loss, beta=objective.beta, fit_intercept=objective.fit_intercept
    )


@dataclass(frozen=True)
class LowRankGuarantee:
    """What is known about a network trained at low rank.

    Attributes
    ----------
    rank : int
    sigma : float
        The first singular value left out.
    objective : float
        On the data as they are.
    factor : float
        The objective is at most so many times the optimum, known before training (if training reached its own).
    paper_factor : float
        Its square, which 002 Theorem 2 prints.
    certificate : Certificate
        What is known afterwards: a bound on the optimum over all weights, not only those of this rank.
    """

    rank: int
    sigma: float
    objective: float
    factor: float
    paper_factor: float
    certificate: Certificate


def low_rank_guarantee(
    estimator: Any, X: Array, y: Array, sample_weight: Array | None = None, *, time_limit: float | None = 60.0
) -> LowRankGuarantee:
    """The guarantees of an estimator trained with ``Parallel(..., rank=...)`` on ``X``, ``y``.

    Parameters
    ----------
    estimator : ReLURegressor or ReLUClassifier
        Fitted.
    X, y, sample_weight : array
        What it was fitted to.
    time_limit : float or None
        Seconds for the certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import Parallel, ReLURegressor, low_rank_guarantee
    >>> X, y = np.array([[1.0, 0.0], [-2.0, 1e-6], [3.0, 0.0]]), np.array([1.0, 2.0, 0.0])
    >>> est = ReLURegressor(0.1, architecture=Parallel(2, rank="auto", factor=1.01)).fit(X, y)
    >>> report = low_rank_guarantee(est, X, y)
    >>> report.rank, bool(report.factor <= 1.01), report.certificate.scope
    (1, True, 'global')
    """
    from bidual.certification import certify

    kind = get_architecture(estimator.architecture)
    if not isinstance(kind, Parallel):
        raise TypeError(f"the factor is about parallel networks, not {kind!r}")
    data: Trainable = estimator._pose(X, y, sample_weight)
    table = _table(kind, data)
    rank = data.lift.rank if data.lift.rank is not None else len(table.ranks)  # type: ignore[attr-defined]
    at = min(rank, len(table.ranks)) - 1
    certificate = certify(
        estimator,
        X,
        y,
        sample_weight=sample_weight,
        architecture=Parallel(kind.m1, kind.m2, kind.deeper),
        time_limit=time_limit,
        random_state=0,
    )
    assert isinstance(certificate, Certificate)
    return LowRankGuarantee(
        rank=int(rank),
        sigma=float(table.sigmas[at]),
        objective=certificate.objective,
        factor=float(table.factors[at]),
        paper_factor=float(table.paper_factors[at]),
        certificate=certificate,
    )
