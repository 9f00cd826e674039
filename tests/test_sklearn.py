"""scikit-learn's own battery, on every estimator."""

from __future__ import annotations

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from bidual import Convolutional, ReLUClassifier, ReLURegressor

ESTIMATORS = [
    ReLURegressor(prove=False, time_limit=None, random_state=0),
    ReLUClassifier(prove=False, time_limit=None, random_state=0),
    ReLURegressor(beta=0.05, tol=0.1, random_state=0),
    ReLUClassifier(beta=0.01, tol=0.1, random_state=0),
    ReLURegressor(1e-3, method="sampled", n_patterns=20, prove=False, random_state=0),
    ReLUClassifier(1e-3, method="sampled", n_patterns=10, loss="squared_hinge", tol=0.1, prove=False, random_state=0),
    ReLURegressor(1e-3, architecture="batch_norm", method="sampled", n_patterns=8, prove=False, random_state=0),
    ReLUClassifier(
        1e-3,
        architecture="batch_norm",
        method="sampled",
        n_patterns=8,
        loss="squared",
        tol=0.1,
        prove=False,
        random_state=0,
    ),
    ReLURegressor(1e-3, architecture="parallel", method="sampled", n_patterns=6, prove=False, random_state=0),
    ReLUClassifier(
        architecture="parallel", beta=0.05, tol=0.2, max_iter=3, loss="squared_hinge", prove=False, random_state=0
    ),
    ReLURegressor(beta=0.05, architecture=Convolutional(1, pooling="flatten"), tol=0.1, prove=False, random_state=0),
]


def beyond(estimator):
    """What nothing that holds rows out can do, scikit-learn's own estimators with cross-validation included."""
    if estimator.beta != "auto":
        return {}
    once = "a row of weight two is held out once, two rows are not"
    return {f"check_sample_weight_equivalence_on_{kind}_data": once for kind in ("dense", "sparse")}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*:UserWarning:sklearn")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=beyond)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_the_battery_is_not_skipped(estimator):
    assert len(list(estimator_checks_generator(estimator))) > 45


def test_convergence_warning_is_the_one_of_scikit_learn():
    assert issubclass(ConvergenceWarning, UserWarning)
