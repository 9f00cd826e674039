"""Losses: value, gradient, curvature, conjugate, and the same as a cone program."""

from __future__ import annotations

from typing import Any

from bidual._util.checks import shown
from bidual._util.typing import Array, FloatArray
from bidual.losses import base, classification, regression
from bidual.losses.base import *  # noqa: F403 -- each module lists its own public names
from bidual.losses.base import Loss
from bidual.losses.classification import *  # noqa: F403
from bidual.losses.classification import SquaredHinge
from bidual.losses.regression import *  # noqa: F403

#: The losses of this library by name; those of users are in ``Loss.registry`` as well.
LOSSES: dict[str, type[Loss]] = dict(Loss.registry)

__all__ = ["LOSSES", "encode_classes", "get_loss", "loss_from_dict"]
__all__ += base.__all__
__all__ += classification.__all__
__all__ += regression.__all__


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
