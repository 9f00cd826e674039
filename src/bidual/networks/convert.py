"""Networks made by others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.utils.validation import check_is_fitted

from bidual._util.typing import Array
from bidual.networks.base import Network
from bidual.networks.two_layer import TwoLayerNetwork


def from_torch(module: Any, X: Array | None = None) -> Network:
    r"""A network from a torch module that computes Linear, ReLU, Linear, with or without biases.

    It may be a ``Sequential`` or have a ``forward`` of its own, which is traced (``torch.fx``). Known are also:

    - ``BatchNorm1d`` before or after the ReLU, and ``LeakyReLU`` in its place;
    - ``Conv1d`` or ``Conv2d``, [BatchNorm,] ReLU, a pooling over all positions or ``Flatten``, Linear: a convolutional
      network, whose inputs have their channels last;
    - Linear, ReLU, ..., Linear with more layers, and a sum of such branches: a parallel network (002 eq. 1). Its
      penalty is the path regulariser; a bias of a layer behind the first is the weight of one more neuron of the layer
      before, which is one everywhere;
    - everything that ``to_torch()`` writes but deep linear, whitened and layerwise networks.

    ``Dropout`` and ``Identity``, which do nothing at inference, are passed over. Weights are converted to float64.
    What was found is compared with the module on random rows, in double precision.

    Parameters
    ----------
    module : torch.nn.Module
    X : array or None
        Training rows as bidual takes them, of which the shape is used: flattened positions have their grid (None: they
        are a line or a square), and rows ``(n, K, h)`` of a dense module are patches.

    Returns
    -------
    Network
        A normalised one has the statistics of the module, and its weight decay counts as in torch: by the standard
        deviation. ``network.restated(X)`` is the same function in terms of training rows, as 000 has it and
        :func:`bidual.certify` judges it.

    Raises
    ------
    ValueError
        If the module computes anything else, in one sentence.
    """
    from bidual.networks.torch_reading import read

    return read(module, X)


def from_sklearn(mlp: MLPRegressor | MLPClassifier) -> TwoLayerNetwork:
    """A two-layer network from a fitted ``MLPRegressor`` or ``MLPClassifier`` with one ReLU layer.

    The outputs are those before scikit-learn's output activation: values for a regressor, logits for a
    classifier.
    """
    if not isinstance(mlp, MLPRegressor | MLPClassifier):
        raise ValueError(f"expected an MLPRegressor or MLPClassifier, got {type(mlp).__name__}")
    check_is_fitted(mlp)
    if mlp.activation != "relu" or len(mlp.coefs_) != 2:
        raise ValueError(
            "only one hidden layer with activation='relu' can be converted; this model has "
            f"{len(mlp.coefs_) - 1} hidden layer(s) with activation={mlp.activation!r}"
        )
    return TwoLayerNetwork(
        hidden_weights=mlp.coefs_[0].T,
        hidden_bias=mlp.intercepts_[0],
        output_weights=mlp.coefs_[1],
        intercept=mlp.intercepts_[1],
    )


def from_arrays(weights: Sequence[Any] | Mapping[str, Any]) -> TwoLayerNetwork:
    """A two-layer network from plain arrays.

    ``(hidden_weights (m, d), output_weights (m, C))``, or ``(hidden_weights, hidden_bias, output_weights,
    intercept)``, or a mapping with the names of :class:`TwoLayerNetwork`.
    """
    if isinstance(weights, Mapping):
        names = list(signature(TwoLayerNetwork).parameters)
        if not set(names[:2]) <= set(weights) <= set(names):
            raise ValueError(f"weights by name are {names}, of which the first two are needed; got {list(weights)}")
        return TwoLayerNetwork(**weights)
    if len(weights) == 2:
        return TwoLayerNetwork(weights[0], weights[1])
    if len(weights) == 4:
        return TwoLayerNetwork(weights[0], weights[2], hidden_bias=weights[1], intercept=weights[3])
    raise ValueError(f"expected 2 or 4 arrays of weights, got {len(weights)}")


def from_torch_file(path: str | os.PathLike[str], X: Array | None = None) -> Network:
    """A network from what ``torch.save`` wrote: a module of layers that :func:`from_torch` knows.

    Of Linear, ReLU, Linear the state dict is enough. Nothing but tensors and layers of torch and bidual is unpickled,
    so that files of strangers cannot run code.
    """
    from bidual.networks.torch_bridge import read_module

    return from_torch(read_module(path), X)


def from_onnx(path: str | os.PathLike[str]) -> TwoLayerNetwork:
    """A two-layer network from an ONNX file: two linear layers with a ReLU between them."""
    from bidual.networks.onnx_bridge import read

    return read(path)


def from_joblib(path: str | os.PathLike[str]) -> Any:
    """What ``joblib.dump`` or ``pickle.dump`` wrote. **Loading such a file runs code of whoever made it.**"""
    import joblib

    try:
        return joblib.load(path)
    except (FileNotFoundError, MemoryError):
        raise
    except Exception as error:  # unpickling raises anything
        raise ValueError(f"{path} cannot be unpickled: {type(error).__name__}: {error}") from error
