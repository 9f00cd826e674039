"""003 Fig. 11: the neurons of the convex program on GD's patterns are GD's own neurons, and some more."""

from __future__ import annotations

from typing import Any

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
    n = context.pick(quick=20, default=195)
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
    settings: dict[str, Any] = {
        "loss": "hinge", "architecture": ARCHITECTURE, "bias": False, "fit_intercept": False, "method": "sampled",
        "random_state": 0, "tol": 1e-3, "time_limit": context.pick(quick=120.0, default=600.0, full=3600.0),
    }  # fmt: skip
    alone = ReLUClassifier(BETA, gates=own, **settings).fit(X, y)
    fit = ReLUClassifier(BETA, gates=[own, clusters], **settings).fit(X, y)
    if fit.gap_ > 0.05:
        stopped = f"the convex program stopped at its time limit with a gap of {fit.gap_:.2g} among its patterns"
        return Outcome(Verdict.UNTESTED, ours=stopped, sizes=f"n = {n}")
    context.log(f"GD {trained.objective:.6f}, convex {fit.objective_:.6f}, gap {fit.gap_:.1e}")
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    theirs = {sign: units(own[np.sign(outputs) == sign]) for sign in (1.0, -1.0)}
    matched = {}
    for label, network in (("GD's patterns", alone.network_), ("GD's and clusters", fit.network_)):
        nearest = []
        for axis, sign in zip(axes, theirs, strict=True):
            mine = units(network.gate_vectors()[np.sign(network.output_weights[:, 0]) == sign, : own.shape[1]])
            distances = np.linalg.norm(mine[:, None] - theirs[sign][None], axis=2)
            nearest.append(distances.min(axis=0))
            order = np.argsort(distances.argmin(axis=1), kind="stable")
            image = axis.imshow(distances[order], aspect="auto", cmap="viridis", vmin=0, vmax=1.5)
            axis.set(xlabel="filters of gradient descent", ylabel="filters of the convex program")
            axis.set_title(f"{'positive' if sign > 0 else 'negative'} output weights", fontsize=10)
        matched[label] = np.concatenate(nearest)  # the picture is that of the last network
    figure.colorbar(image, ax=axes)
    context.save(figure, "003-fig11.png")
    medians = [float(np.median(distances)) for distances in matched.values()]
    random = np.linalg.norm(units(own)[:, None] - units(own)[None], axis=2)[np.triu_indices(len(own), 1)]
    return Outcome(
        judge(medians[-1] < 0.25, fit.objective_ <= trained.objective * (1 + 1e-6)),
        ours=f"{len(own)} filters of gradient descent: median distance to the nearest of {fit.n_neurons_} convex ones "
        f"{medians[-1]:.3f}, on GD's patterns alone {medians[0]:.3f} (between different filters of GD "
        f"{np.median(random):.3f}); objectives {fit.objective_:.5f}, {alone.objective_:.5f} and (GD) "
        f"{trained.objective:.5f}",
        sizes=f"n = {n} (195), {len(clusters)} clusters (50), {epochs} epochs, beta = {BETA:g}",
        details=table(
            ["distance of GD's filters to the nearest convex one", *matched],
            [
                (f"{q} % quantile", *(float(np.percentile(m, q)) for m in matched.values()))
                for q in (10, 25, 50, 75, 90)
            ],
        )
        + f"\n\nGap of the convex program among networks on its patterns {fit.gap_:.0e}. Filters can only match as far "
        "as gradient descent has come: its objective, beside that of the program on its own patterns, says how far.",
    )
