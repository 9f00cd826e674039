"""000 Fig. 2: SGD moves the weights of the two models along other singular directions of the data."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from bidual.plots import plot_singular_similarity
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.whitened import DETAILS, MODELS, Array, train_pair


def tenths(values: Array) -> Array:
    """Means over the first, the middle and the last tenth of the directions."""
    tenth = max(1, len(values) // 10)
    return np.array([part.mean() for part in (values[:tenth], values[len(values) // 2 :][:tenth], values[-tenth:])])


@experiment(
    "000-fig2",
    title="Cosine of the hidden weights to their start, along each singular direction of the data",
    claim="With batch normalisation SGD moves the leading directions and hardly the last ones; in the whitened "
    "model it moves all directions about equally.",
    paper="curves only",
)
def run(context: Context) -> Outcome:
    """The networks of Fig. 1; low values mean that the weights have moved far."""
    pair = train_pair(context)
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True, layout="constrained")
    rows, moved = [], {}
    for axis, (name, path) in zip(axes, pair.similarities.items(), strict=True):
        epochs = [list(path)[k] for k in (0, 3, 9, -1)]
        plot_singular_similarity({f"epoch {epoch}": path[epoch] for epoch in epochs}, ax=axis)
        axis.set_title(name)
        moved[name] = np.array([1 - tenths(path[epoch]) for epoch in epochs])
        rows += [(name, epoch, *(f"{v:.3f}" for v in tenths(path[epoch]))) for epoch in epochs]
    context.save(figure, "000-fig2.png")
    bn, white = (moved[name] for name in MODELS)
    ratio = float((white.max(axis=1) / white.min(axis=1)).max())
    (first, _, last), ends = 1 - bn[-1], 1 - white[-1]
    return Outcome(
        judge(bool((bn[:, 2] < 0.1 * bn[:, 0]).all()), bool(ratio < 2)),
        ours=f"cosines at the end, first and last tenth of the directions: {first:.3f} and {last:.3f} (batch "
        f"normalisation), {ends[0]:.3f} and {ends[2]:.3f} (whitened); at any epoch "
        f"shown the whitened model has moved its tenths by amounts within a factor of {ratio:.2g}",
        sizes=pair.sizes,
        details=f"{DETAILS} At each epoch shown: hardly means less than a tenth of what the first tenth of the "
        "directions moved (one minus the cosine), about equally within a factor of two.\n\n"
        + table(["model", "epoch", "first tenth", "middle tenth", "last tenth"], rows),
    )
