"""scikit-learn's own battery, on the estimators in closed form."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from bidual import DeepReLUClassifier, LinearNetRegressor

ESTIMATORS = [
    LinearNetRegressor(),
    LinearNetRegressor(depth=3, beta=0.01),
    DeepReLUClassifier(),
    DeepReLUClassifier(depth=2, loss="logistic"),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*:UserWarning:sklearn")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_the_battery_is_not_skipped(estimator):
    assert len(list(estimator_checks_generator(estimator))) > 40
