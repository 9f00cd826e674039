"""Certificates of every kind are accepted by ``verify`` and by the independent checker; forgeries are not."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import bidual
from bidual import (
    BatchNorm,
    Convolutional,
    LinearConvRegressor,
    LinearNetRegressor,
    Parallel,
    ReLUClassifier,
    ReLURegressor,
    SplineClassifier,
    SplineRegressor,
    certify,
)
from bidual.bounds import Certificate, ContradictionError
from bidual.certification import check_certificate, refusal
from bidual.certification.check_certificate import Problem, check, constraint, nearly_dependent
from bidual.certification.verification import pose

rng = np.random.default_rng(0)
X = rng.standard_normal((14, 2))
Y = np.abs(X[:, 0]) + 0.1 * rng.standard_normal(14)
WIDE = rng.standard_normal((16, 4))
TABLE = rng.standard_normal((12, 5))
LABELS = np.where(np.median(Y) < Y, "yes", "no")
UNITS = X * [1e-5, 3e4] + [2.0, -1e6]
THREE = np.array(["u", "v", "w"])[np.arange(14) % 3]
WEIGHTS = rng.uniform(0.2, 2.0, 14)
FULL = np.random.default_rng(1).standard_normal((14, 16))
IMAGES = np.random.default_rng(2).standard_normal((14, 4, 4, 2))


def fitted(estimator, inputs, targets, weights=None):
    """An estimator, whatever its gap is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(inputs, targets) if weights is None else estimator.fit(inputs, targets, weights)


def document(certificate):
    """A certificate as a file holds it."""
    return json.loads(json.dumps(certificate.to_dict()))


def relu(**options):
    return ReLURegressor(**{"beta": 0.05, "tol": 1e-2, "random_state": 0, "prove": 0.5, **options})


def classifier(**options):
    return ReLUClassifier(**{"beta": 0.02, "tol": 1e-2, "random_state": 0, "prove": 0.5, **options})


def formula(**options):
    return relu(**{"architecture": "batch_norm", "method": "closed_form", **options})


