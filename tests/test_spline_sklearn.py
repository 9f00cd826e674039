"""scikit-learn's own battery, on the estimators for one input.

The battery's data have several columns, which these estimators refuse unless the rows lie on a line. It is therefore
run on subclasses that train and predict on the first column, and are the real thing in all else.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from bidual import SplineClassifier, SplineRegressor


class FirstColumn:
    def _train(self, X, Y, loss, sample_weight):
        super()._train(X[:, :1], Y, loss, sample_weight)

    def _outputs(self, X):
        check_is_fitted(self, "network_")
        return self.network_.forward(validate_data(self, X, reset=False, dtype=np.float64)[:, :1])


# one column of the battery's data does not say much about the targets


class FirstColumnRegressor(FirstColumn, SplineRegressor):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


class FirstColumnClassifier(FirstColumn, SplineClassifier):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


ESTIMATORS = [
    FirstColumnRegressor(),
    FirstColumnRegressor(loss="absolute"),
    FirstColumnClassifier(),
    FirstColumnClassifier(loss="logistic"),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*:UserWarning:sklearn")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_the_battery_is_not_skipped(estimator):
    assert len(list(estimator_checks_generator(estimator))) > 45
