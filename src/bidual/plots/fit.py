"""Fits of one input."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._typing import Array


def plot_fit_1d(estimator: Any, X: Array, y: Array, ax: Any = None) -> Any:
    """Data, the fitted piecewise linear function of one input, and its kinks.

    Parameters
    ----------
    estimator : ReLURegressor or SplineRegressor
        Fitted on one input and one target.
    X : array of shape (n, 1)
    y : array of shape (n,)
    ax : matplotlib axes, optional

    Returns
    -------
    The axes.
    """
    import matplotlib.pyplot as plt

    check_is_fitted(estimator)
    X = np.asarray(X, dtype=np.float64)
    network = estimator.network_
    if network.n_inputs != 1 or network.n_outputs != 1:
        raise ValueError(f"a fit of one input and one output is needed, got {network!r}")
    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    margin = 0.05 * np.ptp(X)
    low, high = X.min() - margin, X.max() + margin
    slopes, offsets = network.gate_vectors().T
    moving = slopes != 0
    kinks = -offsets[moving] / slopes[moving]
    kinks = np.unique(kinks[(kinks > low) & (kinks < high)])
    grid = np.concatenate([[low], kinks, [high]])
    ax.scatter(X[:, 0], y, s=14, color="0.55", label="data", zorder=1)
    ax.plot(grid, network.predict(grid[:, None]), color="C0", lw=2, label="global optimum", zorder=2)
    ax.plot(kinks, network.predict(kinks[:, None]), "o", color="C3", ms=6, label="kinks", zorder=3)
    certificate = estimator.certificate_
    proof = "proven" if certificate.rigorous else "not proven globally"
    ax.set_title(f"objective {certificate.objective:.6g}, gap {certificate.gap:.1e} ({proof})", fontsize=10)
    ax.legend(frameon=False)
    return ax
