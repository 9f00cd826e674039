"""003 Fig. 4: two classes of CIFAR-10; SGD beside convex programs on a few patterns."""

from __future__ import annotations

import numpy as np

from bidual import ReLUClassifier
from reproductions.data import standardised, two_classes
from reproductions.framework import Context, Outcome, experiment
from reproductions.sampled import Task, classification, compare

#: Not in the text.
BETA_PAPER = 1e-3


def small(images: np.ndarray) -> np.ndarray:
    """Images of CIFAR-10 (flat, channels first) as 100 grey values: means of the 3 x 3 blocks of the inner 30 x 30."""
    grey = images.reshape(-1, 3, 32, 32).mean(axis=1)[:, 1:31, 1:31]
    return grey.reshape(-1, 10, 3, 10, 3).mean(axis=(2, 4)).reshape(-1, 100)


@experiment(
    "003-fig4",
    title="Two classes of CIFAR-10, n = 106, d = 100, m = 12: SGD and programs on a few patterns",
    claim="Alg1, a convex program, reaches the lowest objective and the highest test accuracy.",
    paper="objective 0.0042 (GD), 0.0022 (Alg1), 0.0032 (Alg2), 0.0032 (Alg3); test accuracy 62.75, 66.80, 60.15, "
    "60.20 %",
)
def run(context: Context) -> Outcome:
    """Birds and cats as 10 x 10 grey images, hinge loss."""
    X, y, X_test, y_test = two_classes(context.data.load("cifar10"), (2, 3), 106, 2000)
    X, X_test = standardised(small(X), small(X_test))
    task = Task(
        X, y, X_test, y_test, ReLUClassifier, "hinge", BETA_PAPER / len(y), classification, "test accuracy (%)", True
    )
    return compare(
        context, task, "003-fig4", runs=10, epochs=context.pick(quick=1500, default=4_000, full=100_000),
        rates=context.pick(quick=(0.03,), default=(0.01, 0.03)), solved=context.pick(quick=2, default=10),
        time_limit=context.pick(quick=10.0, default=60.0, full=600.0),
        sizes=f"birds and cats as standardised grey 10 x 10 images (the paper names neither the classes nor how d = "
        f"100 came about), {len(y_test)} for testing",
        shorter=1,
    )  # fmt: skip
