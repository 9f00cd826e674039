"""004 Fig. 3: a rectified ellipsoid with spikes, and its polar."""

from __future__ import annotations

import numpy as np

from reproductions.ellipsoids import directions, draw, exact_to, faces, is_spike_free, relaxed_support, support_function
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
        ours=f"is_spike_free: {answer.status} (factor {answer.factor:.4f}); the set reaches up to {excess:.3f} times "
        f"as far as the relaxation; {100 * flat:.0f} % of the directions end in one of {corners} corners, the others "
        "on arcs",
        details=f"{answer.reason}. The exact support function agrees with 40000 points of the set to "
        f"{exact_to(X, V):.0e}.",
    )
