"""From the targets of the user to the arrays that losses work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from bidual._util.checks import as_numbers
from bidual._util.data import check_array, check_labels
from bidual._util.sparse import dense
from bidual._util.typing import Array, FloatArray
from bidual.architectures import Architecture, TwoLayer
from bidual.losses import Logistic, Loss, Softmax, Squared, encode_classes


def check_data(
    architecture: Architecture, X: Array, y: Array, check: Callable[..., Any], activation: str = "relu", **options: Any
) -> tuple[Any, Array]:
    """X and y as ``check`` (scikit-learn's ``check_X_y`` or the like) finds them fit for an architecture.

    Of an architecture with outputs at several places of a sample, y gets a row for each of them. Rows that can stay
    where they are stay as they are, too: a memory map is looked at, not copied.
    """
    if is_dask(X):
        if not in_place(architecture, activation):
            raise ValueError("X is a dask array, which activation='gated' trains on: use that, or X.compute()")
        return _check_dask(X, y, check, **options)
    options["dtype"] = "numeric" if in_place(architecture, activation) else np.float64
    options["allow_nd"] = architecture.tensors
    options["accept_sparse"] = "csr"
    X = dense(X) if architecture.tensors else X
    stacked = architecture.stack(np.asarray(X).shape, y) if architecture.tensors else None
    if stacked is None:
        shape: tuple[int, ...] = getattr(y, "shape", ())
        if not options.get("multi_output") and len(shape) == 2 and shape[1] > 1:
            raise ValueError(
                f"y has {shape[1]} columns, but a classifier takes one label for each sample: for several at once use "
                "ReLURegressor on the matrix of zeros and ones, or scikit-learn's MultiOutputClassifier"
            )
        return check(X, y, **options)
    X, _ = check(X, np.zeros(len(X)), **options)
    numbers = np.float64 if options.get("y_numeric") else None
    return X, check_array(stacked, ensure_2d=False, dtype=numbers, input_name="y")


def in_place(architecture: Architecture, activation: str) -> bool:
    """Whether networks can be trained on rows that stay where they are, in blocks."""
    return activation == "gated" and type(architecture) is TwoLayer


def is_dask(X: Any) -> bool:
    """Whether ``X`` is a dask array (dask is not imported to find out)."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "chunks")


def _check_dask(X: Any, y: Any, check: Callable[..., Any], **options: Any) -> tuple[Any, Array]:
    """Shapes and types of a dask array; its entries are looked at where they are (by the solver)."""
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, got {X.ndim}")
    if np.isnan(X.shape[0]):
        X = X.compute_chunk_sizes()
    y = np.asarray(y.compute() if is_dask(y) else y)
    if len(y) != X.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, y has {len(y)}")
    check(X[:1].compute(), y[:1], dtype="numeric", **options)
    y = y if options.get("multi_output") and y.ndim == 2 else column_or_1d(y, warn=True)
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("y contains NaN or infinity")
    return X, y


def encode_labels(loss: Loss, y: Array) -> tuple[Loss, Array, FloatArray]:
    """Labels of any type: the loss as it acts on so many classes, the classes, and the encoded targets ``(n, C)``."""
    check_labels(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only ({classes[0]!r}): a classifier needs at least two classes in the training data"
        )
    loss = classification_loss(loss, len(classes))
    return loss, classes, encode_classes(loss, codes, len(classes))


def classification_loss(loss: Loss, n_classes: int) -> Loss:
    """The loss as it acts on this many classes."""
    if n_classes > 2 and type(loss) is Logistic:
        return Softmax()
    if n_classes == 2 and type(loss) is Softmax:
        return Logistic()  # the same model with one output instead of two, which is cheaper
    if loss.classification or type(loss) is Squared:
        return loss
    raise ValueError(f"the loss {loss.name!r} is for numbers: use ReLURegressor, or a classification loss")


def encode_known(loss: Loss, y: Array, classes: tuple[Any, ...] | None, n_outputs: int) -> FloatArray:
    """Targets ``(n, C)`` for ``loss``, with labels coded by their place in ``classes``."""
    if classes is None:
        Y = as_numbers("y", y).reshape(len(y), -1)
        if not np.isfinite(Y).all():
            raise ValueError("y contains NaN or infinity")
    elif np.ndim(y) > 1:
        raise ValueError(f"y has {np.ndim(y)} axes, labels have one")
    else:
        code = {label: k for k, label in enumerate(np.array(classes).tolist())}
        labels = np.asarray(y).tolist()
        if unknown := [label for label in labels if label not in code]:
            raise ValueError(f"y holds the label {unknown[0]!r}, which is none of the classes {list(code)}")
        Y = encode_classes(loss, np.array([code[label] for label in labels]), len(code))
    if Y.shape[1] != n_outputs:
        raise ValueError(f"y asks for {Y.shape[1]} outputs with the loss {loss.name!r}, the network has {n_outputs}")
    return Y
