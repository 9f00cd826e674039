"""004 Fig. 5: a rectified ellipsoid in three dimensions, and its polar."""

from __future__ import annotations

import numpy as np

from reproductions.ellipsoids import directions, draw, exact_to, faces, is_spike_free
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
    flat, corners = faces(X, 2000)
    return Outcome(
        judge(answer.status == "no", 0.0 < flat < 1.0),
        ours=f"is_spike_free: {answer.status} (factor {answer.factor:.3f}); {100 * flat:.0f} % of the directions end "
        f"in one of {corners} corners of the hull, the others on smooth pieces",
        details=f"{answer.reason}. The exact support function agrees with 40000 points of the set to "
        f"{exact_to(X, directions(3, 100)):.0e}.",
    )
