"""Networks of one input: what every neuron adds, and decision regions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._util.typing import Array, FloatArray
from bidual.networks import TwoLayerNetwork


def plot_neurons_1d(network: TwoLayerNetwork, X: Array, y: Array | None = None, ax: Any = None) -> Any:
    """The function of one input, and what each of its neurons contributes (004 Figure 1b).

    Parameters
    ----------
    network : TwoLayerNetwork
        With one input and one output.
    X : array of shape (n, 1)
    y : array of shape (n,), optional
    ax : matplotlib axes, optional

    Returns
    -------
    The axes.
    """
    import matplotlib.pyplot as plt

    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    grid = _grid(network, X)
    parts = network.hidden(grid[:, None]) * network.output_weights[:, 0]
    for j, part in enumerate(parts.T):
        ax.plot(grid, part, color="0.65", lw=1, zorder=1, label=None if j else "neurons")
    ax.plot(grid, network.predict(grid[:, None]), color="C0", lw=2, zorder=2, label="network")
    if y is not None:
        ax.plot(np.asarray(X)[:, 0], y, "o", color="C3", ms=5, zorder=3, label="data")
    ax.legend(frameon=False)
    return ax


def plot_regions_1d(classifier: Any, X: Array, y: Array, ax: Any = None) -> Any:
    """Score of a classifier of one input and two classes, its margins and decision regions (004 Figures 1c, 7).

    Parameters
    ----------
    classifier : SplineClassifier
        Fitted on one input and two classes.
    X : array of shape (n, 1)
    y : array of shape (n,)
    ax : matplotlib axes, optional

    Returns
    -------
    The axes.
    """
    import matplotlib.pyplot as plt

    check_is_fitted(classifier)
    network = classifier.network_
    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    grid = _grid(network, X)
    score = network.predict(grid[:, None])
    # regions end where the score crosses zero, which is linear in between
    low, high, left, right = score[:-1], score[1:], grid[:-1], grid[1:]
    crosses = low * high < 0
    zeros = left[crosses] - low[crosses] * (right - left)[crosses] / (high - low)[crosses]
    edges = np.concatenate([grid[:1], zeros, grid[-1:]])
    for a, b in pairwise(edges):
        side = int(network.predict(np.array([[0.5 * (a + b)]]))[0] > 0)
        ax.axvspan(a, b, color=("C3", "C2")[side], alpha=0.15, lw=0)
    for level in (-1.0, 1.0):
        ax.axhline(level, color="0.7", lw=0.8, ls="--", zorder=1)
    ax.plot(grid, score, color="C0", lw=2, zorder=2, label="score")
    codes = np.where(np.asarray(y) == classifier.classes_[1], 1.0, -1.0)
    for side, label in enumerate(classifier.classes_):
        rows = codes == (-1.0, 1.0)[side]
        ax.plot(np.asarray(X)[rows, 0], codes[rows], "o", color=("C3", "C2")[side], ms=5, zorder=3, label=str(label))
    ax.legend(frameon=False)
    return ax


def _grid(network: TwoLayerNetwork, X: Array) -> FloatArray:
    """The ends of the picture and all kinks between."""
    if network.n_inputs != 1 or network.n_outputs != 1:
        raise ValueError(f"a network of one input and one output is needed, got {network!r}")
    X = np.asarray(X, dtype=np.float64)
    margin = 0.05 * np.ptp(X)
    low, high = X.min() - margin, X.max() + margin
    slopes, offsets = network.gate_vectors().T
    kinks = -offsets[slopes != 0] / slopes[slopes != 0]
    return np.unique(np.concatenate([[low, high], kinks[(kinks > low) & (kinks < high)]]))
