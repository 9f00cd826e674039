"""Deep networks trained stage by stage, each stage a convex problem (002 Fig. 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bidual._util.checks import check_number, check_seed
from bidual._util.data import check_labels, validate_data
from bidual._util.progress import note
from bidual._util.typing import Array, FloatArray
from bidual.architectures import Parallel
from bidual.estimators.base import BaseReLU
from bidual.estimators.certified import Certified
from bidual.estimators.classifier import ReLUClassifier
from bidual.estimators.labels import has_probabilities
from bidual.estimators.regressor import ReLURegressor
from bidual.networks.layerwise import LayerwiseNetwork, stage_features


class Layerwise(Certified):
    """What the classifier and the regressor share."""

    network_: LayerwiseNetwork
    stages_: list[Any]

    def __init__(
        self,
        estimator: BaseReLU | None = None,
        *,
        n_stages: int = 5,
        passthrough: bool = True,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        patience: int = 1,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_stages = n_stages
        self.passthrough = passthrough
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def _default(self) -> BaseReLU:
        raise NotImplementedError

    def _fit(self, X: FloatArray, y: Array, stratify: Array | None) -> None:
        """Train stage after stage, and keep those up to the best one."""
        self._check_parameters()
        rng = check_random_state(self.random_state)
        rows, labels, held, truth = X, y, None, None
        if self.early_stopping:
            seed = rng.randint(2**31)
            try:
                rows, held, labels, truth = train_test_split(
                    X, y, test_size=self.validation_fraction, random_state=seed, stratify=stratify
                )
            except ValueError as error:
                raise ValueError(
                    f"n_samples={len(X)} rows cannot be split for validation ({error}): give more rows, or "
                    "early_stopping=False"
                ) from error
        self.stages_, self.validation_scores_ = [], []
        inputs, watched, best, since = rows, held, -np.inf, 0
        for stage in range(1, self.n_stages + 1):
            model = clone(self._default() if self.estimator is None else self.estimator)
            if model.random_state is None:
                model.set_params(random_state=int(rng.randint(2**31)))
            model.fit(inputs, labels)
            self.stages_.append(model)
            if watched is not None:
                score = float(model.score(watched, truth))
                self.validation_scores_.append(score)
                since, best = (0, score) if score > best else (since + 1, best)
            if self.verbose:
                said = f"  validation score {self.validation_scores_[-1]:.4f}" if watched is not None else ""
                note(f"stage {stage}  objective {model.objective_:.6g}  likely gap {model.likely_gap_:.1e}{said}")
            # a stage that found nothing to learn has no features to offer
            if since > self.patience - 1 or model.n_neurons_ == 0 or stage == self.n_stages:
                break
            inputs = stage_features(model.network_, inputs, rows if self.passthrough else None)
            if watched is not None and held is not None:
                watched = stage_features(model.network_, watched, held if self.passthrough else None)
        if self.validation_scores_:
            del self.stages_[int(np.argmax(self.validation_scores_)) + 1 :]
        self.network_ = LayerwiseNetwork([model.network_ for model in self.stages_], self.passthrough)
        self.certificate_ = self.stages_[-1].certificate_
        self.n_stages_ = len(self.stages_)

    def _check_parameters(self) -> None:
        if self.estimator is not None and not isinstance(self.estimator, BaseReLU):
            raise TypeError(f"estimator must be one of bidual's ReLU estimators, got {type(self.estimator).__name__}")
        check_seed(self.random_state)
        check_number("n_stages", self.n_stages, at_least=1, integer=True)
        check_number("patience", self.patience, at_least=1, integer=True)
        check_number("validation_fraction", self.validation_fraction, at_least=0.0)
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie strictly between 0 and 1, got {self.validation_fraction!r}")

    def _features(self, X: Array) -> FloatArray:
        """What the last stage sees of new rows."""
        check_is_fitted(self, "network_")
        return self.network_.features(validate_data(self, X, reset=False, dtype=np.float64))


class LayerwiseClassifier(ClassifierMixin, Layerwise):
    r"""A deep classifier made of stages, each trained to the global optimum of its own convex problem (002 Fig. 6).

    The first stage is a :class:`ReLUClassifier` on the data, the next one a classifier on the hidden features of the
    first, and so on. Every stage is optimal given the ones before it; nothing is claimed about all of them together.

    Parameters
    ----------
    estimator : ReLUClassifier or None, default=None
        Of the stages; None is a three-layer network, ``ReLUClassifier(architecture=Parallel(3), tol=1e-2)``.
    n_stages : int, default=5
        At most so many stages.
    passthrough : bool, default=True
        Whether later stages see the data beside the features.
    early_stopping : bool, default=True
        Hold back some rows, stop when their score no longer rises, and keep the stages up to the best one.
    validation_fraction : float, default=0.2
        Share of the rows held back.
    patience : int, default=1
        Stages without a better score after which to stop.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0

    Attributes
    ----------
    stages_ : list of ReLUClassifier
        The stages kept.
    n_stages_ : int
    validation_scores_ : list of float
        Of all stages trained.
    classes_ : ndarray
    network_ : LayerwiseNetwork
    certificate_ : Certificate
        Of the last stage, on the features of the stages before it; so are ``objective_``, ``lower_bound_``, ``gap_``.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import LayerwiseClassifier, ReLUClassifier
    >>> X = np.random.default_rng(0).standard_normal((60, 2))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)
    >>> stage = ReLUClassifier(1e-3, method="sampled", n_patterns=20)
    >>> model = LayerwiseClassifier(stage, n_stages=2, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9), len(model.validation_scores_) <= 2
    (True, True)
    """

    classes_: Array

    def _default(self) -> BaseReLU:
        return ReLUClassifier(architecture=Parallel(3), tol=1e-2, max_iter=20)

    def fit(self, X: Array, y: Array) -> LayerwiseClassifier:
        """Train on ``X (n, d)`` and labels ``y (n,)`` of any type."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_labels(y)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"y holds one class only ({classes[0]!r}): a classifier needs at least two classes")
        self._fit(X, y, y)
        self.classes_ = classes
        return self

    def decision_function(self, X: Array) -> FloatArray:
        """Scores: ``(n,)`` for two classes (positive means ``classes_[1]``), ``(n, K)`` for more."""
        features = self._features(X)
        F = self.network_.stages[-1].forward(features)
        return F[:, 0] if F.shape[1] == 1 else F

    def predict(self, X: Array) -> Array:
        """Labels of the highest score."""
        features = self._features(X)
        return self.stages_[-1].predict(features)

    @available_if(lambda self: has_probabilities((self.estimator or self._default()).loss))
    def predict_proba(self, X: Array) -> FloatArray:
        """Class probabilities ``(n, K)``: for the logistic and softmax losses only."""
        features = self._features(X)
        return self.stages_[-1].predict_proba(features)


class LayerwiseRegressor(RegressorMixin, Layerwise):
    """A deep regressor made of stages; see :class:`LayerwiseClassifier`.

    Parameters
    ----------
    estimator : ReLURegressor or None, default=None
        Of the stages; None is a three-layer network, ``ReLURegressor(architecture=Parallel(3), tol=1e-2)``.
    n_stages, passthrough, early_stopping, validation_fraction, patience, random_state, verbose
        As in :class:`LayerwiseClassifier`.

    Attributes
    ----------
    stages_, n_stages_, validation_scores_, network_, certificate_
        As in :class:`LayerwiseClassifier`; scores are R².
    """

    def _default(self) -> BaseReLU:
        return ReLURegressor(architecture=Parallel(3), tol=1e-2, max_iter=20)

    def fit(self, X: Array, y: Array) -> LayerwiseRegressor:
        """Train on ``X (n, d)`` and targets ``y (n,)``."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self._fit(X, y, None)
        return self

    def predict(self, X: Array) -> FloatArray:
        """Predicted targets."""
        features = self._features(X)
        return self.stages_[-1].predict(features)