CASES = {
    "patterns": (relu(), X, Y, "patterns"),
    "exact": (relu(method="exact"), X, Y, "patterns"),
    "without biases": (relu(bias=False, fit_intercept=False), X, Y, "patterns"),
    "weights": (relu(), X, Y, "patterns"),
    "offset 1e3": (relu(), X + 1e3, Y, "patterns"),
    "offset 1e6": (relu(), X + 1e6, Y + 1e4, "patterns"),
    "ties": (relu(), np.round(X), np.round(Y), "patterns"),
    "norms": (relu(prove=False), X, Y, "norms"),
    "nothing to learn": (relu(beta=10.0), X, Y, "norms"),
    "constant": (relu(), X, np.ones(14), "norms"),
    "cones": (relu(method="exact"), X, np.column_stack([Y, X[:, 1]]), "cones"),
    "sampled": (relu(method="sampled", n_patterns=8), X, Y, "sampled"),
    "sampled outputs": (relu(method="sampled", n_patterns=8), X, np.column_stack([Y, X[:, 1]]), "shared"),
    "outputs of rank five": (relu(method="exact"), WIDE[:8], WIDE[:8, ::-1][:, :2] ** 2, "shared"),
    "gates": (relu(activation="gated", n_patterns=8), X, Y, "gates"),
    "cutting planes": (relu(method="cutting_plane"), X, Y, "patterns"),
    "huber": (relu(loss="huber"), X, Y, "patterns"),
    "absolute": (relu(loss="absolute"), X, Y, "patterns"),
    "quantile": (relu(loss=bidual.losses.Quantile(0.8)), X, Y, "patterns"),
    "insensitive": (relu(loss=bidual.losses.EpsilonInsensitive(0.2)), X, Y, "patterns"),
    "insensitive weights": (relu(loss="epsilon_insensitive", method="exact"), X, Y, "patterns"),
    "insensitive outputs": (relu(loss="epsilon_insensitive"), X, np.column_stack([Y, 50 * Y]), "cones"),
    "tube": (relu(beta=0, loss="epsilon_insensitive", method="exact"), X[:7], 30 * Y[:7], "patterns"),
    "logistic": (classifier(), X, LABELS, "patterns"),
    "hinge": (classifier(loss="hinge"), X, LABELS, "patterns"),
    "squared hinge": (classifier(loss="squared_hinge"), X, LABELS, "patterns"),
    "labels as numbers": (classifier(loss="squared"), X, LABELS, "patterns"),
    "softmax": (classifier(method="exact"), X, THREE, "cones"),
    "softmax by norms": (classifier(prove=False, max_neurons=50), X, THREE, "norms"),
    "exact fit": (relu(beta=0, method="exact"), X[:7], Y[:7], "patterns"),
    "margin": (classifier(beta=0, loss="hinge", method="exact"), X[:6], np.array(list("ababab")), "patterns"),
    "batch norm": (relu(architecture="batch_norm"), X, Y, "patterns"),
    "batch norm of rank": (relu(architecture=BatchNorm(rank=1)), X, Y, "patterns"),
    "convolution": (relu(architecture=Convolutional(2), bias=False), TABLE, TABLE[:, 0], "patterns"),
    "average": (relu(architecture=Convolutional(2, pooling="average"), prove=False), TABLE, TABLE[:, 0], "norms"),
    "flatten": (relu(architecture=Convolutional(2, pooling="flatten"), prove=False), TABLE, TABLE[:, 0], "norms"),
    "normalised filters": (
        relu(architecture=Convolutional(2, batch_norm=True), prove=False), TABLE, TABLE[:, 0], "norms",
    ),
    "places": (relu(architecture=Convolutional(2, pooling=None), prove=False), TABLE, np.abs(TABLE[:, :4]), "norms"),
    "gated filters": (
        relu(architecture=Convolutional(2), activation="gated", n_patterns=6), TABLE, TABLE[:, 0], "gates",
    ),
    "margin, weight decay": (classifier(loss="margin", method="exact"), X[:6], np.array(list("ababab")), "patterns"),
    "normalised": (relu(architecture=BatchNorm("after"), method="exact"), X, Y, "normalised"),
    "normalised without biases": (relu(architecture=BatchNorm("after"), bias=False), X[:9], Y[:9], "normalised"),
    "normalised ties": (
        relu(architecture=BatchNorm("after"), bias=False), np.round(WIDE[:, :3]), WIDE[:, 3], "normalised",
    ),
    "normalised, sampled": (relu(architecture=BatchNorm("after"), method="sampled", n_patterns=9), X, Y, "sampled"),
    "normalised, two outputs": (
        relu(architecture=BatchNorm("after"), method="exact", prove=2.0), X[:6], X[:6, ::-1] ** 2, "shared",
    ),
    "normalised, two outputs on some patterns": (
        relu(architecture=BatchNorm("after"), method="sampled", n_patterns=9), X[:8], X[:8, ::-1] ** 2, "shared",
    ),
    "normalised as by torch": (relu(architecture=BatchNorm(normalisation="std")), X, Y, "patterns"),
    "normalised as by torch, after": (
        relu(architecture=BatchNorm("after", normalisation="std"), bias=False), X[:9], Y[:9], "normalised",
    ),
    "one leaf": (relu(architecture=Parallel(1)), X, Y, "layers"),
    "two leaves": (relu(architecture=Parallel(2), method="exact", prove=2.0), X[:5], Y[:5], "layers"),
    "two outputs": (relu(architecture=Parallel(1, 3), method="exact", prove=2.0), X[:7], X[:7, ::-1] ** 2, "layers"),
    "branches": (relu(architecture=Parallel(2), method="sampled", n_patterns=9), X, Y, "layers"),
    "deeper branches": (relu(architecture=Parallel(2, 2, [2]), method="sampled", n_patterns=9), X, Y, "layers"),
    "branches of low rank": (relu(architecture=Parallel(1, rank=1)), X, Y, "layers"),
    "branches by norms": (relu(architecture=Parallel(2), prove=False, max_iter=3), X, Y, "norms"),
    "gates that do nothing": (relu(activation="gated", n_patterns=8), X, 0 * Y, "gates"),
    "spline": (SplineRegressor(beta=0.01), X[:, :1], Y, "kinks"),
    "insensitive spline": (SplineRegressor(beta=0.01, loss="epsilon_insensitive"), X[:, :1], 5 * Y, "kinks"),
    "spline in a wide tube": (SplineRegressor(beta=0.01, loss="epsilon_insensitive"), X[:, :1], 1e-6 * Y, "kinks"),
    "spline in a tube": (SplineRegressor(beta=0, loss="epsilon_insensitive"), X[:, :1], Y, "kinks"),
    "spline outputs": (SplineRegressor(beta=0.01, loss="huber"), X[:, :1], np.column_stack([Y, X]), "kinks"),
    "spline far away": (SplineRegressor(beta=0.01), X[:, :1] + 1e5, Y, "kinks"),
    "spline far away and apart": (SplineRegressor(beta=1e-4, loss="huber"), 1e-3 * X[:, :1] + 3e3, Y, "kinks"),
    "spline on a line": (SplineRegressor(beta=0.01), X[:, :1] * [[1.0, 2.0, -1.0]] + 1.0, Y, "kinks"),
    "spline of classes": (SplineClassifier(beta=0.01), X[:, :1], LABELS, "kinks"),
    "linear": (LinearNetRegressor(beta=0.01), WIDE, WIDE @ rng.standard_normal((4, 2)), "linear"),
    "three linear layers": (LinearNetRegressor(3, 0.01), WIDE, WIDE[:, 0] + 0.1 * WIDE[:, 1] ** 2, "chains"),
    "five linear layers, weights": (LinearNetRegressor(5, 0.01, fit_intercept=False), X, Y, "chains"),
    "linear layers and outputs": (LinearNetRegressor(4, 0.01), WIDE, WIDE[:, :2] + 0.1 * WIDE[:, 2:] ** 2, "chains"),
    "linear layers with nothing to learn": (LinearNetRegressor(3, 0.01), X, np.ones(14), "chains"),
    "formula": (formula(fit_intercept=False), FULL, Y, "positive"),
    "formula, weights": (formula(), FULL, Y, "positive"),
    "formula of classes": (formula(fit_intercept=False), FULL, np.eye(3)[np.arange(14) % 3], "positive"),
    "formula of an exact fit": (formula(beta=0, fit_intercept=False), FULL, Y, "positive"),
    "formula of white rows": (
        formula(architecture="two_layer", bias=False, fit_intercept=False), np.eye(16)[:14], Y, "positive",
    ),
    "formula after the ReLU": (formula(architecture=BatchNorm("after")), FULL, Y, "norms"),
    "linear filters": (LinearConvRegressor(2, beta=0.01), TABLE, TABLE[:, 0], "linear"),
    "linear filters, weights": (LinearConvRegressor((2, 2), beta=0.01, stride=2, padding=1), IMAGES, FULL, "linear"),
    "circular filters": (LinearConvRegressor(3, True, beta=0.01, fit_intercept=False), TABLE, TABLE[:, 0], "linear"),
    "linear filters, small beta": (LinearConvRegressor(2, beta=1e-9), TABLE, Y[:12], "linear"),
    "Fourier filters": (LinearConvRegressor(None, True, beta=0.01), IMAGES, Y, "linear"),
    "patches": (LinearConvRegressor(None, beta=0.01), IMAGES[..., 0], Y, "linear"),
    "standardised": (relu(scale=True), UNITS, Y, "patterns"),
    "standardised weights": (relu(scale=True), UNITS, Y, "patterns"),
    "standardised classes": (classifier(scale=True), UNITS, THREE, "cones"),
    "standardised constant column": (relu(scale=True), np.column_stack([UNITS, np.full(14, 0.3)]), Y, "patterns"),
    "standardised filters": (relu(scale=True, architecture=Convolutional(2), prove=False), IMAGES, Y, "norms"),
    "standardised branches": (relu(scale=True, architecture=Parallel(1)), UNITS, Y, "layers"),
    "standardised normalised": (relu(scale=True, architecture="batch_norm"), UNITS, Y, "patterns"),
    "standardised gates": (relu(scale=True, activation="gated", n_patterns=8), UNITS, Y, "gates"),
    "gates in blocks": (relu(activation="gated", n_patterns=8, backend="numpy"), X, Y, "gates"),
    "gates in blocks, weights": (
        classifier(activation="gated", n_patterns=8, backend="numpy"), X, THREE, "gates",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_honest_certificates_are_proven_by_both(name):
    estimator, inputs, targets, kind = CASES[name]
    weights = WEIGHTS if "weights" in name else None
    est = fitted(estimator, inputs, targets, weights)
    data = document(est.certificate_)
    assert data["evidence"]["proof"]["kind"] == kind
    certificate = Certificate.from_dict(data)
    assert refusal(certificate, inputs, targets, weights, est) is None
    assert certificate.verify(inputs, targets, weights, est)
    for given in (data, est.certificate_.to_dict()):  # as a file holds it, and as it is made: plain numbers both
        proven, reason = check(given, inputs, targets, weights, est.network_.to_dict())
        assert proven, reason


def test_filters_attain_no_more_than_their_largest_singular_value():
    # rounding may add more than a thousandth here: that belongs to the limit
    certificate = fitted(LinearConvRegressor(2, beta=1e-9), TABLE, Y[:12]).certificate_
    evidence = certificate.evidence
    units = pose(certificate, evidence, TABLE, Y[:12], None).units
    V = units.outputs * evidence.V[np.unique(TABLE, axis=0, return_inverse=True)[1].ravel(), 0]
    seen = (TABLE - TABLE.mean(axis=0)).T @ V
    largest = np.linalg.norm(np.stack([seen[k : k + 2] for k in range(4)]), 2)
    assert 0.9 * largest < certificate.attained <= largest <= certificate.limit


@pytest.mark.parametrize("method", ["compact", "signs", "cones", "patterns"])
def test_certificates_of_other_networks_are_proven_by_both(method):
    few = X if method == "patterns" else WIDE
    targets = np.abs(few[:, 0]) + 0.1 * few[:, 1]
    est = fitted(relu(prove=False, max_iter=2), few, targets)
    certificate = certify(est, few, targets, beta=0.05, method=method, time_limit=2.0, tol=1e-2, random_state=0)
    assert certificate.verify(few, targets, model=est)
    proven, reason = check(document(certificate), few, targets, model=est.network_.to_dict())
    assert proven, reason


def test_relaxations_of_several_outputs_are_proven_by_both():
    targets = np.column_stack([WIDE[:, 0], np.abs(WIDE[:, 1])])
    est = fitted(relu(prove=False, max_iter=2), WIDE, targets)
    certificate = certify(est, WIDE, targets, beta=0.05, method="compact", time_limit=60, random_state=0)
    assert certificate.evidence.proof.kind == "relaxation"
    assert certificate.verify(WIDE, targets)
    proven, reason = check(document(certificate), WIDE, targets)
    assert proven, reason


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("depth", [3, 4])
def test_no_maps_prove_more_than_the_best_linear_network(depth, outputs):
    targets = WIDE[:, :outputs] + 0.2 * WIDE[:, 2:] @ np.ones((2, outputs))
    est = fitted(LinearNetRegressor(depth, 0.02), WIDE, targets)
    data, random = document(est.certificate_), np.random.default_rng(depth)
    data["objective"] = data["lower_bound"] = data["likely_bound"] = est.objective_ * (1 + 1e-6)
    data["gap"] = data["likely_gap"] = 0.0
    honest = data["evidence"]["proof"]
    for _ in range(30):
        forged = copy.deepcopy(data)
        maps, scales = np.array(honest["maps"]), np.array(honest["scales"])
        maps = maps + 10.0 ** random.uniform(-4, 2) * random.standard_normal(maps.shape) * (random.random() < 0.7)
        forged["evidence"]["proof"]["maps"] = maps.tolist()
        forged["evidence"]["proof"]["scales"] = (scales * 10.0 ** random.uniform(-1, 3, scales.shape)).tolist()
        assert not accepted(forged, WIDE, targets)
        assert not check(forged, WIDE, targets)[0]


@pytest.mark.parametrize("change", [{"depth": 2}, {"depth": 4}, {"depth": 2.5}, {"depth": True}, {}])
def test_chains_of_another_depth_are_refused_by_both(change):
    targets = WIDE[:, 0] + 0.1 * WIDE[:, 1] ** 2
    est = fitted(LinearNetRegressor(3, 0.02), WIDE, targets)
    data = document(est.certificate_)
    data["evidence"]["options"] = change
    assert not accepted(data, WIDE, targets, est)
    assert not check(data, WIDE, targets, model=est.network_.to_dict())[0]


def relaxation():
    targets = np.abs(WIDE[:, 0]) + 0.1 * WIDE[:, 1]
    est = fitted(relu(prove=False, max_iter=2), WIDE, targets)
    certificate = certify(est, WIDE, targets, beta=0.05, method="compact", time_limit=60, random_state=0)
    return document(certificate), WIDE, targets


def cones():
    targets = np.column_stack([Y, X[:, 1]])
    return document(fitted(relu(method="exact"), X, targets).certificate_), X, targets


def patterns():
    return document(fitted(relu(), X, Y).certificate_), X, Y


def sampled():
    return document(fitted(relu(method="sampled", n_patterns=8), X, Y).certificate_), X, Y


def gates():
    return document(fitted(relu(activation="gated", n_patterns=8), X, Y).certificate_), X, Y


def spline():
    return document(fitted(SplineRegressor(beta=0.01), X[:, :1], Y).certificate_), X[:, :1], Y


def normalised():
    return document(fitted(relu(architecture=BatchNorm("after")), X, Y).certificate_), X, Y


def outputs_of_normalised():
    est = relu(architecture=BatchNorm("after"), method="exact", prove=2.0)
    return document(fitted(est, X[:6], X[:6, ::-1] ** 2).certificate_), X[:6], X[:6, ::-1] ** 2


def priced():
    return document(fitted(relu(bias="free", method="exact"), X, Y).certificate_), X, Y


def branches():
    return document(fitted(relu(architecture=Parallel(1), method="exact"), X, Y).certificate_), X, Y


def cells():
    return document(fitted(relu(architecture=Parallel(2), method="sampled", n_patterns=9), X, Y).certificate_), X, Y


def white():
    return document(fitted(formula(fit_intercept=False), FULL, Y).certificate_), FULL, Y


def filters():
    targets = IMAGES[:, 0, 0, :]
    return document(fitted(LinearConvRegressor(2, beta=0.01), IMAGES, targets).certificate_), IMAGES, targets


def blocks():
    est = fitted(relu(activation="gated", n_patterns=8, backend="numpy"), X, Y)
    return document(est.certificate_), X, Y


def standardised():
    return document(fitted(relu(scale=True), UNITS, Y).certificate_), UNITS, Y


MAKERS = [
    standardised, patterns, relaxation, cones, sampled, gates, spline, normalised, branches, cells, white, filters,
    blocks, outputs_of_normalised, priced,
]  # fmt: skip


def raised(data):
    """A higher lower bound, with numbers that agree."""
    data["lower_bound"] *= 1.0 + 1e-6
    data["objective"] = max(data["objective"], data["lower_bound"] * (1 + 1e-3))
    data["likely_bound"] = max(data["lower_bound"], min(data["likely_bound"], data["objective"]))
    for name, bound in (("gap", "lower_bound"), ("likely_gap", "likely_bound")):
        data[name] = (data["objective"] - data[bound]) / data["objective"]


def smaller_beta(data):
    data["beta"] *= 0.5


def other_loss(data):
    data["loss"] = "huber"
    data["evidence"]["loss"] = {"name": "huber", "delta": 0.01}


def loss_by_name(data):
    data["loss"] = "absolute"


def wider_scope(data):
    data["scope"] = "global"


def scaled_up(data):
    data["evidence"]["V"] = (3.0 * np.array(data["evidence"]["V"])).tolist()
    data["evidence"]["scale"] *= 3.0
    raised(data)


def no_proof(data):
    data["evidence"]["proof"] = {"kind": "norms"}


def smaller_limit(data):
    data["limit"] *= 0.9


def value_above_limit(data):
    data["attained"] = 1.1 * data["limit"]


def other_rows(data):
    data["evidence"]["V"] = data["evidence"]["V"][::-1]


def other_architecture(data):
    data["evidence"]["bias"] = False


def fewer_rows(data):
    data["evidence"]["V"] = data["evidence"]["V"][1:]


TAMPERINGS = [
    raised, smaller_beta, other_loss, loss_by_name, wider_scope, scaled_up, no_proof, smaller_limit,
    value_above_limit, other_rows, other_architecture, fewer_rows,
]  # fmt: skip


def accepted(data, inputs, targets, model=None):
    """Whether the library accepts a document: errors are no acceptance."""
    try:
        return Certificate.from_dict(data).verify(inputs, targets, model=model)
    except (ValueError, ContradictionError):
        return False


@pytest.mark.parametrize("make", MAKERS, ids=lambda f: f.__name__)
def test_what_is_tampered_with_is_refused_by_both(make):
    honest, inputs, targets = make()
    assert accepted(honest, inputs, targets)
    assert check(honest, inputs, targets)[0]
    for tamper in TAMPERINGS:
        data = copy.deepcopy(honest)
        tamper(data)
        if tamper is other_architecture and make in (spline, white, filters):
            continue  # biases are cancelled by normalisation, and linear networks have none
        if data["scope"] == honest["scope"] and tamper is wider_scope:
            continue  # there is none
        if tamper is no_proof and make is filters:
            continue  # the norm is the constraint itself
        assert not accepted(data, inputs, targets), tamper.__name__
        assert not check(data, inputs, targets)[0], tamper.__name__


@pytest.mark.parametrize(
    "options", [{"circular": True}, {"stride": 2}, {"padding": 1}, {"kernel_size": 3}, {"kernel_size": None}]
)
def test_linear_filters_of_another_window_are_refused(options):
    data, inputs, targets = filters()
    # a window that shows more has more neurons, for which the bound does not hold
    data["evidence"]["options"] |= options
    raised(data)
    assert not accepted(data, inputs, targets)
    assert not check(data, inputs, targets)[0]


def test_a_bound_on_positive_neurons_is_that_of_all_of_them():
    # white and square features: the neuron (v)_+ / w, of unit cost, attains the bound
    data, inputs, _ = white()
    V, n = np.array(data["evidence"]["V"]), 14
    w = np.full(n, 1 / n)
    M = np.sqrt(n) * np.linalg.qr(np.random.default_rng(3).standard_normal((n, n)))[0]
    attained = max(np.sqrt((np.maximum(s * V, 0) ** 2 / w[:, None]).sum()) for s in (1, -1))
    bound = constraint(Problem(data["evidence"], inputs, w, M, None, V), 0.0)[0]
    h = np.maximum(V[:, 0], 0) / w
    u = np.linalg.solve(M, h)
    assert np.abs(V[:, 0] @ np.maximum(M @ u, 0)) / np.linalg.norm(u) <= bound
    assert attained <= bound <= attained * (1 + 1e-9)


def test_a_proof_for_positive_neurons_of_rows_with_several_outputs_is_refused():
    targets = np.eye(3)[np.arange(14) % 3]
    data = document(fitted(formula(fit_intercept=False), FULL, targets).certificate_)
    assert check(data, FULL, targets)[0]
    data["evidence"]["V"][0] = [0.1, 0.1, 0.1]
    assert not accepted(data, FULL, targets)
    assert not check(data, FULL, targets)[0]


@pytest.mark.parametrize("other", [{"depth": 3}, {"depth": 2, "more": 1}, {}])
def test_the_proof_of_two_linear_layers_is_not_one_of_other_depths(other):
    targets = WIDE[:, :2] ** 2
    data = document(fitted(LinearNetRegressor(beta=0.01), WIDE, targets).certificate_)
    assert accepted(data, WIDE, targets)
    data["evidence"]["options"] = other
    assert not accepted(data, WIDE, targets)
    assert not check(data, WIDE, targets)[0]


def test_a_linear_model_with_an_intercept_is_refused_where_the_claim_has_none():
    targets = np.zeros(16)
    est = fitted(LinearNetRegressor(beta=0.01, fit_intercept=False), WIDE, targets)
    data, network = document(est.certificate_), est.network_.to_dict()
    data["objective"], network["weights"]["bias_2"] = 0.5, [1.0]
    data["gap"] = data["likely_gap"] = 1.0
    model = bidual.networks.Network.from_dict(network)
    assert not accepted(data, WIDE, targets, model)
    assert not check(data, WIDE, targets, model=network)[0]


@pytest.mark.parametrize("scale", [-1.0, 0.0, 1e-300])
def test_a_relaxation_of_another_scale_without_multipliers_is_refused(scale):
    data, inputs, targets = relaxation()
    proof = data["evidence"]["proof"]
    proof["scale"] = scale
    zeros = np.zeros(sum(proof["sizes"][0]), dtype="<f4")
    proof["multipliers"] = [bidual.bounds.parsing.pack(zeros)] * len(proof["sizes"])
    assert not accepted(data, inputs, targets)
    assert not check(data, inputs, targets)[0]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38])
