"""003 Fig. 11: the neurons of the convex program on GD's patterns are GD's own neurons, and some more."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from bidual import ReLUClassifier
from reproductions.descent import descend
from reproductions.framework import Context, Outcome, Verdict, experiment, judge, table
from reproductions.paper003_fig10 import ARCHITECTURE, BATCH, BETA, CLUSTERS, data, filters, module


def units(rows: np.ndarray) -> np.ndarray:
    """Rows scaled to length one."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@experiment(
    "003-fig11",
    title="Distances between the filters of gradient descent and those of the convex program of Fig. 10",
    claim="The neurons that the convex program puts on the sign patterns of gradient descent match those that "
    "gradient descent found.",
    paper="a picture: small distances on the diagonal of GD's patterns",
)
def run(context: Context) -> Outcome:
    """Alg1 of Fig. 10: patterns of the trained network and of clustered patches."""
    n = context.pick(quick=20, default=100, full=195)
    X, y, *_ = data(context, n)
    epochs = context.pick(quick=4000, default=3000, full=5000)
    trained = descend(
        module(0), X.transpose(0, 3, 1, 2), y, beta=BETA, loss="hinge", optimiser="adam", rate=3e-3, epochs=epochs,
        batch_size=BATCH, cosine=True,
    )  # fmt: skip
    own, outputs = filters(trained.module), trained.module[3].weight.detach().numpy()[0]
    strength = np.linalg.norm(own, axis=1) * np.abs(outputs)
    alive = strength > 1e-2 * strength.max()
    own, outputs = own[alive], outputs[alive]
    clusters = ARCHITECTURE.cluster(X, context.pick(quick=5, default=CLUSTERS), random_state=0)
    fit = ReLUClassifier(
        BETA, loss="hinge", architecture=ARCHITECTURE, bias=False, fit_intercept=False, method="sampled",
        gates=[own, clusters], random_state=0, time_limit=context.pick(quick=120.0, default=600.0, full=3600.0),
    ).fit(X, y)  # fmt: skip
    if fit.gap_ > 0.05:
        stopped = f"the convex program stopped at its time limit with a gap of {fit.gap_:.2g} among its patterns"
        return Outcome(Verdict.UNTESTED, ours=stopped, sizes=f"n = {n}")
    context.log(f"GD {trained.objective:.6f}, convex {fit.objective_:.6f}, gap {fit.gap_:.1e}")
    found, signs = units(fit.network_.gate_vectors()[:, : own.shape[1]]), np.sign(fit.network_.output_weights[:, 0])
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    nearest = []
    for axis, sign in zip(axes, (1.0, -1.0), strict=True):
        mine, theirs = found[signs == sign], units(own[np.sign(outputs) == sign])
        distances = np.linalg.norm(mine[:, None] - theirs[None], axis=2)
        order = np.argsort(distances.argmin(axis=1), kind="stable")
        image = axis.imshow(distances[order], aspect="auto", cmap="viridis", vmin=0, vmax=1.5)
        axis.set(xlabel="filters of gradient descent", ylabel="filters of the convex program")
        axis.set_title(f"{'positive' if sign > 0 else 'negative'} output weights", fontsize=10)
        nearest.append(distances.min(axis=0))
    figure.colorbar(image, ax=axes)
    context.save(figure, "003-fig11.png")
    matched = np.concatenate(nearest)
    random = np.linalg.norm(units(own)[:, None] - units(own)[None], axis=2)[np.triu_indices(len(own), 1)]
    return Outcome(
        judge(float(np.median(matched)) < 0.25, fit.objective_ <= trained.objective * (1 + 1e-6)),
        ours=f"{len(own)} filters of gradient descent: median distance to the nearest of {len(found)} convex ones "
        f"{np.median(matched):.3f} (between different filters of GD {np.median(random):.3f}); objective "
        f"{fit.objective_:.5f} against {trained.objective:.5f}",
        sizes=f"n = {n} (195), {len(clusters)} clusters (50), {epochs} epochs, beta = {BETA:g}",
        details=table(
            ["quantile", "distance of GD's filters to the nearest convex one"],
            [(f"{q} %", float(np.percentile(matched, q))) for q in (10, 25, 50, 75, 90)],
        )
        + f"\n\nGap of the convex program among networks on its patterns {fit.gap_:.0e}.",
    )
