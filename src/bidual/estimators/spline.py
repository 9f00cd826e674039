"""Networks with free biases on one input: linear splines."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._util.checks import check_number, check_time_limit, check_verbose
from bidual._util.data import check_weights, validate_data
from bidual._util.progress import result
from bidual._util.typing import Array, FloatArray
from bidual.estimators.certified import Certified, Numbers, store
from bidual.estimators.labels import LabelScores
from bidual.losses import Loss, get_loss
from bidual.networks import TwoLayerNetwork
from bidual.solvers.base import Options
from bidual.training.targets import encode_labels


class BaseSpline(Certified):
    """Parameters, validation and training of both estimators."""

    network_: TwoLayerNetwork
    loss_: Loss

    def __init__(
        self,
        beta: float = 1e-3,
        *,
        loss: str | Loss = "squared",
        tol: float = 1e-6,
        max_iter: int = 100,
        time_limit: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.beta = beta
        self.loss = loss
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.verbose = verbose

    def _train(self, X: FloatArray, Y: FloatArray, loss: Loss, sample_weight: Array | None) -> None:
        """Train on validated rows and encoded targets, and set the fitted attributes."""
        from bidual.splines.training import train_spline  # numba takes a moment to load: only when it is needed

        check_number("beta", self.beta, at_least=0.0)
        check_number("tol", self.tol, at_least=0.0)
        check_number("max_iter", self.max_iter, at_least=1, integer=True)
        check_time_limit(self.time_limit)
        check_verbose(self.verbose)
        if sample_weight is not None:
            sample_weight = check_weights(sample_weight, X, ensure_non_negative=True)
        options = Options(tol=self.tol, max_iter=self.max_iter, time_limit=self.time_limit, verbose=int(self.verbose))
        trained = train_spline(X, Y, sample_weight, loss=loss, beta=float(self.beta), options=options)
        self.loss_ = loss
        self._adopt(trained)
        trained.warn_unless(self.tol, stacklevel=3)
        if self.verbose:
            result(str(self.certificate_))

    def _outputs(self, X: Array) -> FloatArray:
        """Network outputs ``(n, C)`` for new rows."""
        check_is_fitted(self, "network_")
        return self.network_.forward(validate_data(self, X, reset=False, dtype=np.float64))


class SplineRegressor(Numbers, BaseSpline):
    r"""A ReLU network with free biases on one input, trained to the global optimum: a linear spline (004).

    .. math:: \min_{m,\, u,\, b,\, \alpha} \; \sum_i w_i \, \ell(f(x_i), y_i)
              + \frac\beta2 \sum_{j=1}^m \big(\|u_j\|^2 + \|\alpha_j\|^2\big),
              \qquad f(x) = \sum_j (u_j^T x + b_j)_+ \alpha_j + b_0,

    over weights and width: like :class:`ReLURegressor`, but the hidden biases cost nothing. For inputs on a line the
    optimum has its kinks at data points and is a group lasso over the ramps :math:`(x - x_i)_+` and
    :math:`(x_i - x)_+` (004 Cor. 3.2, 3.4, Theorem 6.1), solved here in time linear in the number of rows: a hundred
    thousand take seconds.

    Parameters
    ----------
    beta : float, default=1e-3
        Weight decay of the mean loss. ``beta=0`` asks for the network of smallest penalty through all the data.
    loss : str or Loss, default="squared"
        The name of a loss for numbers ("squared", "huber", "absolute", "quantile", ...), or an object from
        :mod:`bidual.losses`; one of your own must be smooth or have a ``dual_box``.
    tol : float, default=1e-6
        Relative gap to reach.
    max_iter : int, default=100
        Rounds in which kinks are added.
    time_limit : float or None, default=None
        Seconds after which the best network so far is returned with its gap.
    verbose : int, default=0

    Attributes
    ----------
    network_ : TwoLayerNetwork
        With ``free_bias=True``.
    certificate_ : Certificate
        Proven: the dual constraint of *all* neurons is a maximum over the data points, evaluated exactly.
    objective_, lower_bound_, gap_, likely_bound_, likely_gap_ : float
    n_neurons_, n_iter_ : int
    history_ : list of HistoryEntry
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    SplineClassifier : The same for classes.
    ReLURegressor : Any number of inputs; its hidden biases are regularised.

    Notes
    -----
    ``fit`` takes X of shape (n, 1), or (n, d) with all rows on one line; other X raise a ValueError. As a norm
    of functions, the penalty is that of :mod:`bidual.splines.problem`. The optimal function is not always unique, and
    its network hardly ever is (004 Prop. 3.1); among optimal networks, one with few neurons is returned.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import SplineRegressor
    >>> x = np.linspace(-1.0, 1.0, 50_001)
    >>> est = SplineRegressor(beta=1e-3).fit(x[:, None], np.abs(x))
    >>> est.n_neurons_, est.certificate_.scope, bool(est.gap_ < 1e-6)
    (2, 'global', True)
    """

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> SplineRegressor:
        """Train on ``X``, one column or rows on a line, and targets ``y``, ``(n,)`` or ``(n, C)``."""
        loss = get_loss(self.loss)
        if loss.classification:
            raise ValueError(f"the loss {loss.name!r} is for classes: use SplineClassifier, or a regression loss")
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self._single = y.ndim == 1
        self._train(X, loss.encode(y), loss, sample_weight)
        return self


class SplineClassifier(LabelScores, BaseSpline):
    r"""A ReLU network with free biases for classes on one input, trained to the global optimum (004 Theorem 5.2).

    The objective is that of :class:`SplineRegressor` with a classification loss; with the hinge loss it is the
    :math:`\ell_1` support vector machine over the ramps at the data points. Two classes are coded -1/+1 with one
    output; more classes have one output each: "logistic" then means softmax cross-entropy, margin losses and "squared"
    sum over the one-vs-rest codes.

    Parameters
    ----------
    beta : float, default=1e-3
        Weight decay of the mean loss. ``beta=0`` with a hinge loss asks for the smallest network of margin one.
    loss : str or Loss, default="hinge"
        "hinge", "squared_hinge", "logistic" (or "softmax"), "squared" (least squares on the codes), or an object.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with the sample weights.
    tol, max_iter, time_limit, verbose
        As in :class:`SplineRegressor`.

    Attributes
    ----------
    classes_ : ndarray
    loss_ : Loss
        The loss as it acts on this number of classes.
    network_ : TwoLayerNetwork
        Outputs scores; :meth:`predict` turns them into labels. Decision regions end at its zeros.
    certificate_ : Certificate
    objective_, lower_bound_, gap_, likely_bound_, likely_gap_ : float
    n_neurons_, n_iter_ : int
    history_ : list of HistoryEntry

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import SplineClassifier
    >>> x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    >>> est = SplineClassifier(beta=1e-3).fit(x[:, None], ["a", "b", "b", "a", "a"])
    >>> est.predict(x[:, None]).tolist()
    ['a', 'b', 'b', 'a', 'a']
    """

    def __init__(
        self,
        beta: float = 1e-3,
        *,
        loss: str | Loss = "hinge",
        class_weight: dict[Any, float] | str | None = None,
        tol: float = 1e-6,
        max_iter: int = 100,
        time_limit: float | None = None,
        verbose: int = 0,
    ) -> None:
        store(self, locals())

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> SplineClassifier:
        """Train on ``X``, one column or rows on a line, and labels ``y (n,)`` of any type."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        loss, self.classes_, Y = encode_labels(get_loss(self.loss), y)
        self._train(X, Y, loss, self._weigh(X, y, sample_weight))
        return self
