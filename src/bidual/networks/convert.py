"""Networks made by others."""

from __future__ import annotations

from typing import Any

from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.utils.validation import check_is_fitted

from bidual.networks.two_layer import TwoLayerNetwork


def from_torch(module: Any) -> TwoLayerNetwork:
    """A two-layer network from ``torch.nn.Sequential(Linear, ReLU, Linear)``, with or without biases.

    Weights are converted to float64. ``Dropout`` and ``Identity`` layers, which do nothing at inference,
    are passed over.
    """
    from bidual.networks.torch_bridge import two_layer_weights

    return TwoLayerNetwork(**two_layer_weights(module))  # type: ignore[arg-type]


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
