"""Networks: forward passes and penalties by hand, conversions both ways, files."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor

from bidual import Network, TwoLayer, TwoLayerNetwork
from bidual._util.data import normalise_weights
from bidual._util.files import read_json, write_atomically, write_json
from bidual.losses import Huber
from bidual.networks import from_sklearn, from_torch


def random_network(seed, d=3, m=4, C=2, bias=True, intercept=True):
    rng = np.random.default_rng(seed)
    return TwoLayerNetwork(
        rng.standard_normal((m, d)),
        rng.standard_normal((m, C)),
        rng.standard_normal(m) if bias else None,
        rng.standard_normal(C) if intercept else None,
    )


def by_hand(network, X):
    """Outputs, one sum at a time."""
    out = np.zeros((len(X), network.n_outputs))
    for i, x in enumerate(X):
        for c in range(network.n_outputs):
            total = network.intercept[c]
            for j in range(network.n_neurons):
                hidden = float(np.dot(network.hidden_weights[j], x))
                if network.hidden_bias is not None:
                    hidden += network.hidden_bias[j]
                total += max(hidden, 0.0) * network.output_weights[j, c]
            out[i, c] = total
    return out


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("C", [1, 3])
def test_forward_pass_penalty_and_objective_are_the_formulas_by_hand(bias, intercept, C):
    network = random_network(0, C=C, bias=bias, intercept=intercept)
    rng = np.random.default_rng(1)
    X, Y, weight = rng.standard_normal((5, 3)), rng.standard_normal((5, C)), rng.random(5)
    F = by_hand(network, X)
    np.testing.assert_allclose(network.forward(X), F, atol=1e-12)
    assert network.predict(X).shape == ((5,) if C == 1 else (5, C))
    squares = [network.hidden_weights, network.output_weights] + ([network.hidden_bias] if bias else [])
    penalty = 0.5 * sum(float((a**2).sum()) for a in squares)
    assert network.penalty() == pytest.approx(penalty, rel=1e-14)
    for w in (None, weight):
        mean = np.average(0.5 * ((F - Y) ** 2).sum(axis=1), weights=w)
        value = network.objective(X, Y if C > 1 else Y[:, 0], beta=0.3, sample_weight=w)
        assert value == pytest.approx(mean + 0.3 * penalty, rel=1e-12)
    e = np.abs(F - Y)
    huber = np.where(e <= 0.5, 0.5 * e**2, 0.5 * (e - 0.25)).sum(axis=1).mean()
    assert network.objective(X, Y, beta=0.0, loss=Huber(0.5)) == pytest.approx(huber, rel=1e-12)


def test_classification_objectives_take_codes_signs_and_one_hot_rows_alike():
    network = random_network(2, C=1)
    X = np.random.default_rng(0).standard_normal((4, 3))
    f = by_hand(network, X)[:, 0]
    y = np.array([0, 1, 1, 0])
    truth = np.log1p(np.exp(-(2 * y - 1) * f)).mean() + 0.1 * network.penalty()
    assert network.objective(X, y, beta=0.1, loss="logistic") == pytest.approx(truth)
    assert network.objective(X, 2 * y - 1, beta=0.1, loss="logistic") == pytest.approx(truth)
    network = random_network(2, C=3)
    F = by_hand(network, X)
    y = np.array([0, 1, 1, 0])  # class 2 is absent
    truth = (np.log(np.exp(F).sum(axis=1)) - F[np.arange(4), y]).mean()
    assert network.objective(X, y, beta=0.0, loss="softmax") == pytest.approx(truth)
    assert network.objective(X, np.eye(3)[y], beta=0.0, loss="softmax") == pytest.approx(truth)
    truth = np.maximum(1 - (2 * np.eye(3)[y] - 1) * F, 0).sum(axis=1).mean()
    assert network.objective(X, y, beta=0.0, loss="hinge") == pytest.approx(truth)


@pytest.mark.parametrize(
    ("X", "y", "weight", "words"),
    [
        (np.zeros((2, 4)), np.zeros(2), None, "X must have shape"),
        (np.zeros(3), np.zeros(1), None, "X must have shape"),
        (np.zeros((2, 3)), np.zeros((2, 3)), None, "targets of shape"),
        (np.zeros((2, 3)), np.zeros((3, 2)), None, "targets of shape"),
        (np.zeros((2, 3)), np.zeros((2, 2)), np.ones(3), "sample_weight"),
    ],
)
def test_objective_refuses_shapes_that_do_not_fit(X, y, weight, words):
    with pytest.raises(ValueError, match=words):
        random_network(0).objective(X, y, beta=1.0, sample_weight=weight)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.ones(3), "shape"),
        (np.array([1.0, -1.0]), "negative"),
        (np.array([np.nan, 1.0]), "finite"),
        (np.zeros(2), "zero for every row"),
    ],
)
def test_sample_weights_that_mean_nothing_are_refused(weight, words):
    with pytest.raises(ValueError, match=words):
        normalise_weights(weight, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.ones((2, 3)), np.ones((3, 1))), "output_weights"),
        ((np.ones(3), np.ones((3, 1))), "hidden_weights"),
        ((np.array([[np.nan]]), np.ones((1, 1))), "NaN"),
        ((np.ones((1, 1)), np.array([[np.inf]])), "infinity"),
        ((np.ones((2, 1)), np.ones((2, 1)), np.ones(3)), "hidden_bias"),
        ((np.ones((2, 1)), np.ones((2, 1)), None, np.ones(2)), "intercept"),
        ((np.ones((2, 1)), np.ones((2, 1)), None, np.array([np.nan])), "intercept"),
    ],
)
def test_broken_weights_are_refused_by_name(arguments, words):
    with pytest.raises(ValueError, match=words):
        TwoLayerNetwork(*arguments)


def test_a_network_keeps_its_own_copy_of_the_weights():
    U = np.ones((1, 2))
    network = TwoLayerNetwork(U, np.ones((1, 1)))
    U[:] = 7.0
    assert network.hidden_weights.max() == 1.0


@pytest.mark.parametrize("C", [1, 3])
def test_a_network_without_neurons_works_everywhere(C):
    network = TwoLayerNetwork(np.zeros((0, 2)), np.zeros((0, C)), np.zeros(0), np.arange(C) + 1.0)
    X = np.ones((4, 2))
    expected = np.tile(np.arange(C) + 1.0, (4, 1))
    np.testing.assert_array_equal(network.forward(X), expected)
    assert network.penalty() == 0.0
    assert (network.n_inputs, network.n_neurons, network.n_outputs) == (2, 0, C)
    assert network.objective(X, np.zeros((4, C)), beta=5.0) == pytest.approx(0.5 * (expected[0] ** 2).sum())
    copy = Network.from_dict(json.loads(json.dumps(network.to_dict())))
    np.testing.assert_array_equal(copy.forward(X), expected)
    assert (copy.n_inputs, copy.n_neurons, copy.n_outputs) == (2, 0, C)
    module = network.to_torch()
    np.testing.assert_array_equal(module(torch.ones(4, 2, dtype=torch.float64)).detach().numpy(), expected)
    np.testing.assert_array_equal(from_torch(module).forward(X), expected)


# ---- lifts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@settings(max_examples=20)
@given(seed=st.integers(0, 2**31))
def test_recovery_from_the_lift_keeps_the_function_and_charges_the_balanced_cost(bias, seed):
    X = np.random.default_rng(seed).standard_normal((5, 3))
    network = random_network(seed, bias=bias)
    lift = TwoLayer().lift(X, bias=bias)
    again = lift.recover(lift.neurons(network))
    np.testing.assert_allclose(again.forward(X), network.forward(X), atol=1e-10)
    U = network.hidden_weights if not bias else np.column_stack([network.hidden_weights, network.hidden_bias])
    cost = (np.linalg.norm(U, axis=1) * np.linalg.norm(network.output_weights, axis=1)).sum()
    assert again.penalty() == pytest.approx(cost, rel=1e-12)
    assert again.penalty() <= network.penalty() * (1 + 1e-12)


def test_a_lift_refuses_networks_it_cannot_hold():
    lift = TwoLayer().lift(np.ones((2, 3)), bias=False)
    with pytest.raises(ValueError, match="bias"):
        lift.neurons(random_network(0, bias=True))
    with pytest.raises(ValueError, match="inputs"):
        lift.neurons(random_network(0, d=2, bias=False))


# ---- torch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("C", [1, 3])
def test_torch_round_trip_computes_the_same_outputs(dtype, bias, C):
    network = random_network(5, C=C, bias=bias, intercept=bias)
    X = np.random.default_rng(0).standard_normal((20, 3))
    module = network.to_torch(dtype)
    out = module(torch.as_tensor(X, dtype=dtype)).detach()
    assert out.dtype == dtype
    assert tuple(out.shape) == (20, C)
    tol = 1e-5 if dtype == torch.float32 else 1e-12
    np.testing.assert_allclose(out.numpy(), by_hand(network, X), atol=tol)
    back = from_torch(module)
    assert (back.hidden_bias is None) == (not bias)
    np.testing.assert_allclose(back.forward(X), by_hand(network, X), atol=tol)
    if dtype == torch.float64:
        for name, value in network.weights().items():
            other = back.weights()[name]
            assert (value is None and other is None) or np.array_equal(value, other)


def test_to_torch_leaves_the_random_stream_of_torch_alone():
    torch.manual_seed(0)
    expected = torch.rand(1).item()
    torch.manual_seed(0)
    random_network(0).to_torch()
    assert torch.rand(1).item() == expected


def test_from_torch_passes_over_layers_that_do_nothing_and_does_not_share_memory():
    torch.manual_seed(0)
    first, last = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1, bias=False)
    module = torch.nn.Sequential(torch.nn.Identity(), first, torch.nn.ReLU(), torch.nn.Dropout(0.5), last).eval()
    X = np.random.default_rng(0).standard_normal((6, 3))
    network = from_torch(module)
    expected = module(torch.as_tensor(X, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(network.forward(X), expected, atol=1e-6)
    np.testing.assert_array_equal(network.intercept, [0.0])
    with torch.no_grad():
        first.weight.zero_()
    np.testing.assert_allclose(network.forward(X), expected, atol=1e-6)


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Linear(2, 1),
        torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)),
        torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3), torch.nn.ReLU()),
        torch.nn.Sequential(),
        "not a module",
    ],
    ids=["linear", "tanh", "ends in relu", "empty", "string"],
)
def test_from_torch_refuses_every_other_shape_of_network(module):
    with pytest.raises(ValueError, match="Linear, ReLU, Linear"):
        from_torch(module)


# ---- scikit-learn ------------------------------------------------------------------------------------------------


def fitted(kind, y, **kw):
    X = np.random.default_rng(0).standard_normal((len(y), 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return X, kind(hidden_layer_sizes=kw.pop("sizes", (7,)), max_iter=20, random_state=0, **kw).fit(X, y)


def test_from_sklearn_regressors_predict_the_same():
    for y in (np.arange(12.0), np.arange(24.0).reshape(12, 2)):
        X, mlp = fitted(MLPRegressor, y)
        np.testing.assert_allclose(from_sklearn(mlp).predict(X), mlp.predict(X), atol=1e-12)


def test_from_sklearn_binary_classifier_gives_the_logits_behind_its_probabilities():
    X, mlp = fitted(MLPClassifier, np.arange(12) % 2)
    f = from_sklearn(mlp).predict(X)
    np.testing.assert_allclose(1 / (1 + np.exp(-f)), mlp.predict_proba(X)[:, 1], atol=1e-12)


def test_from_sklearn_multiclass_classifier_gives_the_logits_behind_its_probabilities():
    X, mlp = fitted(MLPClassifier, np.arange(12) % 3)
    F = np.exp(from_sklearn(mlp).predict(X))
    np.testing.assert_allclose(F / F.sum(axis=1, keepdims=True), mlp.predict_proba(X), atol=1e-12)


def test_from_sklearn_refuses_other_activations_depths_and_models():
    y = np.arange(12.0)
    with pytest.raises(ValueError, match="tanh"):
        from_sklearn(fitted(MLPRegressor, y, activation="tanh")[1])
    with pytest.raises(ValueError, match="2 hidden layer"):
        from_sklearn(fitted(MLPRegressor, y, sizes=(3, 3))[1])
    with pytest.raises(ValueError, match="LinearRegression"):
        from_sklearn(LinearRegression())
    with pytest.raises(ValueError, match="not fitted"):
        from_sklearn(MLPRegressor())


# ---- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
def test_save_and_load_are_bit_exact(tmp_path, bias):
    models = pytest.importorskip("bidual.models", reason="bidual.models is not written yet")
    network = random_network(9, bias=bias)
    network.hidden_weights[0] = [0.1, -0.0, 5e-324]
    network.output_weights[0] = [1e308, 1 / 3]
    copy = models.load(network.save(tmp_path / "m.json"))
    for name, value in network.weights().items():
        other = copy.weights()[name]
        assert (value is None and other is None) or (value.tobytes() == other.tobytes() and value.shape == other.shape)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), m=st.integers(0, 4), bias=st.booleans())
def test_the_dictionary_of_a_network_rebuilds_it_bit_for_bit_through_json(seed, m, bias):
    network = random_network(seed, m=m, bias=bias)
    copy = Network.from_dict(json.loads(json.dumps(network.to_dict())))
    assert type(copy) is TwoLayerNetwork
    for name, value in network.weights().items():
        other = copy.weights()[name]
        assert (value is None and other is None) or value.tobytes() == other.tobytes()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.update(kind="three_layer"),
        lambda d: d.pop("weights"),
        lambda d: d["weights"].pop("hidden_weights"),
        lambda d: d["weights"].update(hidden_weights=[[1.0]]),
        lambda d: d["weights"].update(output_weights=None),
        lambda d: d["weights"].update(intercept=[1.0]),
        lambda d: d.update(n_inputs="three"),
        lambda d: d.update(n_inputs=6),
    ],
    ids=["kind", "weights", "missing", "ragged", "null", "intercept", "text", "n_inputs"],
)
def test_broken_descriptions_raise_value_errors(spoil):
    data = random_network(0).to_dict()
    spoil(data)
    with pytest.raises(ValueError):
        Network.from_dict(data)


def test_a_failed_write_leaves_the_old_file_intact_and_nothing_else(tmp_path):
    path = tmp_path / "m.json"
    random_network(0).save(path)
    before = path.read_bytes()

    def fail(temporary):
        temporary.write_text("half a fi")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_bytes() == before
    with pytest.raises(ValueError):
        write_json(path, {"x": float("nan")})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.json"]


def test_saving_overwrites_and_a_missing_folder_is_named(tmp_path):
    path = random_network(0).save(tmp_path / "m.json")
    random_network(1).save(path)
    assert read_json(path)["network"] == random_network(1).to_dict()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        random_network(0).save(tmp_path / "nowhere" / "m.json")


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "\xff\xfe"])
def test_files_that_are_not_models_are_refused(tmp_path, text):
    path = tmp_path / "m.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="not a bidual model file"):
        read_json(path)
