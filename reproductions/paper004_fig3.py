"""004 Fig. 3: a rectified ellipsoid with spikes, and its polar."""

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
    why,
)
from reproductions.framework import Context, Outcome, experiment, judge

X = np.array([[1.0, 0.2], [-0.5, 0.9]])


@experiment(
    "004-fig3",
    title="A rectified ellipsoid that is not spike-free",
    claim="The set has spikes beyond its spike-free relaxation, and its polar has smooth and non-smooth faces.",
    paper="a picture",
)
def run(context: Context) -> Outcome:
    """Rows at an obtuse angle."""
    draw(context, X, "004-fig3.png")
    answer, V = is_spike_free(X), directions(2, 720)
    excess = float((support_function(X, V) / np.maximum(relaxed_support(X, V), 1e-12))[(V > 0).any(axis=1)].max())
    flat, corners = faces(X)
    return Outcome(
        judge(answer.status == "no", excess > 1.01, 0.0 < flat < 1.0),
        ours=f"spike-free: {answer.status}; the set reaches up to {excess:.3f} times as far as the relaxation; of the "
        f"directions with positive entries {100 * flat:.0f} % have their furthest point in one of {corners} corners "
        "(flat faces of the polar), the others on an arc (smooth faces)",
        sizes="our own matrix with rows (1, 0.2), (-0.5, 0.9): the paper prints none",
        details=f"{why(answer)} {accuracy(X, V)} In Fig. 2, the control, no direction has a corner.",
    )
