"""000 Fig. 1: SGD on a network with batch normalisation generalises, SGD on its whitened form does not."""

from __future__ import annotations

import matplotlib.pyplot as plt

from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.normalised import watched
from reproductions.whitened import DETAILS, MODELS, train_pair

FIT = 99.0  # per cent of the training rows
LESS = 3.0  # points of test accuracy, far more than the standard error of a few thousand rows


@experiment(
    "000-fig1",
    title="CIFAR-10 accuracies of the network with batch normalisation and of its whitened form",
    claim="Both models fully fit the training data, but the whitened one overfits much more.",
    paper="curves only: training accuracy to 100 % for both, test accuracy much lower for the whitened model",
)
def run(context: Context) -> Outcome:
    """The same architecture, loss and initialisation, on the data and on their whitened features."""
    pair = train_pair(context)
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.7), sharex=True, layout="constrained")
    curves = {part: [watched(pair.runs[name], part) for name in MODELS] for part in ("train", "test")}
    for axis, (part, both) in zip(axes, curves.items(), strict=True):
        for name, curve in zip(MODELS, both, strict=True):
            axis.plot(pair.runs[name].epochs, curve, label=name)
        axis.set(xlabel="epoch", ylabel=f"{part} accuracy (%)")
    axes[1].legend(frameon=False)
    context.save(figure, "000-fig1.png")
    (train, white_train), (test, white_test) = ((float(bn[-1]), float(white[-1])) for bn, white in curves.values())
    rows = zip(MODELS, curves["train"], curves["test"], strict=True)
    return Outcome(
        judge(min(train, white_train) > FIT, test > white_test + LESS),
        ours=f"training accuracy {train:.1f} / {white_train:.1f} %, test accuracy {test:.1f} / {white_test:.1f} % "
        "(batch normalisation / whitened)",
        sizes=pair.sizes,
        details=f"{DETAILS} Fitting means {FIT:g} % of the training rows, overfitting much more at least {LESS:g} "
        "points of test accuracy less.\n\n"
        + table(
            ["model", "training accuracy", "test accuracy at the end", "best test accuracy"],
            [(name, f"{a[-1]:.1f}", f"{b[-1]:.1f}", f"{b.max():.1f}") for name, a, b in rows],
        ),
    )
