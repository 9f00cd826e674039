"""Convex-RF: filters by extreme points, and what they answer to images."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Lasso, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from bidual import ConvexRF, ReLUClassifier
from bidual._util.tuning import tuned
from bidual.estimators.filter_bank import PatchGrid, draw_patches, normalise, zca

ESTIMATORS = [
    ConvexRF(20, random_state=0),
    ConvexRF(12, patch_size=3, whiten=True, pooling="average", threshold=0.1, random_state=0),
    ConvexRF(15, filters="patches", stride=2, cells=1, random_state=0),
]


@pytest.mark.filterwarnings("ignore:.* filters instead of:UserWarning")
@pytest.mark.filterwarnings("ignore:.*:UserWarning:sklearn")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_the_battery_is_not_skipped():
    assert len(list(estimator_checks_generator(ESTIMATORS[0]))) > 35


def images(seed=0, n=4, shape=(9, 8, 2)):
    return np.random.RandomState(seed).rand(n, *shape)


def naive_features(est, X):
    """Patch by patch, filter by filter, by the formulas of Algorithm 2."""
    height, width, _ = est.image_shape_
    h, w = est.filters_.shape[1:3]
    cells = est.cells if np.ndim(est.cells) else (est.cells, est.cells)
    tops, lefts = range(0, height - h + 1, est.stride), range(0, width - w + 1, est.stride)
    out = []
    for image in np.asarray(X, dtype=float).reshape(len(X), *est.image_shape_):
        for rows in np.array_split(tops, min(cells[0], len(tops))):
            for columns in np.array_split(lefts, min(cells[1], len(lefts))):
                answers = []
                for r in rows:
                    for c in columns:
                        p = image[r : r + h, c : c + w].ravel()
                        p = (p - p.mean()) / np.sqrt(p.var() + est.epsilon * est.scale_**2)
                        p = p if est.whitening_ is None else est.whitening_ @ p
                        answers.append([max(u.ravel() @ p - est.threshold, 0.0) for u in est.filters_])
                out.append(np.max(answers, axis=0) if est.pooling == "max" else np.mean(answers, axis=0))
    return np.array(out).reshape(len(X), -1)


@settings(max_examples=25)
@given(
    st.integers(0, 1000),
    st.sampled_from(["max", "average"]),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from([1, 2, (2, 3)]),
    st.sampled_from([3, (2, 4)]),
    st.sampled_from([0.0, 0.3]),
)
def test_features_are_those_of_a_naive_loop(seed, pooling, whiten, stride, cells, patch_size, threshold):
    X = images(seed)
    est = ConvexRF(
        7, patch_size=patch_size, stride=stride, whiten=whiten, pooling=pooling, cells=cells, threshold=threshold,
        random_state=seed,
    ).fit(X)  # fmt: skip
    np.testing.assert_allclose(est.transform(X), naive_features(est, X), rtol=1e-4, atol=1e-5)


@tuned(filters=16, patch_entries=4096)  # several blocks of filters and of images
def test_features_are_those_of_torch():
    torch = pytest.importorskip("torch")
    X = images(1, n=20, shape=(14, 14, 3))
    est = ConvexRF(40, patch_size=5, epsilon=1e-3, cells=2, random_state=0).fit(X)
    x = torch.as_tensor(X).permute(0, 3, 1, 2)
    patches = torch.nn.functional.unfold(x, 5)
    patches = patches - patches.mean(1, keepdim=True)
    patches = patches / (patches.var(1, keepdim=True, unbiased=False) + 1e-3 * est.scale_**2).sqrt()
    kernels = torch.as_tensor(est.filters_.transpose(0, 3, 1, 2).reshape(40, -1).copy())
    pooled = torch.nn.functional.adaptive_max_pool2d(torch.relu(kernels @ patches).reshape(20, 40, 10, 10), 2)
    expected = pooled.permute(0, 2, 3, 1).reshape(20, -1)
    np.testing.assert_allclose(est.transform(X), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_filters_solve_the_simplex_problem_of_the_paper():
    cp = pytest.importorskip("cvxpy")
    X = images(2, n=12, shape=(6, 6, 1))
    est = ConvexRF(15, patch_size=4, whiten=True, random_state=3).fit(X)
    grid = PatchGrid.of((6, 6, 1), (4, 4), 1, (2, 2))
    drawn = draw_patches(X.reshape(12, -1), grid, 10_000, np.random.RandomState(3))
    P = normalise(drawn.copy(), est.epsilon * est.scale_**2)
    np.testing.assert_allclose(est.whitening_, zca(P, 0.1), rtol=1e-8)
    P = (P @ est.whitening_)[:15]
    for i in (0, 7, 14):
        mixture = cp.Variable(14, nonneg=True)
        others = np.delete(P, i, axis=0)
        cp.Problem(cp.Minimize(cp.sum_squares(P[i] - others.T @ mixture)), [cp.sum(mixture) == 1]).solve(cp.CLARABEL)
        residual = P[i] - others.T @ mixture.value
        np.testing.assert_allclose(est.filters_[i].ravel(), residual / np.linalg.norm(residual), atol=1e-4)


def test_a_filter_separates_its_patch_from_all_others():
    # Theorem 3.5: with the bias of (10) the neuron is active on its own patch only
    X = images(3, n=30)
    est = ConvexRF(60, patch_size=3, random_state=0).fit(X)
    grid = PatchGrid.of((9, 8, 2), (3, 3), 1, (2, 2))
    P = normalise(draw_patches(X.reshape(30, -1), grid, 60, np.random.RandomState(0)), est.epsilon * est.scale_**2)
    answers = est.filters_.reshape(60, -1) @ P.T
    own = np.diag(answers).copy()
    np.fill_diagonal(answers, -np.inf)
    assert (own > answers.max(axis=1) + 1e-6).all()


def test_whitened_patches_are_white():
    P = np.random.RandomState(0).randn(5000, 9) @ np.random.RandomState(1).randn(9, 9)
    np.testing.assert_allclose(np.cov(P @ zca(P, 1e-12), rowvar=False, bias=True), np.eye(9), atol=1e-6)
    W = zca(P, 0.3)
    np.testing.assert_allclose(W, W.T, atol=1e-10)  # zero phase


@pytest.mark.parametrize(("a", "b"), [(255.0, 0.0), (1e-100, 0.0), (1e100, 3e100), (2.0, -1e6)])
def test_units_of_the_pixels_do_not_matter(a, b):
    X = images(4)
    est = ConvexRF(10, patch_size=3, whiten=True, random_state=0)
    expected = clone(est).fit_transform(X)
    np.testing.assert_allclose(est.fit_transform(a * X + b), expected, rtol=1e-3, atol=1e-4)


def test_bytes_flat_rows_and_images_mean_the_same():
    X = np.random.RandomState(0).randint(0, 256, (10, 7, 6, 3)).astype(np.uint8)
    est = ConvexRF(8, patch_size=3, random_state=0).fit(X)
    expected = est.transform(X)
    assert expected.dtype == np.float32
    flat = ConvexRF(8, patch_size=3, image_shape=(7, 6, 3), random_state=0).fit(X.reshape(10, -1))
    np.testing.assert_array_equal(flat.filters_, est.filters_)
    np.testing.assert_allclose(flat.transform(X.reshape(10, -1).astype(float)), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(est.transform(X.astype(np.float32)), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(flat.transform(X), expected)


def test_flat_rows_are_squares_or_signals():
    rng = np.random.RandomState(0)
    assert ConvexRF(5, random_state=0).fit(rng.rand(20, 64)).image_shape_ == (8, 8, 1)
    est = ConvexRF(5, patch_size=4, random_state=0).fit(rng.rand(20, 50))
    assert est.image_shape_ == (1, 50, 1)
    assert est.filters_.shape == (5, 1, 4, 1)
    assert est.transform(rng.rand(3, 50)).shape == (3, 10)


def test_same_seed_same_filters_and_features():
    X = images(5)
    first, second, other = (ConvexRF(9, patch_size=3, random_state=s).fit(X) for s in (0, 0, 1))
    np.testing.assert_array_equal(first.filters_, second.filters_)
    np.testing.assert_array_equal(first.transform(X), second.transform(X))
    assert not np.array_equal(first.filters_, other.filters_)


def test_memory_does_not_grow_with_the_patches():
    X = np.random.RandomState(0).randint(0, 256, (300, 40, 40)).astype(np.uint8)
    est = ConvexRF(64, patch_size=6, cells=1, random_state=0).fit(X)
    tracemalloc.start()
    features = est.transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    all_patches = 300 * 35 * 35 * 36 * 4
    assert all_patches > 50e6
    assert peak < features.nbytes + 12e6


def test_one_large_image_is_cut_into_pieces():
    X = np.random.RandomState(0).rand(1, 150, 150)
    est = ConvexRF(20, patch_size=5, cells=1, random_state=0).fit(X)
    tracemalloc.start()
    features = est.transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12e6
    P = normalise(np.lib.stride_tricks.sliding_window_view(X[0], (5, 5)).reshape(-1, 25).copy(), 0.01 * est.scale_**2)
    np.testing.assert_allclose(features, (P @ est.filters_.reshape(20, -1).T).max(axis=0)[None], rtol=1e-4)


def test_patches_inside_the_hull_of_others_are_left_out_with_a_warning():
    X = np.random.RandomState(0).rand(100, 2, 2)  # normalised patches of two pixels lie on a line: two ends
    with pytest.warns(UserWarning, match="2 filters instead of 30: 30 different patches were drawn, of which 28"):
        est = ConvexRF(30, patch_size=(1, 2), random_state=0).fit(X)
    assert est.n_filters_ == 2
    assert est.transform(X).shape == (100, 4)


def test_constant_images_are_refused():
    with pytest.raises(ValueError, match="at least two different patches that are not constant"):
        ConvexRF(5).fit(np.ones((4, 9, 9)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_filters": 0}, "n_filters must be an integer >= 1"),
        ({"patch_size": (3, 0)}, "patch_size must be an integer >= 1"),
        ({"cells": 0}, "cells must be an integer >= 1"),
        ({"stride": 1.5}, "stride must be an integer"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"threshold": -1.0}, "threshold must be a number >= 0"),
        ({"filters": "kmeans"}, "unknown filters 'kmeans'"),
        ({"pooling": "sum"}, "unknown pooling 'sum'"),
        ({"whiten": 1}, "whiten must be True or False"),
        ({"image_shape": (5, 5)}, "72 columns, which are no images of image_shape="),
        ({"image_shape": 5}, "image_shape must be"),
        ({"image_shape": (72,)}, "image_shape must be"),
        ({"patch_size": (1, 2, 3)}, "patch_size must be"),
    ],
)
def test_bad_parameters_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        ConvexRF(**options).fit(images().reshape(4, -1)[:, :72])


def test_other_images_than_those_of_fit_are_refused():
    X = images()
    est = ConvexRF(4, patch_size=3, random_state=0)
    with pytest.raises(NotFittedError):
        est.transform(X)
    est.fit(X)
    with pytest.raises(ValueError, match=r"images of shape \(8, 9, 2\), but \(9, 8, 2\) is expected"):
        est.transform(X.transpose(0, 2, 1, 3))
    with pytest.raises(ValueError, match="is expected"):
        ConvexRF(4, image_shape=(8, 9, 2)).fit(X)
    with pytest.raises(ValueError, match="got"):
        est.transform(X[..., None])


@tuned(report_seconds=0.0)
def test_progress_is_reported(capsys):
    ConvexRF(4, patch_size=3, random_state=0, verbose=1).fit_transform(images())
    assert "4 of 4 images" in capsys.readouterr().out


@pytest.mark.parametrize("channels", [1, 3])
def test_filters_are_drawn(channels):
    plt = pytest.importorskip("matplotlib.pyplot")
    from bidual.plots import plot_filters

    est = ConvexRF(7, patch_size=3, random_state=0).fit(images(shape=(8, 8, channels)))
    page = plot_filters(est, ax=plt.figure().subplots()).images[0].get_array()
    plt.close("all")
    assert page.shape[:2] == (3 * 4 - 1, 3 * 4 - 1)  # three rows of three, a line between them
    first = est.filters_[0] - est.filters_[0].min()
    np.testing.assert_allclose(np.asarray(page)[:3, :3].reshape(first.shape), first / first.max())
    with pytest.raises(ValueError, match="one or three channels"):
        plot_filters(ConvexRF(7, patch_size=3, random_state=0).fit(images(shape=(8, 8, 2))))


def digits():
    X, y = load_digits(return_X_y=True)
    return X[:900], y[:900], X[900:], y[900:]


def test_a_pipeline_with_an_l1_head_beats_least_squares():
    X, y, X_new, y_new = digits()
    rf = ConvexRF(60, patch_size=4, random_state=0)
    model = make_pipeline(rf, OneVsRestClassifier(Lasso(1e-3))).fit(X, y)
    assert list(model[:-1].get_feature_names_out()[:2]) == ["convexrf0", "convexrf1"]
    plain = RidgeClassifier().fit(X, y).score(X_new, y_new)
    assert model.score(X_new, y_new) > plain + 0.02


def test_a_pipeline_with_our_convex_head():
    X, y, X_new, y_new = digits()
    head = ReLUClassifier(beta=1e-2, loss="squared", activation="gated", n_patterns=3, tol=0.1, random_state=0)
    model = make_pipeline(ConvexRF(15, patch_size=4, random_state=0), head).fit(X[:200], y[:200])
    assert model[-1].gap_ <= 0.1
    assert model.score(X_new, y_new) > 0.7
