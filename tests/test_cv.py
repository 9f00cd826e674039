"""Cross-validated estimators: the choice of beta, and that nothing unproven is used in silence."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from bidual import ReLUClassifier, ReLUClassifierCV, ReLURegressor, ReLURegressorCV, beta_max

FAST = {"n_betas": 3, "cv": 2, "tol": 1e-2, "max_iter": 20, "random_state": 0, "prove": False}


# the search for beta is what is checked here: a coarse one will do
CHECKED = {**FAST, "n_betas": 2, "beta_min_ratio": 0.3, "tol": 0.2, "max_iter": 2}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*:UserWarning:sklearn")
@parametrize_with_checks([ReLURegressorCV(**CHECKED), ReLUClassifierCV(**CHECKED)])
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    """Two planted neurons under much noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))  # too many patterns to enumerate
    clean = np.maximum(X[:, 0], 0) - np.maximum(X[:, 1], 0)
    return X, clean + 0.5 * rng.standard_normal(60)


@pytest.fixture(scope="module")
def fitted(data):
    return ReLURegressorCV(
        n_betas=6, cv=KFold(3), scale=False, patience=None, tol=1e-3, prove=False, random_state=0
    ).fit(*data)


def test_attributes(fitted, data):
    X, y = data
    assert fitted.betas_.shape == (6,)
    assert fitted.betas_[0] == pytest.approx(beta_max(X, y))
    assert fitted.scores_.shape == fitted.converged_.shape == (6, 3)
    assert fitted.converged_.all()
    np.testing.assert_allclose(fitted.mean_score_, fitted.scores_.mean(axis=1))
    np.testing.assert_allclose(fitted.std_score_, fitted.scores_.std(axis=1))
    assert fitted.beta_ == fitted.betas_[fitted.best_index_]
    assert fitted.best_index_ == fitted.mean_score_.argmax()


def test_a_sane_beta(fitted):
    assert 0 < fitted.best_index_ < 5  # neither the constant nor the network that fits the noise
    assert fitted.mean_score_[fitted.best_index_] > fitted.mean_score_[-1] + 0.05
    assert fitted.mean_score_[0] < 0.1


def test_the_refit_is_a_plain_fit(fitted, data):
    X, y = data
    plain = ReLURegressor(beta=fitted.beta_, tol=1e-3, prove=False, random_state=0).fit(X, y)
    assert fitted.objective_ == plain.objective_
    assert fitted.likely_gap_ == plain.likely_gap_ <= 1e-3
    assert fitted.likely_bound_ == plain.likely_bound_
    assert (fitted.n_neurons_, fitted.n_iter_) == (plain.n_neurons_, plain.n_iter_)
    assert len(fitted.history_) == len(plain.history_)
    assert fitted.certificate_.beta == fitted.beta_
    np.testing.assert_array_equal(fitted.predict(X), plain.predict(X))
    assert fitted.score(X, y) == plain.score(X, y)


def test_scores_are_those_of_a_hand_written_loop(fitted, data):
    X, y = data
    for j, (train, test) in enumerate(KFold(3).split(X)):
        for i, beta in enumerate(fitted.betas_):
            plain = ReLURegressor(beta=beta, tol=1e-4, prove=False, random_state=1).fit(X[train], y[train])
            # networks that fit the noise score by their last digits
            near = 0.03 if i <= fitted.best_index_ else 0.1
            assert fitted.scores_[i, j] == pytest.approx(plain.score(X[test], y[test]), abs=near)


def test_one_standard_error_by_hand(fitted, data):
    scores = fitted.scores_
    best = scores.mean(axis=1).argmax()
    floor = scores[best].mean() - scores[best].std(ddof=1) / np.sqrt(3)
    expected = max(b for b, mean in zip(fitted.betas_, scores.mean(axis=1), strict=True) if mean >= floor)
    sparse = clone(fitted).set_params(one_standard_error=True).fit(*data)
    assert sparse.beta_ == expected >= fitted.beta_
    np.testing.assert_array_equal(sparse.scores_, scores)


