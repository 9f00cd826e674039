"""004 Fig. 5: a rectified ellipsoid in three dimensions, and its polar."""

from __future__ import annotations

import numpy as np

from reproductions.ellipsoids import accuracy, directions, draw, faces, is_spike_free, why
from reproductions.framework import Context, Outcome, experiment, judge

X = np.array([[1.0, 0.1, 0.0], [-0.5, 0.9, 0.1], [-0.3, -0.4, 0.9]])


@experiment(
    "004-fig5",
    title="A rectified ellipsoid in three dimensions",
    claim="The polar set exhibits a combination of smooth and non-smooth faces.",
    paper="a picture",
)
def run(context: Context) -> Outcome:
    """Three rows at obtuse angles."""
    draw(context, X, "004-fig5.png")
    answer = is_spike_free(X)
    flat, corners = faces(X)
    return Outcome(
        judge(answer.status == "no", 0.0 < flat < 1.0),
        ours=f"spike-free: {answer.status}; of the directions with positive entries {100 * flat:.0f} % have their "
        f"furthest point in one of {corners} corners (flat faces of the polar), the others on smooth pieces",
        sizes="our own matrix with rows (1, 0.1, 0), (-0.5, 0.9, 0.1), (-0.3, -0.4, 0.9): the paper prints none",
        details=f"{why(answer)} {accuracy(X, directions(3, 100))} The control is Fig. 2, where no such direction has "
        "a corner.",
    )
