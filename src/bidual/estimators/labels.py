"""What classifiers share: from labels to targets, and from scores to labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if

from bidual._util.data import check_weights
from bidual._util.typing import Array, FloatArray
from bidual.losses import Loss, get_loss


class LabelScores(ClassifierMixin):
    """Labels and probabilities from the outputs of a network: K of them, or one for two classes."""

    loss: str | Loss
    loss_: Loss
    classes_: Array
    class_weight: dict[Any, float] | str | None
    #: Network outputs ``(n, ..., C)`` for new rows; the estimator has it.
    _outputs: Callable[[Array], FloatArray]

    def _weigh(self, X: Array, y: Array, sample_weight: Array | None) -> Array | None:
        """Sample weights times class weights."""
        if self.class_weight is None:
            return sample_weight
        by_class = compute_sample_weight(self.class_weight, y)
        if sample_weight is None:
            return by_class
        return by_class * check_weights(sample_weight, X)

    def decision_function(self, X: Array) -> FloatArray:
        """Scores: ``(n,)`` for two classes (positive means ``classes_[1]``), ``(n, K)`` for more."""
        F = self._outputs(X)
        if F.shape[-1] == 2:  # one score for each of two classes
            return F[..., 1] - F[..., 0]
        return F[..., 0] if F.shape[-1] == 1 else F

    def predict(self, X: Array) -> Array:
        """Labels of the highest score."""
        F = self._outputs(X)
        codes = (F[..., 0] > 0).astype(int) if F.shape[-1] == 1 else F.argmax(axis=-1)
        return self.classes_[codes]

    @available_if(lambda self: has_probabilities(self.loss))
    def predict_proba(self, X: Array) -> FloatArray:
        """Class probabilities ``(n, K)``: for the logistic and softmax losses only."""
        F = self._outputs(X)
        probabilities = self.loss_.probabilities(F.reshape(-1, F.shape[-1]))
        assert probabilities is not None
        return probabilities.reshape(*F.shape[:-1], -1)

    @available_if(lambda self: has_probabilities(self.loss))
    def predict_log_proba(self, X: Array) -> FloatArray:
        """Logarithms of :meth:`predict_proba`."""
        return np.log(self.predict_proba(X))


def has_probabilities(loss: str | Loss) -> bool:
    """Whether the loss models probabilities."""
    return type(get_loss(loss)).probabilities is not Loss.probabilities
