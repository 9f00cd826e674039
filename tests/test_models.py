"""Models: raw columns in, original units out, and files that come back bit for bit or say what is wrong."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs

from bidual import ReLUClassifier, ReLURegressor, TwoLayerNetwork
from bidual.losses import EpsilonInsensitive, Quantile
from bidual.models import Model, Target, Training, load
from bidual.networks import FORMAT_VERSION

CENTRE, SCALE = np.array([3.0, -7.0]), np.array([2.0, 50.0])
NAMES = ("a", "b")


def raw_data(n=14):
    rng = np.random.default_rng(0)
    X = CENTRE + SCALE * rng.standard_normal((n, 2))
    return X, 100.0 + 10.0 * np.abs(X[:, 0]) + rng.standard_normal(n)


def model_of(estimator, X, y, target, sample_weight=None, encoded=None):
    estimator.fit((X - CENTRE) / SCALE, y if encoded is None else encoded, sample_weight)
    training = Training.of(estimator, n_rows=len(X))
    return Model(estimator.network_, NAMES, target, training, estimator.certificate_, CENTRE, SCALE)


def regression(**options):
    X, y = raw_data()
    target = Target("price", centre=100.0, scale=10.0)
    estimator = ReLURegressor(beta=options.pop("beta", 0.01), method="exact", **options)
    return model_of(estimator, X, y, target, encoded=(y - 100.0) / 10.0), estimator, X, y


@pytest.fixture(scope="module")
def fitted():
    return regression()


def test_regression_in_the_units_of_the_target(fitted):
    model, estimator, X, y = fitted
    inside = estimator.predict((X - CENTRE) / SCALE)
    np.testing.assert_array_equal(model.scores(X), inside)
    np.testing.assert_allclose(model.predict(X), 100.0 + 10.0 * inside, rtol=1e-15)
    assert model.objective(X, y) == pytest.approx(estimator.objective_, rel=1e-12)
    assert model.score(X, y) == pytest.approx(estimator.score((X - CENTRE) / SCALE, (y - 100.0) / 10.0), abs=1e-12)
    assert np.isnan(model.score(X, np.full(len(X), 0.1)))


@pytest.mark.parametrize(
    ("loss", "beta"),
    [("squared", 0.0), ("huber", 0.01), (Quantile(0.8), 0.01), (EpsilonInsensitive(), 0.01), (EpsilonInsensitive(), 0)],
)
def test_objective_is_that_of_the_certificate(loss, beta):
    model, estimator, X, y = regression(loss=loss, beta=beta)
    assert model.objective(X, y) == pytest.approx(estimator.objective_, rel=1e-9)


@pytest.mark.parametrize("labels", [("no", "yes"), (3, 7), (0.5, 1.5), (False, True), ("c", "a", "b")])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared"])
def test_labels_keep_their_type(labels, loss, tmp_path):
    X, codes = make_blobs(12, centers=len(labels), random_state=0)
    X = CENTRE + SCALE * X
    y = [labels[k] for k in codes]
    weights = np.arange(12.0)
    classifier = ReLUClassifier(beta=0.1, loss=loss, random_state=0, tol=1.0)
    model = model_of(classifier, X, y, Target("kind", classes=labels), weights, encoded=codes)
    again = load(model.save(tmp_path / "m.json"))
    assert again.target.classes == labels
    assert [type(label) for label in again.target.classes] == [type(label) for label in labels]
    predicted = again.predict(X).tolist()
    assert predicted == [labels[k] for k in classifier.predict((X - CENTRE) / SCALE)]
    assert {type(label) for label in predicted} == {type(labels[0])}
    assert again.objective(X, y, weights) == pytest.approx(classifier.objective_, rel=1e-12)
    assert again.objective(X, np.array(y), weights) == again.objective(X, y, weights)
    assert again.score(X, y) == np.mean([a == b for a, b in zip(predicted, y, strict=True)])
    if loss == "logistic":
        np.testing.assert_array_equal(again.probabilities(X), classifier.predict_proba((X - CENTRE) / SCALE))
    else:
        with pytest.raises(ValueError, match="has no probabilities"):
            again.probabilities(X)


def test_rows_of_weight_zero_do_not_count():
    X, y = raw_data()
    weights = np.ones(len(X))
    weights[3], y[3] = 0.0, 1e6
    estimator = ReLURegressor(beta=0.0, method="exact")
    model = model_of(estimator, X, y, Target("price"), weights)
    assert model.objective(X, y, weights) == pytest.approx(estimator.objective_, rel=1e-12)
    assert model.objective(X, y) == np.inf


def test_round_trip_bit_for_bit(fitted, tmp_path):
    model, _, X, _ = fitted
    again = load(model.save(tmp_path / "m.json"))
    assert again.to_dict() == model.to_dict()
    assert again.certificate == model.certificate
    assert again.training == model.training
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert Model.from_dict(model.to_dict()).to_dict() == model.to_dict()
    assert [p.name for p in tmp_path.iterdir()] == ["m.json"]


def test_without_standardisation(fitted, tmp_path):
    model, _, X, _ = fitted
    raw = Model(model.network, NAMES, model.target, model.training, model.certificate)
    np.testing.assert_array_equal(raw.transform(X), X)
    assert load(raw.save(tmp_path / "m.json")).scale is None


def test_an_infinite_objective_survives_the_file(fitted, tmp_path):
    model, *_ = fitted
    endless = {**model.to_dict(), "certificate": {**model.to_dict()["certificate"], "objective": "inf"}}
    again = load(Model.from_dict(endless).save(tmp_path / "m.json"))
    assert again.certificate.objective == np.inf
    assert "inf" in again.summary()


def test_frozen(fitted):
    with pytest.raises(FrozenInstanceError):
        fitted[0].feature_names = ("b", "a")


def test_summary(fitted):
    text = fitted[0].summary()
    for word in ("price", "regression", "2, standardised: a, b", "Squared()", "beta=0.01", "proven"):
        assert word in text


def test_data_frames_go_by_name(fitted):
    model, _, X, _ = fitted
    frame = pd.DataFrame({"b": X[:, 1], "other": "text", "a": X[:, 0]})
    np.testing.assert_array_equal(model.predict(frame), model.predict(X))
    with pytest.raises(ValueError, match="lacks the columns 'a'"):
        model.predict(frame.drop(columns="a"))


def test_bad_inputs(fitted):
    model, _, X, _ = fitted
    with pytest.raises(ValueError, match=r"shape \(n, 2\)"):
        model.predict(X[:, :1])
    with pytest.raises(ValueError, match="NaN or infinity"):
        model.predict([[np.nan, 1.0]])
    steep = TwoLayerNetwork([[1e300, 0.0]], [[1e300]])
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="outputs overflow"):
        Model(steep, NAMES, model.target, model.training, model.certificate).predict(X)
    classes = Model(model.network, NAMES, Target("kind", classes=("no", "yes")), model.training, model.certificate)
    with pytest.raises(ValueError, match=r"'kind' holds 'maybe', which is none of the classes \['no', 'yes'\]"):
        classes.encode_target(["no", "maybe"])


def test_a_network_file_is_a_network(fitted, tmp_path):
    network = fitted[0].network
    again = load(network.save(tmp_path / "n.json"))
    assert isinstance(again, TwoLayerNetwork)
    assert again.to_dict() == network.to_dict()


def test_absent_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.json")


@pytest.mark.parametrize("content", [b"", b"no json", b"\xff\xfe\x00", b"[1, 2]", b"{}", b'{"format": []}', b"null"])
def test_files_of_something_else(content, tmp_path):
    path = tmp_path / "m.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"m\.json is not a bidual model file"):
        load(path)


def change(*keys, to):
    def apply(document):
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = to

    return apply


def remove(*keys):
    def apply(document):
        for key in keys[:-1]:
            document = document[key]
        del document[keys[-1]]

    return apply


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (change("format", to="onnx"), "its format is 'onnx'"),
        (change("version", to=FORMAT_VERSION + 1), f"format version {FORMAT_VERSION + 1}: .* a newer one may read it"),
        (change("version", to="one"), "format version 'one'"),
        (remove("version"), "format version None"),
        (remove("network"), "lacks 'network'"),
        (remove("target"), "lacks 'target'"),
        (remove("centre"), "lacks 'centre'"),
        (remove("training", "loss"), "lacks 'loss'"),
        (remove("training", "beta"), "beta"),
        (remove("certificate", "objective"), "lacks objective"),
        (remove("network", "weights"), "incomplete"),
        (change("network", to=3), "damaged"),
        (change("network", "kind", to="quantum"), "the kind of network 'quantum' is not known here: import"),
        (change("network", "kind", to=[]), "damaged"),
        (change("network", "weights", "intercept", to=[float("nan")]), "intercept contains NaN"),
        (change("network", "weights", "hidden_weights", 0, to=[1.0]), "damaged"),
        (change("network", "weights", "hidden_weights", 0, to=["x", 1.0]), "damaged"),
        (change("feature_names", to=["a"]), "2 inputs"),
        (change("feature_names", to=["a", "a"]), "2 inputs: it needs as many different"),
        (change("scale", to=[1.0, 0.0]), "scale must hold 2 finite numbers > 0"),
        (change("centre", to=[1.0]), "centre must hold 2 finite"),
        (change("centre", to=[[1.0], 2.0]), "damaged"),
        (change("target", "scale", to=0.0), "centre and scale of the target"),
        (change("target", "classes", to=["one"]), "two or more different labels"),
        (change("target", "classes", to=["a", "b", "c"]), "3 outputs, the network has 1"),
        (change("training", "loss", to={"name": "mystery"}), "the loss 'mystery' is not known here: import"),
        (change("training", "loss", to={"name": "huber", "delta": -1}), "must be positive"),
    ],
)
def test_damaged_files(fitted, damage, reason, tmp_path):
    path = fitted[0].save(tmp_path / "m.json")
    document = json.loads(path.read_text())
    damage(document)
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=reason) as error:
        load(path)
    assert str(error.value).startswith(str(path))


def test_saving_needs_a_folder(fitted, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        fitted[0].save(tmp_path / "no" / "m.json")
