"""Learned filters as small pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._util.typing import Array
from bidual.networks import Network


def plot_filters(estimator: Any, n_filters: int = 100, ax: Any = None) -> Any:
    """Filters side by side (004 Figure 10), each stretched to its own range.

    Parameters
    ----------
    estimator : ConvexRF, estimator with a convolutional network, or such a network itself
        Fitted, on images of one or three channels, or on sequences, whose filters are drawn as rows of channels.
    n_filters : int, default=100
        How many to draw: the first ones, of a network those of the largest cost.
    ax : matplotlib axes, optional

    Returns
    -------
    The axes.
    """
    import matplotlib.pyplot as plt

    filters = _filters_of(estimator)[:n_filters]
    if not len(filters):
        raise ValueError("there are no filters: the best network is a constant")
    if filters.ndim == 3:  # sequences: channels below each other
        filters = filters.swapaxes(1, 2)[..., None]
    if filters.ndim != 4 or filters.shape[3] not in (1, 3):
        raise ValueError(f"filters of images of one or three channels can be drawn, not of shape {filters.shape[1:]}")
    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    ax.imshow(_mosaic(filters), cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    ax.set_axis_off()
    return ax


def _filters_of(model: Any) -> Array:
    """Filters ``(m, *kernel, channels)`` in the order in which they are drawn."""
    network = getattr(model, "network_", model)
    if not isinstance(network, Network):
        check_is_fitted(model, "filters_")
        return np.asarray(model.filters_)
    filters, outputs = getattr(network, "filters", None), getattr(network, "output_weights", None)
    if filters is None or outputs is None:
        raise ValueError(f"{network!r} has no filters that could be drawn")
    cost = np.linalg.norm(network.gate_vectors(), axis=1)
    cost *= np.sqrt((outputs**2).sum(axis=tuple(range(1, outputs.ndim))))
    return np.asarray(filters)[np.argsort(-cost, kind="stable")]


def _mosaic(filters: Array) -> Array:
    """Pictures in rows, with a white line of one pixel between them."""
    k, height, width, channels = filters.shape
    low = filters.min(axis=(1, 2, 3), keepdims=True)
    span = filters.max(axis=(1, 2, 3), keepdims=True) - low
    columns = int(np.ceil(np.sqrt(k)))
    rows = int(np.ceil(k / columns))
    page = np.ones((rows * columns, height + 1, width + 1, channels))
    page[:k, :height, :width] = (filters - low) / np.where(span > 0, span, 1.0)
    page = page.reshape(rows, columns, height + 1, width + 1, channels).swapaxes(1, 2)
    page = page.reshape(rows * (height + 1), columns * (width + 1), channels)[:-1, :-1]
    return page[:, :, 0] if channels == 1 else page
