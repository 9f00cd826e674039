"""Standardised columns: a pure change of features, the same as standardising by hand, in every road of the library."""

from __future__ import annotations

import numpy as np
import pytest

from bidual import Convolutional, Parallel, ReLUClassifier, ReLURegressor, certify, load, solution_path
from bidual.architectures import BatchNorm, LeakyReLU, Standardised
from bidual.networks import StandardisedNetwork

from .helpers import gaussian_problem

SETTINGS = {"random_state": 0, "tol": 1e-5}


def ugly(seed=0, n=14, d=2):
    """Rows with columns of any unit and origin, the same rows standardised, and targets."""
    X, y, labels = gaussian_problem(seed, n=n, d=d)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return Z * [1e-4, 3e5][:d] + [7.0, -2e6][:d], Z, y, labels


@pytest.mark.parametrize("inner", [None, LeakyReLU(0.2), BatchNorm(), Parallel(2)], ids=repr)
def test_it_is_the_inner_architecture_on_columns_standardised_by_hand(inner):
    X, Z, y, _ = ugly()
    by_itself = ReLURegressor(0.05, architecture=Standardised(inner), **SETTINGS).fit(X, y)
    by_hand = ReLURegressor(0.05, architecture=inner or "two_layer", **SETTINGS).fit(Z, y)
    assert by_itself.objective_ == pytest.approx(by_hand.objective_, rel=1e-4)
    assert by_itself.lower_bound_ <= by_hand.objective_ * (1 + 1e-9)
    F = by_itself.predict(X)
    from_scratch = 0.5 * np.mean((F - y) ** 2) + 0.05 * by_itself.network_.layer.penalty()
    assert by_itself.objective_ == pytest.approx(from_scratch, rel=1e-10)


def test_units_and_origins_do_not_matter():
    X, _, y, _ = ugly(1)
    one = ReLURegressor(0.03, architecture=Standardised(), **SETTINGS).fit(X, y)
    other = ReLURegressor(0.03, architecture=Standardised(), **SETTINGS).fit(X * [1e5, 1e-9] + [3.0, 50.0], y)
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-4)


def test_rows_of_weight_zero_have_no_influence_on_means_and_deviations():
    X, _, y, _ = ugly(2)
    weights = np.r_[np.ones(len(X) - 3), np.zeros(3)]
    X[-3:] *= 40
    weighted = ReLURegressor(0.03, architecture=Standardised(), **SETTINGS).fit(X, y, sample_weight=weights)
    without = ReLURegressor(0.03, architecture=Standardised(), **SETTINGS).fit(X[:-3], y[:-3])
    np.testing.assert_allclose(weighted.network_.scale, without.network_.scale, rtol=1e-12)
    assert weighted.objective_ == pytest.approx(without.objective_, rel=1e-4)


def test_a_constant_column_is_centred_and_not_blown_up():
    X, _, y, _ = ugly(3)
    X = np.column_stack([X, np.full(len(X), 0.1) * 3])
    network = ReLURegressor(0.05, architecture=Standardised(), **SETTINGS).fit(X, y).network_
    assert network.scale[-1] == 1.0
    np.testing.assert_allclose(network.standardised(X)[:, -1], 0.0, atol=1e-12)


def test_its_network_goes_through_files_torch_onnx_and_certificates(tmp_path):
    X, _, _, labels = ugly(4)
    est = ReLUClassifier(0.02, architecture=Standardised(), **SETTINGS).fit(X, labels)
    network = est.network_
    assert isinstance(network, StandardisedNetwork)
    network.save(tmp_path / "network.json")
    np.testing.assert_array_equal(load(tmp_path / "network.json").predict(X), network.predict(X))
    np.testing.assert_allclose(network.folded.predict(X), network.predict(X), rtol=1e-9, atol=1e-9)
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        np.testing.assert_allclose(network.to_torch()(torch.tensor(X)).numpy(), network.forward(X), atol=1e-12)
    runtime = pytest.importorskip("onnxruntime")
    network.to_onnx(tmp_path / "network.onnx")
    (out,) = runtime.InferenceSession(str(tmp_path / "network.onnx")).run(None, {"x": X})
    np.testing.assert_allclose(out, network.forward(X), atol=1e-9)
    assert est.certificate_.verify(X, labels)
    assert not est.certificate_.verify(X * 1.01, labels)
    again = certify(est, X, labels, time_limit=20, random_state=0)
    assert again.objective == pytest.approx(est.objective_, rel=1e-9)
    assert again.lower_bound <= est.objective_ * (1 + 1e-9)


def test_images_are_standardised_channel_by_channel():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10, 4, 3, 2)) * [1e-3, 1e3] + [5.0, 80.0]
    y = rng.standard_normal(10)
    est = ReLURegressor(0.2, architecture=Standardised(Convolutional(2)), random_state=0, tol=1e-3).fit(X, y)
    seen = est.network_.standardised(X)
    np.testing.assert_allclose(seen.mean(axis=(0, 1, 2)), 0.0, atol=1e-9)
    np.testing.assert_allclose(seen.std(axis=(0, 1, 2)), 1.0, rtol=1e-9)
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        out = est.network_.to_torch()(torch.tensor(np.moveaxis(X, -1, 1))).numpy()
    np.testing.assert_allclose(out, est.network_.forward(X), atol=1e-9)


def test_gates_and_paths_take_it():
    X, _, y, _ = ugly(5)
    gated = ReLURegressor(0.05, architecture=Standardised(), activation="gated", random_state=0).fit(X, y)
    again = ReLURegressor(
        0.05, architecture=Standardised(), activation="gated", gates=gated.network_, random_state=0
    ).fit(X, y)
    assert again.objective_ == pytest.approx(gated.objective_, rel=1e-3)
    path = solution_path(X, y, n_betas=3, architecture=Standardised(), random_state=0)
    assert path.converged.all()


def test_a_warm_start_on_other_rows_takes_their_means():
    X, _, y, _ = ugly(6)
    est = ReLURegressor(0.05, architecture=Standardised(), warm_start=True, random_state=0).fit(X, y)
    est.fit(X[3:], y[3:])
    cold = ReLURegressor(0.05, architecture=Standardised(), random_state=0).fit(X[3:], y[3:])
    assert est.objective_ == pytest.approx(cold.objective_, rel=1e-3)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"centre": [0.0]}, "both"),
        ({"centre": [0.0], "scale": [0.0]}, "positive"),
        ({"centre": [0.0, 1.0], "scale": [1.0]}, "entries"),
        ({"centre": [np.nan], "scale": [1.0]}, "finite"),
    ],
)
def test_bad_means_and_deviations_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        Standardised(**wrong)


def test_other_columns_than_measured_are_refused():
    X, _, y, _ = ugly(7)
    with pytest.raises(ValueError, match="columns"):
        ReLURegressor(0.1, architecture=Standardised(None, [0.0] * 3, [1.0] * 3)).fit(X, y)
