"""Matrices too large to factorise are trained on and bounded all the same."""

from __future__ import annotations

import numpy as np
import pytest

from bidual import ReLURegressor, TwoLayer, sample_patterns
from bidual._util import rounding
from bidual._util.rounding import largest_eigenvalue
from bidual._util.tuning import tuned
from bidual._util.watch import Stopped, watching
from bidual.arrangements import patterns
from bidual.atoms import Relu
from bidual.bounds.stored import SampledProof
from bidual.losses import get_loss
from bidual.training.objective import Objective
from bidual.training.rows import row_order


def a_matrix() -> np.ndarray:
    """Tall, with a zero column and two that are equal."""
    M = np.random.default_rng(0).standard_normal((40, 6))
    M[:, 1] = 0.0
    M[:, 4] = M[:, 3]
    return M


def test_rough_axes_are_those_of_the_rows_as_far_as_they_are_visible() -> None:
    M = a_matrix()
    s, Vt = patterns.rough_axes(M)
    exact = np.linalg.svd(M)[1]
    assert s == pytest.approx(np.where(exact > 1e-6 * exact[0], exact, 0.0), rel=1e-12)
    assert np.abs(Vt @ Vt.T - np.eye(6)).max() < 1e-12
    assert np.abs(np.linalg.norm(M @ Vt.T, axis=0) - s).max() < 1e-7 * s[0]
    with tuned(broad_columns=5):
        s, Vt = patterns.rough_axes(M)
    assert s == pytest.approx(np.sort(np.linalg.norm(M, axis=0))[::-1])
    assert (Vt @ Vt.T == np.eye(6)).all()


@tuned(dear_factors=0.0)
def test_without_a_factorisation_the_basis_holds_all_columns_that_are_not_zero() -> None:
    atoms = Relu(a_matrix(), None)
    assert atoms.basis.shape == (6, 5)
    assert (atoms.reduced @ atoms.basis.T == atoms.M).all()
    assert atoms.axes[1].shape == (5, 5)


def test_training_without_a_factorisation_ends_at_the_same_objective() -> None:
    X = a_matrix()
    y = np.maximum(X @ np.array([1.0, 0.0, -1.0, 0.5, 0.0, 1.0]), 0.0)
    expected = ReLURegressor(0.05, random_state=0, prove=False).fit(X, y)
    with tuned(dear_factors=0.0):
        found = ReLURegressor(0.05, random_state=0).fit(X, y)
    assert found.objective_ == pytest.approx(expected.objective_, rel=2e-4)
    assert found.lower_bound_ <= expected.objective_
    assert found.likely_gap_ <= 2e-4


@pytest.mark.parametrize("long", [0.0, 1e30])
def test_norms_of_scaled_rows_are_not_below_the_truth(long: float) -> None:
    M = a_matrix()
    d = np.random.default_rng(2).uniform(0.1, 2.0, (40, 1))
    with tuned(long_gram=long, gram_rows=7):
        truth, bound = float(np.linalg.norm(d * M, 2)), rounding.scaled_norm(M, d)
    assert bound >= truth
    assert bound <= (1.0 + 1e-12) * (truth if long else float(np.linalg.norm(d * M)))


def test_rows_are_ordered_as_by_numpy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        T = rng.integers(-1, 2, (int(rng.integers(1, 30)), int(rng.integers(2, 6)))).astype(float)
        rows, first, inverse = np.unique(T, axis=0, return_index=True, return_inverse=True)
        order, new = row_order(T[:, :1], T[:, 1:])
        place = np.empty(len(T), dtype=int)
        place[order] = np.cumsum(new) - 1
        assert (T[order[new]] == rows).all()
        assert (order[new] == first).all()
        assert (place == inverse.ravel()).all()


def test_the_space_of_long_rows_is_that_of_their_singular_vectors():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 80)) * np.geomspace(1.0, 1e-5, 30)[:, None]
    Q = patterns.wide_space(X)
    np.testing.assert_allclose(Q.T @ Q, np.eye(30), atol=1e-13)
    np.testing.assert_allclose(X @ Q @ Q.T, X, atol=1e-13)
    assert patterns.wide_space(X[:, :10] @ rng.standard_normal((10, 80))) is None  # of rank 10


def test_long_rows_train_alike_with_and_without_a_factorisation(monkeypatch):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((12, 30)), rng.standard_normal(12)
    plain = ReLURegressor(0.05, random_state=0).fit(X, y)
    factorise, asked = patterns.row_axes, []

    def noted(M):
        asked.append(M.shape)
        return factorise(M)

    monkeypatch.setattr("bidual.atoms.base.row_axes", noted)
    with tuned(dear_factors=100.0):
        dear = ReLURegressor(0.05, random_state=0).fit(X, y)
    assert X.shape not in asked
    assert (12, 31) not in asked  # with the column of the bias
    assert dear.objective_ == pytest.approx(plain.objective_, rel=1e-3)
    assert dear.lower_bound_ <= plain.objective_ * (1 + 1e-12)


def test_a_proof_over_sampled_patterns_looks_at_the_clock():
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal((60, 1))
    problem = Objective(get_loss("squared"), 1e-3, TwoLayer()).pose(X, y).problem
    V = problem.dual_point(problem.w[:, None] * y)
    proof = SampledProof(sample_patterns(problem.atoms.M, 20, random_state=0))
    with watching(0.0), pytest.raises(Stopped):
        proof.bound(problem, V)


def test_the_largest_eigenvalue_of_a_large_matrix_is_bounded_tightly():
    M = np.random.default_rng(3).standard_normal((510, 600))
    for S in (M @ M.T, -M @ M.T, np.eye(510), np.outer(M[:, 0], M[:, 0])):
        true = np.linalg.eigvalsh(S)[-1]
        assert true <= largest_eigenvalue(np.tril(S)) <= true + 1e-6 * np.abs(S).sum(axis=1).max()
