"""Every combination of architecture, method, activation, loss, outputs and beta trains soundly, or is refused at once.

One test for each architecture and loss: its combinations share their problems, so that the bounds of one method can be
held against the networks of the others.
"""

from __future__ import annotations

import re
import warnings
from itertools import product

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from bidual import BatchNorm, Convolutional, Parallel, ReLUClassifier, ReLURegressor, TwoLayer
from bidual.architectures import LeakyReLU
from bidual.closed_form import ConditionError
from bidual.losses import LOSSES
from bidual.solvers import METHODS, InfeasibleError
from bidual.training.targets import encode_labels

from . import referee

ARCHITECTURES = {
    "two_layer": TwoLayer(),
    "free_bias": TwoLayer(),
    "leaky_relu": LeakyReLU(0.2),
    "absolute": LeakyReLU(-1.0),
    "batch_norm": BatchNorm(),
    "batch_norm_after": BatchNorm("after"),
    "batch_norm_rank": BatchNorm(rank=1),
    "batch_norm_after_rank": BatchNorm("after", rank=1),
    "sum": Convolutional(2),
    "average": Convolutional(2, pooling="average"),
    "flatten": Convolutional(2, stride=2, pooling="flatten"),
    "per_patch": Convolutional(2, stride=2, pooling=None),
    "convolutional_batch_norm": Convolutional(2, batch_norm=True),
    "parallel": Parallel(2),
    "parallel_deeper": Parallel(2, 2, (1,)),
    "parallel_rank": Parallel(2, rank=1),
}
#: Losses with the estimator that takes them.
PAIRS = [(loss, ReLUClassifier if LOSSES[loss].classification else ReLURegressor) for loss in LOSSES]
PAIRS.append(("squared", ReLUClassifier))
#: Seconds for a proof, where there is to be one.
PROVE = {("squared", ReLURegressor): 0.02}
#: The parts of a combination that a refusal may name.
PARTS = r"method=|activation=|architecture=|loss[= ]'|beta=0|\d outputs|fit_intercept=|bias="


#: Iterations: of the conic solver to an optimum; of column generation, by the number of outputs, to something that has
#: a bound. With one output the conic programs give the sharp bounds and networks, with three nothing else does.
CONIC, ROUNDS = 100, {1: 1, 3: 3}


class Arithmetic(Exception):
    """Something is being computed."""


def rows_of(architecture):
    """Rows few enough that even all cells of parallel networks are."""
    rng = np.random.default_rng(0)
    if isinstance(architecture, Convolutional):
        return rng.standard_normal((5, 4))
    if isinstance(architecture, Parallel):
        return rng.standard_normal((4, 1 if architecture.rank is None else 2))
    return rng.standard_normal((6, 2))


def patches_of(architecture, X):
    """The windows of two neighbours, ``(n, K, 2)``; None for other architectures."""
    if not isinstance(architecture, Convolutional):
        return None
    return np.stack([X[:, k : k + 2] for k in range(0, 3, architecture.stride)], axis=1)


def targets_of(estimator, n, outputs):
    """Numbers, or labels of all classes."""
    if estimator is ReLUClassifier:
        return np.arange(n) % (2 if outputs == 1 else outputs)
    Y = np.random.default_rng(1).standard_normal((n, outputs))
    return Y[:, 0] if outputs == 1 else Y


