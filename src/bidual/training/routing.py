"""Which road data take: into memory as a whole, or in blocks of rows that stay where they are."""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from bidual._util.checks import as_bias, check_flag
from bidual._util.data import check_weights, check_X_y
from bidual._util.sparse import compressed, dense, is_sparse
from bidual._util.tuning import tuning
from bidual._util.typing import Array, FloatArray
from bidual.architectures import Architecture, get_architecture
from bidual.losses import Loss, get_loss
from bidual.training.objective import Objective
from bidual.training.targets import check_data, encode_labels, in_place, is_dask
from bidual.training.train import Trainable

#: Backends by name; "auto" is numpy.
BACKENDS = ("auto", "numpy", "torch")


@dataclass(frozen=True)
class Backend:
    """What computes on blocks of rows, the device of torch, and the file to which the state goes now and then."""

    name: str = "auto"
    device: str | None = None
    checkpoint: str | os.PathLike[str] | None = None

    @property
    def asked(self) -> bool:
        """Whether rows are to be taken in blocks however few they are."""
        return self.name != "auto" or self.checkpoint is not None

    def check(self, activation: str) -> None:
        """One sentence for each of them that cannot be."""
        if self.name not in BACKENDS:
            raise ValueError(f"unknown backend {self.name!r}: use one of {', '.join(map(repr, BACKENDS))}")
        if self.device is not None and self.name != "torch":
            raise ValueError(f"device={self.device!r} is for backend='torch'")
        if activation != "gated" and self.asked:
            raise ValueError("backend and checkpoint are for activation='gated'")


def pose(
    objective: Objective,
    X: Any,
    Y: FloatArray,
    sample_weight: Array | None = None,
    *,
    activation: str = "relu",
    method: str | None = None,
    backend: Backend | None = None,
    trained_gates: bool = False,
) -> Trainable:
    """Pose a training problem on rows and encoded targets ``Y (n, C)``, by the road for data of their size.

    Gated networks of two layers are trained in blocks of rows from ``tuning().row_blocks_from`` targets on, if the rows
    are a dask array, if the backend asks for it, and if their gates are to be trained, too; all else in memory.
    """
    backend = Backend() if backend is None else backend
    asked, possible = backend.asked or trained_gates, in_place(objective.architecture, activation)
    if asked and not possible:
        raise ValueError(
            f"backend, checkpoint and gates='trained' are for architecture='two_layer', not {objective.architecture!r}"
        )
    in_blocks = possible and (asked or is_dask(X) or Y.size >= tuning().row_blocks_from)
    if is_sparse(X):
        keeps = activation == "relu" and method in (None, "adaptive") and stays_sparse(objective, X)
        X = compressed(X) if keeps else dense(X)
    if not in_blocks:
        X = X if is_sparse(X) else np.asarray(X, dtype=np.float64)
        return objective.pose(X, Y, sample_weight, activation=activation, method=method)
    from bidual.training.row_blocks import RowBlocks  # numba takes a moment to load: only when it is needed

    return RowBlocks.of(objective, X, Y, sample_weight, *astuple(backend))


def stays_sparse(objective: Objective, X: Any) -> bool:
    """Whether sparse rows stay so: products with them are all that training needs, and it pays."""
    finite = objective.beta > 0 and objective.loss.finite
    entries = float(X.shape[0]) * X.shape[1]
    large = entries >= tuning().sparse_from and X.nnz <= tuning().sparse_share * entries
    return objective.architecture.keeps_sparse and finite and large


def pose_data(
    X: Array,
    y: Array,
    sample_weight: Array | None = None,
    *,
    loss: str | Loss = "squared",
    beta: float = 1.0,
    architecture: str | Architecture = "two_layer",
    bias: bool | str = True,
    fit_intercept: bool = True,
    activation: str = "relu",
    method: str | None = None,
) -> Trainable:
    """Pose a training problem on arrays as users have them: numbers, or labels if the loss is one for classes."""
    loss, architecture = get_loss(loss), get_architecture(architecture)
    check_flag("fit_intercept", fit_intercept)
    numbers = not loss.classification
    X, y = check_data(architecture, X, y, check_X_y, activation, multi_output=numbers, y_numeric=numbers)
    if loss.classification:
        loss, _, Y = encode_labels(loss, y)
    else:
        Y = loss.encode(y)
    if sample_weight is not None:
        sample_weight = check_weights(sample_weight, X, ensure_non_negative=True)
    objective = Objective(loss, float(beta), architecture, as_bias(bias), bool(fit_intercept))
    return pose(objective, X, Y, sample_weight, activation=activation, method=method)