def test_multipliers_that_are_no_numbers_prove_nothing(value):
    data, inputs, targets = relaxation()
    proof = data["evidence"]["proof"]
    for k, sizes in enumerate(proof["sizes"]):
        proof["multipliers"][k] = bidual.bounds.parsing.pack(np.full(sum(sizes), value))
    assert not accepted(data, inputs, targets)
    assert not check(data, inputs, targets)[0]


@pytest.mark.parametrize("cones_looked_at", [0, 10**9, 10**18])
def test_a_search_that_could_not_end_is_refused_at_once(cones_looked_at):
    data, inputs, targets = cones()
    data["evidence"]["proof"] |= {"cones": cones_looked_at, "limit": 0.5 * data["evidence"]["proof"]["limit"]}
    assert not accepted(data, inputs, targets)
    assert not check(data, inputs, targets)[0]


def test_a_proof_of_fewer_gates_is_refused_for_a_model_with_more():
    est = fitted(relu(activation="gated", n_patterns=8), X, Y)
    data = document(est.certificate_)
    active = bidual.bounds.parsing.unpack_bits(data["evidence"]["proof"], "active")
    data["evidence"]["proof"]["active"] = bidual.bounds.parsing.pack_bits(active[:1])
    assert not check(data, X, Y, model=est.network_.to_dict())[0]
    assert not accepted(data, X, Y, est)


