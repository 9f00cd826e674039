"""ONNX files compute what the networks compute."""

from __future__ import annotations

import pickle
from dataclasses import replace

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidual import ReLUClassifier, ReLURegressor, certify, load
from bidual.models import Model, as_network
from bidual.networks import (
    BatchNormNetwork,
    ConvolutionalNetwork,
    DeepNetwork,
    GatedNetwork,
    LeakyReLUNetwork,
    Network,
    StandardisedNetwork,
    TwoLayerNetwork,
    from_onnx,
)
from bidual.networks.layerwise import LayerwiseNetwork
from bidual.networks.parallel import ParallelNetwork

pytest.importorskip("onnx", reason="ONNX is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
RNG = np.random.default_rng(0)


def run(path, X, output=None):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    results = session.run(None, {"x": X})
    return dict(zip(names, results, strict=True)) if output is None else results[names.index(output)]


def network(kind, d=3, m=4, C=2, bias=True, rng=RNG):
    n = rng.normal
    maybe = lambda *shape: n(size=shape) if bias else None  # noqa: E731
    if kind == "two_layer":
        return TwoLayerNetwork(n(size=(m, d)), n(size=(m, C)), maybe(m), maybe(C))
    if kind == "leaky_relu":
        return LeakyReLUNetwork(n(size=(m, d)), n(size=(m, C)), maybe(m), maybe(C), slope=0.1)
    if kind == "gated":
        return GatedNetwork(n(size=(m, d)), n(size=(m, d, C)), maybe(m), maybe(m, C), maybe(C))
    if kind == "deep":
        layers = [n(size=(3, m)), n(size=(m, 5)), n(size=(5, C))]
        return DeepNetwork(layers, [maybe(m), None, maybe(C)], whitening=n(size=(d, 3)), whitening_bias=maybe(3))
    if kind == "parallel":
        layers = [n(size=(6, d, m)), n(size=(6, m, 2)), n(size=(6, 2, C))]
        return ParallelNetwork(layers, maybe(6, m), maybe(C))
    if kind == "layerwise":
        first = network("parallel", d, m, C, bias, rng)
        second = network("two_layer", 12 + d * bias, m, C, bias, rng)
        return LayerwiseNetwork([first, second, network("two_layer", m + d * bias, 3, C, bias, rng)], passthrough=bias)
    if kind == "standardised":
        return StandardisedNetwork(network("two_layer", d, m, C, bias, rng), n(size=d), np.abs(n(size=d)) + 0.1)
    position = kind.removeprefix("batch_norm_")
    norm = np.abs(n(size=m)) + 0.1
    return BatchNormNetwork(
        n(size=(m, d)), n(size=(m, C)), n(size=m), n(size=m), n(size=m), norm, 7.0, position, maybe(m), maybe(C)
    )


KINDS = [
    "two_layer",
    "leaky_relu",
    "standardised",
    "gated",
    "deep",
    "batch_norm_before",
    "batch_norm_after",
    "parallel",
    "layerwise",
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_network_computes_the_same_in_onnxruntime(tmp_path, kind, bias):
    net, X = network(kind, bias=bias), RNG.normal(size=(50, 3))
    path = net.to_onnx(tmp_path / "m.onnx")
    np.testing.assert_allclose(run(path, X, "y"), net.forward(X), rtol=1e-12, atol=1e-12)


@given(d=st.integers(1, 4), m=st.integers(0, 5), C=st.integers(1, 3), kind=st.sampled_from(["two_layer", "gated"]))
def test_any_width_even_none(tmp_path_factory, d, m, C, kind):
    net, X = network(kind, d, m, C, rng=np.random.default_rng(d + 10 * m + 100 * C)), RNG.normal(size=(6, d))
    path = net.to_onnx(tmp_path_factory.mktemp("onnx") / "m.onnx")
    np.testing.assert_allclose(run(path, X, "y"), net.forward(X), rtol=1e-12, atol=1e-12)


def test_single_precision(tmp_path):
    net, X = network("two_layer"), RNG.normal(size=(20, 3)).astype(np.float32)
    y = run(net.to_onnx(tmp_path / "m.onnx", dtype="float32"), X, "y")
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, net.forward(X.astype(float)), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="dtype must be one of 'float32', 'float64'"):
        net.to_onnx(tmp_path / "m.onnx", dtype="int8")


@pytest.mark.parametrize("layer", ["two_layer", "gated", "batch_norm_before", "batch_norm_after"])
@pytest.mark.parametrize("pooling", ["sum", "average", None, "flatten"])
@pytest.mark.parametrize("shape", [(5, 6, 2), (7, 2), (4, 12)])
def test_convolutional_networks_compute_the_same(tmp_path, layer, pooling, shape):
    if (layer, pooling) == ("gated", "flatten"):
        return
    images, patches = len(shape) == 3, shape == (4, 12)
    kernel, h = ((2, 3), 12) if images else (None, 12) if patches else (3, 6)
    where = {} if patches else {"stride": 2, "padding": 1}
    grid = (3, 3) if images else (4,)
    positions = int(np.prod(grid)) if pooling == "flatten" else 1
    inner = network(layer, d=h, C=2 * positions)
    net = ConvolutionalNetwork(inner, kernel, pooling=pooling, intercept=[0.5, -1.0], grid=grid, **where)
    X = RNG.normal(size=(6, *shape))
    y = run(net.to_onnx(tmp_path / "m.onnx", input_shape=shape), X, "y")
    np.testing.assert_allclose(y.reshape(-1, 2), net.forward(X), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(y, net.predict(X), rtol=1e-11, atol=1e-11)
    with pytest.raises(ValueError, match="input_shape="):
        net.to_onnx(tmp_path / "m.onnx")


def test_linear_circular_convolution(tmp_path):
    layer = DeepNetwork([RNG.normal(size=(3, 4)), RNG.normal(size=(4, 10))], activation="linear")
    net = ConvolutionalNetwork(layer, 3, pooling="flatten", grid=5, circular=True)
    X = RNG.normal(size=(6, 5, 1))
    y = run(net.to_onnx(tmp_path / "m.onnx", input_shape=(5, 1)), X, "y")
    np.testing.assert_allclose(y, net.forward(X), rtol=1e-11, atol=1e-11)


def test_every_kind_is_tested_here():
    known = {network(kind).kind for kind in KINDS} | {"convolutional"}
    assert known >= {kind for kind, cls in Network.registry.items() if cls.__module__.startswith("bidual.networks.")}


def test_a_kind_without_exporter_says_so(tmp_path):
    class Odd(Network):
        n_inputs = n_outputs = n_neurons = 1
        forward = penalty = weights = to_torch = None

    Odd.kind = "odd"
    with pytest.raises(NotImplementedError, match="ONNX export of odd networks"):
        Odd().to_onnx(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_a_network_of_ones_own_is_exported_by_its_hidden_layer(tmp_path):
    class Own(Network):
        n_inputs, n_outputs, n_neurons = 3, 2, 4
        penalty = weights = to_torch = None

        def __init__(self):
            self.hidden_weights, self.output_weights, self.intercept = (RNG.normal(size=s) for s in ((4, 3), (4, 2), 2))

        def forward(self, X):
            return np.abs(X @ self.hidden_weights.T) @ self.output_weights + self.intercept

        def onnx_hidden(self, graph, x):
            return graph.add("Abs", graph.affine(x, self.hidden_weights.T, None))

    Own.kind = "own"
    net, X = Own(), RNG.normal(size=(5, 3))
    y = run(net.to_onnx(tmp_path / "m.onnx"), X, "y")
    np.testing.assert_allclose(y, net.forward(X), rtol=1e-12, atol=1e-12)


X = RNG.normal(size=(40, 2)) * [2.0, 30.0] + [1.0, -9.0]


def model_of(labels, **options):
    scale, centre = X.std(axis=0), X.mean(axis=0)
    kind = ReLURegressor if np.asarray(labels).dtype.kind == "f" else ReLUClassifier
    estimator = kind(beta=0.01, tol=1e-2, random_state=0, **options).fit((X - centre) / scale, labels)
    return replace(Model.of(estimator, len(X)), centre=centre, scale=scale)


@pytest.mark.parametrize("labels", [np.array(["no", "yes"]), np.array([3, 7]), np.array([False, True])])
def test_models_answer_in_labels(tmp_path, labels):
    model = model_of(labels[(X[:, 0] > 1).astype(int)])
    result = run(model.to_onnx(tmp_path / "m.onnx"), X)
    assert result["prediction"].tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(result["probabilities"], model.probabilities(X), rtol=1e-9)
    np.testing.assert_allclose(result["scores"][:, 0], model.scores(X), rtol=1e-9, atol=1e-12)


def test_models_of_three_classes_and_of_numbers(tmp_path):
    three = model_of(np.array(["a", "b", "c"])[np.digitize(X[:, 0], [0.0, 2.0])])
    result = run(three.to_onnx(tmp_path / "m.onnx"), X)
    assert result["prediction"].tolist() == three.predict(X).tolist()
    np.testing.assert_allclose(result["probabilities"], three.probabilities(X), rtol=1e-9)
    hinge = model_of(np.where(X[:, 0] > 1, 1, 0), loss="hinge")
    assert set(run(hinge.to_onnx(tmp_path / "m.onnx"), X)) == {"prediction", "scores"}
    numbers = replace(model_of(np.abs(X[:, 0])))
    numbers = replace(numbers, target=replace(numbers.target, centre=5.0, scale=2.0))
    np.testing.assert_allclose(
        run(numbers.to_onnx(tmp_path / "m.onnx"), X, "prediction"), numbers.predict(X), rtol=1e-9
    )


@pytest.mark.parametrize("bias", [True, False])
def test_reading_returns_the_network(tmp_path, bias):
    net = network("two_layer", bias=bias)
    back = from_onnx(net.to_onnx(tmp_path / "m.onnx"))
    np.testing.assert_array_equal(back.hidden_weights, net.hidden_weights)
    np.testing.assert_array_equal(back.output_weights, net.output_weights)
    assert (back.hidden_bias is None) == (not bias)
    rows = RNG.normal(size=(9, 3))
    np.testing.assert_array_equal(as_network(tmp_path / "m.onnx").forward(rows), net.forward(rows))


def test_reading_what_torch_would_write(tmp_path):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    W, b, V, c = RNG.normal(size=(4, 3)), RNG.normal(size=4), RNG.normal(size=(1, 4)), RNG.normal(size=1)
    nodes = [
        helper.make_node("Gemm", ["x", "W", "b"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node("Gemm", ["a", "V", "c"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, ["n", 1])],
        [numpy_helper.from_array(a, k) for k, a in {"W": W, "b": b, "V": V, "c": c}.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "t.onnx")
    rows = RNG.normal(size=(9, 3))
    expected = np.maximum(rows @ W.T + b, 0) @ V.T + c
    np.testing.assert_allclose(from_onnx(tmp_path / "t.onnx").forward(rows), expected, rtol=1e-12)
    certificate = certify(tmp_path / "t.onnx", rows, expected[:, 0], beta=0.1, time_limit=5)
    assert certificate.objective >= certificate.lower_bound


def test_other_files_are_refused(tmp_path):
    network("deep").to_onnx(tmp_path / "deep.onnx")
    with pytest.raises(ValueError, match="expected two linear layers with a ReLU between them"):
        from_onnx(tmp_path / "deep.onnx")
    (tmp_path / "text.onnx").write_text("no protobuf")
    with pytest.raises(ValueError, match="not a readable ONNX file"):
        from_onnx(tmp_path / "text.onnx")
    with pytest.raises(FileNotFoundError):
        from_onnx(tmp_path / "none.onnx")


@pytest.mark.parametrize("kind", KINDS)
def test_networks_survive_joblib_and_pickle(tmp_path, kind):
    net, rows = network(kind), RNG.normal(size=(5, 3))
    net.to_onnx(tmp_path / "m.onnx")  # leaves nothing behind that could not be pickled
    joblib.dump(net, tmp_path / "net.joblib")
    for back in (joblib.load(tmp_path / "net.joblib"), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(back.forward(rows), net.forward(rows))
    net.save(tmp_path / "net.json")
    np.testing.assert_array_equal(load(tmp_path / "net.json").forward(rows), net.forward(rows))


def test_estimators_survive_joblib(tmp_path):
    y = np.abs(X[:, 0])
    est = ReLURegressor(beta=0.1, tol=1e-2, random_state=0).fit(X, y)
    joblib.dump(est, tmp_path / "est.joblib")
    back = joblib.load(tmp_path / "est.joblib")
    np.testing.assert_array_equal(back.predict(X), est.predict(X))
    assert back.certificate_ == est.certificate_
