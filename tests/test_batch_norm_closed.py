"""Batch normalisation: closed forms (000 Theorems 2.1, 2.4, 4.1) and implicit regularisation (Theorems 5.1, 5.2)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual import BatchNorm, ReLURegressor
from bidual.plots import plot_fit_1d, plot_singular_similarity
from bidual.study.implicit import WhitenedForm, singular_directions, singular_similarity

from .helpers import gaussian_problem, printed_program, white

PAPER = {"architecture": "batch_norm", "bias": False, "fit_intercept": False}


# ---- closed forms ------------------------------------------------------------------------------------------------


def printed_closed_form(A, Y, beta):
    """Objective (sum of squares, paper's beta) of the network printed in 000 Theorems 2.1, 5.1 (one column), 2.4, 5.2.

    With 1/n where Theorem 2.1 prints 1/sqrt n.
    """
    n = len(A)
    F, penalty = np.zeros(Y.shape), 0.0
    for c in range(Y.shape[1]):
        for sign in (1, -1):
            y = np.maximum(sign * Y[:, c], 0)
            t = np.linalg.norm(y)
            if t <= beta:
                continue
            w = np.linalg.pinv(A) @ y
            gamma, alpha = np.linalg.norm(y - y.mean()) / t, y.sum() / np.sqrt(n) / t
            h = A @ w - (A @ w).mean()
            h = np.maximum(gamma * h / np.linalg.norm(h) + alpha / np.sqrt(n), 0)
            F[:, c] += sign * (t - beta) * h
            penalty += (t - beta) * np.sqrt(gamma**2 + alpha**2)
    return 0.5 * np.linalg.norm(F - Y) ** 2 + beta * penalty


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), kappa=st.floats(1e-4, 2.0), onehot=st.booleans())
def test_closed_forms_are_those_of_theorems_2_1_and_2_4(seed, kappa, onehot):
    rng = np.random.default_rng(seed)
    n, d = 5, 6
    X = rng.standard_normal((n, d))
    Y = np.eye(3)[[0, 1, 2, 0, 1]] if onehot else rng.standard_normal((n, 1))
    beta = kappa * np.linalg.norm(Y, axis=0).max()
    est = ReLURegressor(beta / n, method="closed_form", **PAPER).fit(X, Y)
    assert est.objective_ == pytest.approx(printed_closed_form(X, Y, beta) / n, rel=1e-9)
    assert est.gap_ < 1e-10
    assert est.n_neurons_ <= 2 * Y.shape[1]


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("kappa", [0.01, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_closed_form_is_the_optimum_of_the_convex_program(fit_intercept, kappa, weighted):
    X, y, _ = gaussian_problem(13, n=5, d=4)
    weight = np.array([1.0, 2.0, 0.5, 1.0, 3.0]) if weighted else None
    options = {"architecture": "batch_norm", "fit_intercept": fit_intercept}
    formula = ReLURegressor(kappa * 0.3, method="closed_form", **options).fit(X, y, sample_weight=weight)
    exact = ReLURegressor(kappa * 0.3, method="exact", **options).fit(X, y, sample_weight=weight)
    assert formula.objective_ == pytest.approx(exact.objective_, rel=1e-6)
    assert formula.n_neurons_ <= 2
    chosen = ReLURegressor(kappa * 0.3, **options).fit(X, y, sample_weight=weight)
    assert chosen.objective_ == formula.objective_
    assert "closed form" in chosen.certificate_.method


def test_beta_zero_has_a_closed_form_too():
    X, y, _ = gaussian_problem(14, n=5, d=5)
    formula = ReLURegressor(0, method="closed_form", **PAPER).fit(X, y)
    assert formula.objective_ == pytest.approx(printed_program(white(X), y, 0), rel=1e-6)
    np.testing.assert_allclose(formula.predict(X), y, atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "n", "C", "words"),
    [
        ({"loss": "absolute"}, 4, 1, "squared"),
        ({}, 7, 1, "full rank"),
        ({"architecture": BatchNorm(rank=2)}, 4, 1, "rank=None"),
        ({}, 4, 2, "one non-zero entry"),
        ({"fit_intercept": True}, 4, 2, "fit_intercept=False"),
        ({"architecture": "two_layer"}, 4, 1, "white"),
        ({"beta": 0, "fit_intercept": True}, 4, 1, "beta=0"),
    ],
)
def test_the_closed_form_names_the_condition_that_fails(changes, n, C, words):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((n, 4)), rng.standard_normal((n, C))
    with pytest.raises(ValueError, match=words):
        ReLURegressor(**{"beta": 0.01, "method": "closed_form", **PAPER, **changes}).fit(X, Y)


def deep_features(X, widths, rng, scale=1.0):
    """Activations of hidden layers with batch normalisation and random weights."""
    A = X
    for m in widths:
        H = A @ rng.standard_normal((A.shape[1], m))
        H = H - H.mean(0)
        A = np.maximum(
            scale * (rng.uniform(0.5, 1.5, m) * H / np.linalg.norm(H, axis=0) + 0.1 * rng.standard_normal(m)), 0
        )
    return A


@pytest.mark.parametrize("onehot", [False, True])
def test_the_last_two_layers_of_a_deep_network_have_a_closed_form(onehot):
    """000 Theorems 5.1 and 5.2; the optimum depends on nothing but the targets."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 3))
    Y = np.eye(2)[rng.integers(2, size=8)] if onehot else rng.standard_normal((8, 1))
    beta, values = 0.05, []
    for widths in ((30,), (20, 40)):
        A = deep_features(X, widths, rng)
        est = ReLURegressor(beta, method="closed_form", **PAPER).fit(A, Y)
        assert est.objective_ == pytest.approx(printed_closed_form(A, Y, 8 * beta) / 8, rel=1e-8)
        values.append(est.objective_)
    assert values[0] == pytest.approx(values[1], rel=1e-9)


def test_earlier_layers_may_be_scaled_at_will():
    """000 B.2: the scales and shifts of earlier layers do not matter either."""
    X = np.random.default_rng(1).standard_normal((7, 3))
    y = np.random.default_rng(2).standard_normal(7)
    predictions = []
    for scale in (1.0, 1e-2):
        A = deep_features(X, (25,), np.random.default_rng(3), scale)
        predictions.append(ReLURegressor(0.02, method="closed_form", **PAPER).fit(A, y).predict(A))
    np.testing.assert_allclose(predictions[0], predictions[1], atol=1e-9)


# ---- implicit regularisation -------------------------------------------------------------------------------------


def test_gradient_steps_on_the_two_models_are_related_by_squared_singular_values():
    """000 Theorem 4.1: equal steps but for the hidden weights, where q moves Sigma^2 times as far."""
    rng = np.random.default_rng(0)
    n, d, m, C, beta = 9, 4, 5, 2, 0.1
    X, Y = torch.tensor(rng.standard_normal((n, d)) * [3, 2, 1, 0.3]), torch.tensor(rng.standard_normal((n, C)))
    U, S, Vt = torch.linalg.svd(X - X.mean(0), full_matrices=False)
    start = {
        "w": rng.standard_normal((d, m)),
        "gamma": rng.standard_normal(m),
        "shift": rng.standard_normal(m),
        "out": rng.standard_normal((m, C)),
    }
    start = {name: torch.tensor(value) for name, value in start.items()}

    def gradients(h_of, hidden):
        p = {**start, "w": hidden}
        p = {name: value.clone().requires_grad_() for name, value in p.items()}
        F = torch.relu(h_of(p["w"]) * p["gamma"] + p["shift"] / n**0.5) @ p["out"]
        penalty = sum((p[name] ** 2).sum() for name in ("gamma", "shift", "out"))
        (0.5 * ((F - Y) ** 2).sum() + beta / 2 * penalty).backward()
        return {name: value.grad for name, value in p.items()}, F.detach()

    def normalised(w):
        h = X @ w - (X @ w).mean(0)
        return h / h.norm(dim=0)

    batch, F = gradients(normalised, start["w"])
    whitened, G = gradients(lambda q: U @ q / q.norm(dim=0), S[:, None] * (Vt @ start["w"]))
    torch.testing.assert_close(F, G)
    for name in ("gamma", "shift", "out"):
        torch.testing.assert_close(batch[name], whitened[name])
    torch.testing.assert_close(S[:, None] * (Vt @ batch["w"]), S[:, None] ** 2 * whitened["w"])


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), i=st.integers(0, 3))
def test_the_similarity_falls_in_the_direction_that_moved_alone(seed, i):
    rng = np.random.default_rng(seed)
    X, start = rng.standard_normal((9, 4)), rng.standard_normal((5, 4))
    sigma, V = singular_directions(X)
    assert (np.diff(sigma) <= 0).all()
    moved = start + np.outer(rng.standard_normal(5), V[:, i])
    values = singular_similarity(moved, start, X)
    a, b = moved @ V[:, i], start @ V[:, i]  # 000 eq. 21
    assert values[i] == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert values[i] < 1
    np.testing.assert_allclose(np.delete(values, i), 1)
    np.testing.assert_allclose(singular_similarity(moved @ V, start @ V), values)  # the whitened model


