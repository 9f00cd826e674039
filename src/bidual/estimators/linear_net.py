"""Linear networks for regression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._util.checks import check_number
from bidual._util.data import check_weights, validate_data
from bidual._util.typing import Array, FloatArray
from bidual._util.watch import watching
from bidual.closed_form.deep_linear import LinearOptions, train_linear
from bidual.estimators.certified import Certified, Numbers
from bidual.networks import DeepNetwork


class LinearNetRegressor(Numbers, Certified):
    r"""A linear network of any depth, trained to the global optimum of its weight-decay objective (001 sec. 2, 3).

    .. math:: \min_{W_1, \ldots, W_L, b} \; \sum_i \frac{w_i}{2} \| x_i W_1 \cdots W_L + b - y_i \|^2
              + \frac\beta2 \sum_{l=1}^L \|W_l\|_F^2.

    The function is linear; what the layers add is the penalty :math:`\tfrac{\beta L}{2} \sum_j \sigma_j(W)^{2/L}` of
    their product W: the nuclear norm for two layers, and closer to the rank the deeper the network.

    Parameters
    ----------
    depth : int, default=2
        Number of layers of weights, L.
    beta : float, default=1e-3
        Weight decay of the mean loss. ``beta=0`` asks for the smallest penalty at the least squared error.
    fit_intercept : bool, default=True
        Free output bias.
    widths : sequence of ints or None, default=None
        Widths of the ``depth - 1`` hidden layers, each at least the rank of the solution; None is that rank.
    tol : float, default=1e-6
        Relative gap to reach.
    max_iter : int, default=20000
        Proximal steps, where the optimum is not in closed form.

    Attributes
    ----------
    network_ : DeepNetwork
        Balanced and aligned layers.
    coef_ : ndarray, shape (d,) or (C, d)
        The linear function itself.
    intercept_ : float or ndarray, shape (C,)
    rank_ : int
        Rank of every layer.
    certificate_ : Certificate
    status_ : str
        "interrupted" after Ctrl-C, else "solved".
    objective_, lower_bound_, gap_, likely_bound_, likely_gap_ : float
    n_neurons_, n_iter_ : int

    Notes
    -----
    The optimum is proven for one target, for two layers, and for X with equal singular values (after centring). With
    several targets and more than two layers the search is local: the gap then stays open, and a ``ConvergenceWarning``
    says so.

    Examples
    --------
    >>> from sklearn.datasets import load_linnerud
    >>> from bidual import LinearNetRegressor
    >>> X, y = load_linnerud(return_X_y=True)
    >>> est = LinearNetRegressor(depth=2, beta=100.0).fit(X, y)
    >>> est.rank_, bool(est.gap_ < 1e-6)
    (1, True)
    """

    network_: DeepNetwork
    coef_: FloatArray
    intercept_: float | FloatArray

    def __init__(
        self,
        depth: int = 2,
        beta: float = 1e-3,
        *,
        fit_intercept: bool = True,
        widths: Sequence[int] | None = None,
        tol: float = 1e-6,
        max_iter: int = 20_000,
    ) -> None:
        self.depth = depth
        self.beta = beta
        self.fit_intercept = fit_intercept
        self.widths = widths
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> LinearNetRegressor:
        """Train on ``X (n, d)`` and targets ``y``, ``(n,)`` or ``(n, C)``."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        check_number("depth", self.depth, at_least=2, integer=True)
        check_number("beta", self.beta, at_least=0.0)
        check_number("tol", self.tol, at_least=0.0)
        check_number("max_iter", self.max_iter, at_least=1, integer=True)
        if sample_weight is not None:
            sample_weight = check_weights(sample_weight, X, ensure_non_negative=True)
        with watching() as watch:
            self.network_, certificate, self.n_iter_ = train_linear(
                X,
                np.asarray(y, dtype=np.float64).reshape(len(X), -1),
                beta=float(self.beta),
                depth=int(self.depth),
                sample_weight=sample_weight,
                fit_intercept=bool(self.fit_intercept),
                widths=self.widths,
                options=LinearOptions(self.tol, self.max_iter),
            )
        self.status_ = watch.status if watch.interrupted else "solved"
        from bidual.certification.linear_set import prove_linear

        Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        self.certificate_ = prove_linear(certificate, self.network_, X, Y, sample_weight, bool(self.fit_intercept))
        self._single = np.ndim(y) == 1
        W, b = np.linalg.multi_dot(self.network_.layers), self.network_.biases[-1]
        b = np.zeros(W.shape[1]) if b is None else b
        self.coef_, self.intercept_ = (W[:, 0], float(b[0])) if self._single else (W.T, b)
        self.rank_ = int((np.abs(self.network_.layers[-1]).max(axis=1) > 0).sum())
        advice = "raise max_iter" if self.depth == 2 else "more than two layers have no proof with several targets"
        self._warn_unless(self.tol, self.status_, advice)
        return self

    def _outputs(self, X: Array) -> FloatArray:
        check_is_fitted(self, "network_")
        return self.network_.forward(validate_data(self, X, reset=False, dtype=np.float64))
