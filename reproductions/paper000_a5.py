"""000 A.5 (Fig. 6 to 12): batch size, learning rate, optimiser, and no batch normalisation at all."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from reproductions.descent import Descent
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.normalised import watched
from reproductions.truncated import BARE_RATES, CONVEX, RATES, Cifar, chosen, cifar

#: Points of test accuracy: what counts as equal, and what as hardly changed.
NOISE, HARDLY = 1.0, 2.0


def peak(run: Descent) -> float:
    """The best test accuracy on the way."""
    return float(watched(run, "test").max())


def ablations(found: Cifar, truncated: bool) -> dict[str, dict[str, Descent]]:
    """For each thing that is changed the runs to compare, by name."""
    name = "SGD-Truncated" if truncated else "SGD"
    rates = {rate: found.sgd(truncated, rate=rate) for rate in RATES["sgd"]}
    adam = {rate: found.sgd(truncated, rate=rate, optimiser="adam") for rate in RATES["adam"]}
    (base, best), (best_adam, adam_rate) = chosen(rates), chosen(adam)
    first = {f"{name}, rate {best:g}": base}
    sizes = {size: found.sgd(truncated, rate=best, batch=size) for size in (found.batch // 2, found.batch // 10)}
    return {
        "rate": {f"{name}, rate {rate:g}": run for rate, run in rates.items()},
        "batch size": first | {f"{name}, rate {best:g}, batches of {size}": run for size, run in sizes.items()},
        "optimiser": first | {f"{name.replace('SGD', 'Adam')}, rate {adam_rate:g}": best_adam},
        "duration": first | {f"{name}, twice as long": found.sgd(truncated, rate=best, times=2)},
    }


@experiment(
    "000-a5",
    title="Ablations: batch size, learning rate, optimiser, no normalisation",
    claim="Batch size, learning rate and optimiser hardly change the best test accuracy, longer training only "
    "overfits, and networks without batch normalisation do worse, though better than Convex.",
    paper="curves only (Fig. 6 to 12)",
)
def run(context: Context) -> Outcome:
    """The networks of Fig. 4, one thing changed at a time."""
    found = cifar(context)
    parts, told, usuals, runs = [], [], [], {}
    for truncated in (False, True):
        groups, ranges = ablations(found, truncated), []
        for what in ("rate", "batch size", "optimiser"):
            peaks = [peak(run) for run in groups[what].values()]
            parts.append(np.ptp(peaks) < HARDLY)
            ranges.append(f"{min(peaks):.1f} to {max(peaks):.1f} over {what}s")
        usual, longer = groups["duration"].values()
        parts.append(peak(longer) < peak(usual) + NOISE and watched(longer, "test")[-1] < peak(longer) - NOISE)
        ranges.append(f"{peak(longer):.1f} (end {watched(longer, 'test')[-1]:.1f}) in twice the time")
        told.append(("SGD-Truncated: " if truncated else "SGD: ") + ", ".join(ranges))
        runs |= {name: run for group in groups.values() for name, run in group.items()}
        usuals.append(usual)
    bare, _ = chosen({rate: found.bare(rate) for rate in BARE_RATES})
    runs["SGD, no batch normalisation"] = bare
    convex = {name: found.convex(name) for name in CONVEX}
    whole, cut, bare_convex = convex.values()
    pairs = zip(convex.items(), (*usuals, bare), strict=True)
    behind = [name for (name, fit), run in pairs if fit.objective > run.objective]  # they say nothing of the optimum
    parts.append(peak(bare) < peak(usuals[0]) - NOISE)
    if not {"Convex-Truncated", "Convex, no BN"} & {*behind}:
        parts.append(bare_convex.test < cut.test - NOISE)
    if "Convex" not in behind:
        parts.append(whole.test < peak(bare) - NOISE)

    figure, axes = plt.subplots(1, 2, figsize=(12, 4.6), sharey=True, layout="constrained")
    for name, run in runs.items():
        axes[int("Truncated" in name)].plot(run.epochs, watched(run, "test"), lw=1.2, label=name)
    for axis in axes:
        axis.set(xlabel="epoch", ylabel="test accuracy (%)", xscale="log")
        axis.legend(frameon=False, fontsize=8)
    context.save(figure, "000-a5.png")
    rows = []
    for name, run in runs.items():
        train, test = watched(run, "train"), watched(run, "test")
        accuracies = (f"{value:.1f}" for value in (train[-1], test[-1], test.max()))
        rows.append((name, f"{run.objective:.4f}", *accuracies, run.epochs[test.argmax()]))
    for name, fit in convex.items():
        rows.append(
            (
                f"{name} (likely gap {fit.gap:.2g})",
                f"{fit.objective:.4f}",
                f"{fit.train:.1f}",
                f"{fit.test:.1f}",
                "",
                "",
            )
        )
    return Outcome(
        judge(*parts),
        ours=f"best test accuracies (%), {'; '.join(told)}; SGD without batch normalisation {peak(bare):.1f}; "
        + ", ".join(f"{name} {fit.test:.1f}" for name, fit in convex.items())
        + f" (not counted, as above SGD in objective: {' and '.join(behind)})" * bool(behind),
        sizes=found.sizes + "; runs shared with Fig. 4 if both are computed together",
        details="SGD has constant rates 1 : 5 : 10, as in the paper (1e-5, 5e-5 and 1e-4 of the sum of losses); the "
        "one with the best test accuracy at the end is kept for the other runs, and so for Adam and without batch "
        f"normalisation. Hardly changed means best test accuracies within {HARDLY:g} points of each other; differences "
        f"below {NOISE:g} point are noise. Longer training overfits if its best is no better and its end is worse than "
        "its best. A convex program counts where its objective is at most that of SGD on the same network; it is "
        "solved by column generation within a time limit, not by SGD or Adam as in the paper, so that Fig. 9 to 11 are "
        "tested for the networks only.\n\n"
        + table(["", "objective", "training accuracy", "test accuracy at the end", "best", "at epoch"], rows),
    )
