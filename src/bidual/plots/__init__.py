"""Pictures. matplotlib is imported only when one is drawn.

Displays follow scikit-learn: ``XDisplay.from_estimator(...)`` computes and draws, ``plot(ax)`` draws again, and what
was computed is in the attributes.
"""

from bidual.plots.ellipsoid import plot_polar, plot_rectified_ellipsoid
from bidual.plots.filters import plot_filters
from bidual.plots.fit import FitDisplay, plot_fit_1d
from bidual.plots.history import HistoryDisplay
from bidual.plots.implicit import plot_singular_similarity
from bidual.plots.neurons import DecisionDisplay, NeuronsDisplay
from bidual.plots.path import PathDisplay
from bidual.plots.rank import plot_ranks
from bidual.plots.runs import RunsDisplay
from bidual.plots.spline import plot_neurons_1d, plot_regions_1d
from bidual.plots.widths import plot_gap_by_width

__all__ = [
    "DecisionDisplay",
    "FitDisplay",
    "HistoryDisplay",
    "NeuronsDisplay",
    "PathDisplay",
    "RunsDisplay",
    "plot_filters",
    "plot_fit_1d",
    "plot_gap_by_width",
    "plot_neurons_1d",
    "plot_polar",
    "plot_ranks",
    "plot_rectified_ellipsoid",
    "plot_regions_1d",
    "plot_singular_similarity",
]
