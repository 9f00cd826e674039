"""003 Fig. 3: hinge loss in two dimensions; all patterns, fifty random patterns, and SGD."""

from __future__ import annotations

import numpy as np

from reproductions.framework import Context, Outcome, experiment, judge
from reproductions.planar import compare


@experiment(
    "003-fig3",
    title="Classes in the plane: optimum, random patterns and ten runs of SGD",
    claim="Most runs of SGD end slightly above the optimum, and even the program on 50 random patterns can beat SGD.",
    paper="objectives 0.0026 (Optimal), 0.0028 (Approximate), 0.0032 (SGD)",
)
def run(context: Context) -> Outcome:
    """Fifty points of two interleaved clouds (the paper's own points are not published)."""
    rng = np.random.default_rng(3)
    centres = np.array([[-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]])
    which = np.arange(50) % 4
    X = centres[which] + 0.45 * rng.standard_normal((50, 2))
    y = np.where(which < 2, 1.0, -1.0)
    found = compare(context, X, y, "003-fig3")
    median, best = float(np.median(found.descents)), float(found.descents.min())
    return Outcome(
        judge(found.bound <= best, median > found.optimal * 1.0005, found.approximate < median),
        ours=f"{found.optimal:.6f} (Optimal), {found.approximate:.6f} (Approximate), {median:.6f} (SGD, median)",
        sizes="n = 50, m = 50 as in the paper, other points",
        details=found.details
        + f"\n\nSGD's best run is {100 * (best / found.optimal - 1):.2g} % above the optimum, its median run "
        f"{100 * (median / found.optimal - 1):.2g} %, the program on random patterns "
        f"{100 * (found.approximate / found.optimal - 1):.2g} %.",
        numbers=found.numbers,
    )
