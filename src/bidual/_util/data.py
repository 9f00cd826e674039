"""Tables and targets as users have them: scikit-learn's checks, and a sentence where these have none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils import validation
from sklearn.utils.multiclass import check_classification_targets

from bidual._util.checks import as_numbers
from bidual._util.ranges import check_range
from bidual._util.typing import Array, FloatArray

#: Kinds of columns that are numbers: truth values, integers and floating point.
_NUMBERS = "biuf"


def validate_data(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """``sklearn.utils.validation.validate_data``."""
    with _sentences(X):
        return _finite_targets(validation.validate_data(estimator, X, *y, **options), options)


def check_X_y(X: Any, y: Any, **options: Any) -> Any:
    """``sklearn.utils.check_X_y``."""
    with _sentences(X):
        return _finite_targets(validation.check_X_y(X, y, **options), options)


def check_array(X: Any, **options: Any) -> Any:
    """``sklearn.utils.check_array``."""
    with _sentences(X):
        return validation.check_array(X, **options)


def check_weights(sample_weight: Any, X: Any, **options: Any) -> Any:
    """``sklearn.utils.validation._check_sample_weight``, in double precision."""
    with _sentences(X, "sample_weight"):
        return validation._check_sample_weight(sample_weight, X, dtype=np.float64, **options)


def normalise_weights(sample_weight: Array | None, n: int) -> FloatArray:
    """Sample weights that sum to one: the mean of DESIGN's normalisation."""
    if sample_weight is None:
        return np.full(n, 1.0 / n)
    weights = as_numbers("sample_weight", sample_weight)
    if weights.shape != (n,):
        raise ValueError(f"sample_weight must have shape ({n},), got {weights.shape}")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight must be finite and not negative")
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: nothing to train on")
    check_range(sample_weight=weights)
    return weights / weights.sum()


def check_labels(y: Any) -> None:
    """``sklearn.utils.multiclass.check_classification_targets``, also for labels that cannot be sorted."""
    try:
        check_classification_targets(y)
        np.unique(np.asarray(y))
    except TypeError as error:
        raise ValueError("the labels in y are of several types: make all of them strings, or all numbers") from error


@contextmanager
def _sentences(X: Any, what: str = "X or y") -> Iterator[None]:
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        _check_columns(X)
    try:
        yield
    except OverflowError as error:
        raise ValueError(f"{what} holds integers too large for floating point: rescale them") from error


def _check_columns(X: Any) -> None:
    """Names that differ, and numbers (or something that may hold numbers) in every column."""
    names = list(X.columns)
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"X has several columns called {twice[0]!r}: give them different names")
    for name, kind in zip(names, list(X.dtypes), strict=True):
        if getattr(kind, "kind", "O") not in _NUMBERS + "O" or str(kind) == "category":
            raise ValueError(f"the column {name!r} of X holds {kind}, not numbers: encode it first, or leave it out")


def _finite_targets(checked: Any, options: dict[str, Any]) -> Any:
    """Targets of objects are numbers only now: what was None is NaN."""
    if options.get("y_numeric") and isinstance(checked, tuple):
        y = checked[1]
        if y.dtype.kind in "cmM":
            raise ValueError(f"y holds {y.dtype}, not real numbers: convert it first")
        if not np.isfinite(_as_numbers(y)).all():
            raise ValueError("y contains None or NaN: remove these rows, or fill them in")
    return checked


def _as_numbers(y: Array) -> Array:
    return y.astype(np.float64) if y.dtype.kind == "O" else y
