"""Singular directions of the data and the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bidual._util.typing import Array


def plot_singular_similarity(similarities: Mapping[str, Array], ax: Any = None) -> Any:
    """How far weights have moved along each singular direction (000 Figure 2), one curve for each model.

    Parameters
    ----------
    similarities : mapping
        From the name of a model to its :func:`~bidual.study.implicit.singular_similarity`.
    ax : matplotlib axes, optional

    Returns
    -------
    The axes.
    """
    import matplotlib.pyplot as plt

    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    for name, values in similarities.items():
        ax.plot(np.arange(1, len(values) + 1), values, lw=1.5, label=name)
    ax.set_xlabel("singular direction of the data, largest first")
    ax.set_ylabel("cosine to the initial weights")
    ax.legend(frameon=False)
    return ax
