"""Convolutional networks in torch, in files and on the command line."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from bidual import Convolutional, Model, ReLUClassifier, ReLURegressor, certify, load
from bidual.cli import main
from bidual.models import as_network
from bidual.networks.torch_conv import SumPool
from bidual.plots import plot_filters
from bidual.report import write_report


@pytest.mark.parametrize("pooling", ["sum", "average", None])
@pytest.mark.parametrize("shape", [(6, 5, 2), (6, 4, 3, 2), (6, 5, 3)])
@pytest.mark.parametrize("bias", [False, True])
def test_gated_filters_in_torch_and_files(pooling, shape, bias, tmp_path):
    rng = np.random.default_rng(9)
    explicit = shape == (6, 5, 3)
    architecture = Convolutional(None if explicit else 2, padding=0 if explicit else 1, pooling=pooling)
    X = rng.standard_normal(shape)
    places = () if pooling is not None else architecture.window(X.ndim).grid(X.shape)
    Y = rng.standard_normal((6, *places, 2))
    est = ReLURegressor(
        0.01, architecture=architecture, activation="gated", n_patterns=5, bias=bias, random_state=0, tol=1e-2
    ).fit(X, Y)
    module = est.network_.to_torch()
    first = torch.tensor(X if explicit else np.moveaxis(X, -1, 1))
    np.testing.assert_allclose(module(first).detach().numpy(), est.predict(X), atol=1e-10)
    assert not any(p.requires_grad for p in module[0].gates.parameters())
    np.testing.assert_array_equal(load(est.network_.save(tmp_path / "net.json")).predict(X), est.predict(X))


def test_certify_judges_gated_filters_among_their_gates():
    rng = np.random.default_rng(9)
    X, y = rng.standard_normal((20, 6)), rng.standard_normal(20)
    est = ReLURegressor(0.01, architecture=Convolutional(3), activation="gated", n_patterns=10, random_state=0).fit(
        X, y
    )
    certificate = certify(est.network_, X, y, beta=0.01)
    assert certificate.scope == "gates"
    assert certificate.gap <= 1e-3


def images(seed=0, n=12):
    """Images of two kinds: whether a bright spot is there."""
    rng = np.random.default_rng(seed)
    X = 0.1 * rng.standard_normal((n, 4, 4, 1))
    labels = np.where(np.arange(n) % 2, "spot", "none")
    for i in range(1, n, 2):
        X[i, rng.integers(3) :, rng.integers(3)] += 1.0
    return X, labels


def convolution(pool):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 4, 2, stride=2), torch.nn.ReLU(), *pool, torch.nn.Linear(4, 1))


@pytest.mark.parametrize("pool", [(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()), (SumPool(),)])
def test_torch_files_of_convolutions_are_read_and_certified(pool, tmp_path, capsys):
    X, labels = images()
    y = (labels == "spot").astype(float)
    module, path, data = convolution(pool), tmp_path / "net.pt", tmp_path / "data.npz"
    torch.save(module, path)
    np.savez(data, X=X, y=y)
    network = as_network(path)
    expected = module(torch.tensor(np.moveaxis(X, -1, 1), dtype=torch.float32)).detach().numpy()[:, 0]
    np.testing.assert_allclose(network.predict(X), expected, atol=1e-5)
    assert main(["certify", str(path), str(data), "--beta", "0.05", "--time-limit", "2", "--json", "--seed", "0"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["objective"] == pytest.approx(network.objective(X, y, beta=0.05))
    assert 0 <= report["lower_bound"] <= report["objective"]
    assert main(["info", str(path)]) == 0
    assert "ConvolutionalNetwork(4 filters on 2x2" in capsys.readouterr().out


def test_the_weights_of_convolutions_alone_are_not_enough(tmp_path):
    torch.save(convolution((SumPool(),)).state_dict(), tmp_path / "net.pt")
    with pytest.raises(ValueError, match="without their stride, padding and pooling: save the module"):
        as_network(tmp_path / "net.pt")


def test_fit_predict_certify_and_export_images_by_command_line(tmp_path, capsys):
    X, labels = images()
    data, model, out = tmp_path / "data.npz", tmp_path / "model.json", tmp_path / "predictions.csv"
    np.savez(data, X=X, y=labels)
    fit = ["fit", str(data), "--architecture", "convolutional:kernel_size=2,stride=2", "--beta", "0.02", "--out"]
    assert main([*fit, str(model), "--seed", "0", "--tol", "1e-2"]) == 0
    page = tmp_path / "report.html"
    assert main(["report", str(model), str(data), "--out", str(page), "--quiet"]) == 0
    text = page.read_text()
    assert "samples of shape 4 x 4 x 1" in text
    assert "Filters, those of the largest cost first" in text
    assert "accuracy on new rows" in text  # trained again, by the same convolution
    assert "shape (n, 4, 4, 1)" in text
    loaded = load(model)
    assert isinstance(loaded, Model)
    assert loaded.input_shape == (4, 4, 1)
    assert main(["predict", str(model), str(data), "--out", str(out)]) == 0
    assert out.read_text().split()[1:] == loaded.predict(X).tolist() == labels.tolist()
    np.testing.assert_array_equal(loaded.scores(X), loaded.scores(X.reshape(len(X), -1)))
    capsys.readouterr()
    assert main(["certify", str(model), str(data), "--tol", "0.02", "--time-limit", "10", "--seed", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objective"] == pytest.approx(loaded.certificate.objective, rel=1e-9)
    assert main(["export", str(model), "--out", str(tmp_path / "model.pt")]) == 0
    scaled = np.moveaxis(loaded.transform(X), -1, 1)
    module = torch.load(tmp_path / "model.pt", weights_only=False)
    np.testing.assert_allclose(module(torch.tensor(scaled)).detach().numpy()[:, 0], loaded.scores(X), atol=1e-10)
    assert main(["info", str(model), "--json"]) == 0
    assert main(["fit", str(data), "--beta", "0.1", "--out", str(tmp_path / "dense.json"), "--tol", "0.1"]) == 0
    assert load(tmp_path / "dense.json").input_shape is None  # pixels as columns


def test_windows_that_are_not_square_by_command_line(tmp_path):
    X, labels = images()
    np.savez(tmp_path / "data.npz", X=X, y=labels)
    fit = [
        "fit",
        str(tmp_path / "data.npz"),
        "--beta",
        "0.1",
        "--tol",
        "0.1",
        "--seed",
        "0",
        "--quiet",
        "--architecture",
    ]
    assert main([*fit, "convolutional:kernel_size=2x3,stride=2x1", "--out", str(tmp_path / "model.json")]) == 0
    network = load(tmp_path / "model.json").network
    assert network.options()["kernel_size"] == (2, 3)
    assert network.options()["stride"] == (2, 1)


def test_models_of_estimators_keep_the_shape_of_a_sample(tmp_path):
    X, labels = images()
    est = ReLUClassifier(0.05, architecture=Convolutional(2, 2), random_state=0, tol=1e-2).fit(X, labels)
    model = load(Model.of(est, len(X)).save(tmp_path / "model.json"))
    np.testing.assert_array_equal(model.predict(X), est.predict(X))
    with pytest.raises(ValueError, match=r"X must have shape \(n, 16\)"):
        model.predict(X[:, :3])
    places = ReLURegressor(0.5, architecture=Convolutional(2, 2, pooling=None), random_state=0)
    places.fit(X, np.zeros((len(X), 2, 2)) + np.arange(2.0))
    with pytest.raises(ValueError, match="one target for each sample"):
        Model.of(places, len(X))


@pytest.mark.parametrize("activation", ["relu", "gated"])
def test_reports_take_sequences_too(activation, tmp_path):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((14, 6, 2))
    y = np.maximum(X[:, :-1, 0], 0).sum(axis=1)
    est = ReLURegressor(0.05, architecture=Convolutional(3), activation=activation, random_state=0, tol=1e-2).fit(X, y)
    page = write_report(tmp_path / "report.html", est, X, y, compare=False).read_text()
    assert "14 samples of shape 6 x 2" in page
    assert ("Filters, those of the largest cost first" in page) == (activation == "relu")
    text = re.sub(r"data:[^\"']*", "", page)  # pictures may hold any letters
    assert not re.search(r"\bx0\b", text)  # no names of columns that nobody gave


def test_filters_of_networks_are_drawn_by_cost():
    plt = pytest.importorskip("matplotlib.pyplot")
    X, labels = images(n=30)
    est = ReLUClassifier(0.01, architecture=Convolutional(2, 2), random_state=0, tol=1e-2).fit(X, labels)
    network = est.network_
    cost = np.linalg.norm(network.gate_vectors(), axis=1) * np.linalg.norm(network.output_weights, axis=1)
    largest = network.filters[np.argmax(cost)]
    drawn = np.asarray(plot_filters(est).images[0].get_array())[:2, :2]
    plt.close("all")
    np.testing.assert_allclose(drawn, (largest[..., 0] - largest.min()) / np.ptp(largest))
    constant = ReLUClassifier(10.0, architecture=Convolutional(2, 2), random_state=0).fit(X, labels)
    with pytest.raises(ValueError, match="no filters"):
        plot_filters(constant)


def test_models_of_images_in_onnx_take_images(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    X, labels = images()
    est = ReLUClassifier(0.05, architecture=Convolutional(2, 2), random_state=0, tol=1e-2).fit(X, labels)
    session = runtime.InferenceSession(Model.of(est, len(X)).to_onnx(tmp_path / "model.onnx"))
    prediction, scores = session.run(["prediction", "scores"], {"x": X})
    assert prediction.tolist() == est.predict(X).tolist()
    np.testing.assert_allclose(scores[:, 0], est.decision_function(X), atol=1e-10)
