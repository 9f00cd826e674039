"""004 Fig. 4: a rectified ellipsoid whose hull is a triangle; the polar is a rectangle."""

from __future__ import annotations

import numpy as np

from reproductions.ellipsoids import accuracy, directions, draw, faces, is_spike_free, support_function, why
from reproductions.framework import Context, Outcome, experiment, judge

X = np.array([[1.0, 0.1], [-1.0, 0.25]])


@experiment(
    "004-fig4",
    title="Nothing but spikes: the polar set is a rectangle",
    claim="Where the hull of the rectified ellipsoid is a triangle the polar set is a rectangle.",
    paper="a picture",
)
def run(context: Context) -> Outcome:
    """Rows at an angle close to 180 degrees; the feasible set of the dual is the box of the two spikes."""
    draw(context, X, "004-fig4.png")
    answer, V = is_spike_free(X), directions(2, 720)
    lengths = np.linalg.norm(X, axis=1)
    triangle = np.maximum(V * lengths, 0.0).max(axis=1)  # support function of the triangle 0, l1 e1, l2 e2
    hull = float(np.abs(support_function(X, V) - triangle).max())
    both = np.maximum(support_function(X, V), support_function(X, -V))
    box = float(np.abs(both - np.abs(V * lengths).max(axis=1)).max())
    flat, corners = faces(X)
    return Outcome(
        judge(answer.status == "no", hull < 1e-9, box < 1e-9, flat > 0.99),
        ours=f"support functions of the set and of the triangle differ by {hull:.0e}, those of the dual's feasible "
        f"set and of a rectangle with half-sides {1 / lengths[0]:.3f} and {1 / lengths[1]:.3f} by {box:.0e}; "
        f"{100 * flat:.0f} % of the directions with positive entries have their furthest point in one of {corners} "
        "corners",
        sizes="our own matrix with rows (1, 0.1), (-1, 0.25): the paper prints none",
        details=f"Spike-free: {answer.status}. {why(answer)} Seen from one side only, the polar is an unbounded "
        "quadrant; the rectangle is what it has in common with its mirror image, the feasible set of the dual. (Eq. 8 "
        "of the paper lacks the sign of the polar in its second constraint; eq. 12 has it.) " + accuracy(X, V),
    )
