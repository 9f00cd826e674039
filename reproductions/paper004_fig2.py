"""004 Fig. 2: a spike-free matrix, whose rectified ellipsoid is convex."""

from __future__ import annotations

import numpy as np

from reproductions.ellipsoids import (
    accuracy,
    directions,
    draw,
    faces,
    is_spike_free,
    relaxed_support,
    support_function,
)
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
    flat, _ = faces(X)
    return Outcome(
        judge(bool(answer), difference < 1e-6, flat == 0.0),
        ours=f"spike-free: {answer.status}; support functions of set and relaxation differ by {difference:.0e}; "
        f"{100 * flat:.0f} % of the directions with positive entries end in a corner",
        sizes="our own matrix with diagonal 1, 0.6: the paper prints none",
        details="The rows are orthogonal. " + accuracy(X, V) + " There is no corner inside the quadrant: this is the "
        "control for Fig. 3 to 5. The caption says that the extreme points (spikes) give rise to the splines of "
        "Fig. 1, and that the set in the middle acts as a regulariser like a non-convex atomic norm; but a spike-free "
        "set has no spikes and is convex, so these sentences fit Fig. 3 and 4.",
    )
