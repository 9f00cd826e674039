"""From a DataFrame or a file to a fitted, certified model, in one line."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bidual._util.typing import Array, FloatArray
from bidual.bounds import Certificate
from bidual.estimators.base import AUTO, BaseReLU
from bidual.estimators.classifier import ReLUClassifier
from bidual.estimators.labels import has_probabilities
from bidual.estimators.prepared import Choice, Prepared, choose_task
from bidual.estimators.regressor import ReLURegressor
from bidual.models import Model, Training
from bidual.tables import Cells, Table, TableEncoder, read_table, table_of


class TableModel(BaseEstimator):
    """A network on a table as it is: columns of any kind are encoded and scaled, and so is the target.

    Parameters
    ----------
    estimator : ReLURegressor, ReLUClassifier, ReLURegressorCV or ReLUClassifierCV, or None
        What is trained; None: a :class:`ReLURegressor` or :class:`ReLUClassifier`, as the task asks for.
    encoder : TableEncoder or None
        How columns become numbers; None: as :class:`~bidual.TableEncoder` does by itself.
    task : {"auto", "regression", "classification"}
        "auto": that of ``estimator``, else what the target asks for: text and few whole numbers are classes, other
        numbers amounts.
    scale, scale_target : bool, default=True
        Standardise the columns, and the target of a regression. The objective and beta then count in units of its
        deviation; predictions and scores are in its own.

    Attributes
    ----------
    model_ : Model
        What can be saved, and predicts: encoder, scaling, network and certificate.
    estimator_, encoder_
        The fitted ones.
    certificate_ : Certificate
    classes_ : ndarray
        Of a classification.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    table_model : From a DataFrame or file to a fitted one, in one line.

    Examples
    --------
    >>> from bidual import ReLURegressor, TableModel
    >>> houses = {"area": [50, 70, None, 90, 60], "city": ["Bern", "Basel", "Bern", "Chur", "Bern"]}
    >>> model = TableModel(ReLURegressor(beta=0.01, method="exact")).fit(houses, [1.0, 1.2, 1.1, 1.5, 1.05])
    >>> bool(model.certificate_.gap < 1e-6), model.predict(houses).shape
    (True, (5,))
    """

    model_: Model
    estimator_: Any
    encoder_: TableEncoder

    def __init__(
        self,
        estimator: BaseReLU | None = None,
        *,
        encoder: TableEncoder | None = None,
        task: str = "auto",
        scale: bool = True,
        scale_target: bool = True,
    ) -> None:
        self.estimator = estimator
        self.encoder = encoder
        self.task = task
        self.scale = scale
        self.scale_target = scale_target

    def fit(self, X: Any, y: Any, sample_weight: Array | None = None) -> Self:
        """Train on a table.

        Parameters
        ----------
        X : DataFrame, Table, dict of columns, or array of shape (n, d)
        y : array of shape (n,)
        sample_weight : array of shape (n,) or None
        """
        table, target = _with_column(table_of(X), "y", y)
        if sample_weight is None:
            return self._fit(table, target)
        table, weights = _with_column(table, "sample_weight", sample_weight)
        return self._fit(table, target, weights=weights)

    def _fit(self, table: Table, target: str, *, weights: str | None = None, drop: Sequence[str] = ()) -> Self:
        task, estimator = self.task, self.estimator
        if estimator is not None and not isinstance(estimator, BaseReLU):
            raise ValueError(f"estimator must be a ReLURegressor or ReLUClassifier, got a {type(estimator).__name__}")
        if task == "auto" and estimator is not None:
            task = "classification" if is_classifier(estimator) else "regression"
        data = Prepared.of(
            table,
            target,
            weights=weights,
            drop=drop,
            task=task,
            scale=self.scale,
            scale_target=None if self.scale_target else False,
            encoder=None if self.encoder is None else clone(self.encoder),
        )
        if data.choice is not None:
            _warn_if_guessed(data.choice)
        if estimator is None:
            estimator = ReLURegressor() if data.task == "regression" else ReLUClassifier()
        elif is_classifier(estimator) != (data.task == "classification"):
            raise ValueError(f"task={data.task!r} does not go with a {type(estimator).__name__}")
        estimator = clone(estimator)
        if self.scale and estimator.scale == AUTO:
            estimator.set_params(scale=False)  # the columns are standardised already
        self.estimator_ = estimator.fit(data.inputs, data.coded, sample_weight=data.weights)
        record = Training.of(self.estimator_, n_rows=len(table))
        self.model_ = data.model(self.estimator_.network_, self.estimator_.certificate_, record)
        assert data.encoder is not None
        self.encoder_, self.n_features_in_ = data.encoder, data.encoder.n_features_in_
        self.feature_names_in_ = data.encoder.feature_names_in_
        if data.target.classes is not None:
            self.classes_ = np.array(data.target.classes)
        return self

    @property
    def certificate_(self) -> Certificate:
        """How close to optimal the network is; of a standardised target."""
        if not hasattr(self, "model_"):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self.model_.certificate

    def predict(self, X: Any) -> Array:
        """Values in the units of the target, or labels."""
        check_is_fitted(self, "model_")
        return self.model_.predict(X)

    @available_if(lambda self: self._has_probabilities())
    def predict_proba(self, X: Any) -> FloatArray:
        """Class probabilities ``(n, K)``: for the logistic and softmax losses only."""
        return self.model_.probabilities(X)

    def score(self, X: Any, y: Any, sample_weight: Array | None = None) -> float:
        """R² of a regression, accuracy of a classification."""
        check_is_fitted(self, "model_")
        return self.model_.score(X, np.asarray(y), sample_weight)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the inputs of the network."""
        check_is_fitted(self, "model_")
        return self.encoder_.get_feature_names_out()

    def save(self, path: str | os.PathLike[str]) -> Any:
        """Write the model with its encoder to a JSON file; :func:`bidual.load` reads it back, and so does the shell."""
        check_is_fitted(self, "model_")
        return self.model_.save(path)

    def _has_probabilities(self) -> bool:
        if hasattr(self, "model_"):
            return self.model_.target.classes is not None and has_probabilities(self.model_.training.loss)
        if self.estimator is None:
            return self.task == "classification"
        return is_classifier(self.estimator) and has_probabilities(self.estimator.loss)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = getattr(self, "estimator_", self.estimator)
        if inner is None and self.task != "auto":
            inner = ReLURegressor() if self.task == "regression" else ReLUClassifier()
        if inner is not None:
            of = get_tags(inner)
            tags.estimator_type, tags.regressor_tags, tags.classifier_tags = (
                of.estimator_type,
                of.regressor_tags,
                of.classifier_tags,
            )
        tags.target_tags.required = True
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


