"""004 Table 1, the columns without images: least squares, backpropagation and convex training on real data."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler

from bidual import ReLURegressor
from reproductions.data import Data, DataMissing
from reproductions.descent import descend, two_layer
from reproductions.framework import Context, Outcome, Verdict, experiment

Floats = NDArray[np.floating]

#: The paper's errors by data set: least squares, backpropagation, convex.
PAPER = {
    "Bank": (0.9258, 0.6440, 0.5534),
    "Boston": (0.3490, 0.1612, 0.1492),
    "California": (0.8158, 0.8101, 0.6344),
    "Elevators": (0.5793, 0.4021, 0.3757),
    "News20": (1.0000, 0.8304, 0.8043),
    "Stock": (1.0697, 0.8684, 0.6184),
}
FILES = {
    "Bank": "reg_bank32nh",
    "Boston": "reg_boston-housing",
    "California": "reg_california-housing",
    "Elevators": "reg_elevators",
    "Stock": "reg_stock",
}
BETAS = (3e-2, 1e-2, 3e-3, 1e-3)
#: Principal directions of the words of News20.
TOPICS = 50


@dataclass(frozen=True)
class Split:
    """Standardised rows for training and for the test; several targets for classes."""

    X: Floats
    Y: Floats
    X_test: Floats
    Y_test: Floats

    def error(self, predict: Callable[[Floats], Floats]) -> float:
        """Squared test error, relative to that of the mean of the training targets."""
        F = np.asarray(predict(self.X_test)).reshape(self.Y_test.shape)
        return float(((F - self.Y_test) ** 2).sum() / (self.Y_test**2).sum())

    def head(self, rows: int) -> Split:
        """Trained on the first rows only."""
        return Split(self.X[:rows], self.Y[:rows], self.X_test, self.Y_test)

    def held_out(self) -> Split:
        """The training rows alone, a quarter of them for choosing beta."""
        k = 3 * len(self.X) // 4
        return Split(self.X[:k], self.Y[:k], self.X[k:], self.Y[k:])


def regression(data: Data, name: str) -> Split:
    """Four fifths of the rows, at random, for training."""
    arrays = data.load(FILES[name])
    order = np.random.RandomState(0).permutation(len(arrays["X"]))
    X, y = arrays["X"][order].astype(float), arrays["y"][order].astype(float)[:, None]
    k = len(X) // 5
    inputs, targets = StandardScaler().fit(X[k:]), StandardScaler().fit(y[k:])
    X, y = inputs.transform(X), targets.transform(y)
    return Split(X[k:], y[k:], X[:k], y[:k])


def news(data: Data) -> Split:
    """Word counts, weighted (tf-idf) and projected on their principal directions; one target for each of 20 classes."""
    arrays = data.load("20newsgroups")
    parts = [
        sp.csr_array(
            (arrays[f"{part}_data"].astype(float), arrays[f"{part}_indices"], arrays[f"{part}_indptr"]),
            shape=tuple(arrays[f"{part}_shape"]),
        )
        for part in ("train", "test")
    ]
    words = TfidfTransformer(sublinear_tf=True).fit(parts[0])
    topics = TruncatedSVD(TOPICS, random_state=0).fit(words.transform(parts[0]))
    X, X_test = (topics.transform(words.transform(part)) for part in parts)
    Y, Y_test = (np.eye(20)[arrays[key]] for key in ("y_train", "y_test"))
    scale, mean = np.sqrt((X**2).mean()), Y.mean(axis=0)
    return Split(X / scale, Y - mean, X_test / scale, Y_test - mean)


def splits(context: Context) -> Iterator[tuple[str, Split]]:
    """The data sets that are here."""
    for name in PAPER:
        try:
            yield name, news(context.data) if name == "News20" else regression(context.data, name)
        except DataMissing as missing:
            context.log(str(missing))


def convex(split: Split, beta: float, tol: float, limit: float) -> ReLURegressor:
    """The engine of the library, at the gap it reaches in this time (which the table states)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est = ReLURegressor(beta, tol=tol, time_limit=limit, random_state=0, fit_intercept=False)
        return est.fit(split.X, split.Y if split.Y.shape[1] > 1 else split.Y[:, 0])


