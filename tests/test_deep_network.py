"""The deep network object, and the diagnostic of neural collapse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.deep_helpers import white_rows
from tests.helpers import gap_may_stay_open

from bidual import DeepNetwork, DeepReLUClassifier, ReLUClassifier, load, neural_collapse


def network(activation="relu", **options):
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal(shape) for shape in ((3, 4), (4, 5), (5, 2))]
    return DeepNetwork(layers, [None, rng.standard_normal(5), rng.standard_normal(2)], activation, **options)


X = np.random.default_rng(1).standard_normal((6, 3))


@pytest.mark.parametrize("activation", ["relu", "linear"])
def test_forward_and_penalty_are_those_of_the_formula(activation):
    net = network(activation)
    g = (lambda z: np.maximum(z, 0)) if activation == "relu" else (lambda z: z)
    (W1, W2, W3), (_, b2, b3) = net.layers, net.biases
    np.testing.assert_allclose(net.predict(X), g(g(X @ W1) @ W2 + b2) @ W3 + b3)
    assert net.penalty() == pytest.approx(0.5 * sum(np.linalg.norm(W) ** 2 for W in (W1, W2, W3)))
    assert (net.depth, net.n_inputs, net.n_neurons, net.n_outputs) == (3, 3, 9, 2)


@pytest.mark.parametrize("activation", ["relu", "linear"])
@pytest.mark.parametrize("white", [True, False])
def test_files_and_torch_modules_hold_the_same_function(activation, white, tmp_path):
    options = {"whitening": np.random.default_rng(2).standard_normal((3, 3)), "whitening_bias": np.ones(3)}
    net = network(activation, **(options if white else {}))
    back = load(net.save(tmp_path / "net.json"))
    np.testing.assert_array_equal(back.predict(X), net.predict(X))
    assert (repr(back), back.penalty()) == (repr(net), net.penalty())
    np.testing.assert_allclose(net.to_torch()(torch.as_tensor(X)).detach(), net.predict(X), rtol=1e-12)
    assert net.to_torch(torch.float32)(torch.as_tensor(X, dtype=torch.float32)).dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([],), "at least one layer"),
        (([np.ones((2, 3)), np.ones((2, 1))],), r"layer 2 must have shape \(3, any\)"),
        (([np.ones((2, 3))], [np.ones(2)]), r"bias 1 must have shape \(3\)"),
        (([np.ones((2, 3))], [None, None]), "one bias"),
        (([np.full((2, 1), np.nan)],), "NaN"),
        (([np.ones((2, 3))], None, "tanh"), "unknown activation 'tanh'"),
        (([np.ones((2, 3))], None, "relu", np.ones((4, 5))), "whitening must have shape"),
    ],
)
def test_networks_that_cannot_be_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        DeepNetwork(*arguments)


# ---- neural collapse ------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("depth", [2, 4])
def test_closed_form_of_balanced_classes_has_collapsed(loss, depth):
    rows, y = white_rows(3, 12, 15), np.repeat(["a", "b", "c"], 4)
    with gap_may_stay_open():
        est = DeepReLUClassifier(depth, 0.01, loss=loss).fit(rows, y)
    for model in (est, est.network_, est.network_.to_torch()):
        found = neural_collapse(model, rows, y)
        assert max(found.within_class, found.simplex, found.alignment, found.disagreement) < 1e-12
    # Cor. 4.3: the centred activations are a simplex
    H = est.network_.hidden(rows)
    simplex = np.kron(np.eye(3) - 1 / 3, np.ones((4, 1)))
    np.testing.assert_allclose((H - H.mean(axis=0)) / H.max(), simplex, atol=1e-12)


def test_unbalanced_classes_have_collapsed_to_their_means_only():
    rows, y = white_rows(4, 9, 9), np.array([0] * 5 + [1] * 3 + [2])
    found = neural_collapse(DeepReLUClassifier(3, 0.02).fit(rows, y), rows, y)
    assert found.within_class < 1e-12
    assert found.simplex > 0.01
    assert found.alignment > 0.001


def test_features_are_measured_by_their_textbook_formulas():
    rng = np.random.default_rng(5)
    H, y = rng.standard_normal((20, 6)), np.arange(20) % 4
    found = neural_collapse(lambda rows: rows, H, y)
    means = np.array([H[y == k].mean(axis=0) for k in range(4)])
    centred = means - means.mean(axis=0)
    sigma_w = sum(np.outer(h - means[k], h - means[k]) for h, k in zip(H, y, strict=True)) / 20
    sigma_b = centred.T @ centred / 4
    assert found.within_class == pytest.approx(np.trace(sigma_w @ np.linalg.pinv(sigma_b, rcond=1e-10)) / 4)
    frame = np.sqrt(4 / 3) * (np.eye(4) - 1 / 4)
    gram, target = centred @ centred.T, frame.T @ frame
    assert found.simplex == pytest.approx(np.linalg.norm(gram / np.linalg.norm(gram) - target / np.linalg.norm(target)))
    assert found.alignment is None
    assert 0 < found.disagreement < 1


def test_two_layer_networks_and_torch_modules_have_features_too():
    rng = np.random.default_rng(6)
    rows, y = rng.standard_normal((12, 2)), np.arange(12) % 3
    with gap_may_stay_open():
        est = ReLUClassifier(0.05, tol=0.1, random_state=0).fit(rows, y)
    assert neural_collapse(est, rows, y).within_class > 0
    module = torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(5, 3))
    first, second = (neural_collapse(module, rows, y) for _ in range(2))
    assert str(first) == str(second)  # dropout is off while measuring
    assert module.training


@pytest.mark.parametrize(
    ("model", "y", "words"),
    [
        (np.ones_like, [0, 0, 0], "one class only"),
        (np.ones_like, [0, 1, 1], "all class means are equal"),
        (lambda rows: rows[:, 0], [0, 1, 1], "features must have shape"),
        (torch.nn.ReLU(), [0, 1, 1], "ends in Linear"),
        (3, [0, 1, 1], "not int"),
    ],
)
def test_models_that_cannot_be_measured_are_refused(model, y, words):
    with pytest.raises(ValueError, match=words):
        neural_collapse(model, np.arange(6.0).reshape(3, 2), np.array(y))
