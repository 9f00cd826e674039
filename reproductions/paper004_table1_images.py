"""004 Table 1, the columns MNIST and CIFAR-10, with Convex-RF (Algorithm 2)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

from bidual import ConvexRF, ReLURegressor
from reproductions.data import DataMissing
from reproductions.descent import Descent, descend, tuned, two_layer
from reproductions.framework import Context, Outcome, Verdict, experiment, judge, table
from reproductions.heads import Head, Moments, lasso, ridge

Floats = NDArray[np.floating]
Labels = NDArray[np.integer]

#: The paper's accuracies: least squares, backpropagation, convex, Convex-RF.
PAPER = {"mnist": (86.04, 96.25, 96.94, 97.72), "cifar10": (36.39, 41.57, 42.16, 80.28)}
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
#: What worked on held-out training rows, with 200 filters.
OPTIONS: dict[str, dict[str, Any]] = {
    "mnist": {"cells": 3},
    "cifar10": {"cells": 3, "whiten": True, "pooling": "average"},
}
RIDGES = (1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0)
LASSOS = (1e-4, 3e-4, 1e-3)
#: Algorithm 2 as printed, with the optional whitening that sec. 8.1 says was used.
PRINTED: dict[str, Any] = {"whiten": True, "pooling": "max", "cells": 2}
#: The weight decay of both networks on principal directions, the number of these, and the gap that counts as solved.
BETAS = {"mnist": 1.5e-3, "cifar10": 3e-3}
DIRECTIONS, SOLVED = 50, 0.05
#: Images whose features are held at a time.
BLOCK = 4000


@dataclass(frozen=True)
class Images:
    """An image set; the last training rows are for choosing penalties."""

    X: Floats
    y: Labels
    X_test: Floats
    y_test: Labels

    @property
    def first_held_out(self) -> int:
        """One row in six is held out."""
        return len(self.X) - len(self.X) // 6

    def head(self, rows: int) -> Images:
        """Trained on the first rows only."""
        return Images(self.X[:rows], self.y[:rows], self.X_test, self.y_test)


@dataclass(frozen=True)
class Features:
    """What a transformer makes of an image set: moments of the training rows, and the rows that are looked at again."""

    train: Moments
    held_out: Moments
    B_held_out: Floats
    B_test: Floats
    images: Images

    @classmethod
    def of(cls, transform: Callable[[Floats], Floats], images: Images) -> Features:
        """Transform the images block by block."""
        codes, k = np.eye(10)[images.y], images.first_held_out

        def blocks() -> Iterator[tuple[Floats, Floats]]:
            for start in range(0, k, BLOCK):
                rows = slice(start, min(start + BLOCK, k))
                yield transform(images.X[rows]), codes[rows]

        train = Moments.of(blocks())
        B = transform(images.X[k:])
        return cls(train, Moments.of([(B, codes[k:])]), B, transform(images.X_test), images)

    def take(self, columns: NDArray[np.intp]) -> Features:
        """Only some of the features."""
        return Features(
            self.train.take(columns),
            self.held_out.take(columns),
            self.B_held_out[:, columns],
            self.B_test[:, columns],
            self.images,
        )

    def accuracy(self, fit: Callable[[Moments, tuple[float, ...]], list[Head]], penalties: tuple[float, ...]) -> float:
        """Test accuracy, with the penalty that is best on held-out rows, then trained on these too.

        Penalties are tried upwards from the smallest until they get worse.
        """
        y = self.images.y[self.images.first_held_out :]
        best, top = penalties[0], -np.inf
        for penalty in penalties:
            reached = fit(self.train, (penalty,))[0].accuracy(self.B_held_out, y)
            if reached < top:
                break
            best, top = penalty, reached
        return fit(self.train + self.held_out, (best,))[0].accuracy(self.B_test, self.images.y_test)


def flat(X: Floats) -> Floats:
    """Images as rows of pixels."""
    return X.reshape(len(X), -1)


def trained(net: torch.nn.Module, X: Floats, y: Floats, rate: float = 1e-3, **how: Any) -> Descent:
    """Adam with a falling rate on batches of 128 rows."""
    return descend(net, X, y, optimiser="adam", rate=rate, batch_size=128, cosine=True, records=1, **how)


def outputs(net: torch.nn.Module, X: Floats) -> Floats:
    """Scores of new rows."""
    with torch.no_grad():
        return net(torch.as_tensor(X)).numpy()


def accuracy(scores: Floats, y: Labels) -> float:
    """Per cent of rows whose highest score is that of their class."""
    return 100.0 * float((scores.argmax(axis=1) == y).mean())


def on_pixels(images: Images, width: int, epochs: int) -> float:
    """Accuracy of Adam on the cross-entropy of the pixels, with weight decay."""
    X = flat(images.X)
    mean, scale = X.mean(axis=0), X.std()
    net = two_layer(X.shape[1], width, 10, bias=True).float()
    trained(net, (X - mean) / scale, images.y, beta=1e-4, loss="softmax", epochs=epochs)
    return accuracy(outputs(net, (flat(images.X_test) - mean) / scale), images.y_test)


@dataclass(frozen=True)
class Duel:
    """Convex training and Adam on one problem: accuracies, gap, neurons, and Adam's objective relative to ours."""

    convex: float
    adam: float
    gap: float
    neurons: int
    ratio: float