@pytest.mark.parametrize(("loss", "estimator"), PAIRS, ids=[f"{loss}-{kind.__name__[4:]}" for loss, kind in PAIRS])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_combination_trains_soundly_or_is_refused_beforehand(name, loss, estimator, monkeypatch):
    architecture = ARCHITECTURES[name]
    X = rows_of(architecture)
    patches = patches_of(architecture, X)
    pooling = getattr(architecture, "pooling", None)
    places = () if name != "per_patch" else (patches.shape[1],)
    for outputs, beta in product((1, 3), (0, 0.1)):
        y = targets_of(estimator, len(X) * int(np.prod(places)), outputs)
        settings = {"loss": loss, "architecture": architecture, "tol": 1e-2, "random_state": 0}
        settings["bias"] = "free" if name == "free_bias" else True
        settings["prove"] = PROVE.get((loss, estimator), False)
        shaped = y.reshape(len(X), *places, *y.shape[1:])
        acting, Y = loss, y.reshape(len(y), -1)
        if estimator is ReLUClassifier:
            kind, _, Y = encode_labels(LOSSES[loss](), y)
            acting = kind.name
        networks, bounds, refused = [], [], {}
        for activation, method in product(("relu", "gated"), METHODS):
            indicator = beta == 0 or not LOSSES[acting].finite
            rounds = CONIC if indicator or (method in ("exact", "sampled") and outputs == 1) else ROUNDS[outputs]
            est = estimator(beta, activation=activation, method=method, max_iter=rounds, **settings)
            sentence = refusal(est, X, shaped, monkeypatch)
            if sentence is not None:
                refused[activation, method] = sentence
                assert len(set(re.findall(PARTS, sentence))) >= 2, sentence
                assert "; use " in sentence
                assert "\n" not in sentence
                continue
            if activation == "gated" and method != "adaptive":  # gates leave nothing for a method to choose
                continue
            if beta == 0 and loss not in ("squared", "hinge", "epsilon_insensitive"):  # the same problem as theirs
                continue
            trained = fitted(est, X, shaped, method, indicator)
            if trained is None:
                continue
            certificate = trained.certificate_
            value = referee.objective(trained.network_, X, Y, acting, beta, patches, pooling)
            assert certificate.objective == pytest.approx(value, rel=1e-9)
            assert np.isfinite([certificate.objective, certificate.lower_bound, certificate.likely_bound]).all()
            assert certificate.lower_bound <= certificate.likely_bound
            assert certificate.likely_bound <= certificate.objective * (1 + SLACK[indicator])
            assert certificate.scope
            if activation == "relu":
                networks.append(value)
                if not {"patterns", "separate"} & set(certificate.scope.split(", ")):
                    bounds.append(certificate.lower_bound)
        if networks and bounds:  # no network of this architecture is below a bound on all of them
            assert max(bounds) <= min(networks) * (1 + SLACK[indicator])
        check_advice(refused)


#: What a bound may be above an objective by: rounding; of fits, what the conic solver leaves of the residual.
SLACK = {False: 1e-9, True: 1e-5}


def refusal(est, X, y, monkeypatch):
    """The sentence of a combination that is refused before anything is computed; None if it is not."""

    def stop(*args, **kwargs):
        raise Arithmetic

    with monkeypatch.context() as patch:
        patch.setattr("bidual.training.rows.distinct_rows", stop)  # the first thing that training does
        for function in ("svd", "norm", "lstsq", "solve", "eigh"):
            patch.setattr(np.linalg, function, stop)
        try:
            est.fit(X, y)
        except ValueError as error:
            return str(error)
        except Arithmetic:
            return None
    raise AssertionError("training without arithmetic")


def fitted(est, X, y, method, indicator):
    """The estimator, trained; None where these very data are not what the method is for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return est.fit(X, y)
        except ConditionError:
            assert method == "closed_form"
        except InfeasibleError:  # the few patterns of the relaxation need not be able to fit
            assert method.startswith("cutting_plane")
            assert indicator
    return None


def check_advice(refused):
    """Where a method is refused, the methods named instead are those that are not refused."""
    accepted = [method for method in METHODS if ("relu", method) not in refused]
    for (activation, method), sentence in refused.items():
        if activation == "relu" and sentence.startswith(f"method={method!r}"):
            named = re.search(r"; use method=(.*?)(, or |$)", sentence)
            assert (named.group(1).split(" or ") if named else []) == [repr(name) for name in accepted]
