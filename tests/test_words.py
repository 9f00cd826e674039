"""One meaning for one word: what is proven, what is likely, and about which networks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score

import bidual
from bidual import (
    BatchNorm,
    Certificate,
    Convolutional,
    DeepReLUClassifier,
    Parallel,
    ReLUClassifier,
    ReLURegressor,
    ReLURegressorCV,
    solution_path,
)
from bidual.bounds import Bound, ContradictionError
from bidual.bounds.oracle import bound_oracle
from bidual.losses import get_loss
from bidual.solvers import proving
from bidual.training.objective import Objective

from .helpers import gap_may_stay_open, gaussian_problem

GATE = {
    "objective": 1.0,
    "lower_bound": 0.5,
    "scope": "global",
    "method": "norms of rows",
    "attained": 0.1,
    "limit": 0.2,
    "beta": 0.1,
    "loss": "squared",
}


# ---- the gate ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["objective", "lower_bound", "beta"])
def test_no_certificate_is_made_of_what_is_not_a_number(name):
    with pytest.raises(ValueError, match="without numbers"):
        Certificate(**{**GATE, name: np.nan})


def test_no_gap_comes_of_what_is_not_a_number():
    assert bidual.bounds.relative_gap(1.0, np.nan) == np.inf
    assert bidual.bounds.relative_gap(np.nan, 1.0) == np.inf


def test_a_bound_above_the_objective_is_a_contradiction_and_not_clamped():
    with pytest.raises(ContradictionError, match="contradiction"):
        Certificate(**{**GATE, "lower_bound": 1.0 + 1e-9})


@pytest.mark.parametrize("scope", ["", "everything", "rank", "patterns, nonsense"])
def test_a_certificate_names_its_scope(scope):
    with pytest.raises(ValueError, match="scope"):
        Certificate(**{**GATE, "scope": scope})


def test_a_likely_bound_that_the_network_refutes_is_given_up():
    refuted = Certificate(**{**GATE, "likely_bound": 1.01, "likely_method": "local search"})
    assert refuted.likely_bound == refuted.lower_bound == 0.5
    believed = Certificate(**{**GATE, "likely_bound": 0.9, "likely_method": "local search"})
    assert (believed.gap, believed.likely_gap) == (0.5, pytest.approx(0.1))


def test_the_sentence_says_proven_and_likely():
    sentence = Certificate(**{**GATE, "likely_bound": 0.99, "likely_method": "local search"}).sentence
    assert "proven within 100 %, likely within 1 %" in sentence


def test_a_bound_is_proven_exactly_when_it_carries_a_proof():
    X, y, _ = gaussian_problem(0, 8, 2)
    problem = Objective(get_loss("squared"), 0.1).pose(X, y[:, None]).problem
    assert Bound.nothing(problem).proven
    assert not replace(Bound.nothing(problem), proof=None).proven


def test_oracles_refuse_neurons_they_do_not_know():
    X, y, _ = gaussian_problem(1, 8, 2)
    for architecture in (Parallel(2), BatchNorm(position="after")):
        data = Objective(get_loss("squared"), 0.1, architecture).pose(X, y[:, None])
        with pytest.raises(ValueError, match="no branches"):
            bound_oracle(data.problem, np.ones((8, 1)))


# ---- proving ----------------------------------------------------------------------------------------------------


@pytest.fixture
def _short_proofs():
    """Here proofs take the time that is documented."""


def test_a_default_fit_on_small_data_ends_with_a_proof():
    X, y, _ = gaussian_problem(2, 30, 2)
    est = ReLURegressor(0.02, random_state=0).fit(X, y)
    assert est.gap_ <= 1e-3
    assert est.likely_gap_ <= est.tol_


def test_without_a_proof_there_is_still_a_bound_by_norms():
    X, y, _ = gaussian_problem(3, 40, 6)
    est = ReLURegressor(0.02, prove=False, random_state=0).fit(X, y)
    assert est.certificate_.method == proving.NORMS
    assert 0 < est.lower_bound_ < est.likely_bound_ <= est.objective_
    assert est.likely_gap_ <= est.tol_ < est.gap_


@pytest.mark.parametrize("prove", [True, "yes", -1.0, np.nan, np.inf, None])
def test_prove_takes_auto_false_or_seconds(prove):
    with pytest.raises(ValueError, match="prove must be"):
        ReLURegressor(0.1, prove=prove).fit(np.eye(3), np.arange(3.0))


def test_seconds_for_a_proof_are_as_documented():
    assert proving.seconds_for(False, 10.0, np.inf) == 0.0
    assert proving.seconds_for("auto", 0.1, np.inf) == 1.0
    assert proving.seconds_for("auto", 7.0, np.inf) == 3.5
    assert proving.seconds_for("auto", 7.0, 2.0) == 2.0
    assert proving.seconds_for(30, 7.0, np.inf) == 30.0
    assert proving.seconds_for("auto", 7.0, -1.0) == 0.0


def test_folds_and_paths_do_not_prove_unless_asked(monkeypatch):
    X, y, _ = gaussian_problem(4, 20, 3)
    asked = []

    def recorded(prove, training, left):
        asked.append(prove)
        return 0.0

    monkeypatch.setattr("bidual.training.train.seconds_for", recorded)
    solution_path(X, y, n_betas=3, random_state=0)
    assert set(asked) == {False}
    solution_path(X, y, n_betas=3, prove=0.5, random_state=0)
    assert 0.5 in asked
    asked.clear()
    ReLURegressorCV(n_betas=3, cv=2, random_state=0).fit(X, y)
    assert asked[-1] == "auto"
    assert set(asked[:-1]) == {False}


def test_cross_validation_of_scikit_learn_takes_the_parameter():
    X, y, _ = gaussian_problem(5, 20, 2)
    assert np.isfinite(cross_val_score(ReLURegressor(0.1, prove=False, tol=1e-2), X, y, cv=2)).all()


# ---- scopes -----------------------------------------------------------------------------------------------------


def outputs_refitted(est, X, Y):
    """The objective of the directions of the network with their output weights fitted together: a group lasso."""
    cp = pytest.importorskip("cvxpy")
    U = est.network_.hidden_weights
    b = est.network_.hidden_bias
    H = np.maximum(X @ U.T + (0.0 if b is None else b), 0.0)
    sizes = np.sqrt((U**2).sum(axis=1) + (0.0 if b is None else b**2))
    H, sizes = H[:, sizes > 0], sizes[sizes > 0]
    A, c = cp.Variable((H.shape[1], Y.shape[1])), cp.Variable((1, Y.shape[1]))
    F = (H / sizes) @ A + np.ones((len(X), 1)) @ c
    loss = cp.sum_squares(F - Y) / (2 * len(X))
    return cp.Problem(cp.Minimize(loss + est.beta * cp.sum(cp.norm(A, 2, axis=1)))).solve(solver="CLARABEL")


@pytest.mark.parametrize("seed", range(3))
def test_sampled_training_of_several_outputs_bounds_neurons_that_feed_all_of_them(seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((9, 3)), rng.standard_normal((9, 2))
    est = ReLURegressor(0.01, method="sampled", n_patterns=20, random_state=0).fit(X, Y)
    refitted = outputs_refitted(est, X, Y)
    assert est.lower_bound_ <= refitted * (1 + 1e-7)
    assert est.objective_ <= refitted * (1 + 1e-6)  # nothing is left to gain
    assert est.certificate_.scope == "patterns"
    assert est.gap_ <= 1e-4


def test_sampled_branches_of_several_outputs_claim_only_those_that_feed_one():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((8, 2)), rng.standard_normal((8, 2))
    est = ReLURegressor(0.02, architecture=Parallel(1), method="sampled", n_patterns=20, random_state=0).fit(X, Y)
    assert est.certificate_.scope == "patterns, separate"
    assert "each neuron feeding one output" in est.certificate_.sentence


def test_sampled_training_on_iris_names_its_scope():
    X, y = load_iris(return_X_y=True)
    est = ReLUClassifier(0.01, method="sampled", n_patterns=10, random_state=0, tol=1e-2)
    est.fit((X - X.mean(0)) / X.std(0), y)
    assert est.certificate_.scope == "patterns"


def test_sampled_convolutions_of_several_outputs_name_their_scope():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((10, 6, 1)), rng.standard_normal((10, 2))
    est = ReLURegressor(0.02, architecture=Convolutional(3), method="sampled", n_patterns=20, random_state=0)
    assert est.fit(X, Y).certificate_.scope == "patterns"


@pytest.mark.parametrize("position", ["before", "after"])
def test_a_truncated_batch_norm_network_claims_only_its_directions(position):
    X, y, _ = gaussian_problem(6, 14, 3)
    full = ReLURegressor(0.02, architecture=BatchNorm(position), random_state=0).fit(X, y)
    low = ReLURegressor(0.02, architecture=BatchNorm(position, rank=1), random_state=0).fit(X, y)
    assert low.lower_bound_ > full.objective_  # of all networks it would be false
    assert low.certificate_.scope == "rank 1"
    assert "leading 1 directions" in low.certificate_.sentence
    assert full.certificate_.scope == "global"
    whole = ReLURegressor(0.02, architecture=BatchNorm(position, rank=3), random_state=0).fit(X, y)
    assert whole.certificate_.scope == "global"  # nothing is left out


def test_a_parallel_network_of_low_rank_claims_only_its_directions():
    X, y, _ = gaussian_problem(7, 10, 3)
    with gap_may_stay_open():
        low = ReLURegressor(0.02, architecture=Parallel(2, rank=1), tol=1e-2, max_iter=5, random_state=0).fit(X, y)
    assert low.certificate_.scope == "rank 1"


def test_deep_networks_on_whitened_rows_say_so():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((8, 12)), np.repeat([0, 1], 4)
    assert DeepReLUClassifier(2).fit(X, y).certificate_.scope == "whitened"
    assert DeepReLUClassifier(3).fit(X, y).certificate_.scope == "whitened, parallel"
    Q = np.linalg.qr(X.T)[0].T
    assert DeepReLUClassifier(3).fit(Q, y).certificate_.scope == "parallel"


# ---- words ------------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[1]


def test_the_old_words_are_gone():
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("src/**/*.js"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
    files += [*ROOT.glob("examples/*.py"), *ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("reproductions/*.py")]
    old = re.compile(r"\brigorous\b|oracle_value|oracle_bound|DualBound|not a global proof|not proven globally")
    found = [str(f) for f in files if ".venv" not in f.parts and old.search(f.read_text(encoding="utf-8"))]
    assert not found