def backpropagation(split: Split, beta: float, width: int, steps: int) -> tuple[Callable[[Floats], Floats], float]:
    """Adam on the same objective, on batches of 128 rows: its predictions and its objective."""
    net = two_layer(split.X.shape[1], width, split.Y.shape[1], bias=True)
    epochs = max(10, steps * 128 // len(split.X))
    run = descend(
        net, split.X, split.Y, beta=beta, optimiser="adam", rate=3e-3, epochs=epochs, batch_size=128, cosine=True,
        records=1,
    )  # fmt: skip

    def predict(X: Floats) -> Floats:
        with torch.no_grad():
            return net(torch.as_tensor(X)).numpy()

    return predict, run.objective


@experiment(
    "004-table1",
    title="Test errors on regression sets and on News20",
    claim="Convex training has a lower test error than backpropagation and than least squares, on every set.",
    paper="lowest in all columns (convex, backpropagation, least squares: Bank .55, .64, .93; Stock .62, .87, 1.07)",
)
def run(context: Context) -> Outcome:
    """Train each set by the three methods, beta chosen for each on held-out training rows."""
    rows = context.pick(quick=300, default=3000, full=20_000)
    search = context.pick(quick=200, default=1000, full=4000)
    limit = context.pick(quick=5.0, default=60.0, full=600.0)
    width, steps = context.pick(quick=50, default=200), context.pick(quick=300, default=3000, full=20_000)
    table, won, lower = [], [], []
    for name, whole in splits(context):
        split, pilot = whole.head(rows), whole.head(search).held_out()
        began = time.process_time()
        tuned = min(BETAS, key=lambda b: pilot.error(convex(pilot, b, 0.05, limit / 4).predict))
        est = convex(split, tuned, 0.01, limit)
        seconds = time.process_time() - began
        tuned_adam = min(BETAS, key=lambda b: pilot.error(backpropagation(pilot, b, width, steps // 2)[0]))
        adam, _ = backpropagation(split, tuned_adam, width, steps)
        _, adam_objective = backpropagation(split, tuned, width, steps)
        errors = [split.error(f) for f in (LinearRegression().fit(split.X, split.Y).predict, adam, est.predict)]
        won.append(errors[2] <= min(errors[:2]))
        lower.append(est.objective_ <= adam_objective)
        cells = [f"{e:.4f}" for e in errors]
        table.append(
            f"| {name} | {len(split.X)} x {split.X.shape[1]} | {' | '.join(cells)} | "
            f"{' / '.join(f'{e:.4f}' for e in PAPER[name])} | {tuned:g} | {est.objective_:.5f} (gap {est.gap_:.0e}) | "
            f"{adam_objective:.5f} | {est.n_neurons_} | {seconds:.0f} |"
        )
        context.log(table[-1])
    if not table:
        raise DataMissing("none of the data sets of this table is here: give their folder with --data")
    verdict = Verdict.HOLDS if all(won) else Verdict.PARTLY if any(won) else Verdict.FAILS
    notes = (
        "Errors are squared errors on the test rows, relative to predicting the mean. The paper says neither how its "
        "errors are scaled nor which rows it trains on, and its least squares is far from ours on the same files "
        "(California .82 against .37), so only the order within a row can be compared. Bank is bank32nh. The last "
        "columns are training objectives at the same beta: ours with its gap, and Adam's."
    )
    header = "| data | rows | least squares | Adam | convex | paper | beta | objective | Adam's | neurons | CPU s |"
    return Outcome(
        verdict,
        ours=f"lowest test error on {sum(won)} of {len(won)} sets; training objective below Adam's on {sum(lower)}",
        sizes=f"at most {rows} training rows, {width} neurons for Adam, {limit:g} s for a fit",
        details="\n".join([notes, "", header, "|" + "---|" * 11, *table]),
    )
