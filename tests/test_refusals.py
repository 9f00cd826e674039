"""Bad input gets one sentence, before any work: arguments, tables, files of models, of torch and of ONNX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bidual
from bidual import (
    BatchNorm,
    Convolutional,
    LinearNetRegressor,
    NTKRegressor,
    Parallel,
    ReLUClassifier,
    ReLURegressor,
    ReLURegressorCV,
    beta_max,
    certify,
    solution_path,
)
from bidual._util.tuning import tuned
from bidual.bounds import Certificate
from bidual.models import Model
from bidual.networks import TwoLayerNetwork, from_onnx
from bidual.networks.convert import from_arrays
from bidual.solvers.blocks.checkpoint import Checkpoint

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
Y = np.abs(X[:, 0])
NETWORK = TwoLayerNetwork(RNG.normal(size=(2, 3)), RNG.normal(size=(2, 1)), RNG.normal(size=2), [0.1])


# ---- arguments ---------------------------------------------------------------------------------------

NUMBERS = [-1, float("nan"), float("inf"), "a", [1], 10**400, 1j, None]


@pytest.mark.parametrize(("name", "value"), [(n, v) for n in ("tol", "beta") for v in NUMBERS])
def test_certify_refuses_what_is_no_number(name: str, value: Any) -> None:
    options = {"beta": 0.1, name: value}
    with pytest.raises(ValueError, match=f"{name} must be a"):
        certify(NETWORK, X, Y, **options)


@pytest.mark.parametrize("value", [v for v in NUMBERS if v is not None])
def test_a_time_limit_is_a_number_of_seconds(value: Any) -> None:
    for attempt in (
        lambda: certify(NETWORK, X, Y, beta=0.1, time_limit=value),
        lambda: solution_path(X, Y, time_limit=value),
        lambda: ReLURegressor(time_limit=value).fit(X, Y),
    ):
        with pytest.raises(ValueError, match="time_limit must be a number >= 0"):
            attempt()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tol": -1}, "tol must be a number >= 0"),
        ({"max_iter": 0}, "max_iter must be an integer >= 1"),
        ({"betas": "a"}, "betas must be one or more positive numbers"),
        ({"betas": [10**400]}, "betas must be one or more positive numbers"),
        ({"n_betas": True}, "n_betas must be an integer >= 1"),
        ({"beta_min_ratio": "a"}, "beta_min_ratio must be a number"),
        ({"bias": 3}, "bias must be True, False or 'free'"),
        ({"random_state": -1}, "random_state must be None, an integer from 0"),
        ({"verbose": "a"}, "verbose must be an integer >= 0"),
        ({"prove": 10**400}, "prove must be 'auto', False or a number of seconds"),
    ],
)
def test_paths_refuse(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        solution_path(X, Y, **options)


@pytest.mark.parametrize("seed", [-1, "a", 10**400, 1.5, np.random.default_rng(0)])
def test_seeds_that_are_none_are_refused_by_all(seed: Any) -> None:
    for attempt in (
        lambda: ReLURegressor(random_state=seed).fit(X, Y),
        lambda: certify(NETWORK, X, Y, beta=0.1, random_state=seed),
        lambda: beta_max(X, Y, random_state=seed),
    ):
        with pytest.raises(ValueError, match="random_state must be None, an integer"):
            attempt()


@pytest.mark.parametrize(("options", "sentence"), [({"n_jobs": 0}, "n_jobs must be None"), ({"cv": {}}, "no folds")])
def test_cross_validation_refuses(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ReLURegressorCV(betas=[0.1], **options).fit(X, Y)


# ---- tables ------------------------------------------------------------------------------------------


def test_columns_must_be_numbers_with_names_that_differ() -> None:
    pd = pytest.importorskip("pandas")
    kinds = pd.DataFrame({"a": pd.Categorical(["x", "y"] * 6), "b": X[:, 0]})
    dates = pd.DataFrame({"a": pd.date_range("2020-01-01", periods=12), "b": X[:, 0]})
    twice = pd.DataFrame(X[:, :2], columns=["a", "a"])
    for frame, sentence in ((kinds, "'a' of X holds category"), (dates, "'a' of X holds date"), (twice, "several col")):
        for attempt in (
            lambda frame=frame: ReLURegressor().fit(frame, Y),
            lambda frame=frame: NTKRegressor().fit(frame, Y),
            lambda frame=frame: solution_path(frame, Y),
            lambda frame=frame: certify(NETWORK, frame, Y, beta=0.1),
        ):
            with pytest.raises(ValueError, match=sentence):
                attempt()


def test_integers_beyond_floating_point_are_refused() -> None:
    huge = np.full((12, 3), 10**400, dtype=object)
    for attempt in (lambda: ReLURegressor().fit(huge, Y), lambda: ReLURegressor().fit(X, huge[:, 0])):
        with pytest.raises(ValueError, match="integers too large for floating point"):
            attempt()
    for sentence in (lambda: NETWORK.predict(huge), lambda: certify(NETWORK, X, huge[:, 0], beta=0.1)):
        with pytest.raises(ValueError, match="must hold real numbers"):
            sentence()


def test_targets_that_are_missing_are_refused() -> None:
    for estimator in (ReLURegressor(), LinearNetRegressor(), ReLURegressor(method="exact")):
        with pytest.raises(ValueError, match="y contains None or NaN"):
            estimator.fit(X, np.array([None] * 12))


def test_targets_that_are_dates_are_refused() -> None:
    for estimator in (ReLURegressor(), NTKRegressor()):
        with pytest.raises(ValueError, match="y holds datetime64"):
            estimator.fit(X, np.array(["2020-01-01"] * 12, dtype="datetime64[D]"))


def test_labels_of_several_types_are_refused() -> None:
    mixed = np.array(["a", 1] * 6, dtype=object)
    with pytest.raises(ValueError, match="labels in y are of several types"):
        ReLUClassifier().fit(X, mixed)
    with pytest.raises(ValueError, match="labels in y are of several types"):
        certify(NETWORK, X, mixed, beta=0.1, loss="logistic")


# ---- corners that used to end in the errors of numpy and scipy ----------------------------------------


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_linear_networks_of_zero_targets_are_zero(depth: int) -> None:
    fitted = LinearNetRegressor(depth=depth).fit(X, np.zeros((12, 2)))
    assert fitted.objective_ == fitted.lower_bound_ == 0.0


@pytest.mark.parametrize("outputs", [1, 2])
def test_parallel_networks_on_zero_rows_are_constant(outputs: int) -> None:
    targets = RNG.normal(size=(12, outputs)).squeeze()
    fitted = ReLURegressor(architecture=Parallel(2), beta=0.1, bias=False).fit(np.zeros((12, 3)), targets)
    assert fitted.n_neurons_ == 0
    assert fitted.gap_ < 1e-6


@pytest.mark.parametrize("loss", ["absolute", "quantile"])
def test_beta_max_of_a_loss_with_kinks_and_a_head(loss: str) -> None:
    images, targets = RNG.normal(size=(8, 6, 1)), RNG.normal(size=8)
    assert beta_max(images, targets, loss=loss, architecture=Convolutional(3, pooling="flatten")) > 0


def test_gates_of_many_rows_take_a_random_state() -> None:
    def fit(state: Any) -> ReLURegressor:
        how = {"activation": "gated", "backend": "numpy", "n_patterns": 5, "beta": 0.1, "max_iter": 3}
        return ReLURegressor(random_state=state, tol=0.5, **how).fit(X, Y)

    assert fit(np.random.RandomState(0)).objective_ == pytest.approx(fit(np.random.RandomState(0)).objective_)


@tuned(batches_from=100)
def test_max_neurons_holds_for_many_rows_of_several_outputs() -> None:
    rows = RNG.normal(size=(100, 4))
    targets = np.maximum(rows @ RNG.normal(size=(4, 3)), 0.0)
    wide, narrow = (
        ReLURegressor(beta=0.01, max_neurons=m, max_iter=2, tol=0.9, random_state=0, prove=False).fit(rows, targets)
        for m in (None, 2)
    )
    assert wide.n_neurons_ > 2 >= narrow.n_neurons_ >= 1
    assert narrow.objective_ < 0.5 * (targets**2).sum(axis=1).mean()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_max_neurons_holds_for_batch_normalisation_after_the_relu() -> None:
    rows = RNG.normal(size=(15, 2))
    targets = np.abs(rows[:, 0]) + np.maximum(rows[:, 1], 0.0)
    fitted = ReLURegressor(beta=0.001, architecture=BatchNorm("after"), max_neurons=2, random_state=0, prove=False)
    assert fitted.fit(rows, targets).n_neurons_ <= 2


@pytest.mark.parametrize("gap", [1e-6, 1e-8])
def test_exact_training_sees_rows_that_nearly_coincide(gap: float) -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(5, 2)), 2, axis=0) + gap * rng.normal(size=(10, 2))
    targets = rng.normal(size=10)
    exact = ReLURegressor(beta=0.01, method="exact", random_state=0).fit(rows, targets)
    adaptive = ReLURegressor(beta=0.01, tol=1e-4, random_state=0, prove=False).fit(rows, targets)
    assert exact.objective_ == pytest.approx(adaptive.objective_, rel=2e-4)
    assert exact.gap_ < 1e-3


# ---- files -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("model") / "m.json"
    fitted = ReLURegressor(beta=0.1, random_state=0, prove=False).fit(X, Y)
    return dict(json.loads(Model.of(fitted, 12).save(path).read_text()))


def changed(document: dict[str, Any], *keys: str, to: Any) -> str:
    copy = json.loads(json.dumps(document))
    part = copy
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = to
    return json.dumps(copy)


@pytest.mark.parametrize(
    ("keys", "value", "sentence"),
    [
        (("training", "beta"), "a", "beta must be a number >= 0, got 'a'"),
        (("training", "beta"), 10**400, "beta must be a number >= 0"),
        (("training", "bias"), "yes", "bias must be True, False or 'free'"),
        (("training", "method"), 3, "method must be a name"),
        (("training", "loss"), {"name": "huber", "width": 3}, "the loss 'huber' has other parameters"),
        (("target", "scale"), "a", "centre and scale of the target must be finite"),
        (("certificate", "objective"), 10**400, "incomplete or damaged"),
        (("certificate", "scope"), 3, "incomplete or damaged"),
        (("certificate", "witness"), [[]], "incomplete or damaged"),
        (("network", "weights", "hidden_weights"), [[10**400]], "must hold real numbers"),
        (("network", "weights", "hidden_weights"), [[1.0], [2.0, 3.0]], "must hold real numbers"),
    ],
)
def test_damaged_models(
    document: dict[str, Any], keys: tuple[str, ...], value: Any, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.json"
    path.write_text(changed(document, *keys, to=value))
    with pytest.raises(ValueError, match=sentence) as error:
        bidual.load(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"format": ' + "9" * 5000 + "}", "3", "", "\x00"])
def test_files_that_are_no_documents(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    for read in (bidual.load, Certificate.load):
        with pytest.raises(ValueError, match="is not a"):
            read(path)


def test_truncated_and_altered_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    checkpoint = Checkpoint(path, {"rows": 3})
    checkpoint.offer(lambda: {"W": np.ones((4, 5)), "round": 2}, force=True)
    whole = path.read_bytes()
    assert Checkpoint(path, {"rows": 3}).read() is not None
    cuts = [whole[:n] for n in (0, 10, len(whole) // 2, len(whole) - 10)]
    for damaged in [*cuts, whole[:200] + bytes(50) + whole[250:], b"text"]:
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="is not a checkpoint of bidual, or not a whole one: remove the file"):
            Checkpoint(path, {"rows": 3}).read()


@pytest.mark.parametrize(
    "weights",
    [
        (np.ones((2, 3)) * 1j, np.ones((2, 1))),
        ([[1.0, 2.0], [1.0]], [[1.0]]),
        ([["a"]], [[1.0]]),
        ([[10**400]], [[1.0]]),
    ],
)
def test_weights_must_be_real_numbers(weights: Any) -> None:
    with pytest.raises(ValueError, match="hidden_weights must hold real numbers in the shape"):
        from_arrays(weights)


def test_weights_by_other_names_are_refused() -> None:
    with pytest.raises(ValueError, match="weights by name are"):
        from_arrays({"hidden": 1, "output_weights": 2})


# ---- torch -------------------------------------------------------------------------------------------


def test_torch_files_with_biases_of_the_wrong_shape_or_kind(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1)).state_dict()
    cases = [
        ({"0.bias": torch.ones(5)}, "a bias of shape"),
        ({"2.bias": torch.ones(1, 1)}, "a bias of shape"),
        ({"0.bias": "a"}, "weights must be tensors"),
        ({"0.weight": torch.ones(2, 3, dtype=torch.complex64)}, "dense tensors of real numbers"),
        ({"norm.running_mean": torch.ones(2)}, "not the weights of two linear layers"),
    ]
    for change, sentence in cases:
        torch.save({**state, **change}, tmp_path / "m.pt")
        with pytest.raises(ValueError, match=sentence):
            certify(tmp_path / "m.pt", X, Y, beta=0.1)


def test_torch_modules_without_real_numbers() -> None:
    torch = pytest.importorskip("torch")

    def module(**how: Any) -> Any:
        return torch.nn.Sequential(torch.nn.Linear(3, 2, **how), torch.nn.ReLU(), torch.nn.Linear(2, 1, **how))

    lazy = torch.nn.Sequential(torch.nn.LazyLinear(2), torch.nn.ReLU(), torch.nn.LazyLinear(1))
    for bad, sentence in (
        (module(dtype=torch.complex64), "dense tensors of real numbers"),
        (module(device="meta"), "on the device 'meta'"),
        (lazy, "lazy module have no values yet"),
    ):
        with pytest.raises(ValueError, match=sentence):
            certify(bad, X, Y, beta=0.1)


# ---- ONNX --------------------------------------------------------------------------------------------

onnx = pytest.importorskip("onnx")
W1, B1, W2, B2 = RNG.normal(size=(3, 4)), RNG.normal(size=4), RNG.normal(size=(4, 1)), RNG.normal(size=1)
CONSTANTS = {"W1": W1, "b1": B1, "W2": W2, "b2": B2, "m": np.array([-1, 1]), "wide": np.ones((2, 4)), "four": B1}
Nodes = list[tuple[str, list[str], str, dict[str, Any]]]


def graph(path: Path, nodes: Nodes, outputs: tuple[str, ...] = ("y",)) -> Path:
    helper, double = onnx.helper, onnx.TensorProto.DOUBLE
    made = [helper.make_node(operator, inputs, [out], **options) for operator, inputs, out, options in nodes]
    body = helper.make_graph(
        made,
        "main",
        [helper.make_tensor_value_info("x", double, ["n", 3])],
        [helper.make_tensor_value_info(name, double, None) for name in outputs],
        [onnx.numpy_helper.from_array(a, k) for k, a in CONSTANTS.items()],
    )
    onnx.save(helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


FIRST: Nodes = [("MatMul", ["x", "W1"], "p", {}), ("Add", ["b1", "p"], "h", {})]
CHAIN: Nodes = [*FIRST, ("Relu", ["h"], "a", {}), ("MatMul", ["a", "W2"], "q", {}), ("Add", ["q", "b2"], "y", {})]


def test_the_chain_is_read(tmp_path: Path) -> None:
    expected = np.maximum(X @ W1 + B1, 0.0) @ W2 + B2
    np.testing.assert_allclose(from_onnx(graph(tmp_path / "m.onnx", CHAIN)).forward(X), expected, rtol=1e-12)
    tail: Nodes = [("Reshape", ["z", "m"], "r", {}), ("Identity", ["r"], "y", {})]
    longer: Nodes = [("Cast", ["x"], "x2", {"to": onnx.TensorProto.DOUBLE}), ("MatMul", ["x2", "W1"], "p", {})]
    longer += [*CHAIN[1:4], ("Add", ["q", "b2"], "z", {}), *tail]
    np.testing.assert_allclose(from_onnx(graph(tmp_path / "m.onnx", longer)).forward(X), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ([*CHAIN[:3], ("MatMul", ["h", "W2"], "q", {}), CHAIN[4]], "does not follow the node before"),  # ReLU bypassed
        ([*FIRST, ("Relu", ["h"], "r", {}), ("Add", ["r", "four"], "a", {}), *CHAIN[3:]], "an Add does not follow"),
        ([*FIRST, ("Cast", ["h"], "h2", {"to": 7}), ("Relu", ["h2"], "a", {}), *CHAIN[3:]], "what its Cast does"),
        ([*CHAIN[:4], ("Add", ["q", "q"], "y", {})], "its Add does not follow"),
        ([*CHAIN[:4], ("Add", ["q", "h"], "y", {})], "its Add does not follow"),
        ([*CHAIN[:4], ("Add", ["q", "wide"], "y", {})], "a bias of shape"),
        ([*CHAIN[:4], ("Sub", ["q", "b2"], "y", {})], "what its Sub does"),
        ([*FIRST, ("Tanh", ["h"], "a", {}), *CHAIN[3:]], "what its Tanh does"),
        ([*CHAIN[:2], ("Flatten", ["h"], "f", {"axis": 0}), ("Relu", ["f"], "a", {}), *CHAIN[3:]], "what its Flatten"),
        ([("Relu", ["x"], "x2", {}), ("MatMul", ["x2", "W1"], "p", {}), *CHAIN[1:]], "a ReLU is not between"),
        ([*CHAIN[:4], ("Relu", ["q"], "y", {})], "a ReLU is not between"),
        ([("MatMul", ["x", "W1"], "h", {}), ("MatMul", ["h", "W2"], "y", {})], "do not alternate with the ReLU"),
        ([("MatMul", ["W1", "x"], "p", {}), *CHAIN[1:]], "do not alternate"),
        ([*FIRST[:1], ("Relu", ["p"], "y", {})], "does not end at the output"),
    ],
)
def test_other_wirings_are_refused(nodes: Nodes, sentence: str, tmp_path: Path) -> None:
    path = graph(tmp_path / "m.onnx", nodes)
    with pytest.raises(ValueError, match=f"expected two linear layers with a ReLU between them, but .*{sentence}"):
        from_onnx(path)


def test_a_second_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 inputs and 2 outputs, not one of each"):
        from_onnx(graph(tmp_path / "m.onnx", CHAIN, ("y", "a")))
