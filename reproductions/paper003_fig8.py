"""003 Fig. 8: Kinematics (n = 4000, d = 8); SGD beside convex programs on a few patterns."""

from __future__ import annotations

from reproductions.framework import Context, Outcome, experiment
from reproductions.torgo import compare_on


@experiment(
    "003-fig8",
    title="Kinematics, n = 4000, d = 8, m = 12: SGD and programs on a few patterns",
    claim="Alg1, a convex program, reaches the lowest objective and the lowest test error.",
    paper="curves only; the text says that Alg1 has the lowest objective and test error",
)
def run(context: Context) -> Outcome:
    """Squared loss, standardised columns and target; the paper's beta is unknown, ours is 0.01 of the mean loss."""
    return compare_on(context, "003-fig8", "reg_kin8nm", 4000, rows=context.pick(quick=500, default=4000))