@pytest.mark.parametrize(
    "other",
    [relu(bias=False), relu(fit_intercept=False), relu(activation="gated"), relu(architecture="batch_norm")],
    ids=["no biases", "no intercept", "gates", "batch norm"],
)
def test_a_model_of_another_class_or_objective_is_refused_by_both(other):
    est, stranger = fitted(relu(), X, Y), fitted(other, X, Y)
    data = document(est.certificate_)
    assert check(data, X, Y, model=est.network_.to_dict())[0]
    assert not check(data, X, Y, model=stranger.network_.to_dict())[0]
    assert not Certificate.from_dict(data).verify(X, Y, model=stranger)


def test_other_data_are_refused_by_the_checker():
    data, inputs, targets = patterns()
    assert not check(data, inputs + 0.01, targets)[0]
    assert not check(data, inputs, targets + 0.01 * inputs[:, 0])[0]
    assert not check(data, inputs[1:], targets[1:])[0]
    assert not check(data, inputs, targets, WEIGHTS)[0]


def test_norms_of_normalised_neurons_count_every_output():
    # V = (0, 1) on four rows of weight 1/4: the neuron of constant outputs attains sqrt(sum v_i^2 / w_i) = 4
    evidence = {
        "architecture": "batch_norm",
        "options": {"position": "after"},
        "bias": True,
        "proof": {"kind": "norms"},
    }
    V = np.column_stack([np.zeros(4), np.ones(4)])
    assert constraint(Problem(evidence, V, np.full(4, 0.25), np.ones((4, 1)), None, V), 0.0)[0] >= 4.0


