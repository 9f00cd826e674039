"""Regularisation paths: where they begin, what they cost, and that every point is what a cold fit gives."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from bidual import ReLUClassifier, ReLURegressor, SolutionPath, beta_max, solution_path

from .helpers import X_LINE, Y_LINE, gap_may_stay_open, with_ones


def noisy(n=40, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.abs(X[:, 0]) - np.maximum(X[:, -1], 0) + 0.2 * rng.standard_normal(n)


def labels(X):
    return np.where(X[:, 0] * X[:, -1] > 0, "same", "opposite")


# ---- beta_max ----------------------------------------------------------------------------------


def test_beta_max_of_one_pattern_by_hand():
    # positive inputs, no bias: the only neurons are (x)_+ = x and 0
    X, y = np.array([[1.0], [2.0], [4.0]]), np.array([1.0, -1.0, 2.0])
    assert beta_max(X, y, bias=False, fit_intercept=False) == pytest.approx(abs(X[:, 0] @ y) / 3)
    residual = y - y.mean()
    assert beta_max(X, y, bias=False) == pytest.approx(abs(X[:, 0] @ residual) / 3)


@pytest.mark.parametrize("bias", [True, False])
def test_beta_max_is_the_maximum_over_directions(bias):
    X, y = noisy(12)
    M, v = with_ones(X, bias), (y - y.mean()) / len(y)
    U = np.random.default_rng(1).standard_normal((200_000, M.shape[1]))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    sampled = np.abs(np.maximum(U @ M.T, 0) @ v).max()
    top = beta_max(X, y, bias=bias)
    assert sampled <= top * (1 + 1e-12)
    assert top == pytest.approx(sampled, rel=2e-3)


NUMBERS = ["squared", "huber", "absolute", "quantile", "epsilon_insensitive"]


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", [*NUMBERS, "logistic", "hinge", "squared_hinge"])
def test_no_neurons_at_beta_max_and_some_below(loss, fit_intercept):
    X, y = noisy()
    kinks = loss in ("absolute", "quantile", "epsilon_insensitive", "hinge")
    classes = loss in ("logistic", "hinge", "squared_hinge")
    y = labels(X) if classes else y
    top = beta_max(X, y, loss=loss, fit_intercept=fit_intercept)
    betas = [top, (0.5 if kinks else 0.95) * top]
    path = solution_path(X, y, betas, loss=loss, fit_intercept=fit_intercept, tol=1e-4, random_state=0)
    assert path.n_neurons[0] == 0
    assert path.likely_gaps[0] < 1e-6
    assert path.n_neurons[1] > 0
    if not kinks:
        estimator = (ReLUClassifier if classes else ReLURegressor)(
            beta=top, loss=loss, fit_intercept=fit_intercept, random_state=0
        ).fit(X, y)
        assert estimator.n_neurons_ == 0


@pytest.mark.parametrize("n", [15, 60])  # few patterns and many
def test_scaling_laws(n):
    X, y = noisy(n, d=2 if n < 30 else 6)
    top = beta_max(X, y, bias=False)
    assert beta_max(1e3 * X, y, bias=False) == pytest.approx(1e3 * top, rel=1e-6)
    assert beta_max(X, 1e-4 * y, bias=False) == pytest.approx(1e-4 * top, rel=1e-6)
    assert beta_max(X, y + 5.0, bias=False) == pytest.approx(top, rel=1e-6)
    assert beta_max(X, 7 * y, loss="absolute", bias=False) == pytest.approx(beta_max(X, y, loss="absolute", bias=False))


def test_beta_max_with_weights_equals_repeated_rows():
    X, y = noisy(20)
    weight = np.arange(20) % 3
    repeated = np.repeat(np.arange(20), weight)
    assert beta_max(X, y, sample_weight=weight) == pytest.approx(beta_max(X[repeated], y[repeated]), rel=1e-12)


def test_beta_max_of_several_outputs_and_classes():
    X, y = noisy(30, d=3)
    single = beta_max(X, y)
    assert beta_max(X, np.column_stack([y, y])) == pytest.approx(np.sqrt(2) * single, rel=1e-6)
    three = np.where(X[:, 0] > 0.5, "a", np.where(X[:, 1] > 0, "b", "c"))
    top = beta_max(X, three, loss="logistic")
    assert ReLUClassifier(beta=1.001 * top, random_state=0).fit(X, three).n_neurons_ == 0


def test_constant_targets_need_no_neurons():
    assert beta_max(X_LINE, np.full(5, 3.0)) == 0.0
    path = solution_path(X_LINE, np.full(5, 3.0), n_betas=3, random_state=0)
    assert path.n_neurons.tolist() == [0, 0, 0]


# ---- the path ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path():
    X, y = noisy()
    return solution_path(X, y, n_betas=8, tol=1e-4, random_state=0)


def test_grid(path):
    X, y = noisy()
    assert len(path) == 8
    assert path.betas[0] == pytest.approx(beta_max(X, y))
    np.testing.assert_allclose(path.betas, path.betas[0] * np.geomspace(1, 1e-3, 8))


def test_every_point_is_that_of_a_cold_fit(path):
    X, y = noisy()
    for beta, point in zip(path.betas, path, strict=True):
        cold = ReLURegressor(beta=beta, tol=1e-4, random_state=1).fit(X, y)
        assert point.certificate.objective == pytest.approx(cold.objective_, rel=2e-4)
        assert point.certificate.objective == pytest.approx(
            point.network.objective(X, y, beta=beta, loss="squared"), rel=1e-12
        )


def test_gaps_are_true(path):
    assert (path.lower_bounds <= path.objectives).all()
    np.testing.assert_allclose(path.gaps, (path.objectives - path.lower_bounds) / path.objectives)
    assert (path.likely_gaps <= 1e-4).all()
    assert path.converged.all()
    assert path.elapsed > 0


def test_monotone_in_beta(path):
    assert (np.diff(path.objectives) < 0).all()  # the betas decrease
    penalties = np.array([network.penalty() for network in path.networks])
    assert (np.diff(penalties) > 0).all()


def test_items(path):
    assert isinstance(path, SolutionPath)
    assert path[0].network is path.networks[0]
    assert [p.network for p in path] == path.networks
    assert path[-1] is list(path)[-1]
    assert len(path[2:5]) == 3


def test_network_at(path):
    for beta, network in zip(path.betas, path.networks, strict=True):
        assert path.network_at(beta) is network
    between = float(np.sqrt(path.betas[2] * path.betas[3]))
    assert path.network_at(1.01 * between) is path.networks[2]
    assert path.network_at(0.99 * between) is path.networks[3]
    for beta in (2 * path.betas[0], 0.5 * path.betas[-1]):
        with pytest.raises(ValueError, match="outside of the path"):
            path.network_at(beta)
    with pytest.raises(ValueError, match="positive"):
        path.network_at(-1.0)


def test_warm_starts_save_iterations():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 5))
    y = np.maximum(X @ rng.standard_normal((5, 5)), 0) @ rng.standard_normal(5) + 0.1 * rng.standard_normal(100)
    path = solution_path(X, y, n_betas=8, beta_min_ratio=1e-2, tol=1e-3, random_state=0)
    cold = [ReLURegressor(beta=b, tol=1e-3, random_state=0).fit(X, y).n_iter_ for b in path.betas[-4:]]
    assert path.converged.all()
    assert sum(point.n_iter for point in path[-4:]) <= sum(cold)


def test_given_betas_in_any_order():
    path = solution_path(X_LINE, Y_LINE, [0.01, 0.1, 0.03], random_state=0)
    assert path.betas.tolist() == [0.1, 0.03, 0.01]


@pytest.mark.parametrize("method", ["exact", "sampled"])
def test_other_methods(method):
    path = solution_path(X_LINE, Y_LINE, n_betas=4, method=method, random_state=0)
    adaptive = solution_path(X_LINE, Y_LINE, n_betas=4, random_state=0)
    np.testing.assert_allclose(path.objectives, adaptive.objectives, rtol=2e-3)


def test_the_same_digits_for_the_same_seed():
    X, y = noisy(30, 4)
    one, two = (solution_path(X, y, n_betas=4, tol=1e-2, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(one.objectives, two.objectives)


def test_labels_of_any_type():
    X, _ = noisy(30)
    text = solution_path(X, labels(X), n_betas=3, loss="logistic", tol=1e-2, random_state=0)
    codes = solution_path(X, (labels(X) == "same").astype(int), n_betas=3, loss="logistic", tol=1e-2, random_state=0)
    np.testing.assert_allclose(text.objectives, codes.objectives, rtol=1e-9)


def test_several_outputs_converge():
    X, y = noisy(25)
    path = solution_path(X, np.column_stack([y, -X[:, 0]]), n_betas=3, beta_min_ratio=0.1, tol=1e-2, random_state=0)
    assert path.converged.all()


def test_unconverged_points_are_said_once():
    X, y = noisy(60, 5)
    with pytest.warns(ConvergenceWarning, match=r"at \d of 3 betas") as record:
        path = solution_path(X, y, [0.1, 1e-3, 1e-4], tol=1e-8, max_iter=1, random_state=0)
    assert len(record) == 1
    assert not path.converged.all()
    for beta in path.betas[~path.converged]:
        assert f"{beta:.3g}" in str(record[0].message)


def test_verbose(capsys):
    solution_path(X_LINE, Y_LINE, n_betas=3, random_state=0, verbose=1)
    assert capsys.readouterr().out.count("bidual: beta") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"betas": []}, "betas must be"),
        ({"betas": [0.1, 0.0]}, "betas must be"),
        ({"betas": [0.1, np.nan]}, "betas must be"),
        ({"n_betas": 0}, "n_betas"),
        ({"n_betas": 2.5}, "n_betas"),
        ({"beta_min_ratio": 1.0}, "beta_min_ratio"),
        ({"method": "magic"}, "unknown method"),
        ({"loss": "magic"}, "unknown loss"),
        ({"sample_weight": [-1.0, 1, 1, 1, 1]}, "[Nn]egative"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message), gap_may_stay_open():
        solution_path(X_LINE, Y_LINE, **arguments)


def test_one_class_only():
    with pytest.raises(ValueError, match="one class only"):
        beta_max(X_LINE, np.zeros(5), loss="logistic")
