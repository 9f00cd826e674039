"""Leaky ReLUs: a pure change of features, held against programs written out, descent, and the ReLU itself."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import bidual
from bidual import ReLUClassifier, ReLURegressor, certify, solution_path
from bidual.architectures import LeakyReLU, TwoLayer, get_architecture
from bidual.bounds import Certificate
from bidual.certification import check_certificate
from bidual.models import Model
from bidual.networks import LeakyReLUNetwork, TwoLayerNetwork

from .helpers import gap_may_stay_open, gaussian_problem, lp_patterns, with_ones

cp = pytest.importorskip("cvxpy", reason="CVXPY is the referee")

SLOPES = [-1.0, -0.3, 0.0, 0.2, 1.0]


def leaky(t, slope):
    return np.where(t > 0, t, slope * t)


def written_out(X, y, beta, slope, *, bias=False, fit_intercept=False, loss="squared"):
    """The convex program over all patterns: a neuron of pattern D computes (D + slope (I - D)) M u on its cone."""
    M = with_ones(X, bias)
    terms, costs, cones = [], [], []
    for D in lp_patterns(M):
        factor = np.where(D, 1.0, slope)[:, None] * M
        for sign in (1.0, -1.0):
            z = cp.Variable(M.shape[1])
            terms.append(sign * factor @ z)
            costs.append(cp.norm(z, 2))
            cones.append(cp.multiply(np.where(D, 1.0, -1.0), M @ z) >= 0)
    F = sum(terms) + (cp.Variable() if fit_intercept else 0.0)
    rows = 0.5 * cp.square(F - y) if loss == "squared" else cp.logistic(-cp.multiply(y, F))
    program = cp.Problem(cp.Minimize(cp.sum(rows) / len(y) + beta * sum(costs)), cones)
    program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-9, tol_feas=1e-10)
    return float(program.value)


def plain_objective(network, X, y, beta):
    """Squared loss and weight decay, from the weights alone."""
    w = network.weights()
    b = 0.0 if w["hidden_bias"] is None else w["hidden_bias"]
    F = leaky(X @ w["hidden_weights"].T + b, float(w["slope"])) @ w["output_weights"] + w["intercept"]
    decay = (w["hidden_weights"] ** 2).sum() + np.sum(b**2) + (w["output_weights"] ** 2).sum()
    return 0.5 * ((F[:, 0] - y) ** 2).mean() + 0.5 * beta * decay


def descent(X, y, beta, slope, seed, width=6):
    """The objective that L-BFGS ends at, from a random start; with biases and an intercept."""
    rng, M = np.random.default_rng(seed), with_ones(X, True)
    p = M.shape[1]

    def value(theta):
        U, a, b = theta[: width * p].reshape(width, p), theta[width * p : -1], theta[-1]
        Z = M @ U.T
        H, E = leaky(Z, slope), leaky(Z, slope) @ a + b - y
        dU = ((E / len(y))[:, None] * a * np.where(Z > 0, 1.0, slope)).T @ M + beta * U
        objective = 0.5 * (E**2).mean() + 0.5 * beta * ((U**2).sum() + a @ a)
        return objective, np.concatenate([dU.ravel(), H.T @ E / len(y) + beta * a, [E.mean()]])

    return scipy.optimize.minimize(value, rng.standard_normal(width * (p + 1) + 1), jac=True, method="L-BFGS-B").fun


@pytest.mark.parametrize("slope", SLOPES)
def test_exact_and_adaptive_end_at_the_optimum_of_the_program_written_out(slope):
    X, y, _ = gaussian_problem(1, n=6)
    truth = written_out(X, y, 0.05, slope)
    for method in ("exact", "adaptive"):
        settings = {"architecture": LeakyReLU(slope), "bias": False, "fit_intercept": False, "random_state": 0}
        est = ReLURegressor(0.05, method=method, tol=1e-6, **settings).fit(X, y)
        assert est.objective_ == pytest.approx(truth, rel=2e-6)
        assert est.lower_bound_ <= truth * (1 + 1e-8)
        assert est.gap_ < 2e-6
        assert est.objective_ == pytest.approx(plain_objective(est.network_, X, y, 0.05), rel=1e-12)


def test_biases_intercepts_and_classes_agree_with_the_program_written_out():
    X, _, labels = gaussian_problem(2, n=6, d=1)
    truth = written_out(X, labels, 0.02, 0.3, bias=True, fit_intercept=True, loss="logistic")
    est = ReLUClassifier(0.02, architecture=LeakyReLU(0.3), tol=1e-6, random_state=0).fit(X, labels)
    assert est.objective_ == pytest.approx(truth, rel=2e-6)
    assert est.lower_bound_ <= truth * (1 + 1e-8)


@pytest.mark.parametrize("slope", [-1.0, 0.2])
def test_no_descent_ends_below_the_proven_bound(slope):
    X, y, _ = gaussian_problem(3, n=10)
    est = ReLURegressor(0.02, architecture=LeakyReLU(slope), random_state=0).fit(X, y)
    found = [descent(X, y, 0.02, slope, seed) for seed in range(30)]
    assert est.lower_bound_ <= min(found)
    assert est.objective_ <= min(found) * (1 + 1e-3)


def test_slope_zero_is_the_relu():
    X, y, _ = gaussian_problem(4, n=7)
    settings = {"method": "exact", "tol": 1e-8, "random_state": 0}
    both = [ReLURegressor(0.03, architecture=a, **settings).fit(X, y) for a in (LeakyReLU(0.0), TwoLayer())]
    assert both[0].objective_ == pytest.approx(both[1].objective_, rel=1e-8)
    assert both[0].lower_bound_ == pytest.approx(both[1].lower_bound_, rel=1e-8)


def test_the_absolute_value_does_not_see_the_sign_of_its_neurons():
    X, y, _ = gaussian_problem(5, n=8)
    network = ReLURegressor(0.03, architecture=LeakyReLU(-1.0), random_state=0).fit(X, y).network_
    w = network.weights()
    turned = LeakyReLUNetwork(**{**w, "hidden_weights": -w["hidden_weights"], "hidden_bias": -w["hidden_bias"]})
    np.testing.assert_allclose(turned.predict(X), network.predict(X), rtol=1e-13, atol=1e-13)
    assert turned.penalty() == network.penalty()
    cert = certify(turned, X, y, beta=0.03, random_state=0)
    assert cert.objective == pytest.approx(network.objective(X, y, beta=0.03), rel=1e-12)


def test_with_the_absolute_value_even_targets_take_one_neuron():
    X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    settings = {"bias": False, "fit_intercept": False, "random_state": 0}
    est = ReLURegressor(1e-3, architecture=LeakyReLU(-1.0), **settings).fit(X, np.abs(X[:, 0]))
    relu = ReLURegressor(1e-3, **settings).fit(X, np.abs(X[:, 0]))
    assert (est.n_neurons_, relu.n_neurons_) == (1, 2)
    assert est.objective_ < relu.lower_bound_


def test_sampled_patterns_are_an_upper_bound():
    X, y, _ = gaussian_problem(6, n=8)
    settings = {"architecture": LeakyReLU(0.1), "random_state": 0}
    with gap_may_stay_open():
        some = ReLURegressor(0.02, method="sampled", n_patterns=4, **settings).fit(X, y)
    best = ReLURegressor(0.02, method="exact", **settings).fit(X, y)
    assert some.objective_ >= best.lower_bound_
    assert some.certificate_.scope == "patterns"


def test_several_outputs_and_paths():
    X, y, _ = gaussian_problem(7, n=8)
    Y = np.column_stack([y, np.abs(X[:, 0])])
    est = ReLURegressor(0.05, architecture=LeakyReLU(0.1), tol=1e-3, prove=False, random_state=0).fit(X, Y)
    assert est.likely_gap_ <= 1e-3
    assert est.lower_bound_ <= est.objective_
    path = solution_path(X, y, n_betas=3, architecture=LeakyReLU(0.1), tol=1e-3, prove=False, random_state=0)
    assert (np.diff(path.objectives) <= 1e-12).all()
    assert path.networks[0].n_neurons == 0


@pytest.mark.parametrize(
    ("option", "wanted"),
    [({"method": "cutting_plane"}, "ordinary neurons"), ({"method": "closed_form"}, "a closed form"),
     ({"activation": "gated"}, "neurons with gates")],
)  # fmt: skip
def test_what_leaky_neurons_cannot_do_is_refused_beforehand(option, wanted):
    X, y, _ = gaussian_problem(0)
    ((name, value),) = option.items()
    sentence = rf"^{name}='{value}' does not go with architecture=LeakyReLU\(slope=0.1\).*{wanted}.*; use "
    with pytest.raises(ValueError, match=sentence):
        ReLURegressor(0.1, architecture=LeakyReLU(0.1), **option).fit(X, y)


@pytest.mark.parametrize("slope", [1.5, -2, np.nan, np.inf, "0.1", None, [0.1], True])
def test_a_slope_that_is_none_is_refused(slope):
    for make in (LeakyReLU, lambda s: LeakyReLUNetwork([[1.0]], [[1.0]], slope=s)):
        with pytest.raises(ValueError, match=r"^slope must be a number from -1 \(the absolute value\) to 1, got "):
            make(slope)


@pytest.fixture(scope="module")
def fitted():
    X, y, _ = gaussian_problem(8, n=8)
    return X, y, ReLURegressor(0.03, architecture=LeakyReLU(0.2), random_state=0).fit(X, y)


def test_networks_and_certificates_go_through_files(fitted, tmp_path):
    X, y, est = fitted
    back = bidual.load(est.network_.save(tmp_path / "n.json"))
    assert isinstance(back, LeakyReLUNetwork)
    np.testing.assert_array_equal(back.predict(X), est.predict(X))
    model = bidual.load(Model.of(est, len(X)).save(tmp_path / "m.json"))
    np.testing.assert_array_equal(model.predict(X), est.predict(X))
    cert = Certificate.load(est.certificate_.save(tmp_path / "c.json"))
    assert (cert.evidence.architecture, cert.evidence.options) == ("leaky_relu", {"slope": 0.2})
    assert cert.verify(X, y, model=back)
    assert not cert.verify(X, y[::-1])
    empty = LeakyReLUNetwork(np.zeros((0, 2)), np.zeros((0, 1)), intercept=[1.0], slope=-1)
    assert bidual.load(empty.save(tmp_path / "e.json")).predict(X).tolist() == [1.0] * len(X)


def test_the_independent_checker_says_that_it_does_not_know_them(fitted):
    X, y, est = fitted
    assert check_certificate.check(est.certificate_.to_dict(), X, y) == (
        False, "this checker does not know the architecture 'leaky_relu'",
    )  # fmt: skip


def test_certify_finds_the_architecture_of_a_network(fitted):
    X, y, est = fitted
    cert = certify(est.network_, X, y, beta=0.03, random_state=0)
    assert cert.objective == pytest.approx(est.objective_, rel=1e-12)
    assert cert.gap < 1e-3
    with pytest.raises(ValueError, match=r"the network has the slope 0.2, the architecture asks for 0.3"):
        certify(est.network_, X, y, beta=0.03, architecture=LeakyReLU(0.3))
    with pytest.raises(TypeError, match="expected a two-layer network, got LeakyReLUNetwork"):
        certify(est.network_, X, y, beta=0.03, architecture="two_layer")
    with pytest.raises(TypeError, match="expected a network with leaky ReLUs, got TwoLayerNetwork"):
        certify(TwoLayerNetwork([[1.0, 0.0]], [[1.0]]), X, y, beta=0.03, architecture="leaky_relu")


def test_the_network_computes_what_its_weights_say():
    rng = np.random.default_rng(0)
    for slope in SLOPES:
        network = LeakyReLUNetwork(
            rng.standard_normal((4, 3)), rng.standard_normal((4, 2)), rng.standard_normal(4), [0.5, -1], slope
        )
        X, w = rng.standard_normal((20, 3)), network.weights()
        H = leaky(X @ w["hidden_weights"].T + w["hidden_bias"], slope)
        np.testing.assert_allclose(network.hidden(X), H, rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(network.predict(X), H @ w["output_weights"] + [0.5, -1], rtol=1e-12, atol=1e-13)
        far = network.evaluate(X + 1e8)
        np.testing.assert_allclose(far, network.forward(X + 1e8), rtol=1e-6)
        decay = sum((w[name] ** 2).sum() for name in ("hidden_weights", "hidden_bias", "output_weights"))
        assert network.penalty() == pytest.approx(0.5 * decay, rel=1e-14)


@pytest.mark.parametrize("slope", [-1.0, 0.2])
def test_torch_has_the_same_network(slope):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(0)
    network = LeakyReLUNetwork(rng.standard_normal((4, 3)), rng.standard_normal((4, 2)), slope=slope)
    module, X = network.to_torch(), rng.standard_normal((20, 3))
    assert isinstance(module[1], torch.nn.LeakyReLU)
    np.testing.assert_allclose(module(torch.as_tensor(X)).detach().numpy(), network.predict(X), rtol=1e-12, atol=1e-13)


def test_the_name_is_known():
    assert get_architecture("leaky_relu") == LeakyReLU(0.01)
    assert repr(LeakyReLU(-1)) == "LeakyReLU(slope=-1.0)"
