"""The rank of linear networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from bidual._util.typing import FloatArray, IntArray


def plot_ranks(betas: FloatArray, ranks: IntArray, jumps: FloatArray | None = None, ax: Any = None) -> Any:
    """Rank of the hidden layers against beta, with the values where it is expected to jump (001 Fig. 2a).

    Parameters
    ----------
    betas : array of shape (k,)
    ranks : array of shape (k,)
        From :func:`bidual.closed_form.ranks.rank_path`.
    jumps : array or None
        From :func:`bidual.closed_form.ranks.rank_jumps`: vertical lines.
    ax : matplotlib axes, optional

    Returns
    -------
    The axes.
    """
    import matplotlib.pyplot as plt

    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    for i, jump in enumerate(np.asarray([] if jumps is None else jumps)):
        ax.axvline(jump, color="C3", lw=1, ls="--", label=None if i else "singular values")
    order = np.argsort(betas)
    ax.step(betas[order], ranks[order], where="post", color="C0", lw=2, label="rank")
    ax.set(xlabel="beta", ylabel="rank of the hidden layers", xscale="log")
    ax.legend(frameon=False)
    return ax
