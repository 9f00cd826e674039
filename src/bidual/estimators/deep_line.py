"""Deep ReLU networks on rows that are multiples of one, in closed form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._util.checks import check_flag, check_number
from bidual._util.data import check_weights, validate_data
from bidual._util.typing import Array, FloatArray
from bidual.closed_form.rank_one import interpolate_spline, train_rank_one
from bidual.estimators.certified import Certified, Numbers
from bidual.losses import ExactFit, Loss, get_loss
from bidual.networks import DeepNetwork


class DeepReLURegressor(Numbers, Certified):
    r"""A deep ReLU network on one input, or on rows :math:`x_i = c_i a_0`, by formula (001 Thm 4.1, 4.2, Prop. 4.2).

    .. math:: \min_{W_1, \ldots, W_L} \; \sum_i w_i \, \ell(f(x_i), y_i) + \frac\beta2 \sum_{l=1}^L \|W_l\|_F^2,
              \qquad f(x) = ((x W_1)_+ \cdots)_+ W_L,

    over all networks of L layers, of any widths, with :math:`c_i \ge 0`: one chain through all layers, whose strength
    is the minimiser of a function of one number.

    Parameters
    ----------
    depth : int, default=3
        Number of layers of weights, L.
    beta : float, default=1e-3
        Weight decay of the mean loss. ``beta=0`` asks for the smallest penalty of an exact fit.
    loss : str or Loss, default="squared"
        Several targets are for the squared loss; margin losses take targets -1 and +1.
    bias : bool, default=False
        With ``beta=0`` and one target: free biases in the last hidden layer and at the output. The network is then the
        linear spline through the data (rows of both signs if L = 2).
    widths : sequence of ints or None, default=None
        Widths of the ``depth - 1`` hidden layers, without biases; None is one each.
    tol : float, default=1e-6
        A larger relative gap is reported by a ``ConvergenceWarning``.

    Attributes
    ----------
    network_ : DeepNetwork
    certificate_ : Certificate
    objective_, lower_bound_, gap_, likely_bound_, likely_gap_ : float
    n_neurons_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import DeepReLURegressor
    >>> x = np.arange(6.0)[:, None]
    >>> est = DeepReLURegressor(depth=4, beta=0.01).fit(x, 2 * x[:, 0])
    >>> bool(est.gap_ < 1e-6), est.network_
    (True, DeepNetwork(1 -> 1 -> 1 -> 1 -> 1, relu))
    >>> spline = DeepReLURegressor(beta=0, bias=True).fit(x, np.abs(x[:, 0] - 2))
    >>> spline.predict([[2.0], [4.5]]).round(9) + 0.0
    array([0. , 2.5])
    """

    network_: DeepNetwork

    def __init__(
        self,
        depth: int = 3,
        beta: float = 1e-3,
        *,
        loss: str | Loss = "squared",
        bias: bool = False,
        widths: Sequence[int] | None = None,
        tol: float = 1e-6,
    ) -> None:
        self.depth = depth
        self.beta = beta
        self.loss = loss
        self.bias = bias
        self.widths = widths
        self.tol = tol

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> DeepReLURegressor:
        """Build the network from ``X (n, d)`` of rank one and targets ``y``, ``(n,)`` or ``(n, C)``."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        check_number("depth", self.depth, at_least=2, integer=True)
        check_number("beta", self.beta, at_least=0.0)
        check_number("tol", self.tol, at_least=0.0)
        check_flag("bias", self.bias)
        loss = get_loss(self.loss)
        if self.beta == 0 and loss.limit() != ExactFit():
            raise ValueError(f"beta=0 asks for an exact fit, of which loss={loss.name!r} knows nothing: use beta > 0")
        if sample_weight is not None:
            sample_weight = check_weights(sample_weight, X, ensure_non_negative=True)
        Y = loss.encode(np.asarray(y, dtype=np.float64))
        if self.bias:
            if self.beta != 0 or Y.shape[1] > 1 or self.widths is not None:
                raise ValueError(
                    "bias=True is for the spline through one target: use beta=0 and widths=None (SplineRegressor has "
                    "splines of two layers for any beta)"
                )
            used = slice(None) if sample_weight is None else sample_weight > 0
            self.network_, self.certificate_ = interpolate_spline(X[used], Y[used, 0], depth=int(self.depth))
        else:
            self.network_, self.certificate_ = train_rank_one(
                X,
                Y,
                beta=float(self.beta),
                depth=int(self.depth),
                loss=loss,
                sample_weight=sample_weight,
                widths=self.widths,
            )
        self._single = np.ndim(y) == 1
        self._warn_unless(self.tol, "solved", "rows that are not quite on a line leave a gap")
        return self

    def _outputs(self, X: Array) -> FloatArray:
        check_is_fitted(self, "network_")
        return self.network_.forward(validate_data(self, X, reset=False, dtype=np.float64))
