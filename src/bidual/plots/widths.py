"""What narrowness costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bidual._util.typing import Array


def plot_gap_by_width(widths: Sequence[int], gaps: Mapping[str, Array], ax: Any = None) -> Any:
    """Relative duality gap of the best networks of given widths (004 Figure 6), one curve for each problem.

    Parameters
    ----------
    widths : sequence of ints
    gaps : mapping
        From a label to the gaps at these widths.
    ax : matplotlib axes, optional

    Returns
    -------
    The axes.
    """
    import matplotlib.pyplot as plt

    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    for i, (name, values) in enumerate(gaps.items()):
        ax.plot(widths, np.asarray(values), "os^Dv"[i % 5] + "-", lw=1.5, ms=5, label=name)
    ax.axhline(0, color="0.8", lw=0.8, zorder=0)
    ax.set(xlabel="number of neurons m", ylabel="relative duality gap")
    ax.legend(frameon=False)
    return ax
