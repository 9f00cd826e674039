"""A network made by anybody, and the training problem it is an answer to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length

from bidual._util.checks import FREE, as_bias, as_numbers, check_flag, check_number
from bidual._util.data import check_array, check_labels, check_weights
from bidual._util.sparse import dense
from bidual._util.typing import Array, FloatArray
from bidual._util.wrapped import unwrap
from bidual.architectures import Architecture, TwoLayer, get_architecture
from bidual.losses import Logistic, Loss, Softmax, get_loss
from bidual.models import Model, as_network, load
from bidual.networks import GatedNetwork, Network, StandardisedNetwork, TwoLayerNetwork
from bidual.training.objective import Objective
from bidual.training.routing import pose as route
from bidual.training.targets import encode_known, in_place
from bidual.training.train import Trainable, TrainingSet

#: Biases of networks of somebody else's making, which may have other names: competitors with some are the safe side.
_UNKNOWN = 1.0


@dataclass(frozen=True)
class Case:
    """A network and the training problem it is an answer to."""

    network: Network
    data: Trainable
    classes: tuple[Any, ...] | None


def pose(
    model: Any,
    X: Array,
    y: Array,
    beta: float | None,
    loss: str | Loss | None,
    architecture: str | Architecture | None,
    bias: bool | str | None,
    fit_intercept: bool | None,
    sample_weight: Array | None,
) -> Case:
    """The network in ``model``, and the problem it is to be judged by; see :func:`bidual.certify`."""
    if isinstance(model, str | os.PathLike) and os.fspath(model).endswith(".json"):
        model = load(model)
    model, X, y = unwrap(model, X, y)
    network = as_network(model, X)
    classes = getattr(model, "classes_", None)
    if isinstance(model, Model):
        X, training = model.transform(X), model.training
        beta, loss = training.beta if beta is None else beta, training.loss if loss is None else loss
        if bias is None:  # files from before say of free ones that they are there
            bias = FREE if _free(network) else training.bias
        fit_intercept = training.fit_intercept if fit_intercept is None else fit_intercept
        classes = model.target.classes
        if classes is None:
            y = (as_numbers("y", y) - model.target.centre) / model.target.scale
    if beta is None:
        beta = getattr(model, "beta", None)
    if beta is None:
        raise ValueError("beta must be a positive number, the weight decay the network is judged by; got None")
    check_number("beta", beta, above=0.0)
    bias = None if bias is None else as_bias(bias)
    if fit_intercept is not None:
        check_flag("fit_intercept", fit_intercept)
    network = _charged_as(network, bias)
    if loss is None:
        loss = getattr(model, "loss_", None)
        loss = loss if isinstance(loss, Loss) else "logistic" if classes is not None else "squared"
    if architecture is None:
        architecture = _architecture(network)
    kind = get_architecture(architecture)
    activation = "gated" if isinstance(network.core, GatedNetwork) else "relu"
    X = dense(X)
    X = check_array(X, dtype="numeric" if in_place(kind, activation) else np.float64, allow_nd=kind.tensors)
    if in_place(kind, activation):  # rows that may be many are not copied
        network.check_inputs(np.broadcast_to(0.0, X.shape))
    else:
        X = network.check_inputs(X)
    check_consistent_length(X, y, sample_weight)
    network = on_rows(network, kind, X, sample_weight)
    stacked = kind.stack(X.shape, y)
    y = y if stacked is None else stacked
    acting, labels = _acting_loss(get_loss(loss), y, classes, network.n_outputs)
    if bias is None:
        hidden = getattr(network.core, "hidden_bias", getattr(network.core, "linear_bias", _UNKNOWN))
        bias = FREE if _free(network) else bool(getattr(model, "bias", hidden is not None))
    if fit_intercept is None and bias == FREE:
        fit_intercept = True
    if fit_intercept is None:
        fit_intercept = bool(getattr(model, "fit_intercept", np.any(getattr(network, "intercept", _UNKNOWN))))
    if not fit_intercept and np.any(getattr(network, "intercept", 0.0)):
        raise ValueError("the network has an output intercept, but fit_intercept=False asks for none")
    objective = Objective(acting, float(beta), kind, bias, fit_intercept)
    Y = encode_known(acting, y, labels, network.n_outputs)
    data = route(objective, X, Y, sample_weight, activation=activation)
    if isinstance(data, TrainingSet):
        data.check_network(network, activation == "gated")
    return Case(network, data, labels)


def on_rows(network: Network, architecture: Architecture, X: FloatArray, sample_weight: Array | None) -> Network:
    """The network as it is judged on training rows: a normalised one in terms of their statistics, in its units."""
    counts = None if sample_weight is None else check_weights(sample_weight, X, ensure_non_negative=True)
    return architecture.stated(network.restated(X, counts))


def _architecture(network: Network) -> Architecture:
    """That of a network; ValueError if nobody can say how good one of its kind could be."""
    own = TwoLayer if network.kind == GatedNetwork.kind else Architecture.registry.get(network.kind)
    if own is None:
        raise ValueError(
            f"certify knows no architecture of {network.kind} networks: it is for networks of "
            f"{', '.join(sorted(Architecture.registry))}"
        )
    return own.of(network)


def _free(network: Network) -> bool:
    """Whether its hidden biases cost nothing."""
    return bool(getattr(network.core, "free_bias", False))


def _charged_as(network: Network, bias: bool | str | None) -> Network:
    """The network as it is to be judged: with free hidden biases or with such as cost something, if that is said."""
    if isinstance(network, StandardisedNetwork):
        layer = _charged_as(network.layer, bias)
        return network if layer is network.layer else StandardisedNetwork(layer, network.centre, network.scale)
    if bias is None or not isinstance(network, TwoLayerNetwork) or network.free_bias == (bias == FREE):
        return network
    return TwoLayerNetwork(
        network.hidden_weights, network.output_weights, network.hidden_bias, network.intercept, bias == FREE
    )


def _acting_loss(loss: Loss, y: Array, classes: Any, n_outputs: int) -> tuple[Loss, tuple[Any, ...] | None]:
    """The loss as it acts on so many outputs, and the labels in the order of their codes (None: numbers)."""
    if not loss.classification and classes is None:
        return loss, None
    check_labels(y)
    labels = np.unique(np.asarray(y)) if classes is None else np.asarray(classes)
    integers = np.issubdtype(labels.dtype, np.integer)
    if classes is None and integers and n_outputs > 1 and labels.min() >= 0 and labels.max() < n_outputs:
        labels = np.arange(n_outputs)  # rows of one class may be missing
    if len(labels) < 2:
        raise ValueError(f"y holds one class only ({labels.tolist()}): nothing to classify")
    swap: dict[type[Loss], Loss] = {Logistic: Softmax()} if n_outputs > 1 else {Softmax: Logistic()}
    return swap.get(type(loss), loss), tuple(labels.tolist())
