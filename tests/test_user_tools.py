"""Arrays, frames, pickles and scikit-learn's machinery."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual import ReLUClassifier, ReLURegressor, TwoLayer

from .helpers import (
    X_LINE,
    Y_LINE,
    gaussian_problem,
    lp_patterns,
)

BOTH = [ReLURegressor, ReLUClassifier]


def exact(beta=0.02, **kw):
    return ReLURegressor(beta, method="exact", **kw)


@pytest.mark.parametrize("kind", BOTH)
def test_training_reads_but_never_writes_its_arrays(kind):
    X, _, y = gaussian_problem(0)
    weight = np.ones(6)
    for array in (X, y, weight):
        array.flags.writeable = False
    est = kind(0.02, method="exact").fit(X, y, sample_weight=weight)
    assert np.isfinite(est.predict(X).astype(float)).all()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_memory_layout_and_dtype_do_not_matter(order, dtype):
    X = np.array(np.round(10 * gaussian_problem(0)[0]), dtype=dtype, order=order)
    y = np.arange(6.0)
    base = exact().fit(np.ascontiguousarray(X, dtype=float), y)
    assert exact().fit(X, y).objective_ == pytest.approx(base.objective_, rel=1e-8)
    strided = np.repeat(X, 2, axis=0)[::2]
    assert exact().fit(strided, y).objective_ == pytest.approx(base.objective_, rel=1e-8)


def test_data_frames_give_feature_names_and_are_checked_for_them():
    X, y, _ = gaussian_problem(0)
    frame = pd.DataFrame(X, columns=["left", "right"])
    est = exact().fit(frame, pd.Series(y, name="target"))
    assert est.feature_names_in_.tolist() == ["left", "right"]
    np.testing.assert_array_equal(est.predict(frame), est.network_.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        est.predict(frame[["right", "left"]])


def test_labels_of_any_type_come_back_as_they_were():
    X, _, signs = gaussian_problem(0)
    for names in (np.array(["no", "yes"]), np.array([10, 20]), np.array([False, True]), np.array([2.0, 7.0])):
        est = ReLUClassifier(1e-4, method="exact").fit(X, names[(signs > 0).astype(int)])
        np.testing.assert_array_equal(est.classes_, names)
        np.testing.assert_array_equal(est.predict(X), names[(signs > 0).astype(int)])


def test_probabilities_exist_exactly_for_the_losses_that_model_them():
    X, _, signs = gaussian_problem(0)
    est = ReLUClassifier(0.02, method="exact").fit(X, signs)
    p = est.predict_proba(X)
    np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-est.decision_function(X))))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(est.predict_log_proba(X), np.log(p))
    assert not hasattr(ReLUClassifier(loss="hinge"), "predict_proba")


@pytest.mark.parametrize("kind", BOTH)
def test_clone_and_pickle_keep_parameters_and_predictions(kind):
    X, _, y = gaussian_problem(0)
    est = kind(0.02, method="exact", loss="squared", architecture=TwoLayer(), tol=1e-5).fit(X, y)
    fresh = clone(est)
    assert fresh.get_params() == est.get_params()
    assert not hasattr(fresh, "network_")
    again = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(again.predict(X), est.predict(X))
    assert again.certificate_ == est.certificate_
    assert again.gap_ == est.gap_


def test_grid_search_pipelines_and_cross_validation_work():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((24, 2)) * [1.0, 50.0] + 7.0
    y = np.maximum(X[:, 0] - 7, 0)
    pipeline = make_pipeline(StandardScaler(), ReLURegressor(method="sampled", n_patterns=10, random_state=0))
    search = GridSearchCV(pipeline, {"relu" + "regressor__beta": [1e-3, 1.0]}, cv=3).fit(X, y)
    assert search.best_params_["relu" + "regressor__beta"] == 1e-3
    assert search.best_score_ > 0.8
    labels = np.where(y > 0.1, "up", "down")
    scores = cross_val_score(
        make_pipeline(StandardScaler(), ReLUClassifier(1e-2, method="sampled", n_patterns=10, random_state=0)),
        X,
        labels,
        cv=3,
    )
    assert scores.mean() > 0.6


@pytest.mark.parametrize("method", ["exact", "sampled"])
def test_the_same_random_state_gives_the_same_bits(method):
    X, y, _ = gaussian_problem(0, 12, 2)
    one, other = (ReLURegressor(0.02, method=method, random_state=5).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.network_.hidden_weights, other.network_.hidden_weights)
    np.testing.assert_array_equal(one.network_.output_weights, other.network_.output_weights)
    assert one.objective_ == other.objective_
    assert one.likely_bound_ == other.likely_bound_


def test_fitting_leaves_the_global_random_stream_alone():
    X, y, _ = gaussian_problem(0)
    np.random.seed(0)
    expected = np.random.rand()
    np.random.seed(0)
    ReLURegressor(0.02, method="sampled", n_patterns=5, random_state=1).fit(X, y)
    exact().fit(X, y)
    assert np.random.rand() == expected


def test_refitting_forgets_the_previous_data_and_warm_start_never_gets_worse():
    X, y, _ = gaussian_problem(0, 12, 3)
    est = ReLURegressor(0.02, method="sampled", n_patterns=8, random_state=0)
    first = est.fit(X, y).objective_
    assert est.fit(X[:, :2], y).n_features_in_ == 2
    assert est.fit(X, y).objective_ == first
    warm = ReLURegressor(0.02, method="sampled", n_patterns=8, random_state=0, warm_start=True).fit(X, y)
    before = warm.objective_
    for seed in range(1, 4):
        after = warm.set_params(random_state=seed).fit(X, y).objective_
        assert after <= before * (1 + 1e-6)
        before = after


def test_history_ends_with_the_reported_numbers():
    X, y, _ = gaussian_problem(0, 14, 3)
    est = exact().fit(X, y)
    last = est.history_[-1]
    assert (last.objective, last.likely_bound, last.n_neurons) == (est.objective_, est.likely_bound_, est.n_neurons_)
    assert np.all(np.diff([entry.elapsed for entry in est.history_]) >= 0)
    assert np.all(np.diff([entry.likely_bound for entry in est.history_]) >= -1e-12)
    assert est.n_iter_ >= 1


def test_verbose_prints_the_certificate(capsys):
    exact(verbose=1).fit(X_LINE, Y_LINE)
    assert "proven gap" in capsys.readouterr().out
    exact().fit(X_LINE, Y_LINE)
    assert capsys.readouterr().out == ""


def test_referee_patterns_are_those_of_the_example():
    assert len(lp_patterns(np.column_stack([X_LINE, np.ones(5)]))) == 10


def test_a_fit_that_is_stopped_is_audited():
    """The bound of a stopped run must survive a much wider search at its dual point."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = np.abs(X[:, 0]) - np.maximum(X @ rng.standard_normal(3), 0) + 0.1 * rng.standard_normal(40)
    est = ReLURegressor(beta=0.002, tol=1e-12, max_iter=3, prove=False, random_state=0)
    with pytest.warns(ConvergenceWarning):
        est.fit(X, y)
    assert est.certificate_.likely_method == "local search, audited"
    without = ReLURegressor(beta=0.002, tol=1e-12, max_iter=3, prove=False, random_state=0, audit=False)
    with pytest.warns(ConvergenceWarning):
        without.fit(X, y)
    assert without.certificate_.likely_method == "local search"


def test_max_neurons_limits_the_width_and_the_gap_says_what_it_costs():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1]
    with pytest.warns(ConvergenceWarning):
        narrow = ReLURegressor(beta=1e-3, tol=1e-3, max_neurons=3, random_state=0).fit(X, y)
    free = ReLURegressor(beta=1e-3, tol=1e-3, random_state=0).fit(X, y)
    assert narrow.n_neurons_ <= 3 < free.n_neurons_
    assert narrow.lower_bound_ <= free.objective_ <= narrow.objective_
    assert narrow.gap_ > free.gap_


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_neurons": 0}, "max_neurons must be an integer"),
        ({"max_neurons": 3, "method": "exact"}, "max_neurons has no meaning to method='exact'"),
        ({"max_neurons": 3, "activation": "gated"}, "max_neurons has no meaning to activation='gated'"),
        ({"audit": "yes"}, "audit must be True, False or 'auto'"),
    ],
)
def test_bad_width_and_audit_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        ReLURegressor(**parameters).fit(np.arange(6.0).reshape(3, 2), np.arange(3.0))


def test_importing_the_library_loads_no_compiler_and_no_optional_library():
    code = "import sys, bidual; print([m for m in ('numba', 'torch', 'matplotlib') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
