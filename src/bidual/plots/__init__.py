"""Pictures. matplotlib is imported only when one is drawn."""

from bidual.plots.fit import plot_fit_1d

__all__ = ["plot_fit_1d"]
