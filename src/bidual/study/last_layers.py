r"""The optimal last two layers of a deep network with batch normalisation (000 Theorems 5.1 and 5.2).

What a trained network computes before its last two layers are n rows of features A. If these are of full rank when
centred, the best last hidden layer with batch normalisation and the best output layer on them are a formula
(:mod:`bidual.closed_form.batch_norm`); otherwise a convex program, as for any two-layer network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual.architectures import BatchNorm
from bidual.bounds import Certificate
from bidual.losses import Loss
from bidual.networks import BatchNormNetwork
from bidual.solvers import Options
from bidual.training.routing import pose_data

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class LastLayers:
    """The best last two layers for the features that the layers before them compute.

    Attributes
    ----------
    module : torch.nn.Sequential
        The given module with these layers in the place of its own.
    network : BatchNormNetwork
        The two layers, on the features.
    certificate : Certificate
        Of these two layers: no others have a lower objective **on these features**. Of what better features could do it
        says nothing. ``certificate.verify(features, y)`` checks it.
    features : ndarray, shape (n, m)
        What the layers before compute of the training rows.
    before : float
        The objective of the layers that the module came with.
    """

    module: torch.nn.Sequential = field(repr=False)
    network: BatchNormNetwork
    certificate: Certificate
    features: FloatArray = field(repr=False)
    before: float

    #: Among which networks these are the best.
    scope: ClassVar[str] = "last two layers, for these features"

    @property
    def objective(self) -> float:
        """That of the two layers: loss and their weight decay."""
        return self.certificate.objective

    def __str__(self) -> str:
        return (
            f"best last two layers for these features: objective {self.objective:.6g} (it was {self.before:.6g}), no "
            f"others are below {self.certificate.lower_bound:.6g}"
        )


def optimal_last_layers(
    module: torch.nn.Module,
    X: Array,
    y: Array,
    *,
    beta: float,
    loss: str | Loss = "squared",
    normalisation: str = "std",
    fit_intercept: bool | None = None,
    sample_weight: Array | None = None,
    method: str = "closed_form",
    time_limit: float | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> LastLayers:
    r"""Put the optimal last two layers into a deep torch network (000 Theorems 5.1 and 5.2).

    They minimise the loss plus :math:`\tfrac\beta2 \sum_j (\gamma_j^2 + \sigma_j^2 + \|\alpha_j\|^2)` over networks of
    any width on the features that the layers before them compute in evaluation mode, with statistics of all rows.

    Parameters
    ----------
    module : torch.nn.Module
        A ``Sequential`` (of modules of any kind, nested or not) that ends in ``Linear, BatchNorm1d, ReLU, Linear``. It
        stays as it is.
    X : array of shape (n, ...)
        The training rows, as the module takes them.
    y : array of shape (n,) or (n, C)
        Numbers; codes such as one-hot rows for classes.
    beta : float
        Weight decay, relative to the mean loss.
    loss : str or Loss
    normalisation : {"std", "norm"}
        In whose units scales and shifts are charged: torch's, or those of the papers; see :class:`bidual.BatchNorm`.
    fit_intercept : bool or None
        Whether the outputs have a free bias; None: if the last layer has one.
    sample_weight : array or None
    method : str
        "closed_form" raises :class:`~bidual.closed_form.ConditionError`, with the reason, where the theorems do not
        hold: the features of n rows must be of rank n - 1 when centred, the loss squared, and with several outputs
        there must be no intercept and at most one target in each row. The other methods of
        :class:`bidual.ReLURegressor` need nothing of that.
    time_limit : float or None
    random_state : int, RandomState or None

    Examples
    --------
    >>> import numpy as np, torch
    >>> from bidual.study.last_layers import optimal_last_layers
    >>> _ = torch.manual_seed(0)
    >>> deep = [torch.nn.Linear(2, 20), torch.nn.ReLU()]
    >>> module = torch.nn.Sequential(*deep, torch.nn.Linear(20, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(),
    ...                              torch.nn.Linear(8, 1))
    >>> X, y = np.random.default_rng(0).standard_normal((6, 2)), np.array([1.0, -1.0, 2.0, 0.0, 1.0, -2.0])
    >>> found = optimal_last_layers(module, X, y, beta=0.01)
    >>> bool(found.certificate.gap < 1e-6), found.objective < found.before
    (True, True)
    """
    from bidual.networks.torch_layers import as_network, feature_map, last_two_layers, with_last_layers

    body, end = last_two_layers(module)
    A = feature_map(body, end[0])(X)
    if A.ndim != 2:
        raise ValueError(f"the layers before the last two must compute rows of features, not an array {A.shape}")
    intercept = end[-1].bias is not None if fit_intercept is None else fit_intercept
    data = pose_data(
        A,
        y,
        sample_weight,
        loss=loss,
        beta=beta,
        architecture=BatchNorm(normalisation=normalisation),
        bias=False,
        fit_intercept=intercept,
    )
    trained = data.train(method, Options(time_limit=time_limit, random_state=random_state))
    network = trained.network
    assert isinstance(network, BatchNormNetwork)
    before = data.value(as_network(end).as_of(network.n_samples))
    return LastLayers(with_last_layers(module, network), network, trained.certificate, A, before)
