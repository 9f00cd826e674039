"""Two-layer networks with batch normalisation on CIFAR-10, by SGD and by convex programs: 000 Fig. 4 and A.5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual import BatchNorm, ReLURegressor
from bidual.architectures import truncate
from reproductions.descent import Descent, descend, two_layer
from reproductions.framework import Context, timed
from reproductions.normalised import accuracy, images, scores, train_bn, watched

RANK = 0.95  # of the variance, as in the paper
RATES = {"sgd": (0.004, 0.02, 0.04), "adam": (2e-4, 1e-3, 2e-3)}  # 1 : 5 : 10 as in the paper
BARE_RATES = (0.03, 0.1, 0.3)  # without batch normalisation
CONVEX = {"Convex": BatchNorm(), "Convex-Truncated": BatchNorm(rank=RANK), "Convex, no BN": "two_layer"}


@dataclass(frozen=True)
class Convex:
    """What the convex program of a network found: accuracies in per cent, CPU seconds."""

    objective: float
    gap: float
    train: float
    test: float
    seconds: float


class Cifar:
    """The data, and every network on them trained once; use :func:`cifar`."""

    def __init__(self, context: Context) -> None:
        self.context, pick = context, context.pick
        self.n, pixels = pick(quick=1000, default=5000, full=50_000), pick(quick=8, default=16, full=32)
        self.m, self.epochs = pick(quick=100, default=200, full=4096), pick(quick=60, default=240, full=500)
        self.n_test, self.batch = pick(quick=3000, default=5000, full=10_000), pick(quick=200, default=1000)
        self.X, self.y, self.X_test, self.y_test = images(context, 10, self.n, self.n_test, pixels)
        self.n, self.n_test = len(self.X), len(self.X_test)  # there may be fewer
        self.beta = pick(quick=5e-4, default=2e-4, full=1e-4 / self.n)
        self.X_truncated = truncate(self.X, RANK)
        self._runs: dict[Any, Any] = {}

    def sgd(
        self, truncated: bool = False, *, rate: float, optimiser: str = "sgd", batch: int = 0, times: int = 1
    ) -> Descent:
        """A run at a constant rate, ``times`` as long as the others."""
        key = truncated, rate, optimiser, batch or self.batch, times
        if key not in self._runs:
            rows = self.X_truncated if truncated else self.X
            self._runs[key] = train_bn(
                rows, self.y, beta=self.beta, m=self.m, rate=rate, optimiser=optimiser, epochs=times * self.epochs,
                batch_size=batch or self.batch, records=20 * times,
                watch={"train": (rows, self.y), "test": (self.X_test, self.y_test)},
            )  # fmt: skip
            self._log(f"{key}", self._runs[key])
        return self._runs[key]

    def bare(self, rate: float) -> Descent:
        """A run without batch normalisation, on centred rows."""
        mean = self.X.mean(axis=0)
        run = descend(
            two_layer(self.X.shape[1], self.m, 10).float(), self.X - mean, np.eye(10)[self.y], beta=self.beta,
            rate=rate, momentum=0.9, epochs=self.epochs, batch_size=self.batch, records=20,
            watch=lambda module: {
                "train": accuracy(scores(module, self.X - mean), self.y),
                "test": accuracy(scores(module, self.X_test - mean), self.y_test),
            },
        )  # fmt: skip
        self._log(f"no BN, {rate:g}", run)
        return run

    def convex(self, name: str) -> Convex:
        """The convex program of this name; on centred rows, which matters only without batch normalisation."""
        if name not in self._runs:
            mean, limit = self.X.mean(axis=0), self.context.pick(quick=3.0, default=60.0, full=3600.0)
            fit = ReLURegressor(
                self.beta, architecture=CONVEX[name], fit_intercept=False, tol=1e-2, time_limit=limit, random_state=0
            )
            _, _, spent = timed(lambda: fit.fit(self.X - mean, np.eye(10)[self.y]))
            train = accuracy(fit.predict(self.X - mean), self.y)
            test = accuracy(fit.predict(self.X_test - mean), self.y_test)
            self._runs[name] = Convex(fit.objective_, fit.likely_gap_, train, test, spent)
            self.context.log(f"{name}: {self._runs[name]}")
        return self._runs[name]

    def _log(self, name: str, run: Descent) -> None:
        test = watched(run, "test")
        self.context.log(f"{name}: {run.objective:.4f}, test {test[-1]:.1f}, best {test.max():.1f}, "
                         f"{run.cpu_seconds[-1]:.1f} s")  # fmt: skip

    @property
    def sizes(self) -> str:
        """What differs from the paper."""
        return (
            f"n = {self.n} (50000), d = {self.X.shape[1]} (3072, pixels averaged), m = {self.m} (4096), {self.epochs} "
            f"epochs (501), batches of {self.batch} (1000), beta = {self.beta:g} of the mean loss ({1e-4 / self.n:g}: "
            f"1e-4 of the sum), {self.n_test} test rows; CIFAR-10 only, as CIFAR-100 is not here"
        )


def cifar(context: Context) -> Cifar:
    """The same for all experiments of one command."""
    if "000-cifar" not in context.shared:
        context.shared["000-cifar"] = Cifar(context)
    found: Cifar = context.shared["000-cifar"]
    found.context = context
    return found


def chosen(runs: dict[float, Descent]) -> tuple[Descent, float]:
    """As in the paper: the rate with the best test accuracy at the end."""
    rate = max(runs, key=lambda rate: watched(runs[rate], "test")[-1])
    return runs[rate], rate
