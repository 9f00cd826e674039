"""003 Fig. 6: one negative point among the positive ones makes SGD fail."""

from __future__ import annotations

import numpy as np

from reproductions.framework import Context, Outcome, experiment, judge
from reproductions.planar import compare


@experiment(
    "003-fig6",
    title="A negative point close to the positive ones",
    claim="All runs of SGD are stuck at local minima, significantly above both convex programs.",
    paper="curves only; the text says that all ten runs end significantly above Optimal and Approximate",
)
def run(context: Context) -> Outcome:
    """Two separate clouds of 25 points, one of the negative ones moved next to a positive one."""
    rng = np.random.default_rng(6)
    y = np.repeat([1.0, -1.0], 25)
    X = np.outer(y, [1.0, 0.6]) + 0.35 * rng.standard_normal((50, 2))
    X[-1] = X[0] + [0.12, 0.05]
    found = compare(context, X, y, "003-fig6")
    runs = len(found.descents)
    higher = int((found.descents > 1.1 * max(found.optimal, found.approximate)).sum())
    return Outcome(
        judge(higher == runs, found.settled == runs),
        ours=f"{found.optimal:.5f} (Optimal), {found.approximate:.5f} (Approximate), {found.descents.min():.5f} (best "
        f"of SGD), {np.median(found.descents):.5f} (median), {np.median(found.restricted):.5f} (best on SGD's "
        f"patterns, median); {higher} of {runs} runs more than 10 % above both programs; {found.settled} of {runs} may "
        "be at a local minimum",
        sizes=found.sizes + "; two Gaussian clouds of deviation 0.35, one negative point moved beside a positive one",
        details=found.details,
    )