def test_similarity_needs_weights_of_one_shape_that_fit_the_data():
    with pytest.raises(ValueError, match="one shape"):
        singular_similarity(np.ones((2, 3)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="3 inputs, X has 4 columns"):
        singular_similarity(np.ones((2, 3)), np.ones((2, 3)), np.eye(4))


def test_pictures_show_what_they_are_given():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    curves = {"one": np.array([0.5, 1.0]), "two": np.array([1.0, 1.0, 0.2])}
    ax = plot_singular_similarity(curves)
    assert [line.get_label() for line in ax.lines] == ["one", "two"]
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), curves["two"])
    X, y = np.arange(6.0)[:, None], np.array([0.0, 1.0, 0.0, 2.0, 1.0, 1.0])
    est = ReLURegressor(0.01, architecture="batch_norm", method="exact").fit(X, y)
    fit = plot_fit_1d(est, X, y)
    grid, values = fit.lines[0].get_data()
    np.testing.assert_allclose(np.interp(X[:, 0], grid, values), est.predict(X), atol=1e-9)
    matplotlib.pyplot.close("all")


# ---- the whitened form -------------------------------------------------------------------------------------------


def whitened_problem():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((7, 3)) @ np.diag([3.0, 1.0, 0.2]) + 2.0
    return X, X[:, 0] * X[:, 1] + rng.standard_normal(7)


