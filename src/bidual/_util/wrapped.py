"""What is inside the models of scikit-learn that wrap others: pipelines, searches, transformed targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator


def unwrap(model: Any, X: Any, y: Any) -> tuple[Any, Any, Any]:
    """The innermost fitted model, with X and y as it sees them."""
    while (inner := inside(model)) is not None:
        if hasattr(model, "steps") and len(model.steps) > 1:
            X = model[:-1].transform(X)
            X = X.toarray() if hasattr(X, "toarray") else X
        elif hasattr(model, "transformer_"):
            single = np.ndim(y) == 1
            y = model.transformer_.transform(np.asarray(y, dtype=np.float64).reshape(len(y), -1))
            y = y[:, 0] if single else y
        model = inner
    return model, X, y


def inside(model: Any) -> Any:
    """The fitted model that this one wraps; None if it wraps none."""
    if not isinstance(model, BaseEstimator):
        return None
    if hasattr(model, "steps"):  # Pipeline
        last = model.steps[-1][1]
        if last is None or last == "passthrough":
            raise ValueError("the last step of this pipeline is no network")
        return last
    if hasattr(model, "best_estimator_"):  # GridSearchCV, RandomizedSearchCV, ...
        return model.best_estimator_
    if hasattr(model, "param_grid") or hasattr(model, "param_distributions"):
        raise ValueError(f"this {type(model).__name__} holds no best estimator: fit it, with refit=True")
    if hasattr(model, "transformer_") and hasattr(model, "regressor_"):  # TransformedTargetRegressor
        return model.regressor_
    return getattr(model, "model_", None)  # TableModel
