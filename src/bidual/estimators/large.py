"""Estimators on many rows: which data they are, and how they are checked without being copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import column_or_1d

from bidual._data import validate_data
from bidual._typing import Array
from bidual.architectures import TwoLayer, get_architecture

if TYPE_CHECKING:
    from bidual.estimators.base import BaseReLU

#: Rows times outputs from which training is done in blocks.
MANY = 10_000


def is_dask(X: Any) -> bool:
    """Whether ``X`` is a dask array (dask is not imported to find out)."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "chunks")


def applies(estimator: BaseReLU, X: Any, y: Any) -> bool:
    """Whether the estimator trains on these arguments of fit (not checked yet) in blocks of rows."""
    suited = estimator.activation == "gated" and type(get_architecture(estimator.architecture)) is TwoLayer
    if is_dask(X) and not suited:
        raise ValueError("X is a dask array, which activation='gated' trains on: use that, or X.compute()")
    if not suited:
        return False
    asked = estimator.backend != "auto" or estimator.checkpoint is not None or isinstance(estimator.gates, str)
    return asked or is_dask(X) or _n_rows(X) * _n_outputs(estimator, y) >= MANY


def _n_rows(X: Any) -> int:
    return int(X.shape[0]) if len(getattr(X, "shape", ())) == 2 else 0


def _n_outputs(estimator: BaseReLU, y: Any) -> int:
    """Number of outputs, as far as it can be told from arrays."""
    if not isinstance(y, np.ndarray):
        return 1
    if y.ndim == 1 and is_classifier(estimator) and y.dtype != object:
        classes = len(np.unique(y))
        return classes if classes > 2 else 1
    return int(y.shape[1]) if y.ndim == 2 else 1


def check_parameters(estimator: BaseReLU) -> None:
    """One sentence for each parameter that cannot be."""
    from bidual.large import BACKENDS

    if estimator.backend not in BACKENDS:
        names = ", ".join(map(repr, BACKENDS))
        raise ValueError(f"unknown backend {estimator.backend!r}: use one of {names}")
    if estimator.device is not None and estimator.backend != "torch":
        raise ValueError(f"device={estimator.device!r} is for backend='torch'")
    gated = estimator.activation == "gated"
    if not gated and (estimator.backend != "auto" or estimator.checkpoint is not None):
        raise ValueError("backend and checkpoint are for activation='gated'")


def fit(estimator: BaseReLU, X: Any, y: Any, sample_weight: Array | None) -> None:
    """Train on rows that stay where they are."""
    from bidual.large import LargeTrainingSet  # numba takes a moment to load: only when it is needed
    from bidual.networks import GatedNetwork

    rows, Y, loss, sample_weight = estimator._checked(X, y, sample_weight)
    if is_dask(X):
        from bidual.operators.dask import DaskSource

        source: Any = DaskSource(rows)
    else:
        source = rows
    data = LargeTrainingSet.pose(
        source,
        Y,
        sample_weight,
        loss=loss,
        beta=estimator.beta,
        bias=estimator.bias,
        fit_intercept=estimator.fit_intercept,
    )
    start = getattr(estimator, "network_", None) if estimator.warm_start else None
    trained = data.train(
        estimator._options(),
        gates=estimator.gates if isinstance(estimator.gates, str) else estimator._gate_matrix(data.lift),
        start=start if isinstance(start, GatedNetwork) else None,
        backend=estimator.backend,
        device=estimator.device,
        checkpoint=estimator.checkpoint,
    )
    estimator._finish(trained)


def check_data(estimator: BaseReLU, X: Any, y: Any, **how: Any) -> tuple[Any, Array]:
    """As scikit-learn does, but any numeric type stays as it is: a memory map is looked at, not copied."""
    if is_dask(X):
        return _check_dask(estimator, X, y, **how)
    return validate_data(estimator, X, y, dtype="numeric", **how)


def _check_dask(estimator: BaseReLU, X: Any, y: Any, **how: Any) -> tuple[Any, Array]:
    """Shapes and types of a dask array; its entries are looked at where they are (by the solver)."""
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, got {X.ndim}")
    if np.isnan(X.shape[0]):
        X = X.compute_chunk_sizes()
    y = np.asarray(y.compute() if is_dask(y) else y)
    if len(y) != X.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, y has {len(y)}")
    validate_data(estimator, X[:1].compute(), dtype="numeric")
    y = y if how.get("multi_output") and y.ndim == 2 else column_or_1d(y, warn=True)
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("y contains NaN or infinity")
    return X, y