def test_the_whitened_form_computes_what_the_network_does_at_the_same_cost():  # (16)
    X, y = whitened_problem()
    network = ReLURegressor(0.003, architecture="batch_norm", random_state=0).fit(X, y).network_
    form = WhitenedForm.of(X)
    white_network = form.network(network)
    np.testing.assert_allclose(form.U.T @ form.U, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(form.features(X), form.U, atol=1e-12)
    np.testing.assert_allclose(white_network.predict(form.U), network.predict(X), atol=1e-9)
    assert white_network.penalty() == network.penalty()
    Q, F = form.weights(network.hidden_weights), np.full(len(X), network.intercept[0])
    for q, g, s, a in zip(Q, network.gamma, network.shift, network.output_weights[:, 0], strict=True):  # as printed
        F += np.maximum(form.U @ q / np.linalg.norm(q) * g + s / np.sqrt(len(X)), 0) * a
    np.testing.assert_allclose(F, network.predict(X), atol=1e-9)
    np.testing.assert_allclose(form.hidden_weights(Q), network.hidden_weights, atol=1e-9)


def test_a_step_of_the_network_is_that_of_its_whitened_form_times_the_squared_singular_values():  # (17)
    X, y = whitened_problem()
    form, rng, m = WhitenedForm.of(X), np.random.default_rng(4), 4
    W = torch.tensor(rng.standard_normal((m, 3)), requires_grad=True)
    Q = torch.tensor(form.weights(W.detach().numpy()), requires_grad=True)
    gamma, shift, out = (torch.tensor(rng.standard_normal(m)) for _ in range(3))

    def loss(values):
        h = values - values.mean(0)
        h = torch.relu(gamma * h / h.norm(dim=0) + shift / len(X) ** 0.5)
        return 0.5 * ((h @ out - torch.tensor(y)) ** 2).sum()

    loss(torch.tensor(X) @ W.T).backward()
    loss(torch.tensor(form.U) @ Q.T).backward()
    moved = form.weights(W.grad.numpy())  # the step of w, in the space of q
    np.testing.assert_allclose(moved, form.step(Q.grad.numpy()), atol=1e-10)
    assert np.abs(moved).max() > 1e-3


def test_the_whitened_form_is_for_rows_that_differ_and_normalisation_before_the_relu():
    with pytest.raises(ValueError, match="differ"):
        WhitenedForm.of(np.ones((3, 2)))
    X, y = whitened_problem()
    after = ReLURegressor(1.0, architecture=BatchNorm("after"), tol=1.0).fit(X, y).network_
    with pytest.raises(ValueError, match="before the ReLU"):
        WhitenedForm.of(X).network(after)
