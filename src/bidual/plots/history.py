"""What happened during a training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._util.typing import FloatArray
from bidual.bounds import relative_gap
from bidual.plots._style import BOUND, MARK, OURS, axes
from bidual.solvers import HistoryEntry


class HistoryDisplay:
    """Objective, likely lower bound and likely gap against time: what the search believes on its way.

    Parameters
    ----------
    elapsed, objective, likely_bound : array of shape (k,)
    tol : float or None
        The gap asked for, as a line.

    Attributes
    ----------
    likely_gap : ndarray of shape (k,)
    axes_ : two matplotlib axes: objective and bound above, gap below
    figure_ : matplotlib figure

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLURegressor
    >>> from bidual.plots import HistoryDisplay
    >>> X, y = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    >>> display = HistoryDisplay.from_estimator(ReLURegressor(beta=0.01, tol=1e-4).fit(X, y))
    >>> bool(display.likely_gap[-1] <= 1e-4)
    True
    """

    def __init__(
        self, elapsed: FloatArray, objective: FloatArray, likely_bound: FloatArray, tol: float | None = None
    ) -> None:
        self.elapsed, self.objective, self.likely_bound = (np.asarray(a) for a in (elapsed, objective, likely_bound))
        self.tol = tol
        self.likely_gap = np.array([relative_gap(o, b) for o, b in zip(self.objective, self.likely_bound, strict=True)])

    @classmethod
    def from_history(
        cls, history: Sequence[HistoryEntry], *, tol: float | None = None, plot: bool = True, ax: Any = None
    ) -> HistoryDisplay:
        """Of the ``history`` of a :class:`~bidual.training.train.Trained`, or ``history_`` of an estimator."""
        elapsed, objective, bound = np.array([(e.elapsed, e.objective, e.likely_bound) for e in history]).T
        display = cls(elapsed, objective, bound, tol)
        return display.plot(ax=ax) if plot else display

    @classmethod
    def from_estimator(cls, estimator: Any, *, plot: bool = True, ax: Any = None) -> HistoryDisplay:
        """Of a fitted estimator."""
        check_is_fitted(estimator)
        return cls.from_history(estimator.history_, tol=getattr(estimator, "tol_", estimator.tol), plot=plot, ax=ax)

    def plot(self, ax: Any = None) -> HistoryDisplay:
        """Draw on two axes, one above the other."""
        above, below = axes(ax, 2)
        style = {"lw": 2, "marker": "o", "ms": 3}
        above.plot(self.elapsed, self.objective, color=OURS, label="objective of the network", **style)
        # a bound that says nothing yet would squeeze everything else
        finite = np.isfinite(self.likely_bound) & (self.likely_bound > 0)
        above.plot(self.elapsed[finite], self.likely_bound[finite], color=BOUND, label="likely lower bound", **style)
        above.set_ylabel("objective")
        above.legend(frameon=False)
        positive = self.likely_gap > 0
        below.plot(self.elapsed[positive], self.likely_gap[positive], color=MARK, **style)
        if positive.any():
            below.set_yscale("log")
        if self.tol:
            below.axhline(self.tol, color=MARK, lw=1, ls="--")
            below.annotate("asked for", (self.elapsed[0], self.tol), fontsize=8, color=MARK, va="bottom")
        below.set(xlabel="seconds", ylabel="likely gap")
        self.axes_, self.figure_ = [above, below], above.figure
        return self
