"""003 Fig. 3: hinge loss in two dimensions; all patterns, fifty random patterns, and SGD."""

from __future__ import annotations

import numpy as np

from reproductions.framework import Context, Outcome, experiment, judge
from reproductions.planar import compare

#: What the paper calls slightly above: 0.0032 of SGD beside 0.0026.
SLIGHTLY = 0.0032 / 0.0026


@experiment(
    "003-fig3",
    title="Classes in the plane: optimum, random patterns and ten runs of SGD",
    claim="Most runs of SGD end slightly above the optimum, and even the program on 50 random patterns can beat SGD.",
    paper="objectives 0.0026 (Optimal), 0.0028 (Approximate), 0.0032 (SGD)",
)
def run(context: Context) -> Outcome:
    """Fifty points of four interleaved clouds (the paper's own points are not published)."""
    rng = np.random.default_rng(3)
    centres = np.array([[-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]])
    which = np.arange(50) % 4
    X = centres[which] + 0.45 * rng.standard_normal((50, 2))
    y = np.where(which < 2, 1.0, -1.0)
    found = compare(context, X, y, "003-fig3")
    above = found.descents / found.optimal
    median = float(np.median(found.descents))
    return Outcome(
        judge(np.median(above) > 1.01, np.median(above) <= SLIGHTLY, found.approximate < 0.99 * median),
        ours=f"{found.optimal:.5f} (Optimal), {found.approximate:.5f} (Approximate), {median:.5f} (SGD, median), "
        f"{np.median(found.restricted):.5f} (best on SGD's patterns, median); {int((above > 1.01).sum())} of "
        f"{len(above)} runs more than 1 % above Optimal, {int((above > SLIGHTLY).sum())} more than the paper's 23 %",
        sizes=found.sizes + "; four Gaussian clouds of deviation 0.45 around the corners of a square, opposite ones of "
        "one class",
        details=found.details
        + f"\n\nSGD's best run is {100 * (above.min() - 1):.2g} % above the optimum, its median run "
        f"{100 * (np.median(above) - 1):.2g} %, the program on random patterns "
        f"{100 * (found.approximate / found.optimal - 1):.2g} %. In the paper SGD is 23 % above, which is what we take "
        "for slightly.",
        numbers=found.numbers,
    )
