"""ReLU networks with several outputs on many rows, and the example of a head on frozen features."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from bidual import ReLUClassifier, ReLURegressor
from bidual._util.tuning import tuned

from .helpers import gap_may_stay_open


@pytest.fixture
def small():
    """Few rows are many, and networks are narrow."""
    with tuned(batches_from=600, start_width=200):
        yield


def clusters(n=300, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return rng.standard_normal((n, 4)) + 1.5 * np.eye(4)[y], y


def test_the_objective_is_that_of_the_network_and_near_the_engine_s(small):
    X, y = clusters()
    kw = {"beta": 0.01, "tol": 2e-2, "random_state": 0, "audit": False}
    with gap_may_stay_open():
        many = ReLUClassifier(**kw).fit(X, y)
    assert many.certificate_.likely_method == "local search"
    assert many.likely_gap_ < many.gap_ < 1
    assert many.certificate_.scope == "global"
    value = many.network_.objective(X, np.eye(3)[y], beta=0.01, loss="softmax")
    assert many.objective_ == pytest.approx(value, rel=1e-12)
    with gap_may_stay_open(), tuned(batches_from=10**9):
        engine = ReLUClassifier(**kw).fit(X, y)
    assert many.objective_ <= 1.02 * engine.objective_
    assert many.lower_bound_ <= engine.objective_


def test_it_is_repeatable_and_warm_starts(small):
    X, y = clusters()
    with gap_may_stay_open():
        first, second = (ReLUClassifier(beta=0.02, tol=1e-2, random_state=0).fit(X, y) for _ in range(2))
        np.testing.assert_array_equal(first.network_.hidden_weights, second.network_.hidden_weights)
        first.set_params(warm_start=True).fit(X, y)
    assert first.objective_ <= second.objective_ * (1 + 0.05 * 1e-2)  # a narrower network may cost that much of tol


def test_several_targets_and_no_time(small):
    X, _ = clusters()
    Y = np.column_stack([np.abs(X[:, 0]), X[:, 1] ** 2])
    with gap_may_stay_open():
        est = ReLURegressor(beta=1e-3, tol=1e-6, time_limit=0.0, random_state=0).fit(X, Y)
    assert np.isfinite(est.objective_)
    assert est.lower_bound_ <= est.objective_


def test_the_feature_head_example(monkeypatch, capsys):
    path = Path(__file__).parents[1] / "examples" / "feature_head.py"
    spec = importlib.util.spec_from_file_location("feature_head", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["feature_head.py", "--patterns", "10", "--beta", "0.02"])
    module.main()
    out = capsys.readouterr().out
    assert "proven: all 10 gates" in out
    assert float(out.split("test accuracy")[1].split()[0]) > 90
