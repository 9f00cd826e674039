"""Gradient descent against the certified optimum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.utils.validation import check_is_fitted

from bidual._util.typing import Array
from bidual.bounds import Certificate
from bidual.plots._style import OTHERS, OURS, axes
from bidual.study.descent import Run, descend


class RunsDisplay:
    """Objectives of descents from random starts, the certified objective, and the bound below which nobody comes.

    Parameters
    ----------
    runs : list of Run
        From :func:`bidual.study.descent.descend`.
    certificate : Certificate
        Of the same objective.
    tol : float
        A run within this relative distance of the optimum has found it; the others are stuck.

    Attributes
    ----------
    stuck : list of bool
        One for each run.
    ax_ : matplotlib axes
    figure_ : matplotlib figure
    """

    def __init__(self, runs: Sequence[Run], certificate: Certificate, *, tol: float = 1e-2) -> None:
        self.runs, self.certificate, self.tol = list(runs), certificate, tol
        self.stuck = [run.objective > (1 + tol) * certificate.objective for run in self.runs]

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Array, y: Array, *, plot: bool = True, ax: Any = None, **options: Any
    ) -> RunsDisplay:
        """Descend on the objective of a fitted estimator, with the options of :func:`bidual.study.descent.descend`."""
        check_is_fitted(estimator)
        runs = descend(
            X,
            y,
            beta=estimator.certificate_.beta,
            loss=estimator.loss,
            architecture=estimator.architecture,
            bias=estimator.bias,
            fit_intercept=estimator.fit_intercept,
            **options,
        )
        display = cls(runs, estimator.certificate_)
        return display.plot(ax=ax) if plot else display

    def plot(self, ax: Any = None) -> RunsDisplay:
        """Draw on ``ax``, or on new axes: percent above the lower bound, or objectives if that is not positive."""
        ax = axes(ax)
        bound = self.certificate.lower_bound
        relative = bound > 0
        for k, run in enumerate(self.runs):
            label = f"gradient descent, {len(self.runs)} random starts" if k == 0 else None
            values = 100 * (run.objectives / bound - 1) if relative else run.objectives
            ax.plot(run.steps, values, color=OTHERS, lw=1.2, alpha=0.9, label=label)
        ours = 100 * (self.certificate.objective / bound - 1) if relative else self.certificate.objective
        ax.axhline(max(ours, 1e-6) if relative else ours, color=OURS, lw=2, label="our network")
        if relative:
            ax.set_yscale("log")
        ax.set(xlabel="gradient steps", ylabel="% above the proven lower bound" if relative else "objective")
        ax.set_title(
            f"{sum(self.stuck)} of {len(self.runs)} runs end more than {100 * self.tol:g} % above", fontsize=10
        )
        ax.legend(frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self
