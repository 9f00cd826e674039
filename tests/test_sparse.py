"""Sparse rows: the same problem as the dense one, and never a dense copy where products are all it takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from bidual import ReLUClassifier, ReLURegressor, beta_max, certify, solution_path
from bidual._util.sparse import compressed, deviations
from bidual._util.tuning import tuned
from bidual.architectures import Standardised
from bidual.atoms import Relu, SparseRelu
from bidual.losses import encode_classes
from bidual.training.rows import distinct_rows

from .helpers import gap_may_stay_open


@pytest.fixture
def kept():
    """Small sparse rows are kept, too."""
    with tuned(sparse_from=1, sparse_share=1.0, batches_from=400):
        yield


def words(n=60, d=10, C=3, seed=0):
    """Rows of few words, and classes (or a target, C=1) that depend on them."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=0.15, rng=rng, format="csr")
    F = np.maximum(X @ rng.standard_normal((d, 5)), 0) @ rng.standard_normal((5, max(C, 1)))
    return X, F.argmax(axis=1) if C > 1 else F[:, 0]


tables = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).integers(-1, 2, size=(12, 3)) * np.array([1.0, 2.0, 1.0])
)


@given(tables)
def test_distinct_rows_and_their_order_are_those_of_the_dense_matrix(X):
    Y, weights = (X[:, :1] > 0).astype(float), np.arange(1.0, 13.0)[:, None]
    rows = distinct_rows(X, Y, weights)
    sparse = distinct_rows(compressed(sp.csr_array(X)), Y, weights)
    np.testing.assert_array_equal(sparse[0].toarray(), rows[0])
    for ours, theirs in zip(sparse[1:], rows[1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@given(tables)
def test_deviations_are_those_of_standard_scaler(X):
    scale = StandardScaler(with_mean=False).fit(sp.csr_array(X)).scale_
    np.testing.assert_allclose(deviations(compressed(X), np.full(12, 1 / 12)), scale, rtol=1e-12)


@given(st.integers(0, 2**32 - 1))
def test_atoms_on_sparse_rows_are_those_on_dense_ones_and_the_bound_by_norms_holds(seed):
    rng = np.random.default_rng(seed)
    M = sp.random_array((9, 6), density=0.4, rng=rng, format="csr")
    sparse, dense = SparseRelu(compressed(M)), Relu(M.toarray())
    U, V = rng.standard_normal((50, 6)), rng.standard_normal((9, 2))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    np.testing.assert_allclose(sparse.hidden(U), dense.hidden(U), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(sparse.row_norms, dense.row_norms, rtol=1e-13)
    np.testing.assert_allclose((sparse.reduced @ sparse.basis.T).toarray(), M.toarray())
    attained = np.linalg.norm(V.T @ dense.hidden(U), axis=0).max()
    assert attained <= sparse.norm_limit(V)
    assert sparse.norm_limit(V) >= dense.norm_limit(V) * (1 - 1e-9)  # Frobenius' norm in the place of the spectral one


@pytest.mark.parametrize(("loss", "scale"), [("logistic", False), ("squared", True), ("hinge", False)])
def test_classes_have_the_objective_of_the_dense_problem(kept, loss, scale):
    X, y = words()
    beta = 0.1 if loss == "squared" else 0.03
    with gap_may_stay_open():
        est = ReLUClassifier(beta, loss=loss, scale=scale, tol=2e-2, prove=False, random_state=0).fit(X, y)
    Z, Y = X.toarray(), encode_classes(est.loss_, y, 3)
    np.testing.assert_allclose(est.decision_function(X), est.decision_function(Z), rtol=1e-9, atol=1e-12)
    value = est.loss_.value(est.network_.forward(Z), Y, np.full(60, 1 / 60)) + beta * est.network_.penalty()
    assert est.objective_ == pytest.approx(value, rel=1e-10)
    architecture = Standardised(centred=False) if scale else "two_layer"
    dense = ReLUClassifier(
        beta, loss=loss, architecture=architecture, scale=False, tol=2e-2, prove=False, random_state=0
    )
    with gap_may_stay_open(), tuned(batches_from=10**9):
        dense.fit(Z, y)
    assert est.objective_ <= dense.objective_ * 1.02
    assert est.lower_bound_ <= dense.objective_ * (1 + 1e-9)
    assert dense.lower_bound_ <= est.objective_ * (1 + 1e-9)


def test_one_output(kept):
    X, y = words(C=1)
    with gap_may_stay_open():
        est = ReLURegressor(0.01, tol=1e-3, prove=False, random_state=0).fit(X, y)
    with gap_may_stay_open(), tuned(sparse_from=10**9):
        dense = ReLURegressor(0.01, tol=1e-3, prove=False, random_state=0).fit(X, y)
    assert est.objective_ == pytest.approx(dense.objective_, rel=5e-3)
    assert est.likely_gap_ < 0.05
    assert est.lower_bound_ <= dense.objective_


def test_bounds_can_be_checked_against_dense_and_sparse_rows(kept):
    X, y = words()
    with gap_may_stay_open():
        est = ReLUClassifier(0.03, tol=2e-2, prove=False, random_state=0).fit(X, y)
    assert est.certificate_.verify(X, y)
    assert est.certificate_.verify(X.toarray(), y)
    assert not replace(est.certificate_, lower_bound=1.001 * est.lower_bound_).verify(X, y)
    assert certify(est, X, y, time_limit=3).lower_bound <= est.objective_


def test_weights_count_as_repeated_rows_and_order_does_not_matter(kept):
    X, y = words()
    twice = sp.vstack([X, X[:20]], format="csr")[::-1]
    weight = np.ones(60)
    weight[:20] = 2
    with gap_may_stay_open():
        one = ReLUClassifier(0.03, tol=2e-2, prove=False, random_state=0).fit(X, y, weight)
        two = ReLUClassifier(0.03, tol=2e-2, prove=False, random_state=0).fit(twice, np.concatenate([y, y[:20]])[::-1])
    np.testing.assert_allclose(one.decision_function(X), two.decision_function(X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_array, sp.coo_array, sp.lil_matrix])
def test_any_form_of_sparse_matrix_will_do(kept, form):
    X, y = words(n=60)
    with gap_may_stay_open():
        first = ReLUClassifier(0.01, tol=0.05, prove=False, random_state=0).fit(form(X), y)
        same = ReLUClassifier(0.01, tol=0.05, prove=False, random_state=0).fit(X, y)
    np.testing.assert_array_equal(first.predict(form(X)), same.predict(X))
    assert first.objective_ == same.objective_


def test_beta_auto_paths_and_warm_starts(kept):
    X, y = words()
    with gap_may_stay_open():
        est = ReLUClassifier(prove=False, random_state=0).fit(X, y)
        assert est.score(X, y) > 0.5
        assert not est.network_.centre.any()  # zeros stay zeros
        path = solution_path(X, y, loss="logistic", n_betas=3, tol=0.05, prove=False, random_state=0)
        again = ReLUClassifier(0.01, tol=0.05, warm_start=True, random_state=0).fit(X, y)
        before = again.objective_
        assert again.fit(X, y).objective_ <= before * (1 + 1e-6)
    assert (np.diff(path.objectives) < 0).all()
    assert beta_max(X, y, loss="logistic") == pytest.approx(path.betas[0], rel=0.02)


def test_small_sparse_rows_are_trained_as_dense_ones_without_centring():
    X, y = words(n=40, d=4)
    one = ReLUClassifier(0.05, scale=True, tol=1e-3, prove=False, random_state=0).fit(X, y)
    architecture = Standardised(centred=False)
    other = ReLUClassifier(0.05, architecture=architecture, tol=1e-3, prove=False, random_state=0).fit(X.toarray(), y)
    assert one.objective_ == other.objective_
    exact = ReLURegressor(0.05, method="exact", tol=1e-3).fit(X[:8], y[:8].astype(float))
    assert exact.gap_ <= 1e-3


def large(n=20_000, d=600_000, C=3):
    """What would take 90 GiB as a dense array."""
    rng = np.random.default_rng(0)
    columns = rng.integers(2_000, size=(n, 4))
    columns[:, 0] = y = rng.integers(C, size=n)
    X = sp.csr_array((np.ones(4 * n), columns.ravel(), np.arange(0, 4 * n + 1, 4)), shape=(n, d))
    return X, y


def test_nothing_is_made_dense():
    X, y = large()
    with gap_may_stay_open(), tuned(pair_weights=40_000):
        est = ReLUClassifier(1e-2, max_neurons=6, max_iter=1, time_limit=30, prove=False, random_state=0).fit(X, y)
    assert est.n_neurons_ <= 6
    assert est.score(X, y) > 0.9
    assert est.lower_bound_ <= est.objective_ < np.log(3)


@pytest.mark.parametrize(
    "kw", [{"method": "exact"}, {"architecture": "batch_norm"}, {"activation": "gated"}, {"beta": 0, "loss": "hinge"}]
)
def test_what_needs_dense_rows_says_so_before_it_fills_the_memory(kw):
    X, y = large(d=6_000_000, C=2)
    with pytest.raises(MemoryError, match=r"a dense copy of the sparse X .* needs about [\d.]+ GiB"):
        ReLUClassifier(**{"beta": 0.1, **kw}).fit(X, y)


def test_a_network_on_centred_columns_predicts_sparse_rows(kept):
    X, y = words(n=50, d=5)
    with gap_may_stay_open():
        est = ReLUClassifier(0.01, scale=True, tol=0.05, prove=False, random_state=0).fit(X.toarray(), y)
    assert est.network_.centre.any()
    np.testing.assert_allclose(est.decision_function(X), est.decision_function(X.toarray()), rtol=1e-9, atol=1e-12)