@pytest.mark.parametrize("k", [1.0, 0.3])
def test_a_shared_proof_of_normalised_neurons_is_above_all_of_them_and_near_the_best(k):
    random = np.random.default_rng(5)
    R, V, w = np.column_stack([X[:6], np.ones(6)]), random.standard_normal((6, 2)), random.uniform(0.5, 2.0, 6)
    w /= w.sum()
    ring, edges = [0, 1, 2, 3], []
    for _ in range(4):  # directions of the outputs, halved all around
        edges += [[i, j] for i, j in zip(ring, [*ring[1:], ring[0]], strict=True)]
        ring = [j for i, new in zip(ring, range(len(ring), 2 * len(ring)), strict=True) for j in (i, new)]
    evidence = {
        "architecture": "batch_norm",
        "options": {"position": "after"},
        "bias": True,
        "proof": {"kind": "shared", "axes": np.eye(2).tolist(), "edges": edges, "active": None},
    }
    bound, restricted = constraint(Problem(evidence, X[:6], w, np.column_stack([R, np.full(6, k)]), None, V), 0.0)
    H = np.maximum(R @ random.standard_normal((3, 100_000)), 0.0)
    H = H[:, np.ptp(H, axis=0) > 1e-3]
    H -= w @ H
    values, constant = V.T @ (H / np.sqrt(w @ H**2)), V.sum(axis=0)
    gram = np.einsum("cm,dm->mcd", values, values) + np.outer(constant, constant)
    best = k * np.sqrt(np.linalg.eigvalsh(gram)[:, -1].max())
    assert restricted == ""
    assert best <= bound <= 1.01 * best


