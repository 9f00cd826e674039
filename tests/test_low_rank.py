"""Low-rank training with a guarantee: 002 Theorem 2."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual import Parallel, ReLUClassifier, ReLURegressor, low_rank, low_rank_guarantee, solution_path

PAPER = {"bias": False, "fit_intercept": False}


def data(seed, noise, n=6, d=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 1)) @ rng.standard_normal((1, d)) + noise * rng.standard_normal((n, d))
    return X, np.abs(X[:, 0]) + 0.1 * rng.standard_normal(n)


@given(st.integers(0, 2**16), st.floats(1e-4, 0.3), st.integers(1, 2), st.sampled_from([0.02, 0.3]))
@settings(max_examples=15)
def test_the_objective_on_the_true_data_keeps_to_the_factor(seed, noise, m1, beta):
    X, y = data(seed, noise, n=5, d=2)
    best = ReLURegressor(beta, architecture=Parallel(m1), method="exact", **PAPER).fit(X, y)
    table = low_rank(X, y, beta=beta, architecture=Parallel(m1), fit_intercept=False)
    for r, factor in zip(table.ranks, table.factors, strict=True):
        est = ReLURegressor(beta, architecture=Parallel(m1, rank=int(r)), method="exact", **PAPER).fit(X, y)
        # evaluated on X, not on its approximation
        assert est.objective_ == pytest.approx(est.network_.objective(X, y, beta=beta), rel=1e-9)
        assert best.lower_bound_ <= est.objective_ <= factor * best.objective_ * (1 + 1e-6)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
def test_losses_for_classes_keep_to_the_factor(loss):
    X, y = data(3, 0.1)
    labels = np.where(y > np.median(y), 1, 0)
    best = ReLUClassifier(0.05, loss=loss, architecture=Parallel(1), method="exact", **PAPER).fit(X, labels)
    table = low_rank(X, labels, beta=0.05, loss=loss, architecture=Parallel(1), fit_intercept=False)
    assert np.isfinite(table.factors).all()
    for r, factor in zip(table.ranks, table.factors, strict=True):
        kind = Parallel(1, rank=int(r))
        est = ReLUClassifier(0.05, loss=loss, architecture=kind, method="exact", **PAPER).fit(X, labels)
        assert best.lower_bound_ <= est.objective_ <= factor * best.objective_ * (1 + 1e-6)


def test_weights_of_low_rank_do_the_same_on_the_data_and_their_approximation():
    X, y = data(0, 0.2)
    est = ReLURegressor(0.05, architecture=Parallel(2, rank=1), method="exact").fit(X, y)
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    assert est.network_.predict(U[:, :1] * s[:1] @ Vt[:1]) == pytest.approx(est.network_.predict(X))


def test_auto_takes_the_smallest_rank_that_keeps_to_the_factor():
    X, y = data(1, 1e-3, n=8, d=4)
    table = low_rank(X, y, beta=0.05, architecture=Parallel(2))
    auto = Parallel(2, rank="auto", factor=1.2)
    est = ReLURegressor(0.05, architecture=auto).fit(X, y)
    report = low_rank_guarantee(est, X, y)
    assert report.rank == table.rank_for(1.2)
    assert report.factor <= 1.2
    assert report.rank == 1 or table.factors[report.rank - 2] > 1.2
    assert report.paper_factor == pytest.approx(report.factor**2)
    assert report.certificate.lower_bound <= report.objective == pytest.approx(est.objective_)
    # what is known afterwards is sharper than what was promised
    assert report.objective / report.certificate.likely_bound <= report.factor * (1 + 1e-3)


def test_auto_follows_beta_along_a_path():
    X, y = data(1, 1e-2, n=8, d=4)
    kind = Parallel(1, rank="auto", factor=1.1)
    path = solution_path(X, y, betas=[1.0, 1e-3], architecture=kind)
    table = low_rank(X, y, beta=1e-3, architecture=kind)
    W = path[-1].network.layers[0].swapaxes(1, 2).reshape(-1, 4)
    assert 1 < np.linalg.matrix_rank(W, tol=1e-9) <= table.rank_for(1.1)


def test_full_rank_costs_nothing():
    X, y = data(2, 0.5)
    assert low_rank(X, y, beta=0.1).factors[-1] == 1.0
    assert (np.diff(low_rank(X, y, beta=0.1).factors) <= 0).all()


def test_the_paper_normalises_by_sums():
    X, y = data(2, 0.5)
    n, labels = len(y), (y > y.mean()).astype(int)
    table = low_rank(X, labels, beta=0.1, loss="hinge", architecture=Parallel(2, 3))
    sigma = np.linalg.svd(X, compute_uv=False)[1]
    # a sum of n hinges has slope sqrt n in the 2-norm, and beta of the paper is n beta
    assert table.factors[0] == pytest.approx(1 + np.sqrt(6) * np.sqrt(n) * sigma / (n * 0.1))


def test_bad_ranks_are_refused():
    for bad in (0, 1.5, "best", True):
        with pytest.raises(ValueError, match="rank must be"):
            Parallel(2, rank=bad)
    with pytest.raises(ValueError, match="factor must be"):
        Parallel(2, rank="auto", factor=0.5)
    X, y = data(0, 0.1)
    with pytest.raises(ValueError, match="use beta > 0"):
        ReLURegressor(0.0, architecture=Parallel(2, rank="auto"), method="exact").fit(X, y)
    with pytest.raises(TypeError, match="parallel networks"):
        low_rank(X, y, beta=0.1, architecture="two_layer")
