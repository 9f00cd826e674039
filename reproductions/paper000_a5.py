"""000 A.5 (Fig. 6 to 12): batch size, learning rate, optimiser, and no batch normalisation at all."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from bidual import BatchNorm, ReLURegressor
from bidual.architectures import truncate
from reproductions.descent import descend, two_layer
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.normalised import accuracy, images, scores, train_bn, watched

#: Percentages of test rows that differ by less are equal.
NOISE = 1.0


@experiment(
    "000-a5",
    title="Ablations: batch size, learning rate, optimiser, no normalisation",
    claim="Batch size, learning rate and optimiser hardly change the best test accuracy, longer training only "
    "overfits, and a network without batch normalisation does worse.",
    paper="curves only (Fig. 6 to 12)",
)
def run(context: Context) -> Outcome:
    """The network of Fig. 4 at a small size, one thing changed at a time."""
    n, pixels = context.pick(quick=1000, default=5000, full=50_000), context.pick(quick=8, default=16, full=32)
    m, epochs = context.pick(quick=100, default=300, full=4096), context.pick(quick=40, default=100, full=500)
    X, y, X_test, y_test = images(context, 10, n, 3000, pixels)
    base: dict[str, Any] = {"rate": 0.02, "batch_size": n // 5, "epochs": epochs, "m": m, "beta": 1e-4}
    variants: dict[str, dict[str, Any]] = {
        "base (batches of n / 5)": {},
        "truncated to 95 %": {"rows": truncate(X, 0.95)},
        "batches of n / 50": {"batch_size": n // 50},
        "batches of n / 10": {"batch_size": n // 10},
        "rate x 1/4": {"rate": 0.005},
        "rate x 4": {"rate": 0.08},
        "Adam": {"optimiser": "adam", "rate": 0.001},
        "three times as long": {"epochs": 3 * epochs},
    }
    runs = {}
    for name, change in variants.items():
        settings = {**base, **change}
        rows = settings.pop("rows", X)
        runs[name] = train_bn(rows, y, watch={"train": (rows, y), "test": (X_test, y_test)}, **settings)
        context.log(f"{name}: {runs[name].watched[-1]}, best {watched(runs[name], 'test').max():.1f}")
    bare = "no batch normalisation"
    mean, Y = X.mean(axis=0), np.eye(10)[y]
    plain = []
    for rate in (0.003, 0.01, 0.03):
        module = two_layer(X.shape[1], m, 10).float()
        plain.append(
            descend(
                module, X - mean, Y, beta=1e-4, rate=rate, momentum=0.9, epochs=epochs, batch_size=n // 5, records=30,
                watch=lambda module: {
                    "train": accuracy(scores(module, X - mean), y),
                    "test": accuracy(scores(module, X_test - mean), y_test),
                },
            )
        )  # fmt: skip
    runs[bare] = max(plain, key=lambda run: watched(run, "test").max())
    convex, seconds = {}, context.pick(quick=5.0, default=60.0, full=3600.0)
    for name, architecture in (("Convex-Truncated", BatchNorm(rank=0.95)), ("Convex, " + bare, "two_layer")):
        fit = ReLURegressor(1e-4, architecture=architecture, fit_intercept=False, time_limit=seconds, random_state=0)
        fit.fit(X - mean, Y)
        convex[name] = fit.gap_, accuracy(fit.predict(X - mean), y), accuracy(fit.predict(X_test - mean), y_test)
        context.log(f"{name}: {convex[name]}")
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, run in runs.items():
        axis.plot(run.epochs, watched(run, "test"), lw=1.2, label=name)
    axis.set(xlabel="epoch", ylabel="test accuracy (%)", xscale="log")
    axis.legend(frameon=False, fontsize=8)
    context.save(figure, "000-a5.png")
    best = {name: float(watched(run, "test").max()) for name, run in runs.items()}
    tuned = [best[name] for name in variants if name.startswith(("base", "batches", "rate", "Adam"))]
    longer = watched(runs["three times as long"], "test")
    base_name = next(iter(variants))
    overfits = longer.max() < best[base_name] + NOISE and longer[-1] < longer.max() - NOISE
    with_bn, without = (value[2] for value in convex.values())
    worse = best[bare] < max(tuned) - NOISE, without < with_bn - NOISE
    rows = [(name, *(float(watched(r, k)[-1]) for k in ("train", "test")), best[name]) for name, r in runs.items()]
    rows += [(f"{name} (gap {gap:.1g})", train, test, test) for name, (gap, train, test) in convex.items()]
    return Outcome(
        judge(np.ptp(tuned) < 4.0, overfits, *worse),
        ours=f"best test accuracies {min(tuned):.1f} to {max(tuned):.1f} % over batch sizes, rates and Adam; three "
        f"times as long {longer.max():.1f} (end {longer[-1]:.1f}); without normalisation {best[bare]:.1f}; convex "
        f"programs with {with_bn:.1f}, without {without:.1f}",
        sizes=f"n = {len(X)} (50000), d = {X.shape[1]} (3072), m = {m} (4096), CIFAR-10 only",
        details=table(["", "training accuracy", "test accuracy at the end", "best test accuracy"], rows)
        + f"\n\nDifferences below {NOISE:g} count as noise: 3000 test rows have a standard error of 0.9. Both kinds of "
        "networks have the best of their rates. The convex programs stop at their time limit, with the gaps in the "
        "table.",
    )
