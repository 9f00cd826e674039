"""What scikit-learn's users expect beyond its battery of checks: routing, names, precision, copies."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual import PrincipalAxes, ReLUClassifier, ReLURegressor, TableEncoder

RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 3))
Y = np.abs(X[:, 0]) + 0.1 * X[:, 1]
QUICK = {"tol": 0.1, "prove": False, "random_state": 0}
W = np.where(np.arange(24) < 16, 1.0, 0.0)


def test_sample_weights_are_routed():
    with sklearn.config_context(enable_metadata_routing=True):
        asked = ReLURegressor(0.02, **QUICK).set_fit_request(sample_weight=True)
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), asked)
        weighed = pipe.fit(X, Y, sample_weight=W)
        scaled = weighed[:-1].transform(X)
        alone = ReLURegressor(0.02, **QUICK).fit(scaled[:16], Y[:16])
        assert weighed[-1].objective_ == pytest.approx(alone.objective_, rel=1e-6)
        search = GridSearchCV(asked.set_score_request(sample_weight=True), {"beta": [0.02, 0.1]}, cv=2)
        assert search.fit(X, Y, sample_weight=np.ones(24)).best_estimator_.gap_ >= 0
        refused = ReLURegressor(0.02, **QUICK)
        with pytest.raises(ValueError, match="sample_weight"):
            cross_validate(refused, X, Y, params={"sample_weight": W}, cv=2, error_score="raise")


def test_transformers_keep_names_and_containers():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    for transformer in (PrincipalAxes(2), TableEncoder()):
        out = transformer.set_output(transform="pandas").fit(frame).transform(frame)
        assert list(out.columns) == list(transformer.get_feature_names_out())
        assert list(out.index) == list(frame.index)


def test_single_precision_gives_what_double_precision_gives():
    single = X.astype(np.float32)
    there, here = (ReLURegressor(0.02, **QUICK).fit(rows, Y) for rows in (single, single.astype(np.float64)))
    assert there.objective_ == here.objective_
    assert there.predict(single).dtype == np.float64
    assert there.network_.forward(single).dtype == np.float64


def test_several_labels_of_one_sample_are_refused_in_one_sentence():
    several = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [0, 0, 1]] * 6)
    with pytest.raises(ValueError, match=r"ReLURegressor.*MultiOutputClassifier"):
        ReLUClassifier(0.02, **QUICK).fit(X, several)
    assert ReLURegressor(0.02, **QUICK).fit(X, several).predict(X).shape == several.shape


def test_copies_are_the_same():
    est = ReLUClassifier(0.02, **QUICK).fit(X, np.where(Y > 0.7, "high", "low"))
    again = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(again.predict(X), est.predict(X))
    assert again.certificate_ == est.certificate_
    assert again.certificate_.verify(X, np.where(Y > 0.7, "high", "low"))
    twin = clone(est)
    assert twin.get_params() == est.get_params()
    assert not hasattr(twin, "network_")
