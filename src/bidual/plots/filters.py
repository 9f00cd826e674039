"""Learned filters as small pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._typing import Array


def plot_filters(estimator: Any, n_filters: int = 100, ax: Any = None) -> Any:
    """The filters of a :class:`~bidual.ConvexRF` side by side (004 Figure 10), each stretched to its own range.

    Parameters
    ----------
    estimator : ConvexRF
        Fitted, on images of one or three channels.
    n_filters : int, default=100
        How many to draw: the first ones.
    ax : matplotlib axes, optional

    Returns
    -------
    The axes.
    """
    import matplotlib.pyplot as plt

    check_is_fitted(estimator, "filters_")
    filters = np.asarray(estimator.filters_[:n_filters])
    if filters.shape[3] not in (1, 3):
        raise ValueError(f"filters of one or three channels can be drawn, these have {filters.shape[3]}")
    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    ax.imshow(_mosaic(filters), cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    ax.set_axis_off()
    return ax


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
