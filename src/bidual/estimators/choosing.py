r"""Weight decay chosen from the data: paths over decreasing betas, scored on rows that were held out.

Betas are shares of :math:`\beta_{\max}`, which carries the units of columns and targets. Above a few thousand rows a
part of them chooses; the noise that weight decay has to hold down falls with the root of their number, and so does the
beta that is taken for all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from bidual._util.typing import Array, BoolArray, FloatArray
from bidual._util.watch import current
from bidual.solvers import Rough, Solver
from bidual.training.activations import ACTIVATIONS
from bidual.training.paths import trace
from bidual.training.train import Trainable, Trained

#: The choices of beta="auto", as shares of beta_max, and the one where too few rows are there to choose by.
SHARES, SHARE = (0.3, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001), 0.05
#: Those that are tried first; then the neighbours of the best of them.
_FIRST = (1, 3, 5, 7)
#: Rows below which nothing can be held out; up to which every row is held out once, and the most that tell beta_max;
#: and the most that choose.
_FEWEST, _FEW, _MOST = 12, 1000, 3000
#: Parts into which rows are dealt.
_PARTS = 4
#: How much worse than the best a larger beta may score and be taken: its network is simpler.
_WORSE = 2e-3
#: Trainings of the choice on given patterns and gates end at this gap.
_TOL = 0.02


def chosen_beta(estimator: Any, X: Array, y: Array, sample_weight: FloatArray | None) -> float:
    """The beta of ``beta="auto"``: of those with about the best mean score on rows held out the largest.

    The estimator has a number as its beta. Every row is held out once, or of many rows one part. The deal does not
    depend on ``random_state``.
    """
    n = _num_samples(X)
    some = np.random.default_rng(0).permutation(n)[:_MOST]
    if sample_weight is not None:
        some = some[sample_weight[some] > 0]
    few = some[:_FEW]
    if is_classifier(estimator) and len(np.unique(_safe_indexing(y, few))) < 2:
        few = some if len(np.unique(_safe_indexing(y, some))) > 1 else np.arange(n)
    weight = None if sample_weight is None else sample_weight[few]
    posed: Trainable = estimator._pose(*(_safe_indexing(a, few) for a in (X, y)), weight)
    betas = (posed.beta_max(replace(estimator._how()["options"], audit=False)) or 1.0) * np.array(SHARES)
    if len(some) < _FEWEST:
        return float(betas[SHARES.index(SHARE)])
    part = dealt(_safe_indexing(y, some) if is_classifier(estimator) else None, len(some))
    rows = [(some[part != k], some[part == k]) for k in range(_PARTS if len(some) <= _FEW else 1)]
    plain = type(estimator)(**{**estimator.get_params(deep=False), "tol": _TOL, "verbose": 0, "random_state": 0})
    given = ACTIVATIONS[plain.activation].gated or plain.method == "sampled"
    method = plain.method if given else Rough()
    scores = np.full(len(SHARES), np.nan)

    def score(these: list[int]) -> None:
        folds: list[FloatArray] = []
        for train, test in rows:
            fold, _ = path_scores(plain, X, y, sample_weight, train, test, betas[these], _score, None, method)
            if folds and np.isnan(fold).any():  # time ran out in it
                break
            folds.append(fold)
        scores[these] = np.mean(folds, axis=0)

    score(list(_FIRST))
    if np.isfinite(scores).any() and not current().late():
        first = int(np.nanargmax(scores))
        score([k for k in (first - 1, first + 1) if 0 <= k < len(SHARES)])
    good = scores >= np.nanmax(scores) - _WORSE if np.isfinite(scores).any() else np.array(SHARES) == SHARE
    best = int(good.argmax())
    return float(betas[best] * min(1.0, np.sqrt(_MOST / n)))


def dealt(labels: Array | None, n: int) -> Array:
    """The part of every row, from 0 on; -1 for classes of too few rows to be in every part."""
    part = np.arange(n) % _PARTS
    if labels is None:
        return part
    if np.size(labels) != n:  # a label for each place
        return part
    _, codes = np.unique(np.ravel(labels), return_inverse=True)
    for code, count in enumerate(np.bincount(codes)):
        part[codes == code] = np.arange(count) % _PARTS if count >= _PARTS else -1
    return part


def path_scores(
    estimator: Any,
    X: Array,
    y: Array,
    weight: FloatArray | None,
    train: Array,
    test: Array,
    betas: FloatArray,
    scorer: Callable[..., float],
    patience: tuple[int, float] | None = None,
    method: str | Solver | None = None,
) -> tuple[FloatArray, BoolArray]:
    """Scores on ``test``, and whether the likely gap was reached, of the path trained on ``train``.

    With ``patience``, a count and a margin, a path ends after so many betas in a row whose score is by more than the
    margin below the best; scores that are not there are NaN. ``method``, if given, takes the place of the estimator's.
    """
    X_train, X_test, y_train, y_test = (_safe_indexing(a, i) for a in (X, y) for i in (train, test))
    data = estimator._pose(X_train, y_train, None if weight is None else weight[train])
    extra = {} if weight is None or not takes_weights(scorer) else {"sample_weight": weight[test]}
    scores = np.full(len(betas), np.nan)
    reached = np.zeros(len(betas), dtype=bool)
    options = replace(estimator._how(X_train)["options"], prove=False, tidy=False)
    tol = options.tol if options.enough is None else options.enough

    def enough(points: Sequence[Trained]) -> bool:
        k = len(points) - 1
        estimator._adopt(points[k])
        scores[k] = float(scorer(estimator, X_test, y_test, **extra))
        reached[k] = points[k].certificate.likely_gap <= tol
        if current().late():
            return True
        if patience is None or not np.isfinite(scores[: k + 1]).any():
            return False
        count, margin = patience
        last = np.flatnonzero(scores[: k + 1] >= np.nanmax(scores[: k + 1]) - margin)[-1]
        return bool(k - last >= count)

    path = trace(data, betas, method or estimator.method, options, estimator.activation, enough)
    if path.interrupted:  # a beta cannot be chosen
        raise KeyboardInterrupt
    return scores, reached


def takes_weights(scorer: Callable[..., float]) -> bool:
    """Whether a scorer can be given sample weights."""
    parameters = inspect.signature(scorer).parameters.values()
    return any(p.name == "sample_weight" or p.kind is p.VAR_KEYWORD for p in parameters)


def _score(estimator: Any, X: Array, y: Array, sample_weight: Array | None = None) -> float:
    """The estimator's own score."""
    return float(estimator.score(X, y, sample_weight))
