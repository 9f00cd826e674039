"""The objective of a trained network from scratch: its weights, NumPy, and the formulas of the papers."""

from __future__ import annotations

import numpy as np


def objective(network, X, Y, loss, beta, patches=None, pooling="sum"):
    """Mean loss of the outputs on ``X`` for encoded targets ``Y`` plus beta times the penalty.

    For beta = 0, and for losses that are indicators, the penalty (times beta, if there is one) of a fit.
    ``patches (n, K, h)`` are those of a convolutional network.
    """
    w = network.weights()
    if patches is None:
        F = hidden_outputs(w, X)
    else:
        n, K, h = patches.shape
        F = pooled(w, patches.reshape(n * K, h), n, K, pooling)
    F = F + w["intercept"]
    if getattr(network, "free_bias", False):
        w = {**w, "hidden_bias": np.zeros(1)}  # they cost nothing
    if beta == 0 or loss in ("exact_fit", "margin", "tube"):
        fits = abs(F - Y) <= FITS[loss] + 2e-6 * abs(Y).max() if loss in FITS else Y * F >= 1 - 2e-6
        return (beta or 1.0) * penalty(w) if fits.all() else np.inf
    return row_losses(loss, F, Y).mean() + beta * penalty(w)


#: Losses whose minimisers fit the targets, and how well.
FITS = {"squared": 0, "huber": 0, "absolute": 0, "quantile": 0, "exact_fit": 0, "epsilon_insensitive": 0.1, "tube": 0.1}


def row_losses(loss, F, Y):
    E, m = F - Y, Y * F
    if loss == "softmax":
        top = F.max(axis=1, keepdims=True)
        return top[:, 0] + np.log(np.exp(F - top).sum(axis=1)) - (Y * F).sum(axis=1)
    each = {
        "squared": 0.5 * E**2,
        "huber": np.where(abs(E) <= 1, 0.5 * E**2, abs(E) - 0.5),
        "absolute": abs(E),
        "quantile": np.maximum(0.5 * -E, 0.5 * E),
        "epsilon_insensitive": np.maximum(abs(E) - 0.1, 0),
        "logistic": np.log1p(np.exp(-m)),
        "hinge": np.maximum(1 - m, 0),
        "squared_hinge": 0.5 * np.maximum(1 - m, 0) ** 2,
    }
    return each[loss].sum(axis=1)


def activations(w, X):
    """What the hidden layer hands to the output layer, ``(n, m)``; statistics of batch normalisation anew."""
    b = 0.0 if w["hidden_bias"] is None else w["hidden_bias"]
    Z = X @ w["hidden_weights"].T + b
    if "gamma" not in w:
        return np.where(Z > 0, Z, w.get("slope", 0.0) * Z)
    before = str(w["position"]) == "before"
    Z = Z if before else np.maximum(Z, 0)
    centred = Z - Z.mean(axis=0)
    normalised = w["gamma"] * centred / np.linalg.norm(centred, axis=0) + w["shift"] / np.sqrt(len(X))
    return np.maximum(normalised, 0) if before else normalised


def hidden_outputs(w, X):
    """Outputs ``(n, C)`` without the intercept."""
    if "gate_weights" in w:
        ones = np.column_stack([X, np.ones(len(X))])
        gates = ones @ np.column_stack([w["gate_weights"], w["gate_bias"]]).T >= 0
        W = np.concatenate([w["linear_weights"], w["linear_bias"][:, None]], axis=1)
        return np.einsum("nm,nd,mdc->nc", gates, ones, W)
    if "layer_1" in w:
        layers = [w[name] for name in sorted(w) if name.startswith("layer_")]
        H = np.maximum(np.einsum("nd,kdm->nkm", X, layers[0]) + w["hidden_bias"], 0)
        for W in layers[1:-1]:
            H = np.maximum(np.einsum("nkm,kml->nkl", H, W), 0)
        return np.einsum("nkm,kmc->nc", H, layers[-1])
    return activations(w, X) @ w["output_weights"]


def pooled(w, rows, n, K, pooling):
    """Outputs of a convolutional network whose samples have K patches each."""
    if pooling == "flatten":
        H = activations(w, rows).reshape(n, K, -1)
        heads = w["output_weights"].reshape(H.shape[2], K, -1)
        return np.einsum("nkm,mkc->nc", H, heads)
    F = hidden_outputs(w, rows)
    if pooling is None:
        return F
    F = F.reshape(n, K, -1).sum(axis=1)
    return F / K if pooling == "average" else F


def penalty(w):
    if "gate_weights" in w:
        return np.sqrt((w["linear_weights"] ** 2).sum(axis=(1, 2)) + (w["linear_bias"] ** 2).sum(axis=1)).sum()
    if "layer_1" in w:  # 002 eq. 4
        layers = [w[name] for name in sorted(w) if name.startswith("layer_")]
        paths = (layers[0] ** 2).sum(axis=1) + w["hidden_bias"] ** 2
        for W in layers[1:]:
            paths = np.einsum("km,kml->kl", paths, W**2)
        return np.sqrt(paths.sum(axis=1)).sum()
    charged = ("gamma", "shift") if "gamma" in w else ("hidden_weights", "hidden_bias")
    return 0.5 * sum((w[name] ** 2).sum() for name in (*charged, "output_weights"))
