"""Data that floating point cannot compute with are refused at once, in one sentence, by everything that trains."""

from __future__ import annotations

import numpy as np
import pytest

from bidual import (
    BatchNorm,
    ConvexRF,
    Convolutional,
    DeepReLUClassifier,
    LayerwiseClassifier,
    LinearConvRegressor,
    LinearNetRegressor,
    NTKRegressor,
    Parallel,
    ReLUClassifier,
    ReLURegressor,
    ReLURegressorCV,
    SplineClassifier,
    SplineRegressor,
    certify,
    solution_path,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
Y = X[:, 0] + np.abs(X[:, 1])
LABELS = X[:, 0] > 0
TENSORS = RNG.standard_normal((12, 6, 2))

NUMBERS = {
    "two_layer": (ReLURegressor(beta=0.01), X),
    "batch_norm": (ReLURegressor(beta=0.01, architecture="batch_norm"), X),
    "batch_norm after": (ReLURegressor(beta=0.01, architecture=BatchNorm("after")), X),
    "parallel": (ReLURegressor(beta=0.01, architecture=Parallel(2)), X),
    "convolutional": (ReLURegressor(beta=0.01, architecture=Convolutional(3)), TENSORS),
    "gated": (ReLURegressor(beta=0.01, activation="gated"), X),
    "gated, by blocks": (ReLURegressor(beta=0.01, activation="gated", backend="numpy"), X),
    "exact": (ReLURegressor(beta=0.01, method="exact"), X),
    "spline": (SplineRegressor(beta=0.01), X[:, :1]),
    "linear": (LinearNetRegressor(beta=0.01), X),
    "linear, exact fit": (LinearNetRegressor(beta=0), X),
    "deep linear": (LinearNetRegressor(depth=3, beta=0.01), X),
    "linear conv": (LinearConvRegressor(kernel_size=3, beta=0.01), TENSORS),
    "cross-validation": (ReLURegressorCV(cv=2), X),
    "ntk": (NTKRegressor(), X),
}
CLASSES = {
    "classifier": (ReLUClassifier(beta=0.01), X),
    "spline classifier": (SplineClassifier(beta=0.01), X[:, :1]),
    "deep relu": (DeepReLUClassifier(beta=0.01), X),
    "layerwise": (LayerwiseClassifier(), X),
    "filters": (ConvexRF(), X),
}


@pytest.mark.parametrize("name", [*NUMBERS, *CLASSES])
def test_inputs_that_overflow_are_refused(name):
    estimator, rows = {**NUMBERS, **CLASSES}[name]
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="rescale"):
        estimator.fit(1e160 * rows, LABELS if name in CLASSES else Y)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("scale", [1e150, 1e-180])
def test_targets_that_overflow_or_vanish_are_refused(name, scale):
    estimator, rows = NUMBERS[name]
    with pytest.raises(ValueError, match="rescale y"):
        estimator.fit(rows, scale * Y)


@pytest.mark.parametrize("name", [*NUMBERS, "classifier", "spline classifier"])
def test_weights_that_overflow_are_refused(name):
    estimator, rows = {**NUMBERS, **CLASSES}[name]
    with pytest.raises(ValueError, match="rescale sample_weight"):
        estimator.fit(rows, LABELS if name in CLASSES else Y, np.full(12, 1e308))


@pytest.mark.parametrize("kind", [ReLURegressor(beta=0.01), ReLURegressor(beta=0.01, architecture=Parallel(2))])
def test_columns_lost_beside_others_are_refused_where_both_count(kind):
    far = X * [1e12, 1.0, 1.0]
    with pytest.raises(ValueError, match="standardise the columns"):
        kind.fit(far, Y)
    ReLURegressor(beta=1e10, max_iter=1, prove=False).fit(far, Y)  # here the small ones do not


def test_paths_and_certificates_refuse_what_overflows():
    with pytest.raises(ValueError, match="rescale"):
        solution_path(1e160 * X, Y, betas=[0.1])
    with pytest.raises(ValueError, match="rescale"):
        certify((np.ones((1, 3)), np.ones((1, 1))), X, 1e150 * Y, beta=0.1)
