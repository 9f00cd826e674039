"""000 A.2 (Fig. 5): the batch size hardly matters for networks with batch normalisation."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch

from reproductions.descent import descend
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.normalised import accuracy, images, scores, watched

ROUGHLY = 5.0  # points of accuracy


def cnn(filters: int, pixels: int, full_batch: bool) -> torch.nn.Sequential:
    """Three convolutions 3 x 3 with batch normalisation, ReLU and average pooling, and a linear layer.

    The statistics for inference are running averages, or those of the last step with full batches (000 A.1).
    """
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = [torch.nn.Unflatten(1, (3, pixels, pixels))]
    for channels in (3, filters, filters):
        layers += [
            torch.nn.Conv2d(channels, filters, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(filters, momentum=1.0 if full_batch else 0.1),
            torch.nn.ReLU(),
            torch.nn.AvgPool2d(2),
        ]
    size = filters * (pixels // 8) ** 2
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(size, 2))


@experiment(
    "000-a2",
    title="Batch sizes 50, 100, 500 and 1000 for a four-layer CNN with batch normalisation",
    claim="All batch sizes perform roughly equally, in training and test accuracy and in how these converge.",
    paper="curves only (Fig. 5)",
)
def run(context: Context) -> Outcome:
    """Two classes, the same number of epochs for every batch size (about the same time)."""
    n, pixels = context.pick(quick=300, default=1000), context.pick(quick=16, default=32)
    filters, epochs = context.pick(quick=8, default=24, full=1000), context.pick(quick=40, default=50, full=500)
    of_sum, beta = (
        context.pick(quick=0.1 / n, default=0.1 / n, full=1e-6),
        context.pick(quick=1e-4, default=1e-4, full=1e-7),
    )
    X, y, X_test, y_test = images(context, 2, n, context.pick(quick=1000, default=1000, full=2000), pixels)
    sizes = [size * n // 1000 for size in (50, 100, 500, 1000)]
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.7), layout="constrained")
    rows, curves = [], []

    def accuracies(module: torch.nn.Module) -> dict[str, float]:
        return {"train": accuracy(scores(module, X), y), "test": accuracy(scores(module, X_test), y_test)}

    for size in sizes:
        run = descend(
            cnn(filters, pixels, size == n), X, y, beta=beta, loss="softmax", rate=of_sum * size, momentum=0.9,
            cosine=True, epochs=epochs, batch_size=size, records=20, watch=accuracies,
        )  # fmt: skip
        train, test = (watched(run, part) for part in ("train", "test"))
        curves.append((train, test))
        for axis, curve in zip(axes, curves[-1], strict=True):
            axis.plot(run.epochs, curve, label=f"batches of {size}")
        rows.append((size, *(f"{v:.1f}" for v in (train[-1], test[-1], test.max(), run.cpu_seconds[-1]))))
        context.log(str(rows[-1]))
    for axis, part in zip(axes, ("training", "test"), strict=True):
        axis.set(xlabel="epoch", ylabel=f"{part} accuracy (%)")
    axes[1].legend(frameon=False)
    context.save(figure, "000-a2.png")
    spread = np.ptp(np.array(curves), axis=0)  # (train and test, records)
    ends, means = spread[:, -1], spread.mean(axis=1)
    wide = run.epochs[(spread > ROUGHLY).any(axis=0)]
    return Outcome(
        judge(*(ends < ROUGHLY), *(means < ROUGHLY)),
        ours=f"training and test accuracies of the four batch sizes are within {ends[0]:.1f} and {ends[1]:.1f} points "
        f"of each other at the end, and within {means[0]:.1f} and {means[1]:.1f} in the mean over the epochs",
        sizes=f"n = {len(X)} (1000), {filters} filters (1000), {pixels} x {pixels} pixels, {epochs} epochs (501), "
        f"{len(X_test)} test rows; two classes of CIFAR-10 for those of CIFAR-100, which is not here",
        details=f"Cross-entropy, momentum 0.9, a cosine schedule, rate {of_sum:.2g} of the sum of losses of a batch "
        f"(1e-6), beta = {beta:g} of the mean loss (1e-4, of the sum or the mean). Every batch size has the same "
        f"number of epochs; the paper gives them about the same time. Roughly equal means within {ROUGHLY:g} points. "
        + (f"The curves are further apart than that up to epoch {wide.max()}.\n\n" if len(wide) else "\n\n")
        + table(["batch", "training accuracy", "test accuracy at the end", "best", "CPU seconds"], rows),
    )
