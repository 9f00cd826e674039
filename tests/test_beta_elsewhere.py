"""What weight decay is called elsewhere, and how much of it is our beta (docs/faq.md)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.svm import SVC

from bidual import TwoLayerNetwork
from bidual.losses import encode_classes, get_loss

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 4))
N = len(X)
LABELS = np.where(X[:, 0] + 0.5 * RNG.standard_normal(N) > 0, 1, 0)


def objective(network, Y, beta, loss="squared"):
    return network.objective(X, Y, beta=beta, loss=loss)


def torch_case(torch, name, C):
    """A loss of torch on random targets, and the same targets and loss as ours."""
    if name == "MSELoss":
        Y = RNG.standard_normal((N, C))
        return torch.nn.MSELoss(), torch.as_tensor(Y), Y, "squared"
    codes = RNG.integers(0, max(C, 2), N)
    if name == "CrossEntropyLoss":
        loss = get_loss("softmax")
        return torch.nn.CrossEntropyLoss(), torch.as_tensor(codes), encode_classes(loss, codes, C), loss
    loss = get_loss("logistic")
    wanted = torch.as_tensor(codes[:, None], dtype=torch.float64)
    return torch.nn.BCEWithLogitsLoss(), wanted, encode_classes(loss, codes, 2), loss


@pytest.mark.parametrize(
    ("name", "C", "share"),
    [("MSELoss", 1, 0.5), ("MSELoss", 3, 1.5), ("CrossEntropyLoss", 3, 1.0), ("BCEWithLogitsLoss", 1, 1.0)],
)
def test_a_step_of_torch_with_weight_decay_is_a_step_on_our_objective(name, C, share):
    """The decayed gradient that SGD follows, against differences of our objective at beta = share * weight_decay."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    decay = 0.3
    loss, wanted, Y, ours = torch_case(torch, name, C)
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, C)).double()
    before = [p.detach().numpy().copy() for p in module.parameters()]
    charged = list(module.parameters())
    groups = [{"params": charged[:3], "weight_decay": decay}, {"params": charged[3:], "weight_decay": 0.0}]
    optimiser = torch.optim.SGD(groups, lr=1.0)
    loss(module(torch.as_tensor(X)), wanted).backward()
    optimiser.step()
    steps = [p.detach().numpy() - b for p, b in zip(module.parameters(), before, strict=True)]

    def at(t):
        W1, b1, W2, b2 = (b + t * s for b, s in zip(before, steps, strict=True))
        return objective(TwoLayerNetwork(W1, W2.T, b1, b2), Y, share * decay, ours)

    # along its own step a gradient g descends by |g|^2; our objective is `share` of theirs where share is of the loss
    slope = (at(1e-5) - at(-1e-5)) / 2e-5
    of_loss = share if name == "MSELoss" else 1.0
    assert slope == pytest.approx(-of_loss * sum((s**2).sum() for s in steps), rel=1e-6)


@pytest.mark.parametrize("C", [1, 2])
def test_alpha_of_the_regressor_of_scikit_learn(C):
    Y = RNG.standard_normal((N, C))
    with warnings.catch_warnings(action="ignore"):
        mlp = MLPRegressor(hidden_layer_sizes=(6,), alpha=3.0, solver="lbfgs", max_iter=20, random_state=0)
        mlp.fit(X, Y if C > 1 else Y[:, 0])
    beta = C * 3.0 / N
    network = TwoLayerNetwork(mlp.coefs_[0].T, mlp.coefs_[1], mlp.intercepts_[0], mlp.intercepts_[1])
    uncharged = beta / 2 * (mlp.intercepts_[0] ** 2).sum()
    assert mlp.loss_ * C == pytest.approx(objective(network, Y, beta) - uncharged, rel=1e-9)


def test_alpha_of_the_classifier_of_scikit_learn():
    with warnings.catch_warnings(action="ignore"):
        mlp = MLPClassifier((6,), alpha=3.0, solver="lbfgs", max_iter=20, random_state=0).fit(X, LABELS)
    network = TwoLayerNetwork(mlp.coefs_[0].T, mlp.coefs_[1], mlp.intercepts_[0], mlp.intercepts_[1])
    loss, beta = get_loss("logistic"), 3.0 / N
    uncharged = beta / 2 * (mlp.intercepts_[0] ** 2).sum()
    Y = encode_classes(loss, LABELS, 2)
    assert mlp.loss_ == pytest.approx(objective(network, Y, beta, loss) - uncharged, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "loss", "beta"),
    [
        (Ridge(alpha=40.0), "squared", 40.0 / N),
        (LogisticRegression(C=0.05, tol=1e-10), "logistic", 1 / (N * 0.05)),
        (SVC(C=0.05, kernel="linear", tol=1e-8), "hinge", 1 / (N * 0.05)),
    ],
    ids=["Ridge", "LogisticRegression", "SVC"],
)
def test_linear_models_are_optimal_at_our_beta_and_at_no_other(model, loss, beta):
    """Of the mean loss and beta / 2 ||w||^2: no multiple of their weights is better."""
    loss = get_loss(loss)
    y = X @ [1.0, -2.0, 0.5, 0.0] + RNG.standard_normal(N) if loss.name == "squared" else LABELS
    Y = loss.encode(y) if loss.name == "squared" else encode_classes(loss, LABELS, 2)
    model.fit(X, y)
    w, b = model.coef_.reshape(-1, 1), float(np.ravel(model.intercept_)[0])

    def value(scale, beta):
        return loss.rows(X @ w * scale + b, Y).mean() + beta / 2 * scale**2 * (w**2).sum()

    def best(beta):
        return min((0.99, 1.0, 1.01), key=lambda scale: value(scale, beta))

    assert best(beta) == 1.0
    assert best(2 * beta) == 0.99
    assert best(beta / 2) == 1.01
