"""002 Fig. 6: deep networks made of convex stages."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from bidual import LayerwiseClassifier, LayerwiseNetwork, Parallel, ReLUClassifier
from reproductions.framework import Context, Outcome, Verdict, experiment, table
from reproductions.principal import SETS, principal

#: Of the mean loss. At the 1e-3 of the paper the first stage fits its few rows here without error, and leaves nothing
#: to the others.
BETA = 1e-2
#: Gain in accuracy, in per cent, that counts as one: about one standard error of 2000 test rows.
GAIN = 1.0


@experiment(
    "002-fig6",
    title="Layer-wise convex training: test accuracy of every stage",
    claim="Stacking convex stages raises the test accuracy significantly.",
    paper="CIFAR-10: below 60 % for one stage, almost 85 % for five",
)
def run(context: Context) -> Outcome:
    """Each stage a three-layer convex fit on the features of the one before; no early stopping, to see all stages."""
    n, d = context.pick(quick=400, default=1_500, full=50_000), context.pick(quick=15, default=40, full=3_072)
    stages, m1 = context.pick(quick=3, default=5), context.pick(quick=3, default=3, full=100)
    figure, axis = plt.subplots(figsize=(5.5, 3.8), layout="constrained")
    rows, gains = [], []
    for name in SETS:
        images = principal(context, name, n, 2_000, d)
        stage = ReLUClassifier(BETA, architecture=Parallel(m1), tol=5e-2, max_iter=1)
        model = LayerwiseClassifier(stage, n_stages=stages, early_stopping=False, random_state=0)
        model.fit(images.X, images.y)
        accuracies = []
        for k, fitted in enumerate(model.stages_, start=1):
            network = LayerwiseNetwork(model.network_.stages[:k], model.passthrough)
            train, test = (
                100 * float(np.mean(network.forward(X).argmax(axis=1) == y))
                for X, y in ((images.X, images.y), (images.X_test, images.y_test))
            )
            accuracies.append(test)
            rows.append((name, k, fitted.objective_, fitted.gap_, train, test))
            context.log(str(rows[-1]))
        gains.append(accuracies[-1] - accuracies[0])
        axis.plot(range(1, len(accuracies) + 1), accuracies, "o-", label=name)
    axis.set(xlabel="stages", ylabel="test accuracy (%)", xticks=range(1, stages + 1))
    axis.legend(frameon=False)
    context.save(figure, "002-fig6.png")
    better = [gain > GAIN for gain in gains]
    note = (
        f"The first {n} rows of each set in {d} principal directions, m1 = {m1}, beta = {BETA:g}; later stages see the "
        "features of the stage before beside the data. Gaps are those of each stage, by local search. The paper does "
        "not say which features its stages pass on; the text it cites for layer-wise training has convolutions, which "
        "these stages have not."
    )
    return Outcome(
        Verdict.HOLDS if all(better) else Verdict.PARTLY if any(better) else Verdict.FAILS,
        ours="; ".join(
            f"{name}: " + ", ".join(f"{row[-1]:.1f}" for row in rows if row[0] == name) + " % by stage" for name in SETS
        ),
        sizes=f"n = {n}, {d} principal directions, m1 = {m1} (100)",
        details=f"{note}\n\n"
        + table(["set", "stage", "objective", "gap", "training accuracy (%)", "test accuracy (%)"], rows),
    )
