"""Bounds on the dual constraint: never below the truth, close to it, and re-checkable."""

from __future__ import annotations

import json
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual import enumerate_patterns
from bidual._util.clock import clock
from bidual.atoms import Relu
from bidual.bounds import pattern_bound
from bidual.bounds.oracle import METHODS, bound_oracle
from bidual.bounds.oracle.base import DualConstraint
from bidual.bounds.proof import proof_from_dict, proof_to_dict
from bidual.losses import get_loss
from bidual.problem import Problem
from bidual.solvers.engine.pricing import Pricer

seeds = st.integers(0, 2**31)
some = settings(max_examples=15)
SEARCHES = ["cones", "compact", "signs"]


def problem_of(X, C=1, A=None):
    n = len(X) if A is None else A.shape[0]
    return Problem(Relu(np.asarray(X, float), A), np.zeros((n, C)), np.full(n, 1 / n), get_loss("squared"), 1.0, False)


def attained(problem, V, U):
    """Largest constraint value among directions, evaluated from scratch."""
    U = U / np.linalg.norm(U, axis=1, keepdims=True)
    hidden = np.maximum(problem.atoms.M @ U.T, 0.0)
    hidden = hidden if problem.atoms.A is None else problem.atoms.A @ hidden
    return float(np.linalg.norm(V.T @ hidden, axis=0).max())


