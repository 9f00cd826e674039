"""Pictures. matplotlib is imported only when one is drawn."""

from bidual.plots.ellipsoid import plot_polar, plot_rectified_ellipsoid
from bidual.plots.filters import plot_filters
from bidual.plots.fit import plot_fit_1d
from bidual.plots.implicit import plot_singular_similarity
from bidual.plots.rank import plot_ranks
from bidual.plots.spline import plot_neurons_1d, plot_regions_1d
from bidual.plots.widths import plot_gap_by_width

__all__ = [
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
