"""Losses: value, gradient, curvature, conjugate, and the same as a cone program."""

from __future__ import annotations

from typing import Any

from bidual._checks import shown
from bidual._typing import Array, FloatArray
from bidual.losses.base import ConeForm, DualBox, Loss
from bidual.losses.classification import Hinge, Logistic, Margin, MarginLoss, Softmax, SquaredHinge
from bidual.losses.regression import Absolute, ExactFit, Huber, Quantile, RegressionLoss, Squared

LOSSES: dict[str, type[Loss]] = {
    cls.name: cls
    for cls in (
        Squared,
        Huber,
        Absolute,
        Quantile,
        Logistic,
        Softmax,
        Hinge,
        SquaredHinge,
        ExactFit,
        Margin,
    )
}

__all__ = [
    "LOSSES",
    "Absolute",
    "ConeForm",
    "DualBox",
    "ExactFit",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Margin",
    "MarginLoss",
    "Quantile",
    "RegressionLoss",
    "Softmax",
    "Squared",
    "SquaredHinge",
    "encode_classes",
    "get_loss",
    "loss_from_dict",
]


def get_loss(loss: str | Loss) -> Loss:
    """The loss named ``loss``, with default parameters, or ``loss`` itself if it is one."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in Loss.registry:
        return Loss.registry[loss]()
    raise ValueError(
        f"unknown loss {shown(loss)}: use one of {', '.join(map(repr, sorted(Loss.registry)))}, "
        "or an instance of bidual.losses.Loss"
    )


def encode_classes(loss: Loss, codes: Array, n_classes: int) -> FloatArray:
    """Class codes ``0..K-1`` as targets of ``loss``; a regression loss sees the -1/+1 codes of the margin losses."""
    encoder: Loss = loss if loss.classification else SquaredHinge()
    return encoder.encode(codes, n_classes)


def loss_from_dict(data: dict[str, Any]) -> Loss:
    """Inverse of :meth:`Loss.to_dict`: a loss of your own is found once its class is imported."""
    parameters = dict(data)
    cls = Loss.registry.find(parameters.pop("name", None))
    try:
        return cls(**parameters)
    except TypeError as error:
        raise ValueError(f"the loss {cls.name!r} has other parameters than {sorted(parameters)}") from error
