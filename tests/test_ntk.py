"""The neural tangent kernel: closed form against wide networks, and regression with it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.kernel_ridge import KernelRidge
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from bidual import NTKRegressor, ntk

ESTIMATORS = [NTKRegressor(beta=1e-3), NTKRegressor(), NTKRegressor(beta=0.1, bias=False, fit_intercept=False)]


@pytest.mark.filterwarnings("ignore:.*:UserWarning:sklearn")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_the_battery_is_not_skipped():
    assert len(list(estimator_checks_generator(ESTIMATORS[0]))) > 40


def gaussian(seed=0, n=8, d=3):
    rng = np.random.RandomState(seed)
    return rng.randn(n, d), rng.randn(n)


def test_kernel_is_the_mean_gradient_product_of_wide_networks():
    X, _ = gaussian()
    rng = np.random.RandomState(1)
    m = 400_000
    U, alpha = rng.randn(m, 3), rng.randn(m)
    pre = X @ U.T
    by_outputs = np.maximum(pre, 0) @ np.maximum(pre, 0).T
    gates = (pre > 0) * alpha
    expected = 2.0 / m * (by_outputs + (X @ X.T) * (gates @ gates.T))
    np.testing.assert_allclose(ntk(X), expected, atol=0.02 * expected.max())


@pytest.mark.parametrize("bias", [False, True])
def test_kernel_is_that_of_torch_gradients(bias):
    torch = pytest.importorskip("torch")
    X, _ = gaussian(2, n=4)
    torch.manual_seed(0)
    m = 20_000
    hidden = torch.nn.Linear(3, m, bias=bias).double()
    output = torch.nn.Linear(m, 1, bias=False).double()
    net = torch.nn.Sequential(hidden, torch.nn.ReLU(), output)
    for p in net.parameters():
        torch.nn.init.normal_(p)
    rows = []
    for x in torch.as_tensor(X):
        net.zero_grad()
        (np.sqrt(2.0 / m) * net(x[None])).sum().backward()
        rows.append(torch.cat([p.grad.ravel() for p in net.parameters()]).numpy())
    empirical = np.array(rows) @ np.array(rows).T
    np.testing.assert_allclose(ntk(X, bias=bias), empirical, atol=0.05 * empirical.max())


def test_kernel_is_its_integral_in_the_plane():
    x, z = np.array([1.0, 0.5]), np.array([-0.3, 2.0])

    def integrand(t):  # directions are uniform; the squared length has mean two
        u = np.array([np.cos(t), np.sin(t)])
        both = (x @ u > 0) and (z @ u > 0)
        return (2 * (x @ u) * (z @ u) + x @ z) * both

    corners = sorted({(np.arctan2(v[1], v[0]) + s * np.pi / 2) % (2 * np.pi) for v in (x, z) for s in (-1, 1)})
    expected = 2 * quad(integrand, 0, 2 * np.pi, points=corners)[0] / (2 * np.pi)
    assert ntk(x, z) == pytest.approx(expected, rel=1e-8)


def test_kernel_is_positive_semidefinite_and_symmetric():
    X, _ = gaussian(3, n=40)
    K = ntk(X, bias=True)
    np.testing.assert_allclose(K, K.T, atol=1e-12)
    assert np.linalg.eigvalsh(K).min() > -1e-10
    np.testing.assert_allclose(np.diag(K), 2 * ((X**2).sum(axis=1) + 1), rtol=1e-14)
    np.testing.assert_allclose(ntk(X, X.copy(), bias=True), K, rtol=1e-6)


def test_zero_rows_have_a_zero_kernel():
    K = ntk(np.array([[0.0, 0.0], [1.0, 2.0]]))
    np.testing.assert_array_equal(K[0], 0.0)
    assert K[1, 1] == pytest.approx(10.0)


def test_without_a_bias_one_dimension_has_rank_two():
    # So the kernel as printed in 004 sec. 7 cannot interpolate 1-D data (eq. 20): its curves need the biases.
    x = np.linspace(-2, 2, 9)[:, None]
    y = np.cos(3 * x[:, 0])
    assert np.linalg.matrix_rank(ntk(x)) == 2
    poor = NTKRegressor(bias=False, fit_intercept=False).fit(x, y)
    assert np.abs(poor.predict(x) - y).max() > 0.5
    slopes = np.diff(poor.predict(np.linspace(0.1, 2, 20)[:, None]))
    np.testing.assert_allclose(slopes, slopes[0], atol=1e-10)
    assert np.abs(NTKRegressor(fit_intercept=False).fit(x, y).predict(x) - y).max() < 1e-8


def test_the_interpolant_has_kinks_at_the_data():
    # 004 sec. 7 calls it smooth around the data points: its slope jumps there, and bends between them
    x = np.array([[-1.0], [0.0], [1.0]])
    est = NTKRegressor(fit_intercept=False).fit(x, [0.0, 1.0, 0.0])

    def jump(at, h):
        left, middle, right = est.predict([[at - h], [at], [at + h]])
        return (right - 2 * middle + left) / h

    assert jump(0.0, 1e-6) == pytest.approx(jump(0.0, 1e-5), rel=1e-3)
    assert abs(jump(0.0, 1e-6)) > 1.0
    assert abs(jump(0.5, 1e-5)) < 1e-3  # a second derivative times h
    assert abs(jump(0.5, 0.1)) > 1e-3


def test_ridge_is_that_of_scikit_learn():
    X, y = gaussian(4, n=30)
    X_new = gaussian(5)[0]
    ours = NTKRegressor(beta=0.02, bias=False, fit_intercept=False).fit(X, y)
    theirs = KernelRidge(alpha=0.02 * 30, kernel=ntk).fit(X, y)
    np.testing.assert_allclose(ours.predict(X_new), theirs.predict(X_new), rtol=1e-6, atol=1e-8)


def test_interpolation_is_the_limit_of_ridge():
    X, y = gaussian(6, n=12)
    X_new = gaussian(7)[0]
    limit = NTKRegressor(beta=1e-11).fit(X, y).predict(X_new)
    np.testing.assert_allclose(NTKRegressor().fit(X, y).predict(X_new), limit, rtol=1e-4, atol=1e-5)


def test_equal_rows_get_their_mean():
    X = np.array([[1.0], [1.0], [2.0]])
    est = NTKRegressor(fit_intercept=False).fit(X, np.array([0.0, 2.0, 5.0]), sample_weight=[1.0, 3.0, 1.0])
    np.testing.assert_allclose(est.predict([[1.0], [2.0]]), [1.5, 5.0], atol=1e-7)


def test_several_targets_are_several_fits():
    X, _ = gaussian(8, n=20)
    Y = np.random.RandomState(0).randn(20, 2)
    both = NTKRegressor(beta=0.1).fit(X, Y).predict(X)
    for k in range(2):
        np.testing.assert_allclose(NTKRegressor(beta=0.1).fit(X, Y[:, k]).predict(X), both[:, k], rtol=1e-9)


def test_shapes_that_do_not_agree_are_named():
    with pytest.raises(ValueError, match="must agree in d"):
        ntk(np.ones((3, 2)), np.ones((3, 4)))
    with pytest.raises(ValueError, match="beta must be a number >= 0"):
        NTKRegressor(beta=-1.0).fit([[1.0], [2.0]], [1.0, 2.0])