def table_model(
    data: Any,
    target: str,
    *,
    estimator: BaseReLU | None = None,
    task: str = "auto",
    drop: Sequence[str] = (),
    weights: str | None = None,
    categorical: Sequence[str] = (),
    scale: bool = True,
    scale_target: bool = True,
    **options: Any,
) -> TableModel:
    """From a DataFrame or a file to a fitted, certified model.

    Parameters
    ----------
    data : DataFrame, Table, dict of columns, or path
        A path is read by :func:`bidual.tables.read_table`: CSV of any look, Parquet, Excel.
    target : str
        The column to predict.
    estimator : estimator or None
        See :class:`TableModel`.
    task : {"auto", "regression", "classification"}
    drop : sequence of str
        Columns that are not features.
    weights : str or None
        Column of sample weights.
    categorical : sequence of str
        Columns that are categories although they look otherwise.
    scale, scale_target : bool
        See :class:`TableModel`.
    **options
        Parameters of the estimator, such as ``beta=0.01`` or ``time_limit=60``.

    Returns
    -------
    TableModel

    Examples
    --------
    >>> import bidual
    >>> houses = {"area": [50, 70, None, 90, 60], "price": ["$1,000", "$1,200", "$1,100", "$1,500", "$1,050"]}
    >>> model = bidual.table_model(houses, "price", beta=0.01, method="exact")
    >>> model.encoder_.get_feature_names_out().tolist(), bool(model.certificate_.gap < 1e-6)
    (['area', 'area is missing'], True)
    """
    table = read_table(data) if isinstance(data, str | os.PathLike) else table_of(data, "data")
    for name, columns in (("drop", drop), ("categorical", categorical)):
        if isinstance(columns, str):
            raise ValueError(f"{name} must be a list of columns, got the text {columns!r}")
    if not isinstance(target, str):
        raise ValueError(f"target must be the name of a column, got {target!r}")
    encoder = TableEncoder(categorical=tuple(categorical))
    if estimator is not None:
        estimator = clone(estimator).set_params(**options)
    else:
        if task == "auto":
            choice = choose_task(table, target)
            _warn_if_guessed(choice)
            task = choice.task
        estimator = (ReLUClassifier if task == "classification" else ReLURegressor)(**options)
    model = TableModel(estimator, encoder=encoder, task=task, scale=scale, scale_target=scale_target)
    return model._fit(table, target, weights=weights, drop=drop)


def _warn_if_guessed(choice: Choice) -> None:
    if choice.guessed:
        said = (
            f"task: {choice.task} ({choice.because}: task='regression'; task='classification' says that this is right)"
        )
        warnings.warn(said, UserWarning, stacklevel=4)


def _with_column(table: Table, name: str, values: Any) -> tuple[Table, str]:
    """The table with another column, and its name, which no other column has."""
    name = str(getattr(values, "name", None) or name)
    while name in table.columns:
        name += "_"
    column = np.asarray(values)
    if column.shape not in ((len(table),), (len(table), 1)):
        raise ValueError(f"{name} must have one value for each of the {len(table)} rows of X, got shape {column.shape}")
    cells = column.ravel()
    columns: dict[str, Cells] = {**table.columns, name: cells if cells.dtype.kind in "biuf" else cells.tolist()}
    return replace(table, columns=columns), name
