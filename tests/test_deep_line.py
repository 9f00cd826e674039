"""Deep ReLU networks on one input: the estimator against grids, repetition and its own network."""

from __future__ import annotations

import numpy as np
import pytest

from bidual import DeepReLURegressor, load
from bidual.losses import Huber, get_loss

RNG = np.random.default_rng(0)
C = RNG.uniform(0.1, 2.0, size=12)
A0 = np.array([1.0, -2.0, 0.5])
X = C[:, None] * A0
Y = 1.5 * C + 0.2 * RNG.standard_normal(12)
SIGNS = np.where(RNG.random(12) < 0.7, 1.0, -1.0)


@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("loss", ["squared", Huber(0.3), "absolute", "logistic", "hinge"], ids=str)
def test_no_strength_of_a_chain_does_better(loss, depth):
    kind = get_loss(loss)
    y = SIGNS if kind.classification else Y
    est = DeepReLURegressor(depth, 0.05, loss=loss).fit(X, y)
    x, w = C * np.linalg.norm(A0), np.full(12, 1 / 12)
    grid = np.linspace(-2, 2, 4001)
    values = [kind.value((s * x)[:, None], y[:, None], w) + 0.05 * depth / 2 * abs(s) ** (2 / depth) for s in grid]
    assert est.objective_ <= min(values) + 1e-9
    assert est.objective_ == pytest.approx(min(values), rel=1e-3)
    assert 0 <= est.gap_ < 1e-6
    decay = 0.5 * sum((W**2).sum() for W in est.network_.layers)
    scratch = kind.value(est.network_.forward(X), y[:, None], w) + 0.05 * decay
    assert scratch == pytest.approx(est.objective_, rel=1e-12)


def test_weights_are_repetitions():
    weights = RNG.integers(0, 4, size=12)
    found = DeepReLURegressor(3, 0.02).fit(X, Y, sample_weight=weights)
    repeated = DeepReLURegressor(3, 0.02).fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights))
    assert found.objective_ == pytest.approx(repeated.objective_, rel=1e-12)
    np.testing.assert_allclose(found.predict(X), repeated.predict(X), rtol=1e-9)


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_zero_and_constant_targets(depth, bias):
    zero = DeepReLURegressor(depth, 0, bias=bias).fit(X, np.zeros(12))
    assert zero.objective_ == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(zero.predict(X), 0.0, atol=1e-12)
    if bias:
        constant = DeepReLURegressor(depth, 0, bias=True).fit(X, np.full(12, 3.0))
        assert constant.objective_ == pytest.approx(0.0, abs=1e-9)
        np.testing.assert_allclose(constant.predict(X), 3.0)


def test_the_spline_fits_and_several_targets_share_a_chain(tmp_path):
    spline = DeepReLURegressor(3, 0, bias=True).fit(X, Y)
    np.testing.assert_allclose(spline.predict(X), Y, atol=1e-9)
    assert spline.gap_ < 1e-6
    both = DeepReLURegressor(3, 0.01).fit(X, np.column_stack([Y, -0.5 * Y]))
    assert both.predict(X).shape == (12, 2)
    assert both.gap_ < 1e-6
    both.network_.save(tmp_path / "net.json")
    np.testing.assert_allclose(load(tmp_path / "net.json").predict(X), both.predict(X), rtol=1e-12)


@pytest.mark.parametrize(
    ("settings", "X", "y", "words"),
    [
        ({}, RNG.standard_normal((5, 2)), np.ones(5), "rank one"),
        ({}, np.array([[1.0], [-1.0]]), np.ones(2), "non-negative multiples"),
        ({"beta": 0}, np.array([[1.0], [2.0]]), np.array([1.0, 3.0]), "only multiples"),
        ({"beta": 0, "loss": "hinge"}, np.array([[1.0], [2.0]]), np.array([1.0, -1.0]), "knows nothing"),
        ({"bias": True}, np.array([[1.0], [2.0]]), np.array([1.0, -1.0]), "bias=True is for the spline"),
        ({"loss": "huber"}, np.array([[1.0], [2.0]]), np.ones((2, 2)), "squared loss only"),
        ({"beta": 0, "bias": True}, np.array([[1.0], [1.0]]), np.array([1.0, -1.0]), "equal rows"),
    ],
)
def test_what_has_no_formula_is_refused(settings, X, y, words):
    with pytest.raises(ValueError, match=words):
        DeepReLURegressor(**settings).fit(X, y)
