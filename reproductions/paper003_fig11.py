"""003 Fig. 11: the neurons of the convex program on GD's patterns are GD's own neurons, and some more."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator

from reproductions.framework import Context, Outcome, Verdict, experiment, judge, table
from reproductions.paper003_fig10 import BETA, BOTH, TRAINED, gates, program, trained

#: Distances of unit vectors below which filters match (about fifteen degrees).
MATCH = 0.25


def units(rows: np.ndarray) -> np.ndarray:
    """Rows scaled to length one."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@experiment(
    "003-fig11",
    title="Distances between the filters of SGD and those of the convex program of Fig. 10",
    claim="The neurons that the convex program puts on the sign patterns of gradient descent match those that "
    "gradient descent found.",
    paper="a picture; the text says that the neurons on GD's patterns match",
)
def run(context: Context) -> Outcome:
    """The network of SGD's best run in Fig. 10, and the programs on its patterns, without and with clusters."""
    state = trained(context)
    own, outputs = state.neurons()
    strength = np.linalg.norm(own, axis=1) * np.abs(outputs)
    alive = strength > 1e-2 * strength.max()
    own, outputs = own[alive], outputs[alive]
    patterns = gates(context, state)
    fits = {
        name: program(context, state.X, state.y, method="sampled", gates=patterns[name], tol=1e-4)
        for name in (TRAINED, BOTH)
    }
    n, sgd, gap = len(state.y), state.run.objective, max(fit.gap_ for fit in fits.values())
    sizes = f"n = {n}, the network and the programs of Fig. 10 (beta = {BETA:g}, rate {state.rate:g})"
    if gap > 0.01:
        stopped = f"a convex program stopped at its time limit with a gap of {gap:.2g} among its patterns"
        return Outcome(Verdict.UNTESTED, ours=stopped, sizes=sizes)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    theirs = {sign: units(own[np.sign(outputs) == sign]) for sign in (1.0, -1.0)}
    matched = {}
    for label, fit in fits.items():  # the picture is that of the last network
        nearest = []
        for axis, sign in zip(axes, theirs, strict=True):
            network = fit.network_
            mine = units(network.gate_vectors()[np.sign(network.output_weights[:, 0]) == sign, : own.shape[1]])
            distances = np.linalg.norm(mine[:, None] - theirs[sign][None], axis=2)
            nearest.append(distances.min(axis=0))
            order = np.argsort(distances.argmin(axis=1), kind="stable")
            image = axis.imshow(distances[order], aspect="auto", cmap="viridis", vmin=0, vmax=1.5)
            axis.set(xlabel="filters of SGD", ylabel="filters of the convex program")
            axis.set_title(f"{'positive' if sign > 0 else 'negative'} output weights", fontsize=10)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            axis.yaxis.set_major_locator(MaxNLocator(integer=True))
        matched[label] = np.concatenate(nearest)
    figure.colorbar(image, ax=axes)
    context.save(figure, "003-fig11.png")
    both = matched[BOTH]
    between = np.linalg.norm(units(own)[:, None] - units(own)[None], axis=2)[np.triu_indices(len(own), 1)]
    context.log(f"SGD {sgd:.5f}, distances {np.sort(both).round(3)}, gap {gap:.1e}")
    return Outcome(
        judge(bool(np.median(both) < MATCH), bool(both.max() < MATCH)),
        ours=f"{len(own)} of {len(alive)} filters of SGD are alive, {int((both < MATCH).sum())} of them within "
        f"{MATCH:g} of one of the {fits[BOTH].n_neurons_} of the program (median {np.median(both):.3f}, largest "
        f"{both.max():.3f}; on SGD's patterns alone {np.median(matched[TRAINED]):.3f} and "
        f"{matched[TRAINED].max():.3f}); different filters of SGD are {np.median(between):.2f} apart",
        sizes=sizes,
        details=table(
            ["distance of SGD's filters to the nearest convex one", *matched],
            [
                (f"{q} % quantile", *(f"{np.percentile(m, q):.3f}" for m in matched.values()))
                for q in (10, 25, 50, 75, 90)
            ],
        )
        + f"\n\nObjectives {sgd:.5f} (SGD), {fits[TRAINED].objective_:.5f} (program on its patterns), "
        f"{fits[BOTH].objective_:.5f} (with those of clusters); gaps among networks on their patterns at most "
        f"{gap:.0e}. Filters are scaled to length one; alive are those with more than a hundredth of the largest "
        "product of norm and output weight. Filters can only match as far as SGD has come: the objectives say how far. "
        f"The claim has two parts: the median filter matches (closer than {MATCH:g}), and all do.",
    )
