"""Deep ReLU networks for classes, in closed form."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from bidual._util.checks import check_number
from bidual._util.data import validate_data
from bidual._util.typing import Array, FloatArray
from bidual.closed_form.deep_relu import train_classes
from bidual.estimators.certified import Certified
from bidual.estimators.labels import LabelScores
from bidual.losses import Loss, Squared, encode_classes, get_loss
from bidual.networks import DeepNetwork
from bidual.training.targets import encode_labels


class DeepReLUClassifier(LabelScores, Certified):
    r"""A deep ReLU network for classes by the closed form for whitened rows: no training (001 Thm 4.3).

    .. math:: \min_{W_1, \ldots, W_L} \; \frac1n \sum_i \ell(f(\tilde x_i), y_i)
              + \frac\beta2 \sum_{l=1}^L \|W_l\|_F^2, \qquad f(\tilde x) = ((\tilde x W_1)_+ \cdots)_+ W_L,

    over 001's parallel networks (for two layers: all networks). Every class has a chain of its own through all layers.

    Parameters
    ----------
    depth : int, default=3
        Number of layers of weights, L.
    beta : float, default=1e-3
        Weight decay of the mean loss. ``beta=0`` (squared loss) fits the one-hot targets exactly.
    loss : str or Loss, default="squared"
        "squared" (of one-hot targets), "logistic" (for more than two classes: softmax), "hinge", "squared_hinge".
    widths : sequence of ints or None, default=None
        Widths of the ``depth - 1`` hidden layers, each at least the number of chains; None is that number.
    tol : float, default=1e-6
        A larger relative gap is reported by a ``ConvergenceWarning``.

    Attributes
    ----------
    classes_ : ndarray
    loss_ : Loss
        The loss as it acts on this number of classes.
    network_ : DeepNetwork
        Takes rows as they come: their whitening is part of it, but costs nothing.
    certificate_ : Certificate
    objective_, lower_bound_, gap_, likely_bound_, likely_gap_ : float
    n_neurons_ : int

    Notes
    -----
    Rows with :math:`X X^T = I` are used as they are, other linearly independent rows are whitened. Dependent rows (more
    rows than columns, as a rule) cannot be white: the network is then a heuristic with a proven, open gap. See
    :mod:`bidual.closed_form.deep_relu` for what is proven for which loss.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import DeepReLUClassifier
    >>> X = np.random.default_rng(0).standard_normal((12, 20))
    >>> y = np.repeat(["a", "b", "c"], 4)
    >>> est = DeepReLUClassifier(depth=4, beta=0.01).fit(X, y)
    >>> bool(est.gap_ < 1e-12), est.score(X, y), est.network_
    (True, 1.0, DeepNetwork(20 -> 3 -> 3 -> 3 -> 3, relu))
    """

    classes_: Array
    loss_: Loss
    network_: DeepNetwork

    def __init__(
        self,
        depth: int = 3,
        beta: float = 1e-3,
        *,
        loss: str | Loss = "squared",
        widths: Sequence[int] | None = None,
        tol: float = 1e-6,
    ) -> None:
        self.depth = depth
        self.beta = beta
        self.loss = loss
        self.widths = widths
        self.tol = tol

    def fit(self, X: Array, y: Array) -> DeepReLUClassifier:
        """Build the network from ``X (n, d)`` and labels ``y (n,)`` of any type."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_number("depth", self.depth, at_least=2, integer=True)
        check_number("beta", self.beta, at_least=0.0)
        check_number("tol", self.tol, at_least=0.0)
        self.loss_, self.classes_, _ = encode_labels(get_loss(self.loss), y)
        K = len(self.classes_)
        one_hot = type(self.loss_) is Squared
        self.network_, self.certificate_ = train_classes(
            X,
            np.searchsorted(self.classes_, y),
            np.eye(K) if one_hot else encode_classes(self.loss_, np.arange(K), K),
            beta=float(self.beta),
            depth=int(self.depth),
            loss=self.loss_,
            widths=self.widths,
        )
        if self.gap_ > self.tol:
            warnings.warn(
                f"the relative gap {self.gap_:.2e} is above tol={self.tol:g}: objective {self.objective_:.6g}, "
                f"lower bound {self.lower_bound_:.6g} ({self.certificate_.method})",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _outputs(self, X: Array) -> FloatArray:
        check_is_fitted(self, "network_")
        return self.network_.forward(validate_data(self, X, reset=False, dtype=np.float64))
