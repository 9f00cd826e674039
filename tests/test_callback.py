"""The gap of a network during somebody else's training."""

from __future__ import annotations

import copy
import signal

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual import ReLURegressor, certify, certify_callback
from bidual.certification import callback as room

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 2))
Y = np.abs(X[:, 0]) + 0.3 * X[:, 1]
BETA = 0.02


def module(torch, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(2, 12), torch.nn.ReLU(), torch.nn.Linear(12, 1)).double()


def train(torch, net, epochs, callback=None):
    """Full batches of Adam on the very objective: the mean loss, and weight decay of all but the output bias."""
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    rows, targets = torch.as_tensor(X), torch.as_tensor(Y)[:, None]
    objectives = []
    for epoch in range(1, epochs + 1):
        optimiser.zero_grad()
        value = 0.5 * ((net(torch.nn.functional.dropout(rows, 0.0)) - targets) ** 2).mean()
        value = value + BETA / 2 * sum((p**2).sum() for name, p in net.named_parameters() if name != "2.bias")
        value.backward()
        optimiser.step()
        objectives.append(float(value.detach()))
        if callback is not None:
            callback(epoch)
    return objectives


def test_the_gap_of_a_torch_module_falls_during_its_training_and_says_what_is_true():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    net, said = module(torch), []
    callback = certify_callback(net, X, Y, beta=BETA, every=100, report=said.append, random_state=0)
    train(torch, net, 300, callback)
    assert [checked.epoch for checked in callback.history] == [100, 200, 300]
    gaps = [checked.certificate.gap for checked in callback.history]
    assert gaps[2] < gaps[0]
    optimum = ReLURegressor(BETA, method="exact").fit(X, Y)
    assert optimum.gap_ < 1e-6
    for line, (epoch, certificate) in zip(said, callback.history, strict=True):
        assert line.startswith(f"epoch {epoch}: objective {certificate.objective:.6g}, proven gap")
        assert certificate.lower_bound <= optimum.objective_ * (1 + 1e-9)
        assert certificate.gap > 0
        assert certificate.verify(X, Y)
    last = callback.history[-1].certificate
    assert last.objective == pytest.approx(certify(net, X, Y, beta=BETA, random_state=0).objective, rel=1e-9)
    assert last.verify(X, Y, model=net)
    best = callback.best.objective(X, Y[:, None], beta=BETA, loss="squared")
    assert best <= last.objective
    assert best == pytest.approx(optimum.objective_, rel=0.02)


def test_training_goes_the_same_way_with_it():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    alone, watched = module(torch), module(torch)
    watched[1].eval()
    before = torch.random.get_rng_state()
    train(torch, alone, 6)
    after = torch.random.get_rng_state()
    torch.random.set_rng_state(before)
    train(torch, watched, 6, certify_callback(watched, X, Y, beta=BETA, every=2, report=None))
    assert torch.equal(after, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), watched.parameters(), strict=True))
    assert watched.training
    assert not watched[1].training


def test_time_is_spent_on_the_bound_only_until_it_is_closed(monkeypatch):
    calls = []

    def counted(*args, **options):
        calls.append(options["time_limit"])
        return certify(*args, **options)

    monkeypatch.setattr(room, "certify", counted)
    weights = {"hidden_weights": np.ones((3, 2)), "output_weights": np.ones((3, 1)), "hidden_bias": np.zeros(3)}
    callback = certify_callback(weights, X, Y, beta=BETA, time_limit=20.0, report=None, random_state=0)
    first, second = callback(), copy.deepcopy(weights)
    weights["output_weights"] *= 0.5
    third = callback()
    assert calls == [20.0]
    assert first.lower_bound == third.lower_bound
    assert first.objective != third.objective
    assert third.verify(X, Y, model=weights)
    assert not third.verify(X, Y, model=second)


def test_a_bound_that_stays_open_is_never_lost():
    weights = {"hidden_weights": RNG.standard_normal((5, 2)), "output_weights": RNG.standard_normal((5, 1))}
    callback = certify_callback(weights, X, Y, beta=1e-4, tol=1e-12, time_limit=0.05, report=None, random_state=0)
    bounds = []
    for _ in range(3):
        bounds.append(callback().lower_bound)
        weights["output_weights"] *= 0.9
    assert bounds == sorted(bounds)


def test_labels_and_scikit_learn():
    labels = np.where(np.median(Y) < Y, "high", "low")
    mlp = MLPClassifier((8,), alpha=BETA * len(X), random_state=0)
    mlp.partial_fit(X, labels, classes=["high", "low"])
    callback = certify_callback(mlp, X, labels, beta=BETA, report=None, random_state=0)
    for _ in range(20):
        mlp.partial_fit(X, labels)
    first = callback(20)
    for _ in range(60):
        mlp.partial_fit(X, labels)
    assert 0 < callback(80).gap < first.gap
    assert first.loss == "logistic"


def test_control_c_ends_the_training_too(monkeypatch):
    def pressed(*args, **options):
        signal.raise_signal(signal.SIGINT)
        return certify(*args, **options)

    monkeypatch.setattr(room, "certify", pressed)
    callback = certify_callback((np.ones((2, 2)), np.ones((2, 1))), X, Y, beta=BETA, report=None)
    with pytest.raises(KeyboardInterrupt):
        callback()
    assert len(callback.history) == 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"beta": -1.0}, "beta"),
        ({"every": 0}, "every"),
        ({"time_limit": -1}, "time_limit"),
        ({"report": 3}, "report must be a function"),
    ],
)
def test_bad_options_are_refused_before_the_training(wrong, words):
    with pytest.raises(ValueError, match=words):
        certify_callback((np.ones((2, 2)), np.ones((2, 1))), X, Y, **{"beta": BETA, **wrong})


def test_unknown_options_and_pipelines_are_refused():
    with pytest.raises(TypeError, match="'epochs'"):
        certify_callback((np.ones((2, 2)), np.ones((2, 1))), X, Y, beta=BETA, epochs=3)
    with pytest.raises(ValueError, match="rows as it sees them"):
        certify_callback(make_pipeline(StandardScaler(), MLPClassifier()), X, Y, beta=BETA)