def test_the_checker_lists_no_patterns_of_normalised_neurons_that_rounding_may_hide():
    # the enumeration takes rows that are nearly opposite for one hyperplane, and misses the sliver between them
    rows = np.array([[1.0, 0.0], [-1.0, 1e-12], [-0.3, -1.0], [0.3, -2.0]])
    assert nearly_dependent(rows)
    assert not nearly_dependent(np.where(np.abs(rows) < 1e-6, 0.0, rows))


def test_a_branch_that_a_proof_by_layers_forgets_is_found():
    # ((t)_+ - (t - 1)_+)_+ on four points of a line is what two leaves can do and one cannot
    est = fitted(
        relu(beta=0.001, architecture=Parallel(2), method="exact", prove=5.0), X[:6, :1], np.clip(X[:6, 0], 0, 1)
    )
    data = document(est.certificate_)
    data["evidence"]["options"]["m1"] = 1
    assert not check(data, X[:6, :1], np.clip(X[:6, 0], 0, 1), model=est.network_.to_dict())[0]


def test_certificates_of_splines_can_be_read_in_a_new_process(tmp_path):
    fitted(SplineRegressor(beta=0.01), X[:, :1], Y).certificate_.save(tmp_path / "c.json")
    code = f"import bidual; bidual.Certificate.load({str(tmp_path / 'c.json')!r})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_checker_runs_without_the_library(tmp_path):
    source = Path(check_certificate.__file__)
    est = fitted(relu(), X, Y)
    est.certificate_.save(tmp_path / "c.json")
    est.network_.save(tmp_path / "m.json")
    np.savetxt(tmp_path / "d.csv", np.column_stack([X, Y]), delimiter=",", header="a,b,y", comments="", fmt="%.17g")
    code = f"import sys, runpy; sys.argv[0] = 'x'; runpy.run_path({str(source)!r}, run_name='__main__')"
    files = [str(tmp_path / name) for name in ("c.json", "d.csv")]
    run = subprocess.run(
        [sys.executable, "-I", "-c", code, *files, "--model", str(tmp_path / "m.json")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("PROVEN: ")
    tokens = [
        line.split()[1].split(".")[0] for line in source.read_text().splitlines() if line.startswith(("import", "from"))
    ]
    assert set(tokens) <= {
        "__future__",
        "argparse",
        "base64",
        "csv",
        "json",
        "math",
        "pathlib",
        "sys",
        "itertools",
        "numpy",
        "typing",
        "collections",
    }


@pytest.mark.parametrize("key", ["centre", "scale", "inner"])
def test_a_standardisation_is_that_of_the_claim_and_of_the_model(key):
    est = fitted(relu(scale=True), UNITS, Y)
    honest, model = document(est.certificate_), est.network_.to_dict()
    assert check(honest, UNITS, Y, None, model)[0]
    other = {"name": "leaky_relu", "options": {"slope": 0.5}} if key == "inner" else [1e-6, 1.0]
    forged = copy.deepcopy(honest)
    forged["evidence"]["options"][key] = other
    assert not check(forged, UNITS, Y, None, model)[0]
    assert not accepted(forged, UNITS, Y, est)
    changed = {**model, key: other} if key != "inner" else model["layer"]
    assert not check(honest, UNITS, Y, None, changed)[0]


@pytest.mark.parametrize("scale", [[1.0, 0.0], [1.0, -1.0], [1.0], [[1.0], [1.0]], [1.0, float("nan")]])
def test_impossible_deviations_are_refused(scale):
    data = document(fitted(relu(scale=True), UNITS, Y).certificate_)
    data["evidence"]["options"]["scale"] = scale
    assert not check(data, UNITS, Y)[0]
    assert not accepted(data, UNITS, Y)