def duel(images: Images, beta: float, limit: float, epochs: int) -> Duel:
    """Both on the same rows, principal directions of the pixels, squared loss of the classes, beta and width."""
    directions = PCA(DIRECTIONS, random_state=0).fit(flat(images.X))
    Z, test = (directions.transform(flat(X)).astype(np.float64) for X in (images.X, images.X_test))
    scale, Y = np.sqrt((Z**2).sum(axis=1).mean()), np.eye(10)[images.y] - 0.1
    Z, test = Z / scale, test / scale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est = ReLURegressor(beta, tol=0.03, time_limit=limit, prove=False, random_state=0, fit_intercept=False).fit(
            Z, Y
        )
    width = est.n_neurons_
    run, _ = tuned(
        (3e-3, 1e-2, 3e-2),
        lambda rate: trained(two_layer(DIRECTIONS, width, 10, bias=True), Z, Y, rate, beta=beta, epochs=epochs),
    )
    ours, adam = (accuracy(scores, images.y_test) for scores in (est.predict(test), outputs(run.module, test)))
    return Duel(ours, adam, est.likely_gap_, width, run.objective / est.objective_)


def fitted(images: Images, count: int, **options: Any) -> ConvexRF:
    """Filters from the training images; fewer than asked for where patches repeat, and the table has the number."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*filters instead of", UserWarning)
        return ConvexRF(count, random_state=0, **options).fit(images.X)


def convex_rf(context: Context, name: str, images: Images, counts: list[int]) -> tuple[dict[int, float], float]:
    """Accuracies of ridge heads by the number of filters, and CPU seconds."""
    began = time.process_time()
    rf = fitted(images, counts[-1], **OPTIONS[name])
    features = Features.of(rf.transform, images)
    cells = features.B_test.shape[1] // rf.n_filters_
    accuracies = {}
    for count in sorted({min(count, rf.n_filters_) for count in counts}):
        columns = (np.arange(cells)[:, None] * rf.n_filters_ + np.arange(count)).ravel()
        some = features if count == rf.n_filters_ else features.take(columns)
        accuracies[count] = some.accuracy(ridge, RIDGES)
        context.log(f"{name}, {count} filters, ridge: {accuracies[count]:.2f}, {time.process_time() - began:.0f} CPU s")
    return accuracies, time.process_time() - began


def variants(name: str, images: Images, count: int) -> tuple[float, float, float]:
    """On few rows: Algorithm 2 as printed, the same with patches as filters, and our variant of it."""
    printed, patches = (
        Features.of(fitted(images, count, filters=filters, **PRINTED).transform, images).accuracy(lasso, LASSOS)
        for filters in ("extreme_points", "patches")
    )
    ours = Features.of(fitted(images, count, **OPTIONS[name]).transform, images).accuracy(ridge, RIDGES)
    return printed, patches, ours


def above(first: float, second: float, n: int) -> bool:
    """Whether an accuracy is higher by more than two standard errors of a difference on n test rows."""
    shares = np.array([first, second]) / 100.0
    return first - second > 200.0 * float(np.sqrt((shares * (1 - shares)).sum() / n))


@experiment(
    "004-table1-images",
    title="Accuracy on MNIST and CIFAR-10",
    claim="Convex beats backpropagation, and Convex-RF beats both, by almost 40 points on CIFAR-10.",
    paper="least squares, backpropagation, convex, Convex-RF: MNIST 86.04, 96.25, 96.94, 97.72; "
    "CIFAR-10 36.39, 41.57, 42.16, 80.28",
)
def run(context: Context) -> Outcome:
    """All four rows of the table on both sets, and how Convex-RF grows with its filters."""
    rows = context.pick(quick=1200, default=60_000)
    counts = {
        "mnist": context.pick(quick=[20, 40], default=[125, 250, 500], full=[500, 1000, 2000]),
        "cifar10": context.pick(quick=[20, 40], default=[200, 400, 800], full=[400, 800, 1600]),
    }
    few_rows, few = context.pick(quick=800, default=4000), context.pick(quick=20, default=200)
    part_rows, limit = context.pick(quick=500, default=3000, full=60_000), context.pick(quick=8.0, default=200.0)
    width, epochs = context.pick(quick=50, default=500), context.pick(quick=3, default=6)
    figure, axis = plt.subplots(figsize=(5, 3.8), layout="constrained")
    lines, best, missing, untested, beats, wins, lead = [], [], [], [], [], [], np.nan
    for name, paper in PAPER.items():
        try:
            arrays = context.data.images(name)
        except DataMissing:
            missing.append(NAMES[name])
            continue
        arrays = {key: value if key.startswith("X") else value.astype(np.int64) for key, value in arrays.items()}
        images = Images(*(arrays[key][:rows] for key in ("X_train", "y_train", "X_test", "y_test")))
        n = len(images.y_test)
        fair = duel(images.head(part_rows), BETAS[name], limit, context.pick(quick=40, default=80))
        context.log(f"{name}: {fair}")
        others = Features.of(flat, images).accuracy(ridge, RIDGES), on_pixels(images, width, epochs)
        accuracies, seconds = convex_rf(context, name, images, counts[name])
        top = accuracies[max(accuracies)]
        if fair.gap <= SOLVED:
            beats.append(above(fair.convex, fair.adam, n))
        else:
            untested.append(NAMES[name])
        wins.append(above(top, max(*others, fair.convex, fair.adam), n))
        lead = top - max(others[1], fair.convex) if name == "cifar10" else lead
        best.append(f"{NAMES[name]} {others[0]:.1f}, {others[1]:.1f}, {fair.convex:.1f}, {top:.1f} (Adam as convex: "
                    f"{fair.adam:.1f})")  # fmt: skip
        axis.semilogx(list(accuracies), list(accuracies.values()), "o-", label=NAMES[name])
        lines.append((
            f"{NAMES[name]} ({len(images.X)} rows)", *(f"{value:.1f}" for value in (*others, fair.convex, fair.adam)),
            f"{fair.gap:.2f}", fair.neurons, f"{fair.ratio:.3f}",
            ", ".join(f"{count}: {value:.1f}" for count, value in accuracies.items()),
            " / ".join(f"{value:.1f}" for value in variants(name, images.head(few_rows), few)), f"{seconds:.0f}",
            " / ".join(map(str, paper)),
        ))  # fmt: skip
        context.log(str(lines[-1]))
    if not lines:
        raise DataMissing("neither mnist nor cifar10 is here: give their folder with --data, or --download")
    axis.set(xlabel="filters", ylabel="test accuracy of Convex-RF (%)")
    axis.legend()
    context.save(figure, "004-table1-images.png")
    verdict = judge(*beats, *wins, *([] if np.isnan(lead) else [lead >= 35.0]))
    if verdict is Verdict.HOLDS and (missing or untested):
        verdict = Verdict.PARTLY
    return Outcome(
        verdict,
        ours="; ".join(best) + ("" if np.isnan(lead) else f"; Convex-RF leads by {lead:.1f} points on CIFAR-10"),
        sizes=f"convex, and Adam beside it, have {part_rows} rows and {DIRECTIONS} principal directions; Adam on "
        f"pixels has {width} neurons and {epochs} epochs; rows and filters of the others as in the table (the whole of "
        "CIFAR-10 has 50000 rows)"
        + (f"; not here: {', '.join(missing)}" if missing else "")
        + (f"; likely gap above {SOLVED:g}, convex against Adam not tested: {', '.join(untested)}" if untested else ""),
        details="Test accuracy in per cent; one is higher than another if it is by more than two standard errors. The "
        "paper trains convex and backpropagation on all pixels, with equally many neurons. Ours is on "
        f"{DIRECTIONS} principal directions of few rows, so the fair opponent is Adam on the same rows, inputs, "
        f"squared loss, beta (MNIST {BETAS['mnist']:g}, CIFAR-10 {BETAS['cifar10']:g}) and width, "
        "with its rate tuned on the objective; Adam on the pixels of all "
        "rows (cross-entropy, beta = 0.0001) is shown beside it. Convex-RF's lead is taken over the better of "
        "convex and Adam on pixels, as convex has few rows here. These betas are fixed, that of convex so that "
        "its gap becomes small; the penalties of least squares and of Convex-RF are chosen on held-out training "
        "rows. Our Convex-RF departs from Algorithm 2: a ridge head instead of l1, answers pooled in 3 x 3 cells, "
        "on MNIST no whitening, on CIFAR-10 averages instead of maxima. What counts is the one with the most "
        f"filters. 'Variants' has {few_rows} rows and {few} filters: Algorithm 2 as printed (whitened, maxima in "
        "quadrants, l1), the same with the patches themselves as filters, and ours. The paper's row is least "
        "squares / backpropagation / convex / Convex-RF.\n\n"
        + table(
            ["data", "least squares", "Adam, pixels", "convex", "Adam as convex", "likely gap of convex", "neurons",
             "Adam's objective / ours", "Convex-RF by filters", "variants", "CPU s of Convex-RF", "paper"],
            lines,
        ),
    )  # fmt: skip
