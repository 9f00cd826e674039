"""Regression with the neural tangent kernel."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bidual._util.checks import check_number
from bidual._util.data import check_weights, normalise_weights, validate_data
from bidual._util.ranges import check_range
from bidual._util.typing import Array, FloatArray
from bidual.estimators.certified import Numbers
from bidual.study.tangent import ntk


class NTKRegressor(Numbers, BaseEstimator):
    r"""Kernel ridge regression with the neural tangent kernel of two-layer ReLU networks (004 sec. 7).

    .. math:: \min_{f, b} \; \sum_i \frac{w_i}{2} (f(x_i) + b - y_i)^2 + \frac\beta2 \|f\|_K^2,

    what an infinitely wide network tends to when gradient descent hardly moves its weights. It is here to compare with:
    it has no neurons, and its functions are smooth where those of trained networks have kinks.

    Parameters
    ----------
    beta : float, default=0.0
        Zero interpolates with the smallest norm, 004 eq. 20 (least squares where rows are equal or the kernel has too
        small a rank).
    bias : bool, default=True
        Hidden biases. Without them the kernel is homogeneous: see :func:`bidual.ntk`.
    fit_intercept : bool, default=True
        Free constant b: the weighted mean of the targets (as scikit-learn's ``KernelRidge`` on centred targets).

    Attributes
    ----------
    dual_coef_ : ndarray, shape (n,) or (n, C)
        Coefficients of :math:`K(x, x_i)`.
    intercept_ : float or ndarray, shape (C,)
    X_fit_ : ndarray, shape (n, d)
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import NTKRegressor
    >>> X, y = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    >>> bool(np.allclose(NTKRegressor().fit(X, y).predict(X), y))
    True
    """

    dual_coef_: FloatArray
    intercept_: float | FloatArray
    X_fit_: FloatArray

    def __init__(self, beta: float = 0.0, *, bias: bool = True, fit_intercept: bool = True) -> None:
        self.beta = beta
        self.bias = bias
        self.fit_intercept = fit_intercept

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> NTKRegressor:
        """Solve on ``X (n, d)`` and targets ``y``, ``(n,)`` or ``(n, C)``."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        check_number("beta", self.beta, at_least=0.0)
        if sample_weight is not None:
            sample_weight = check_weights(sample_weight, X, ensure_non_negative=True)
        check_range(X=X, y=y)
        w = normalise_weights(sample_weight, len(X))
        y = np.asarray(y, dtype=np.float64)
        self.intercept_ = w @ y if self.fit_intercept else 0.0 * y[0]
        root = np.sqrt(w)
        K = root[:, None] * ntk(X, bias=self.bias) * root
        right = root[:, None] * (y - self.intercept_).reshape(len(X), -1)
        solved = _ridge(K, right, float(self.beta)) if self.beta > 0 else _minimum_norm(K, right)
        self.dual_coef_ = (root[:, None] * solved).reshape(y.shape)
        self.X_fit_ = X
        return self

    def predict(self, X: Array) -> FloatArray:
        """Predicted targets, in the shape of the ``y`` of fit."""
        check_is_fitted(self, "dual_coef_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return ntk(X, self.X_fit_, bias=self.bias) @ self.dual_coef_ + self.intercept_


def _ridge(K: FloatArray, right: FloatArray, beta: float) -> FloatArray:
    if beta <= len(K) * np.finfo(float).eps * float(np.trace(K)):  # beta may not survive beside K: by eigenvalues
        values, vectors = eigh(K)
        return vectors @ ((vectors.T @ right) / (np.maximum(values, 0.0) + beta)[:, None])
    K[np.diag_indices_from(K)] += beta
    return cho_solve(cho_factor(K, overwrite_a=True), right)


def _minimum_norm(K: FloatArray, right: FloatArray) -> FloatArray:
    values, vectors = eigh(K)
    kept = values > len(K) * np.finfo(float).eps * np.abs(values).max(initial=0.0)
    V = vectors[:, kept]
    return V @ ((V.T @ right) / values[kept, None])
