"""ReLU networks for classification."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score

from bidual._util.data import validate_data
from bidual._util.typing import Array
from bidual.architectures import Architecture
from bidual.estimators.base import BaseReLU, Encoded
from bidual.estimators.certified import store
from bidual.estimators.labels import LabelScores
from bidual.losses import Loss, get_loss
from bidual.networks import Network
from bidual.training.targets import check_data, encode_labels


class ReLUClassifier(LabelScores, BaseReLU):
    r"""A ReLU network for classes, trained to the global optimum of its weight-decay objective.

    The objective is that of :class:`ReLURegressor` with a classification loss. Two classes are coded -1/+1 with one
    output; more classes have one output each: "logistic" then means softmax cross-entropy, margin losses and
    "squared" sum over the one-vs-rest codes.

    Parameters
    ----------
    beta : float or "auto", default="auto"
        Weight decay; "auto" chooses it by the accuracy on rows that were held out, as in :class:`ReLURegressor`.
        ``beta=0`` with a hinge loss asks for the smallest network of margin one, with the squared loss
        for the smallest one that outputs the codes exactly.
    loss : str or Loss, default="logistic"
        "logistic" (or "softmax"), "hinge", "squared_hinge", "squared" (least squares on the codes), or an object.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with the sample weights.
    architecture, scale, activation, method, n_patterns, gates, bias, fit_intercept
        As in :class:`ReLURegressor`.
    tol, max_iter, time_limit, max_neurons, audit, warm_start, random_state, verbose
        As in :class:`ReLURegressor`.
    backend, device, checkpoint
        As in :class:`ReLURegressor`.

    Attributes
    ----------
    classes_ : ndarray
    loss_ : Loss
        The loss as it acts on this number of classes.
    network_ : Network
        Outputs scores; :meth:`predict` turns them into labels.
    certificate_ : Certificate
    objective_ : float
    lower_bound_, gap_ : float
        Proven.
    likely_bound_, likely_gap_ : float
        As audited search believes.
    n_neurons_, n_iter_ : int
    history_ : list of HistoryEntry

    See Also
    --------
    SplineClassifier : One input (or rows on a line) and biases that cost nothing: exact, in time linear in the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLUClassifier
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> y = np.array(["even", "odd", "odd", "even"])
    >>> est = ReLUClassifier(beta=1e-3, loss="hinge", method="exact").fit(X, y)
    >>> est.predict(X).tolist()
    ['even', 'odd', 'odd', 'even']
    """

    def __init__(
        self,
        beta: float | str = "auto",
        *,
        loss: str | Loss = "logistic",
        class_weight: dict[Any, float] | str | None = None,
        architecture: str | Architecture = "two_layer",
        scale: bool | str = "auto",
        activation: str = "relu",
        method: str = "adaptive",
        n_patterns: int | None = None,
        gates: Array | Network | BaseReLU | str | None = None,
        bias: bool | str = True,
        fit_intercept: bool = True,
        tol: float | str = "auto",
        max_iter: int = 200,
        time_limit: float | str | None = "auto",
        max_neurons: int | None = None,
        audit: bool | str = "auto",
        prove: float | bool | str = "auto",
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        backend: str = "auto",
        device: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        store(self, locals())

    def _encode(self, architecture: Architecture, X: Array, y: Array, sample_weight: Array | None) -> Encoded:
        X, y = check_data(architecture, X, y, partial(validate_data, self), self.activation)
        loss, classes, Y = encode_labels(get_loss(self.loss), y)
        if self.warm_start and hasattr(self, "classes_") and not np.array_equal(classes, self.classes_):
            raise ValueError("warm_start needs the classes of the previous fit; y has others")
        self.classes_ = classes
        return X, Y, loss, self._weigh(X, y, sample_weight)

    def score(self, X: Array, y: Array, sample_weight: Array | None = None) -> float:
        """Accuracy of the labels."""
        stacked = self._stacked(X, y, sample_weight)
        if stacked is None:
            return super().score(X, y, sample_weight)
        return float(accuracy_score(stacked[0], stacked[1], sample_weight=stacked[2]))
