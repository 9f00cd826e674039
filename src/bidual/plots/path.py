"""The regularisation path as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._util.typing import Array, FloatArray
from bidual.plots._style import BOUND, MARK, OTHERS, OURS, axes
from bidual.training.paths import SolutionPath


class PathDisplay:
    """Neurons, objective and score against beta.

    Parameters
    ----------
    betas : array of shape (k,)
    n_neurons, objectives, lower_bounds, scores, spread : array of shape (k,) or None
        What there is of it is drawn. ``spread`` is a band around the scores.
    beta : float or None
        The one chosen, as a vertical line.
    score_name : str

    Attributes
    ----------
    axes_ : list of matplotlib axes, one for each quantity there is
    figure_ : matplotlib figure
    """

    def __init__(
        self,
        betas: FloatArray,
        *,
        n_neurons: Array | None = None,
        objectives: FloatArray | None = None,
        lower_bounds: FloatArray | None = None,
        scores: FloatArray | None = None,
        spread: FloatArray | None = None,
        beta: float | None = None,
        score_name: str = "score",
    ) -> None:
        self.betas, self.n_neurons, self.objectives, self.lower_bounds = betas, n_neurons, objectives, lower_bounds
        self.scores, self.spread, self.beta, self.score_name = scores, spread, beta, score_name

    @classmethod
    def from_path(
        cls,
        path: SolutionPath,
        *,
        scores: Array | None = None,
        beta: float | None = None,
        score_name: str = "score on new rows",
        plot: bool = True,
        ax: Any = None,
    ) -> PathDisplay:
        """Of :func:`bidual.solution_path`; ``scores`` are yours, one for each network of the path."""
        display = cls(
            path.betas,
            n_neurons=path.n_neurons,
            objectives=path.objectives,
            lower_bounds=path.lower_bounds,
            scores=None if scores is None else np.asarray(scores, dtype=np.float64),
            beta=beta,
            score_name=score_name,
        )
        return display.plot(ax=ax) if plot else display

    @classmethod
    def from_estimator(cls, estimator: Any, *, plot: bool = True, ax: Any = None) -> PathDisplay:
        """Of a fitted :class:`~bidual.ReLURegressorCV` or :class:`~bidual.ReLUClassifierCV`: scores over the folds."""
        check_is_fitted(estimator, "betas_")
        display = cls(
            estimator.betas_,
            scores=estimator.mean_score_,
            spread=estimator.std_score_,
            beta=estimator.beta_,
            score_name="score, mean and deviation over the folds",
        )
        return display.plot(ax=ax) if plot else display

    def plot(self, ax: Any = None) -> PathDisplay:
        """Draw on as many axes as there are quantities, one above the other."""
        draw = [
            draw
            for draw, values in (
                (self._neurons, self.n_neurons),
                (self._objectives, self.objectives),
                (self._scores, self.scores),
            )
            if values is not None
        ]
        all_axes = axes(ax, len(draw), size=(6.4, 1.2 + 1.9 * len(draw)))
        self.axes_ = [all_axes] if len(draw) == 1 else all_axes
        for axis, paint in zip(self.axes_, draw, strict=True):
            paint(axis)
            axis.set_xscale("log")
            if self.beta is not None:
                axis.axvline(self.beta, color=MARK, lw=1, ls="--", label=f"beta = {self.beta:.3g}")
        if any(axis.get_legend_handles_labels()[0] for axis in self.axes_):
            self.axes_[-1].legend(frameon=False)
        self.axes_[-1].set_xlabel("beta")
        self.figure_ = self.axes_[0].figure
        return self

    def _neurons(self, axis: Any) -> None:
        axis.plot(self.betas, self.n_neurons, color=OURS, drawstyle="steps-mid", lw=2)
        axis.set_ylabel("neurons")

    def _objectives(self, axis: Any) -> None:
        axis.plot(self.betas, self.objectives, color=OURS, lw=2, marker="o", ms=3, label="objective")
        if self.lower_bounds is not None:
            axis.plot(self.betas, self.lower_bounds, color=BOUND, lw=1, ls="--", label="lower bound")
            axis.legend(frameon=False)
        axis.set_ylabel("objective")

    def _scores(self, axis: Any) -> None:
        axis.plot(self.betas, self.scores, color=OTHERS, lw=2, marker="o", ms=3)
        if self.spread is not None and self.scores is not None:
            axis.fill_between(
                self.betas, self.scores - self.spread, self.scores + self.spread, color=OTHERS, alpha=0.2, lw=0
            )
        axis.set_ylabel(self.score_name, fontsize=9)