def degenerate(rng, kind, n, d):
    """Rows with ties of every sort."""
    X = rng.standard_normal((n, d))
    V = rng.standard_normal((n, 1))
    if kind == "integer":
        X, V = rng.integers(-2, 3, (n, d)).astype(float), rng.integers(-2, 3, (n, 1)).astype(float)
    elif kind == "duplicates":
        X[n // 2 :] = X[: n - n // 2]
    elif kind == "opposites":
        X[n // 2 :] = -2.0 * X[: n - n // 2]
    elif kind == "zeros":
        X[::3] = 0.0
        V[1::4] = 0.0
    elif kind == "rank deficient":
        X[:, -1] = X[:, 0] - X[:, 1]
    elif kind == "collinear":
        X = np.outer(rng.standard_normal(n), X[0]) + np.outer(rng.integers(0, 2, n), X[1])
    elif kind == "axes":
        X = np.vstack([np.eye(d), -np.eye(d), np.ones((1, d)), X])[:n]
    return X, V


KINDS = ["gaussian", "integer", "duplicates", "opposites", "zeros", "rank deficient", "collinear", "axes"]


def quick(problem, V, method, **options):
    return bound_oracle(problem, V, method=method, deadline=clock() + 0.02, **options)


# ---- safety ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@some
@given(seed=seeds, n=st.integers(4, 14), d=st.integers(2, 4))
def test_no_bound_is_below_the_maximum_over_all_activation_patterns(kind, seed, n, d):
    rng = np.random.default_rng(seed)
    X, V = degenerate(rng, kind, n, d)
    problem = problem_of(X)
    truth = pattern_bound(problem, enumerate_patterns(X), V)[0]
    for method in METHODS:
        if method != "patterns" or problem.atoms.basis.shape[1] <= 3:
            found = quick(problem, V, method, rtol=1e-6)
            assert found.bound >= truth * (1 - 1e-13), method
            assert found.value <= truth * (1 + 1e-10) + 1e-13, method


@pytest.mark.parametrize("method", SEARCHES)
@some
@given(seed=seeds, C=st.integers(2, 7), kind=st.sampled_from(KINDS))
def test_bounds_of_several_outputs_are_above_every_direction(method, seed, C, kind):
    rng = np.random.default_rng(seed)
    X, _ = degenerate(rng, kind, 12, 3)
    V = rng.integers(-3, 4, (12, C)).astype(float) if kind == "integer" else rng.standard_normal((12, C))
    problem = problem_of(X, C)
    found = quick(problem, V, method)
    U = np.vstack([rng.standard_normal((3000, 3)), np.eye(3), -np.eye(3)])
    found_by_search = Pricer(problem, rng).polish(V, rng.standard_normal((20, problem.atoms.reduced.shape[1]))).best
    assert found.bound >= max(attained(problem, V, U), found_by_search) * (1 - 1e-12)


@pytest.mark.parametrize(("n", "d"), [(40, 5), (60, 6), (80, 12), (30, 40)])
@pytest.mark.parametrize("method", SEARCHES)
def test_no_local_search_gets_above_the_bound(method, n, d):
    rng = np.random.default_rng(n + d)
    if method == "cones" and d > 6:
        pytest.skip("too many dimensions for cones")
    problem, V = problem_of(rng.standard_normal((n, d))), rng.standard_normal((n, 1))
    found = bound_oracle(problem, V, method=method, deadline=clock() + 0.1)
    searched = Pricer(problem, rng).strong(V, np.zeros((0, min(n, d))))
    assert searched.best <= found.bound
    assert found.value >= 0.9 * searched.best


def test_pooled_rows_count_with_their_sum():
    rng = np.random.default_rng(0)
    A = sp.csr_array(np.kron(np.eye(5), np.ones((1, 3))))
    problem, V = problem_of(rng.standard_normal((15, 3)), A=A), rng.standard_normal((5, 1))
    truth = pattern_bound(problem, enumerate_patterns(problem.atoms.M), V)[0]
    for method in METHODS:
        assert quick(problem, V, method).bound >= truth * (1 - 1e-13)
    assert quick(problem, V, "auto").bound == pytest.approx(truth, rel=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_to_bound_is_bounded_by_nothing(method):
    problem = problem_of(np.eye(3))
    assert bound_oracle(problem, np.zeros((3, 1)), method=method).bound == 0.0
    assert bound_oracle(problem_of(np.zeros((3, 2))), np.ones((3, 1)), method=method).bound == 0.0
    # equal rows with opposite weights cancel
    twins = bound_oracle(problem_of(np.ones((2, 2))), np.array([[1.0], [-1.0]]), method=method)
    assert twins.bound <= 1e-12


# ---- tightness ---------------------------------------------------------------------------------------------------


@some
@given(seed=seeds, n=st.integers(5, 30), d=st.integers(2, 5))
def test_the_search_over_cones_ends_within_its_tolerance(seed, n, d):
    rng = np.random.default_rng(seed)
    problem, V = problem_of(rng.standard_normal((n, d))), rng.standard_normal((n, 1))
    found = bound_oracle(problem, V, method="cones", rtol=1e-3)
    assert found.value <= found.bound <= found.value * (1 + 1.1e-3)
    if d < 4:
        truth = pattern_bound(problem, enumerate_patterns(problem.atoms.M), V)[0]
        assert truth * (1 - 1e-13) <= found.bound <= truth * (1 + 1.1e-3)


@pytest.mark.parametrize("C", [2, 3])
def test_cones_find_the_norm_of_several_outputs(C):
    rng = np.random.default_rng(C)
    problem, V = problem_of(rng.standard_normal((15, 2)), C), rng.standard_normal((15, C))
    angles = np.linspace(0, 2 * np.pi, 200_001)
    truth = attained(problem, V, np.column_stack([np.cos(angles), np.sin(angles)]))
    found = bound_oracle(problem, V, method="cones", rtol=1e-3)
    assert truth <= found.bound <= truth * (1 + 1.1e-3)
    relaxed = bound_oracle(problem, V, method="signs", rtol=1e-3, deadline=clock() + 0.1)
    assert truth <= relaxed.bound <= truth * 1.1


@pytest.mark.parametrize("seed", range(3))
def test_the_compact_bound_is_the_semidefinite_relaxation(seed):
    rng = np.random.default_rng(seed)
    n, d = 12, 4
    X, v = rng.standard_normal((n, d)), rng.standard_normal(n)
    norms, worst = np.linalg.norm(X, axis=1), 0.0
    for s in (1.0, -1.0):  # over (1, u) and its second moments
        P = cp.Variable((d + 1, d + 1), PSD=True)
        u, U = P[0, 1:], P[1:, 1:]
        t, q = X @ u, cp.hstack([X[i] @ U @ X[i] for i in range(n)])
        up, down = np.flatnonzero(s * v > 0), np.flatnonzero(s * v < 0)
        f = 0.5 * s * v @ t + 0.5 * (s * v)[up] @ cp.sqrt(q[up])
        f += 0.5 * (s * v)[down] @ cp.maximum(cp.abs(t[down]), cp.multiply(1 / norms[down], q[down]))
        program = cp.Problem(cp.Maximize(f), [P[0, 0] == 1, cp.trace(U) <= 1])
        worst = max(worst, program.solve(solver=cp.CLARABEL))
    found = bound_oracle(problem_of(X), v[:, None], method="compact")
    assert worst * (1 - 1e-7) <= found.bound <= worst * 1.005


def test_branching_on_signs_closes_the_gap():
    rng = np.random.default_rng(4)
    problem, V = problem_of(rng.standard_normal((25, 4))), rng.standard_normal((25, 1))
    root = bound_oracle(problem, V, method="compact", rtol=1e-3)
    found = bound_oracle(problem, V, method="signs", rtol=1e-3, deadline=clock() + 1.0)
    truth = bound_oracle(problem, V, method="cones", rtol=1e-5)
    assert root.bound > 1.02 * truth.value
    assert truth.value <= found.bound <= truth.bound * 1.01


# ---- laws --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["cones", "compact"])
@settings(max_examples=8)
@given(seed=seeds, scale=st.sampled_from([1e-9, 1e-3, 7.0, 1e8]))
def test_bounds_scale_with_features_and_weights(method, seed, scale):
    rng = np.random.default_rng(seed)
    X, V = rng.standard_normal((15, 4)), rng.standard_normal((15, 1))
    base = bound_oracle(problem_of(X), V, method=method, rtol=1e-3).bound
    assert bound_oracle(problem_of(scale * X), V, method=method, rtol=1e-3).bound == pytest.approx(
        scale * base, rel=2e-3
    )
    assert bound_oracle(problem_of(X), scale * V, method=method, rtol=1e-3).bound == pytest.approx(
        scale * base, rel=2e-3
    )


@pytest.mark.parametrize("method", ["cones", "compact"])
@settings(max_examples=8)
@given(seed=seeds)
def test_rotations_change_nothing(method, seed):
    rng = np.random.default_rng(seed)
    X, V = rng.standard_normal((15, 4)), rng.standard_normal((15, 1))
    R = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    base = bound_oracle(problem_of(X), V, method=method, rtol=1e-3)
    turned = bound_oracle(problem_of(X @ R), V, method=method, rtol=1e-3)
    assert turned.bound == pytest.approx(base.bound, rel=2e-3)
    assert bound_oracle(problem_of(X), -V, method=method, rtol=1e-3).bound == pytest.approx(base.bound, rel=2e-3)


@pytest.mark.parametrize("method", METHODS)
def test_the_witness_attains_the_value(method):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((10, 3)) @ rng.standard_normal((3, 5))  # more columns than rank
    problem, V = problem_of(X), rng.standard_normal((10, 1))
    found = quick(problem, V, method)
    assert np.linalg.norm(found.witness) == pytest.approx(1.0)
    assert attained(problem, V, found.witness[None]) == pytest.approx(found.value, rel=1e-12)
    assert found.ratio == pytest.approx(found.bound / found.value)


# ---- time and targets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["cones", "signs", "auto"])
def test_deadlines_are_kept_and_leave_a_valid_bound(method):
    rng = np.random.default_rng(5)
    problem, V = problem_of(rng.standard_normal((200, 8))), rng.standard_normal((200, 1))
    for seconds in (0.0, 0.01):
        began = clock()
        found = bound_oracle(problem, V, method=method, rtol=0.0, deadline=began + seconds)
        assert clock() - began < seconds + 0.02  # twenty looks at the clock
        assert found.value <= found.bound < np.inf


@pytest.mark.parametrize("method", ["cones", "signs"])
def test_more_time_never_hurts_and_a_target_stops_the_search(method):
    rng = np.random.default_rng(6)
    problem, V = problem_of(rng.standard_normal((60, 5))), rng.standard_normal((60, 1))
    first = bound_oracle(problem, V, method=method, deadline=clock())
    later = bound_oracle(problem, V, method=method, deadline=clock() + 0.1)
    assert later.bound <= first.bound * (1 + 1e-9)
    target = 0.5 * (first.bound + later.bound)
    met = bound_oracle(problem, V, method=method, target=target, deadline=clock() + 0.2)
    assert later.value <= met.bound <= target


def test_a_good_incumbent_is_used():
    rng = np.random.default_rng(7)
    problem, V = problem_of(rng.standard_normal((50, 20))), rng.standard_normal((50, 1))
    best = Pricer(problem, rng).strong(V, np.zeros((0, 20)))
    found = bound_oracle(problem, V, method="compact", incumbent=problem.atoms.basis @ best.directions[0])
    assert found.value >= best.best * (1 - 1e-12)


# ---- proofs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1, 2, 6])
@pytest.mark.parametrize("method", METHODS)
def test_a_proof_survives_a_file_and_proves_the_same_bound(method, C):
    if method == "patterns" and C > 1:
        pytest.skip("one output only")
    rng = np.random.default_rng(8)
    problem, V = problem_of(rng.standard_normal((20, 3)), C), rng.standard_normal((20, C))
    found = quick(problem, V, method)
    assert found.recheck(problem, V) == pytest.approx(found.bound, rel=1e-9)
    proof = proof_from_dict(json.loads(json.dumps(proof_to_dict(found.proof))))
    assert proof.evaluate(DualConstraint.at(problem, V)) == pytest.approx(found.bound, rel=1e-9)


@some
@given(seed=seeds, size=st.sampled_from([0.01, 1.0, 30.0]))
def test_multipliers_however_wrong_prove_nothing_false(seed, size):
    rng = np.random.default_rng(seed)
    X, V = rng.standard_normal((12, 3)), rng.standard_normal((12, 1))
    problem = problem_of(X)
    data = proof_to_dict(bound_oracle(problem, V, method="signs", rtol=1e-2, deadline=clock() + 0.05).proof)
    proof = proof_from_dict(data)
    spoilt = [[(x + size * rng.standard_normal(len(x))).astype(np.float32) for x in xs] for xs in proof.multipliers]
    wrong = replace(proof, multipliers=spoilt)
    truth = pattern_bound(problem, enumerate_patterns(X), V)[0]
    assert wrong.evaluate(DualConstraint.at(problem, V)) >= truth * (1 - 1e-13)
    # the same multipliers at another dual point prove something true of that one
    W = rng.integers(-2, 3, (12, 1)) + V
    if ((W > 0) == (V > 0)).all():
        truth = pattern_bound(problem, enumerate_patterns(X), W)[0]
        assert proof.evaluate(DualConstraint.at(problem, W)) >= truth * (1 - 1e-13)


def test_bad_questions_are_refused_in_words():
    rng = np.random.default_rng(9)
    problem, V = problem_of(rng.standard_normal((30, 14))), rng.standard_normal((30, 1))
    with pytest.raises(ValueError, match="unknown method 'guess'"):
        bound_oracle(problem, V, method="guess")
    with pytest.raises(ValueError, match="method='compact'"):
        bound_oracle(problem, V, method="cones")
    with pytest.raises(ValueError, match="method='auto'"):
        bound_oracle(problem, V, method="patterns")
    with pytest.raises(ValueError, match="shape of the targets"):
        bound_oracle(problem, V[:-1])
    with pytest.raises(ValueError, match="NaN"):
        bound_oracle(problem, np.full_like(V, np.nan))
    with pytest.raises(ValueError, match="14 coordinates"):
        bound_oracle(problem, V, incumbent=np.ones(3))
    with pytest.raises(ValueError, match="one output"):
        bound_oracle(problem_of(np.eye(3), 2), np.eye(3)[:, :2], method="patterns")
    with pytest.raises(ValueError, match="kind of proof"):
        proof_from_dict({"kind": "faith"})
    found = bound_oracle(problem, V, method="compact")
    with pytest.raises(ValueError, match="the proof is about 30 rows"):
        found.recheck(problem_of(problem.atoms.M[:20]), V[:20])
