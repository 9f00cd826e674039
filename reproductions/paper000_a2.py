"""000 A.2 (Fig. 5): the batch size hardly matters for networks with batch normalisation."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch

from reproductions.descent import descend
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.normalised import accuracy, images, scores, watched


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
    claim="All batch sizes perform roughly equally, in training and in test accuracy.",
    paper="curves only (Fig. 5)",
)
def run(context: Context) -> Outcome:
    """Two classes, the same number of epochs for every batch size (about the same time).

    The paper has one rate for the sum of the losses of a batch, which for their mean is one in proportion to its size.
    """
    n, pixels = context.pick(quick=300, default=1000), context.pick(quick=16, default=32)
    filters, epochs = context.pick(quick=8, default=32, full=1000), context.pick(quick=40, default=60, full=500)
    X, y, X_test, y_test = images(context, 2, n, 1000, pixels)
    sizes = [size * n // 1000 for size in (50, 100, 500, 1000)]
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.7), layout="constrained")
    rows = []

    def accuracies(module: torch.nn.Module) -> dict[str, float]:
        return {"train": accuracy(scores(module, X), y), "test": accuracy(scores(module, X_test), y_test)}

    for size in sizes:
        run = descend(
            cnn(filters, pixels, size == n), X, y, beta=1e-4, loss="softmax", rate=0.1 * size / n, momentum=0.9,
            cosine=True,
            epochs=epochs, batch_size=size, records=20, watch=accuracies,
        )  # fmt: skip
        for axis, part in zip(axes, ("train", "test"), strict=True):
            axis.plot(run.epochs, watched(run, part), label=f"batches of {size}")
        rows.append((size, float(run.seconds[-1]), float(watched(run, "train")[-1]), float(watched(run, "test")[-1]),
                     float(watched(run, "test").max())))  # fmt: skip
        context.log(str(rows[-1]))
    for axis, part in zip(axes, ("training", "test"), strict=True):
        axis.set(xlabel="epoch", ylabel=f"{part} accuracy (%)")
    axes[1].legend(frameon=False)
    context.save(figure, "000-a2.png")
    train, best = (np.array([row[k] for row in rows]) for k in (2, 4))
    return Outcome(
        judge(np.ptp(best) < 5.0, np.ptp(train) < 10.0),
        ours=f"best test accuracies {best.round(1).tolist()}, training {train.round(1).tolist()} % for batches of "
        f"{sizes}",
        sizes=f"n = {len(X)} (1000), {filters} filters (1000), {pixels} x {pixels} pixels, {epochs} epochs, "
        "cross-entropy; CIFAR-10 for CIFAR-100",
        details=table(["batch", "seconds", "training accuracy", "test accuracy at the end", "best"], rows),
    )
