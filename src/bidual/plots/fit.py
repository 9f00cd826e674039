"""Fits of one input."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._util.typing import Array, FloatArray
from bidual.networks import Network
from bidual.plots._style import MANY, MARK, OURS, QUIET, axes, claim


class FitDisplay:
    """Data of one input, the fitted piecewise linear function, and its kinks.

    Make one with :meth:`from_estimator` or :meth:`from_network`.

    Parameters
    ----------
    X, y : array of shape (n,)
        The data.
    grid, values : array of shape (k,)
        The fitted function; between two points of the grid it is linear.
    kinks, kink_values : array of shape (j,)
    title : str or None

    Attributes
    ----------
    ax_ : matplotlib axes
    figure_ : matplotlib figure

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLURegressor
    >>> from bidual.plots import FitDisplay
    >>> X, y = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    >>> est = ReLURegressor(beta=0.01, method="exact").fit(X, y)
    >>> display = FitDisplay.from_estimator(est, X, y)
    >>> len(display.kinks) <= est.n_neurons_
    True
    """

    def __init__(
        self,
        X: Array,
        y: Array,
        grid: FloatArray,
        values: FloatArray,
        kinks: FloatArray,
        kink_values: FloatArray,
        title: str | None = None,
    ) -> None:
        self.X, self.y, self.title = np.asarray(X).ravel(), np.asarray(y).ravel(), title
        self.grid, self.values, self.kinks, self.kink_values = grid, values, kinks, kink_values

    @classmethod
    def from_network(
        cls, network: Network, X: Array, y: Array, *, title: str | None = None, plot: bool = True, ax: Any = None
    ) -> FitDisplay:
        """The fit of a network of one input and one output."""
        if network.n_inputs != 1 or network.n_outputs != 1:
            raise ValueError(f"a fit of one input and one output is needed, got {network!r}")
        X = np.asarray(X, dtype=np.float64).reshape(-1, 1)
        margin = 0.05 * np.ptp(X) or 1.0
        low, high = X.min() - margin, X.max() + margin
        kinks = kinks_of(network, low, high)
        # a gated network may jump at its gates, and a deep one has kinks that no neuron of the first layer tells
        around = np.concatenate([kinks, np.nextafter(kinks, -np.inf), np.nextafter(kinks, np.inf)])
        grid = np.unique(np.concatenate([np.linspace(low, high, 400), around]))
        values, kink_values = (network.predict(g[:, None]) for g in (grid, kinks))
        display = cls(X, y, grid, values, kinks, kink_values, title)
        return display.plot(ax=ax) if plot else display

    @classmethod
    def from_estimator(cls, estimator: Any, X: Array, y: Array, *, plot: bool = True, ax: Any = None) -> FitDisplay:
        """The fit of an estimator, with its certificate in the title."""
        check_is_fitted(estimator)
        return cls.from_network(estimator.network_, X, y, title=claim(estimator.certificate_), plot=plot, ax=ax)

    def plot(self, ax: Any = None, *, label: str = "global optimum") -> FitDisplay:
        """Draw on ``ax``, or on new axes."""
        ax = axes(ax)
        ax.scatter(self.X, self.y, s=14, color=QUIET, label="data", zorder=1, rasterized=len(self.X) > MANY)
        ax.plot(self.grid, self.values, color=OURS, lw=2, label=label, zorder=3)
        ax.plot(self.kinks, self.kink_values, "o", color=MARK, ms=5, label="kinks", zorder=4)
        if self.title:
            ax.set_title(self.title, fontsize=10)
        ax.legend(frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def kinks_of(network: Network, low: float, high: float) -> FloatArray:
    """Where the neurons of a network of one input switch on or off, between ``low`` and ``high``."""
    try:
        slopes, offsets = network.gate_vectors().T
    except ValueError:  # deep networks
        return np.zeros(0)
    moving = slopes != 0
    kinks = -offsets[moving] / slopes[moving]
    return np.unique(kinks[(kinks > low) & (kinks < high)])


def plot_fit_1d(estimator: Any, X: Array, y: Array, ax: Any = None) -> Any:
    """:class:`FitDisplay` of an estimator; returns the axes."""
    return FitDisplay.from_estimator(estimator, X, y, ax=ax).ax_
