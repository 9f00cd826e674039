"""Pictures. matplotlib is imported only when one is drawn."""

from bidual.plots.fit import plot_fit_1d
from bidual.plots.implicit import plot_singular_similarity
from bidual.plots.rank import plot_ranks

__all__ = ["plot_fit_1d", "plot_ranks", "plot_singular_similarity"]
