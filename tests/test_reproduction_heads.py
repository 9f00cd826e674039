"""Linear heads from moments, as the experiments on images use them."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Lasso, Ridge


@pytest.fixture
def heads(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    from reproductions import heads

    return heads


def problem():
    rng = np.random.RandomState(0)
    B = (3 + rng.randn(200, 6) @ rng.randn(6, 6)).astype(np.float32)
    return B, np.eye(3)[rng.randint(3, size=200)]


def standardised(B):
    scale = B.std(axis=0)
    scale = scale + 1e-3 * scale.max()
    return ((B - B.mean(axis=0)) / scale).astype(np.float64)


def blocks(B, Y):
    return ((B[s : s + 64], Y[s : s + 64]) for s in range(0, len(B), 64))


def test_ridge_from_blocks_is_ridge_on_all_rows(heads):
    B, Y = problem()
    expected = Ridge(0.05 * len(B)).fit(standardised(B), Y).predict(standardised(B))
    head = heads.ridge(heads.Moments.of(blocks(B, Y)), [0.3, 0.05])[1]
    np.testing.assert_allclose(head.scores(B), expected, atol=2e-4)
    assert head.accuracy(B, Y.argmax(axis=1)) == pytest.approx(100 * (expected.argmax(1) == Y.argmax(1)).mean(), abs=1)


def test_lasso_from_blocks_is_lasso_on_all_rows(heads):
    B, Y = problem()
    lasso, strong = heads.lasso(heads.Moments.of(blocks(B, Y)), [0.02, 10.0], steps=2000)
    expected = Lasso(0.02, tol=1e-10, max_iter=100_000).fit(standardised(B), Y).predict(standardised(B))
    np.testing.assert_allclose(lasso.scores(B), expected, atol=1e-3)
    np.testing.assert_allclose(strong.coef, 0.0)


def test_moments_add_up_and_split(heads):
    B, Y = problem()
    whole = heads.Moments.of(blocks(B, Y))
    parts = heads.Moments.of(blocks(B[:90], Y[:90])) + heads.Moments.of(blocks(B[90:], Y[90:]))
    columns = np.array([0, 2, 5])
    few = heads.Moments.of(blocks(B[:, columns], Y))
    for one, other in ((whole, parts), (whole.take(columns), few)):
        assert one.n == other.n
        np.testing.assert_allclose(np.triu(one.G), np.triu(other.G), rtol=1e-5)
        np.testing.assert_allclose(one.R, other.R, rtol=1e-5)
        np.testing.assert_allclose(one.features, other.features, rtol=1e-6)
