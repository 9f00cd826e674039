"""003 Fig. 7: Boston Housing (n = 400, d = 13); SGD beside convex programs on a few patterns."""

from __future__ import annotations

from reproductions.framework import Context, Outcome, experiment
from reproductions.torgo import compare_on


@experiment(
    "003-fig7",
    title="Boston Housing, n = 400, d = 13, m = 12: SGD and programs on a few patterns",
    claim="Alg1, a convex program, reaches the lowest objective and the lowest test error.",
    paper="curves only; the text says that Alg1 has the lowest objective and test error",
)
def run(context: Context) -> Outcome:
    """Squared loss, standardised columns and target; the paper's beta is unknown, ours is 0.01 of the mean loss."""
    return compare_on(context, "003-fig7", "reg_boston-housing", 400, rows=400)
