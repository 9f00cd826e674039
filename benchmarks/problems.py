"""The named problems of the engine benchmark.

All of them: squared loss ``1/2 (f - y)^2``, mean over rows; no hidden bias and no output intercept. Real data is
standardised and gets a ones column, which is a feature like any other and regularised like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peers.common import FloatArray
from sklearn.datasets import load_breast_cancer, load_diabetes

#: Sizes of the planted problems.
PLANTED = [(200, 5), (500, 10), (1000, 20), (2000, 10)]
#: Files of the data folder: problem name -> file name.
REGRESSION_FILES = {"kin8nm": "reg_kin8nm", "boston": "reg_boston-housing", "bank32nh": "reg_bank32nh"}
CLASSIFICATION_FILES = {
    "sonar": "uci_conn-bench-sonar-mines-rocks",
    "ionosphere": "uci_ionosphere",
    "parkinsons": "uci_parkinsons",
}
MAX_ROWS = 2000


@dataclass(frozen=True, eq=False)
class Problem:
    """Minimise the mean of ``1/2 (f(x_i) - y_i)^2`` plus ``beta/2 (norm(W1)^2 + norm(W2)^2)``."""

    name: str
    X: FloatArray
    y: FloatArray
    beta: float

    @property
    def key(self) -> str:
        """Name and beta."""
        return f"{self.name}, beta {self.beta:g}"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.X.shape[0], self.X.shape[1]


def planted(n: int, d: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Gaussian rows, ten planted ReLU neurons scaled by ``1/sqrt(10)``, noise 0.1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    hidden, output = rng.standard_normal((d, 10)), rng.standard_normal(10)
    return X, np.maximum(X @ hidden, 0.0) @ output / np.sqrt(10.0) + 0.1 * rng.standard_normal(n)


def standardise(X: FloatArray) -> FloatArray:
    """Columns of mean zero and deviation one, constant ones left out, and a ones column at the end."""
    X = np.asarray(X, dtype=np.float64)
    deviation = X.std(axis=0)
    keep = deviation > 1e-12 * (np.abs(X).max(axis=0) + 1e-300)
    return np.column_stack([(X[:, keep] - X[:, keep].mean(axis=0)) / deviation[keep], np.ones(len(X))])


def _regression(name: str, X: FloatArray, y: FloatArray) -> Problem:
    X, y = X[:MAX_ROWS], np.asarray(y[:MAX_ROWS], dtype=np.float64)
    return Problem(name, standardise(X), (y - y.mean()) / y.std(), 0.01)


def _classification(name: str, X: FloatArray, y: FloatArray) -> Problem:
    return Problem(name, standardise(X), np.where(y == y.max(), 1.0, -1.0), 0.01)


def problems(data: Path) -> tuple[list[Problem], list[str]]:
    """All problems that can be made here, and a line for each one that cannot."""
    found = [Problem(f"planted {n}x{d}", *planted(n, d), beta) for n, d in PLANTED for beta in (0.01, 0.001)]
    found.append(_regression("diabetes", *load_diabetes(return_X_y=True, scaled=False)))
    found.append(_classification("breast_cancer", *load_breast_cancer(return_X_y=True)))
    missing = []
    for files, make in ((REGRESSION_FILES, _regression), (CLASSIFICATION_FILES, _classification)):
        for name, file in files.items():
            path = data / f"{file}.npz"
            if not path.exists():
                missing.append(f"{name}: skipped, no {path.name} in the data folder (--data)")
                continue
            with np.load(path) as stored:
                found.append(make(name, stored["X"], stored["y"]))
    return found, missing


def tiny() -> list[Problem]:
    """For the smoke test."""
    return [Problem("planted 100x4", *planted(100, 4), 0.01)]
