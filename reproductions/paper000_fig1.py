"""000 Fig. 1: SGD on a network with batch normalisation generalises, SGD on its whitened form does not."""

from __future__ import annotations

import matplotlib.pyplot as plt

from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.normalised import watched
from reproductions.whitened import MODELS, train_pair


@experiment(
    "000-fig1",
    title="CIFAR-10 accuracies of the network with batch normalisation and of its whitened form",
    claim="Both models fit the training data, but the whitened one overfits much more.",
    paper="curves only: training accuracy to 100 % for both, test accuracy much lower for the whitened model",
)
def run(context: Context) -> Outcome:
    """The same architecture, loss and initialisation, on the data and on their whitened features."""
    pair = train_pair(context)
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.7), sharex=True, layout="constrained")
    train, test = {}, {}
    for axis, part, ends in zip(axes, ("train", "test"), (train, test), strict=True):
        for name in MODELS:
            descent = pair.runs[name]
            axis.plot(descent.epochs, watched(descent, part), label=name)
            ends[name] = float(watched(descent, part)[-1])
        axis.set(xlabel="epoch", ylabel=f"{part} accuracy (%)")
    axes[1].legend(frameon=False)
    context.save(figure, "000-fig1.png")
    best = {name: float(watched(pair.runs[name], "test").max()) for name in MODELS}
    bn, white = MODELS
    return Outcome(
        judge(min(train.values()) > 90.0, test[bn] > test[white] + 3.0),
        ours=f"training accuracy {train[bn]:.1f} / {train[white]:.1f} %, test accuracy {test[bn]:.1f} / "
        f"{test[white]:.1f} % (batch normalisation / whitened)",
        sizes=pair.sizes,
        details=table(
            ["model", "training accuracy", "test accuracy at the end", "best test accuracy"],
            [(name, train[name], test[name], best[name]) for name in MODELS],
        ),
    )
