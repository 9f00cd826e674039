"""Linear heads on features that are too many to keep: least squares from their moments, read block by block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import ssyrk

Floats = NDArray[np.floating]


@dataclass
class Moments:
    """First and second moments of features B (n x p) and targets Y (n x C).

    Attributes
    ----------
    n : int
    features, targets : ndarray, shapes (p,) and (C,)
        Sums.
    G, R : ndarray, shapes (p, p) and (p, C)
        ``B^T B``, of which only the upper half is there, and ``B^T Y``.
    """

    n: int
    features: Floats
    targets: Floats
    G: Floats
    R: Floats

    @classmethod
    def of(cls, blocks: Iterable[tuple[Floats, Floats]]) -> Moments:
        """Read pairs of blocks of B and Y."""
        total: Moments | None = None
        for B, Y in blocks:
            B = np.ascontiguousarray(B, dtype=np.float32)
            G = ssyrk(1.0, B.T)  # B^T B without a copy, upper half
            if total is None:
                total = cls(0, 0.0, 0.0, np.zeros(G.shape, order="F"), 0.0)
            total.n += len(B)
            total.features = total.features + B.sum(axis=0, dtype=np.float64)
            total.targets = total.targets + Y.sum(axis=0, dtype=np.float64)
            total.G += G
            total.R = total.R + (B.T @ Y.astype(np.float32)).astype(np.float64)
        if total is None:
            raise ValueError("no blocks")
        return total

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.n + other.n,
            self.features + other.features,
            self.targets + other.targets,
            self.G + other.G,
            self.R + other.R,
        )

    def take(self, columns: NDArray[np.intp]) -> Moments:
        """Of some of the features; the columns must increase."""
        return Moments(self.n, self.features[columns], self.targets, self.G[np.ix_(columns, columns)], self.R[columns])

    def standardised(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Correlations of features and covariances with targets; means and scales of features; means of targets."""
        mean, target = self.features / self.n, self.targets / self.n
        G = self.G / self.n
        G -= np.outer(mean, mean)
        scale = np.sqrt(np.maximum(np.diag(G), 0.0))
        scale += 1e-3 * scale.max()  # features that hardly vary stay small
        G /= scale[:, None]
        G /= scale
        R = (self.R / self.n - np.outer(mean, target)) / scale[:, None]
        return G, R, mean, scale, target


@dataclass(frozen=True)
class Head:
    """A linear function of features."""

    coef: Floats
    intercept: Floats

    def scores(self, B: Floats) -> Floats:
        """Outputs for new rows of features."""
        return B @ self.coef.astype(np.float32) + self.intercept.astype(np.float32)

    def accuracy(self, B: Floats, y: Floats) -> float:
        """Per cent of rows whose highest score is that of their class."""
        return 100.0 * float((self.scores(B).argmax(axis=1) == y).mean())


def ridge(moments: Moments, penalties: Sequence[float]) -> list[Head]:
    """Least squares with ``penalty / 2 * sum of squares`` on standardised features, for each of the penalties."""
    G, R, mean, scale, target = moments.standardised()
    diagonal = np.diag(G).copy()
    heads = []
    for penalty in penalties:
        np.fill_diagonal(G, diagonal + penalty)
        coef = cho_solve(cho_factor(G), R) / scale[:, None]  # upper half: the default
        heads.append(Head(coef, target - mean @ coef))
    return heads


def lasso(moments: Moments, penalties: Sequence[float], steps: int = 300) -> list[Head]:
    """The same with ``penalty * l1 norm`` (004 Algorithm 2), by accelerated proximal gradients with restarts."""
    G, R, mean, scale, target = moments.standardised()
    G, R = (np.triu(G) + np.triu(G, 1).T).astype(np.float32), R.astype(np.float32)
    v = np.ones(len(G), dtype=np.float32)
    for _ in range(20):
        v = G @ (v / np.linalg.norm(v))
    length = 1.05 * float(np.linalg.norm(v))
    heads, W = [], np.zeros_like(R)
    for penalty in sorted(penalties, reverse=True):  # each from the one before
        Z, momentum = W, 1.0
        for _ in range(steps):
            step = Z - (G @ Z - R) / length
            new = np.sign(step) * np.maximum(np.abs(step) - penalty / length, 0.0)
            if np.vdot(Z - new, new - W) > 0:
                momentum = 1.0
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            Z = new + (momentum - 1.0) / following * (new - W)
            W, momentum = new, following
        coef = W.astype(np.float64) / scale[:, None]
        heads.append((penalty, Head(coef, target - mean @ coef)))
    by_penalty = dict(heads)
    return [by_penalty[penalty] for penalty in penalties]
