"""004 Fig. 2: a spike-free matrix, whose rectified ellipsoid is convex."""

from __future__ import annotations

import numpy as np

from reproductions.ellipsoids import directions, draw, exact_to, is_spike_free, relaxed_support, support_function
from reproductions.framework import Context, Outcome, experiment, judge

X = np.diag([1.0, 0.6])


@experiment(
    "004-fig2",
    title="A spike-free rectified ellipsoid",
    claim="For a diagonal matrix the rectified ellipsoid is the ellipsoid within the positive quadrant, and convex.",
    paper="a picture",
)
def run(context: Context) -> Outcome:
    """Compare the support functions of the set and of its spike-free relaxation, and draw them."""
    draw(context, X, "004-fig2.png")
    answer, V = is_spike_free(X), directions(2, 720)
    difference = float(np.abs(support_function(X, V) - relaxed_support(X, V)).max())
    return Outcome(
        judge(bool(answer), difference < 1e-6),
        ours=f"is_spike_free: {answer.status}; support functions of set and relaxation differ by {difference:.0e}",
        details=f"Rows {X.tolist()}: {answer.reason}. The exact support function agrees with 40000 points of the set "
        f"to {exact_to(X, V):.0e}.",
    )
