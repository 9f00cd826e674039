"""Rows as training sees them: the distinct ones, with their weights, and those too faint to be seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from bidual._util.data import normalise_weights
from bidual._util.sparse import is_sparse, row_keys
from bidual._util.typing import Array, BoolArray, FloatArray, IntArray
from bidual.losses import Loss
from bidual.networks import Network

#: Rows of less than this share of the largest weight count in the objective, but not in training.
FAINT = 1e-30


@dataclass(frozen=True)
class Faint:
    """Rows whose weight is lost in rounding beside the others (:data:`FAINT`): no solver sees them.

    Leaving them out can only lower the optimum, so that lower bounds hold with and without them.

    Attributes
    ----------
    X, Y : ndarray, shape (k, ...), (k, C)
    w : ndarray, shape (k,)
        Weights, where those of all rows sum to one.
    """

    X: FloatArray
    Y: FloatArray
    w: FloatArray

    @classmethod
    def of(cls, X: FloatArray, Y: FloatArray, weights: FloatArray, exact: bool) -> Faint:
        """Those of the data, with ``weights (n, targets of a sample)``; an ``exact`` fit cannot do without them."""
        largest = weights.max(axis=1)
        rows = (largest > 0) & (largest <= FAINT * weights.max())
        if exact and rows.any():
            raise ValueError(
                f"beta=0 asks for an exact fit of every row, and some weigh less than {FAINT:g} of the others: give "
                "them weight zero to leave them out"
            )
        targets = Y.reshape(*weights.shape, Y.shape[1])[rows]
        return cls(X[rows], targets.reshape(-1, Y.shape[1]), (weights[rows] / weights.sum()).ravel())

    def loss(self, network: Network, loss: Loss) -> float:
        """What they add to the loss of a network."""
        return loss.value(network.evaluate(self.X), self.Y, self.w) if len(self.w) else 0.0


@dataclass(frozen=True)
class Rows:
    """The distinct samples of the data, in a canonical order.

    Attributes
    ----------
    X : ndarray, shape (n, d)
        Images and sequences have more axes; sparse rows stay sparse.
    Y : ndarray, shape (n, C)
        Encoded targets; several rows for each sample, where it has outputs at several places.
    counts : ndarray
        Sums of the weights of those that are equal.
    faint : Faint
        Rows that count in the objective only.
    """

    X: FloatArray
    Y: FloatArray
    counts: FloatArray
    faint: Faint

    @classmethod
    def of(cls, X: FloatArray, Y: FloatArray, sample_weight: Array | None, *, exact: bool = False) -> Rows:
        """Those of the data; ``exact`` says whether all of them have to be fitted exactly."""
        weights = _weights(sample_weight, X.shape[0], len(Y))
        faint = Faint.of(X, Y, weights, exact)
        return cls(*distinct_rows(X, Y, weights), faint)

    @property
    def w(self) -> FloatArray:
        """Weights that sum to one."""
        return self.counts / self.counts.sum()


def distinct_rows(X: FloatArray, Y: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Training samples in a canonical order, equal ones taken together, with the sums of their weights.

    Rows of weight zero, or lost in rounding beside the others, are left out: they must not even influence which
    patterns there are. Repeating a row, giving it more weight, and reordering rows thus lead to the same digits.
    """
    n = len(weights)
    used = weights.max(axis=1) > FAINT * weights.max()
    if not (weights[used] > FAINT * weights.max()).all():
        raise ValueError("the places of a sample must all have weight, or none of them (a class_weight of zero?)")
    samples = X[used] if is_sparse(X) else X[used].reshape(int(used.sum()), -1) + 0.0  # -0.0 equals 0.0
    targets = Y.reshape(n, -1)[used] + 0.0
    order, new = row_order(samples, targets)
    summed: FloatArray = np.zeros((int(new.sum()), weights.shape[1]))
    np.add.at(summed, np.cumsum(new) - 1, weights[used][order])
    first = order[new]
    distinct = samples[first] if is_sparse(X) else samples[first].reshape(len(first), *X.shape[1:])
    return distinct, targets[first].reshape(-1, Y.shape[1]), summed.ravel()


def row_order(*tables: FloatArray) -> tuple[IntArray, BoolArray]:
    """The lexicographic order of the rows of tables side by side, and which of them begin another row in that order.

    Column by column, among the rows that are equal so far, which soon are few.
    """
    order = np.arange(tables[0].shape[0])
    new = np.zeros(len(order), dtype=bool)
    new[:1] = True
    for column in chain.from_iterable(map(_columns, tables)):
        tied = ~new | ~np.append(new[1:], True)  # rows that equal a neighbour
        if not tied.any():
            break
        group, rows = np.cumsum(new)[tied], order[tied]
        among = np.lexsort((column[rows], group))  # stable
        order[tied] = rows[among]
        values = column[order[tied]]
        new[tied] |= np.append(True, (values[1:] != values[:-1]) | (group[1:] != group[:-1]))
    return order, new


def _columns(table: FloatArray) -> Iterable[FloatArray]:
    """What is compared of its rows, one after the other."""
    return row_keys(table) if is_sparse(table) else table.T


def _weights(sample_weight: Array | None, n: int, n_targets: int) -> FloatArray:
    """Weights of the targets of ``n`` samples, ``(n, n_targets / n)``; ValueError for weights that cannot be."""
    weights = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    normalise_weights(weights, n if len(weights) == n else n_targets)
    return np.tile(weights.reshape(n, -1), (1, n_targets // len(weights)))
