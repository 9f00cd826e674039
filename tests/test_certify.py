"""certify: what is proven about networks made by anybody."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.neural_network import MLPClassifier, MLPRegressor

import bidual
from bidual import Certificate, ReLUClassifier, ReLURegressor, TwoLayerNetwork, certify, polish
from bidual.cli import main
from bidual.models import as_network

from .helpers import plain_objective

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 2))
y = np.abs(X[:, 0]) - 0.5 * X[:, 1] + 0.1 * RNG.standard_normal(30)
LABELS = np.where(y > 0.5, "high", "low")
BETA = 0.02


def random_network(d=2, m=8, C=1, bias=True, seed=0):
    rng = np.random.default_rng(seed)
    return TwoLayerNetwork(
        rng.standard_normal((m, d)),
        rng.standard_normal((m, C)),
        rng.standard_normal(m) if bias else None,
        rng.standard_normal(C) if bias else None,
    )


@pytest.fixture(scope="module")
def optimum():
    """The proven optimum with biases and intercept, by enumeration."""
    return ReLURegressor(beta=BETA, method="exact").fit(X, y)


@pytest.mark.parametrize("method", ["auto", "patterns", "cones", "compact", "signs"])
def test_the_bound_is_below_the_optimum_and_the_objective_is_that_of_the_network(optimum, method):
    network = random_network()
    certificate = certify(network, X, y, beta=BETA, method=method, time_limit=60, random_state=0)
    assert certificate.lower_bound <= optimum.objective_ * (1 + 1e-9)
    assert certificate.objective == pytest.approx(plain_objective(network, X, y, BETA, "squared"), rel=1e-12)
    if method in ("auto", "patterns", "cones"):
        assert certificate.lower_bound >= optimum.lower_bound_ * (1 - 2e-3)


def test_the_optimal_network_is_proven_optimal(optimum):
    certificate = certify(optimum, X, y, random_state=0)
    assert certificate.gap < 1e-3
    assert "proven within" in certificate.sentence


def test_local_search_is_called_likely_beside_a_bound_by_norms_that_can_be_verified():
    wide = np.random.default_rng(1).standard_normal((30, 6))
    certificate = certify(random_network(d=6), wide, y, beta=BETA, method="local", time_limit=60, random_state=0)
    best = ReLURegressor(beta=BETA, tol=1e-3, random_state=0).fit(wide, y)
    assert certificate.likely_bound == pytest.approx(best.objective_, rel=5e-3)
    assert certificate.lower_bound < 0.9 * certificate.likely_bound
    assert "likely within" in certificate.sentence
    assert certificate.method == "norms of rows"
    assert certificate.verify(wide, y)


@pytest.mark.parametrize("method", ["patterns", "cones", "compact", "signs"])
def test_a_certificate_is_verified_from_its_file_and_not_for_other_data(tmp_path, method):
    network = random_network()
    certificate = certify(network, X, y, beta=BETA, method=method, time_limit=60, random_state=0)
    read = Certificate.load(certificate.save(tmp_path / "c.json"))
    assert read.verify(X, y, model=network)
    assert not read.verify(X, y, model=random_network(seed=1))
    assert not read.verify(X, y[::-1])
    with pytest.raises(ValueError, match="distinct rows"):
        read.verify(X[:20], y[:20])
    forged = json.loads((tmp_path / "c.json").read_text())
    forged["lower_bound"] = 1.01 * forged["lower_bound"]
    assert not Certificate.from_dict(forged).verify(X, y)


def test_the_same_network_in_every_form_has_the_same_certificate(tmp_path):
    network = random_network()
    w = network.weights()
    module = network.to_torch()
    torch.save(module, tmp_path / "module.pt")
    torch.save(module.state_dict(), tmp_path / "state.pth")
    network.save(tmp_path / "network.json")
    forms = [
        module,
        module.to(torch.float64),
        (w["hidden_weights"], w["hidden_bias"], w["output_weights"], w["intercept"]),
        dict(w),
        tmp_path / "module.pt",
        str(tmp_path / "state.pth"),
        str(tmp_path / "network.json"),
    ]
    for form in forms:
        same = as_network(form)
        np.testing.assert_allclose(same.predict(X), network.predict(X), rtol=1e-12)
    certificates = [certify(form, X, y, beta=BETA, time_limit=60, random_state=0) for form in (network, forms[4])]
    assert certificates[0].objective == pytest.approx(certificates[1].objective, rel=1e-12)


def test_scikit_learn_networks(optimum):
    mlp = MLPRegressor(hidden_layer_sizes=(10,), solver="lbfgs", max_iter=50, random_state=0)
    with pytest.warns(match="Converge|converge|lbfgs"):
        mlp.fit(X, y)
    certificate = certify(mlp, X, y, beta=BETA, time_limit=60, random_state=0)
    assert certificate.lower_bound <= optimum.objective_ * (1 + 1e-9) <= certificate.objective
    assert certificate.verify(X, y, model=mlp)


def test_labels_are_those_of_the_classifier():
    mlp = MLPClassifier(hidden_layer_sizes=(6,), solver="lbfgs", max_iter=20, random_state=0)
    with pytest.warns(match="Converge|converge|lbfgs"):
        mlp.fit(X, LABELS)
    certificate = certify(mlp, X, LABELS, beta=BETA, time_limit=60, random_state=0)
    best = ReLUClassifier(beta=BETA, method="exact").fit(X, LABELS)
    assert certificate.loss == "logistic"
    assert certificate.lower_bound <= best.objective_ * (1 + 1e-9) <= certificate.objective
    assert certificate.verify(X, LABELS, model=mlp)
    with pytest.raises(ValueError, match="none of the classes"):
        certify(mlp, X, np.where(LABELS == "low", "small", LABELS), beta=BETA)


@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_several_outputs_are_bounded_by_every_network(loss):
    rng = np.random.default_rng(1)
    codes = rng.integers(3, size=30) if loss == "softmax" else None
    target = codes if codes is not None else np.column_stack([y, -y, X[:, 1]])
    network = random_network(C=3, bias=False)
    certificate = certify(network, X, target, beta=BETA, loss=loss, time_limit=60, random_state=0)
    better = certify(network, X, target, beta=BETA, loss=loss, time_limit=60, random_state=0, improve=True)
    assert 0 < certificate.lower_bound <= better.certificate.objective <= certificate.objective
    assert certificate.verify(X, target, model=network)


@pytest.mark.parametrize("loss", ["huber", "absolute", "epsilon_insensitive", "hinge", "squared_hinge", "logistic"])
def test_every_loss_and_sample_weights(loss):
    target = LABELS if loss in ("hinge", "squared_hinge", "logistic") else y
    weights = RNG.integers(1, 4, size=30).astype(float)
    network = random_network(bias=False)
    certificate = certify(
        network, X, target, beta=BETA, loss=loss, sample_weight=weights, time_limit=60, random_state=0
    )
    estimator = ReLURegressor if target is y else ReLUClassifier
    best = estimator(beta=BETA, loss=loss, method="exact", bias=False, fit_intercept=False, tol=1e-3)
    best.fit(X, target, sample_weight=weights)
    assert certificate.lower_bound <= best.objective_ * (1 + 1e-9)
    assert certificate.lower_bound >= 0.9 * best.lower_bound_
    assert certificate.verify(X, target, weights, model=network)


def test_no_sgd_run_is_below_a_proven_bound():
    certificate = certify(random_network(bias=False), X, y, beta=BETA, time_limit=60, random_state=0)
    tensor, target = torch.as_tensor(X), torch.as_tensor(y)[:, None]
    for seed in range(3):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(
            torch.nn.Linear(2, 20, bias=False), torch.nn.ReLU(), torch.nn.Linear(20, 1, bias=False)
        ).double()
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        for _ in range(800):
            optimiser.zero_grad()
            penalty = sum((p**2).sum() for p in net.parameters())
            (0.5 * ((net(tensor) - target) ** 2).mean() + 0.5 * BETA * penalty).backward()
            optimiser.step()
        assert plain_objective(as_network(net), X, y, BETA, "squared") >= certificate.lower_bound


def test_rescaling_and_merging_that_cost_nothing_are_reported():
    network = random_network(bias=False)
    lopsided = TwoLayerNetwork(
        np.vstack([10 * network.hidden_weights, 10 * network.hidden_weights]),
        np.vstack([network.output_weights / 20, network.output_weights / 20]),
    )
    certificate = certify(lopsided, X, y, beta=BETA, time_limit=60, random_state=0)
    even = certify(network, X, y, beta=BETA, time_limit=60, random_state=0)
    assert certificate.rescaled_objective < certificate.objective
    assert certificate.rescaled_objective == pytest.approx(even.rescaled_objective, rel=1e-9)
    assert "after free rescaling" in str(certificate)


def test_the_witness_improves_the_network():
    network = random_network(bias=False)
    certificate = certify(network, X, y, beta=BETA, time_limit=60, random_state=0)
    u = np.array(certificate.witness)
    assert np.linalg.norm(u) == pytest.approx(1.0)
    best = certificate.objective
    for sign in (1.0, -1.0):
        for size in (0.1, 0.3, 1.0):
            wider = TwoLayerNetwork(
                np.vstack([network.hidden_weights, size * u]), np.vstack([network.output_weights, [[sign * size]]])
            )
            best = min(best, plain_objective(wider, X, y, BETA, "squared"))
    assert best < certificate.objective


def test_polish_returns_a_better_network_with_its_certificate(optimum):
    network, certificate = polish(random_network(), X, y, beta=BETA, random_state=0)
    assert plain_objective(network, X, y, BETA, "squared") == pytest.approx(certificate.objective, rel=1e-12)
    assert certificate.objective == pytest.approx(optimum.objective_, rel=1e-3)
    assert certificate.gap < 2e-3


def test_gated_networks_are_compared_with_their_gates():
    est = ReLURegressor(beta=BETA, activation="gated", n_patterns=20, random_state=0).fit(X, y)
    certificate = certify(est, X, y)
    assert certificate.scope == "gates"
    assert certificate.gap < 1e-3
    poor = est.network_
    poor = type(poor)(**{**poor.weights(), "linear_weights": 0.5 * poor.linear_weights})
    worse = certify(poor, X, y, beta=BETA, bias=True, fit_intercept=True)
    assert worse.objective > certificate.objective
    assert worse.lower_bound == pytest.approx(certificate.lower_bound, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        (torch.nn.Linear(2, 1), {"beta": 1}, ValueError, "Sequential"),
        ("a string", {"beta": 1}, OSError, "string"),
        (object(), {"beta": 1}, TypeError, "accepted are"),
        ((1, 2, 3), {"beta": 1}, ValueError, "2 or 4 arrays"),
        (random_network(), {}, ValueError, "beta must be a positive number"),
        (random_network(), {"beta": -1.0}, ValueError, "beta must be a number > 0"),
        (random_network(), {"beta": 1, "method": "magic"}, ValueError, "unknown method"),
        (random_network(d=3), {"beta": 1}, ValueError, "takes 3 inputs"),
        (random_network(C=2), {"beta": 1}, ValueError, "asks for 1 outputs"),
        (random_network(), {"beta": 1, "fit_intercept": False}, ValueError, "output intercept"),
        (random_network(), {"beta": 1, "bias": False}, ValueError, "hidden biases"),
    ],
)
def test_what_cannot_be_is_named(model, options, error, message):
    with pytest.raises(error, match=message):
        certify(model, X, y, **options)


class Evil:
    """Unpickling it runs code."""

    ran = False

    def __reduce__(self):
        return setattr, (Evil, "ran", True)


def test_a_file_that_would_run_code_is_refused(tmp_path):
    torch.save(Evil(), tmp_path / "evil.pt")
    with pytest.raises(ValueError, match="cannot be read safely"):
        as_network(tmp_path / "evil.pt")
    assert not Evil.ran
    torch.save({"a": torch.zeros(3)}, tmp_path / "odd.pt")
    with pytest.raises(ValueError, match="two linear layers"):
        as_network(tmp_path / "odd.pt")
    (tmp_path / "broken.pt").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot be read safely"):
        as_network(tmp_path / "broken.pt")


def test_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("d.npz", X=X, y=y)
    torch.save(random_network().to_torch(), "m.pt")
    arguments = ["certify", "m.pt", "d.npz", "--beta", str(BETA), "--time-limit", "5", "--seed", "0"]
    assert main([*arguments, "--out", "c.json", "--improve", "better.json"]) == 0
    out = capsys.readouterr().out
    assert "of any width" in out
    assert "%" in out
    better = bidual.load("better.json")
    assert Certificate.load("c.json").verify(X, y, model=better)
    assert main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["gap"] >= printed["likely_gap"] >= 0
    assert printed["lower_bound"] <= printed["objective"]
    assert main(["certify", "m.pt", "d.npz"]) == 1
    assert "beta must be" in capsys.readouterr().err


def test_a_model_file_knows_its_loss_beta_and_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{a},{b},{label}" for (a, b), label in zip(X, LABELS, strict=True))
    (tmp_path / "d.csv").write_text(f"a,b,kind\n{rows}\n")
    assert main(["fit", "d.csv", "--target", "kind", "--out", "m.json", "--beta", "0.05", "--tol", "1e-3"]) == 0
    capsys.readouterr()
    assert main(["certify", "m.json", "d.csv", "--json", "--seed", "0"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["loss"] == "logistic"
    assert printed["beta"] == 0.05
    assert 1 - printed["lower_bound"] / printed["objective"] < 2e-3


@pytest.mark.parametrize("method", ["exact", "adaptive"])
def test_the_certificates_of_estimators_can_be_verified(method, optimum):
    est = ReLURegressor(beta=BETA, method=method, random_state=0, tol=1e-3).fit(X, y)
    assert est.certificate_.verify(X, y, model=est)
    assert not est.certificate_.verify(X, y[::-1])
    classifier = ReLUClassifier(beta=BETA, method=method, random_state=0, tol=1e-3).fit(X, LABELS)
    assert classifier.certificate_.verify(X, LABELS, model=classifier)
    several = ReLURegressor(beta=0.1, method=method, random_state=0, tol=1e-2).fit(X, np.column_stack([y, X[:, 0]]))
    assert several.certificate_.verify(X, np.column_stack([y, X[:, 0]]), model=several)


@pytest.mark.parametrize("position", ["before", "after"])
def test_batch_normalised_networks(position):
    architecture = bidual.BatchNorm(position=position)
    best = ReLURegressor(beta=BETA, architecture=architecture, method="exact", tol=1e-3).fit(X[:12], y[:12])
    poor = type(best.network_)(**{**best.network_.weights(), "output_weights": 0.5 * best.network_.output_weights})
    certificate = certify(
        poor, X[:12], y[:12], beta=BETA, architecture=architecture, fit_intercept=True, random_state=0
    )
    assert certificate.lower_bound <= best.objective_ * (1 + 1e-9) < certificate.objective
    assert certificate.lower_bound >= 0.98 * best.lower_bound_
    if position == "before":
        assert certificate.verify(X[:12], y[:12], model=poor)
