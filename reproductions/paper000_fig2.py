"""000 Fig. 2: SGD moves the weights of the two models along other singular directions of the data."""

from __future__ import annotations

import numpy as np

from bidual.plots import plot_singular_similarity
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.whitened import MODELS, train_pair


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
    axis = plot_singular_similarity(pair.similarities)
    context.save(axis.figure, "000-fig2.png")
    rows, spread = [], {}
    for name in MODELS:
        values = pair.similarities[name]
        tenth = max(1, len(values) // 10)
        middle = values[len(values) // 2 :][:tenth]
        first, last = float(values[:tenth].mean()), float(values[-tenth:].mean())
        spread[name] = last - first
        rows.append((name, first, float(middle.mean()), last))
    bn, white = (np.array(row[1:]) for row in rows)
    return Outcome(
        judge(bn[2] > bn[0] + 0.1 and bn[2] > 0.9, abs(spread[MODELS[1]]) < 0.5 * abs(spread[MODELS[0]])),
        ours=f"first / middle / last tenth of the directions: {np.round(bn, 3).tolist()} (batch normalisation), "
        f"{np.round(white, 3).tolist()} (whitened)",
        sizes=pair.sizes,
        details=table(["model", "first tenth", "middle tenth", "last tenth"], rows),
    )