def test_the_same_for_any_number_of_jobs(data):
    X, y = data
    one, two = (ReLURegressorCV(**FAST, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.scores_, two.scores_)
    assert one.objective_ == two.objective_


def test_classes_of_text():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 2))
    y = np.where(np.abs(X[:, 0]) < 0.7, "inner", "outer")
    est = ReLUClassifierCV(n_betas=4, cv=3, tol=1e-2, prove=False, random_state=0).fit(X, y)
    assert est.classes_.tolist() == ["inner", "outer"]
    assert est.best_index_ > 0
    assert est.score(X, y) > 0.9
    np.testing.assert_allclose(est.predict_proba(X).sum(axis=1), 1.0)
    assert est.decision_function(X).shape == (50,)
    for j, (train, test) in enumerate(StratifiedKFold(3).split(X, y)):
        plain = ReLUClassifier(beta=est.betas_[2], tol=1e-2, prove=False, random_state=1).fit(X[train], y[train])
        assert est.scores_[2, j] == pytest.approx(plain.score(X[test], y[test]), abs=0.13)  # two rows
    assert not hasattr(ReLUClassifierCV(loss="hinge"), "predict_proba")


def test_three_classes_by_log_loss():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((45, 2))
    y = np.argmax(np.column_stack([X, -X.sum(axis=1)]), axis=1)
    est = ReLUClassifierCV(n_betas=3, beta_min_ratio=0.01, cv=2, scoring="neg_log_loss", tol=2e-2, random_state=0)
    est.set_params(prove=False).fit(X, y)
    assert est.converged_.all()
    assert (est.scores_ <= 0).all()
    assert est.predict_proba(X).shape == (45, 3)


def test_scoring_by_name_and_by_function(data):
    X, y = data
    by_name = ReLURegressorCV(**FAST, scoring="neg_mean_absolute_error").fit(X, y)
    by_function = ReLURegressorCV(**FAST, scoring=lambda est, X, y: -np.abs(est.predict(X) - y).mean()).fit(X, y)
    np.testing.assert_allclose(by_name.scores_, by_function.scores_)


def test_weights_count_in_training_and_scoring(data):
    X, y = data
    weight = np.where(np.arange(60) % 10 == 0, 0.0, 1.0)
    weighted = ReLURegressorCV(**{**FAST, "cv": KFold(2)}).fit(X, y, sample_weight=weight)
    kept = weight > 0
    folds = [(np.flatnonzero(train[kept]), np.flatnonzero(~train[kept])) for train in np.arange(60) // 30 != [[0], [1]]]
    removed = ReLURegressorCV(**{**FAST, "cv": folds}).fit(X[kept], y[kept])
    np.testing.assert_allclose(weighted.scores_, removed.scores_, rtol=1e-9)
    # a scorer that takes no weights is asked without them
    ReLURegressorCV(**FAST, scoring=lambda est, X, y: get_scorer("r2")(est, X, y)).fit(X, y, sample_weight=weight)


def test_groups(data):
    X, y = data
    est = ReLURegressorCV(**{**FAST, "cv": GroupKFold(2)}).fit(X, y, groups=np.arange(60) % 5)
    assert est.scores_.shape == (3, 2)


def test_clone_and_pickle(fitted, data):
    X, _ = data
    assert clone(fitted).get_params()["n_betas"] == 6
    assert "beta" not in fitted.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.beta_ == fitted.beta_


def test_given_betas(data):
    est = ReLURegressorCV([0.03, 0.3], cv=2, tol=1e-2, prove=False, random_state=0).fit(*data)
    assert est.betas_.tolist() == [0.3, 0.03]


def test_unconverged_folds_are_said_once(data):
    X, y = data
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        est = ReLURegressorCV([0.3, 1e-3], cv=2, tol=1e-9, max_iter=1, prove=False, random_state=0).fit(X, y)
    folds = [str(w.message) for w in record if issubclass(w.category, ConvergenceWarning) and "folds" in str(w.message)]
    assert len(folds) == 1
    assert folds[0].startswith(f"{(~est.converged_).sum()} of 4 trainings")
    assert "0.001" in folds[0]
    assert not est.converged_[1].any()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"betas": [-1.0]}, "betas must be"),
        ({"n_betas": 0}, "n_betas"),
        ({"beta_min_ratio": 0.0}, "beta_min_ratio"),
        ({"cv": 1}, "at least one train/test split"),
        ({"cv": "five"}, "cv"),
        ({"scoring": "magic"}, "scoring"),
        ({"tol": -1.0}, "tol"),
        ({"method": "magic"}, "unknown method"),
        ({"loss": "hinge"}, "for classes"),
    ],
)
def test_bad_parameters(data, parameters, message):
    with pytest.raises(ValueError, match=message):
        ReLURegressorCV(**{**FAST, **parameters}).fit(*data)


def test_bad_scores(data):
    with pytest.raises(ValueError, match="finite mean score"):
        ReLURegressorCV(**FAST, scoring=lambda est, X, y: np.nan).fit(*data)
