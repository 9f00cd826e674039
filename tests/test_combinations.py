"""What does not go together is said in one sentence, wherever training begins."""

from __future__ import annotations

import numpy as np
import pytest

from bidual import BatchNorm, Convolutional, Parallel, ReLURegressor, ReLURegressorCV, beta_max, certify, solution_path
from bidual.architectures import TwoLayer
from bidual.atoms.abilities import needs
from bidual.losses import LOSSES, ExactFit, Hinge, Margin, get_loss
from bidual.solvers import METHODS, Options
from bidual.training.objective import Objective
from bidual.training.row_blocks import RowBlocks

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 4)), RNG.standard_normal((6, 3))
DEEP = Parallel(2, 2, (1,))
FLAT = Convolutional(2, pooling="flatten")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"method": "cutting_plane", "architecture": "parallel"},
            r"method='cutting_plane' does not go with architecture=Parallel\(.*\): it needs ordinary neurons; "
            "use method='adaptive' or 'exact' or 'sampled', or another architecture",
        ),
        (
            {"activation": "gated", "architecture": FLAT},
            r"activation='gated' does not go with architecture=Convolutional\(.*'flatten'\): it needs neurons with",
        ),
        (
            {"beta": 0, "architecture": Parallel(2)},
            r"method='adaptive' does not go with beta=0 and architecture=Parallel.* a loss that is finite everywhere",
        ),
        (
            {"loss": "exact_fit", "architecture": FLAT},
            "method='adaptive' does not go with loss='exact_fit' and architecture=.*: it needs a loss that is finite",
        ),
        (
            {"beta": 0, "method": "exact", "architecture": FLAT},
            r"method='exact' does not go with beta=0 and archit.*use",
        ),
        (
            {"architecture": DEEP, "method": "exact"},
            "'exact' does not go with archit.*use method='adaptive' or 'sampled'",
        ),
        ({"method": "closed_form", "loss": "huber"}, "closed_form' does not go with loss='huber'.*the squared loss"),
        ({"method": "closed_form"}, "closed_form' does not go with fit_intercept=True and 3 outputs"),
        (
            {"activation": "gated", "beta": 0},
            "activation='gated' does not go with beta=0: .* use .*'relu', or beta > 0",
        ),
        (
            {"architecture": Parallel(rank="auto"), "beta": 0, "method": "exact"},
            "rank='auto'.* does not go with beta=0",
        ),
    ],
)
def test_a_refusal_names_what_does_not_go_together_and_what_does(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        ReLURegressor(**settings).fit(X, Y)


def test_paths_cross_validation_and_problems_posed_by_hand_pass_the_same_gate(monkeypatch):
    def arithmetic(*args):
        raise AssertionError("computed something")

    monkeypatch.setattr("bidual.training.rows.distinct_rows", arithmetic)
    monkeypatch.setattr("bidual.training.row_blocks.normalise_weights", arithmetic)
    refused = pytest.raises(ValueError, match="does not go with")
    with refused:
        solution_path(X, Y, method="cutting_plane", architecture="parallel")
    with refused:
        ReLURegressorCV(method="cutting_plane", architecture="parallel").fit(X, Y)
    with refused:
        ReLURegressorCV(activation="gated", architecture="batch_norm").fit(X, Y)
    with refused:
        RowBlocks.of(Objective(get_loss("absolute"), 0.1), X, Y)
    with refused:
        ReLURegressor(loss="absolute", activation="gated", backend="numpy").fit(X, Y)


def test_a_problem_already_posed_is_checked_against_the_method():
    data = Objective(get_loss("squared"), 0.1, Parallel(2)).pose(X, Y)
    with pytest.raises(ValueError, match=r"method='cutting_plane' does not go with architecture=Parallel"):
        data.train("cutting_plane", Options())


def test_a_network_is_not_judged_by_an_architecture_that_cannot_be():
    network = ReLURegressor(0.1, architecture=BatchNorm("after"), prove=False).fit(X, Y[:, 0]).network_
    with pytest.raises(ValueError, match="outputs"):
        certify(network, X, Y, beta=0.1)


def test_needs_are_alternatives():
    assert needs("gates", ("one output", "no intercept")) == ({"gates"}, {"one output", "no intercept"})


def test_a_kind_of_neurons_can_be_trained_by_some_method():
    every = [TwoLayer(), BatchNorm(), BatchNorm("after"), Convolutional(2), FLAT, Parallel(2), DEEP]
    for architecture in every:
        assert not [need for need in METHODS["adaptive"].needs if not need & (architecture.can | {"finite loss"})]


@pytest.mark.parametrize("loss", [loss for loss in LOSSES.values() if not loss.finite])
def test_an_indicator_is_its_own_limit(loss):
    indicator = loss(tol=1e-5)
    assert indicator.limit() is indicator
    assert Hinge().limit() == Margin()
    assert get_loss("huber").limit() == ExactFit()


def test_a_margin_may_be_met_with_weight_decay():
    """The bound is that of an exact margin, which the conic solver meets up to its tolerance."""
    from bidual import ReLUClassifier

    rows = np.random.default_rng(0).standard_normal((7, 2))
    est = ReLUClassifier(0.1, loss="margin", method="exact", prove=False).fit(rows, np.arange(7) % 2)
    limit = ReLUClassifier(0, loss="hinge", method="exact", prove=False).fit(rows, np.arange(7) % 2)
    assert est.objective_ == pytest.approx(0.1 * limit.objective_, rel=1e-5)
    assert est.gap_ <= 1e-4


def test_gates_that_all_stay_closed_leave_several_outputs_a_constant():
    rng = np.random.default_rng(0)
    rng.standard_normal((7, 2))
    signals, targets = rng.standard_normal((6, 4)), np.random.default_rng(1).standard_normal((12, 3)).reshape(6, 2, 3)
    per_patch = Convolutional(2, stride=2, pooling=None)
    options = {"activation": "gated", "n_patterns": 10, "tol": 1e-2, "random_state": 0, "prove": False}
    est = ReLURegressor(0.1, loss="huber", architecture=per_patch, **options).fit(signals, targets)
    assert est.gap_ <= 1e-2


def test_the_largest_beta_of_a_loss_with_kinks_and_outputs_for_every_position():
    top = beta_max(X, Y[:, 0], loss="absolute", architecture=FLAT, random_state=0)
    est = ReLURegressor(1.01 * top, loss="absolute", architecture=FLAT, random_state=0, prove=False).fit(X, Y[:, 0])
    assert est.n_neurons_ == 0
    assert est.objective_ == pytest.approx(np.abs(Y[:, 0] - np.median(Y[:, 0])).mean(), rel=1e-6)


@pytest.mark.parametrize(
    ("parameters", "ignored"),
    [
        ({"method": "exact", "max_neurons": 3}, "max_neurons"),
        ({"method": "adaptive", "n_patterns": 30}, "n_patterns"),
        ({"activation": "gated", "max_neurons": 3}, "max_neurons"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(parameters, ignored):
    X = np.array([[0.0], [1.0], [2.0]])
    with pytest.raises(ValueError, match=f"{ignored} has no meaning to (method|activation)=.* leave it at None"):
        ReLURegressor(0.1, **parameters).fit(X, X[:, 0])
