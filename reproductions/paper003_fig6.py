"""003 Fig. 6: one negative point among the positive ones makes SGD fail."""

from __future__ import annotations

import numpy as np

from reproductions.framework import Context, Outcome, experiment, judge
from reproductions.planar import compare


@experiment(
    "003-fig6",
    title="A negative point close to the positive ones",
    claim="All runs of SGD are stuck at local minima, significantly above both convex programs.",
    paper="curves only: all ten runs of SGD far above Optimal and Approximate",
)
def run(context: Context) -> Outcome:
    """Two separate clouds of 25 points, one of the negative ones moved next to a positive one."""
    rng = np.random.default_rng(6)
    y = np.repeat([1.0, -1.0], 25)
    X = np.outer(y, [1.0, 0.6]) + 0.35 * rng.standard_normal((50, 2))
    X[-1] = X[0] + [0.12, 0.05]
    found = compare(context, X, y, "003-fig6")
    best, stuck = float(found.descents.min()), int((found.descents > 1.1 * found.optimal).sum())
    return Outcome(
        judge(best > 1.1 * found.optimal, best > found.approximate),
        ours=f"{found.optimal:.5f} (Optimal), {found.approximate:.5f} (Approximate), {best:.5f} (best of SGD), "
        f"{np.median(found.descents):.5f} (median); {stuck} of {len(found.descents)} runs more than 10 % above",
        sizes="n = 50, m = 50; the paper's points are not published",
        details=found.details,
    )
