r"""The gated program on blocks of rows, its value, and its certificate.

.. math:: \min_{W, b} \; L\Big(\sum_i D_i M W_i + 1 b^T\Big) + \beta \sum_i \|W_i\|_F .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual.bounds.dual import best_scale, rounding
from bidual.programs.gated import block as on
from bidual.programs.gated.block import Setting
from bidual.programs.gated.shards import Shards


def group_norms(W: Array) -> FloatArray:
    r""":math:`\|W_i\|_F`, summed in double precision."""
    return np.sqrt(np.einsum("ijk,ijk->i", W, W, dtype=np.float64))


@dataclass(frozen=True)
class Point:
    """Weights with everything the solver knows about them.

    Attributes
    ----------
    W : ndarray, shape (P, p, C)
    intercept : ndarray, shape (C,)
    F : handle
        Outputs, on the blocks.
    objective : float
    G : ndarray, shape (P, p, C)
        Gradient of the loss.
    g : ndarray, shape (C,)
        Its gradient by the intercept.
    """

    W: Array
    intercept: FloatArray
    F: Any
    objective: float
    G: Array
    g: FloatArray


@dataclass(frozen=True)
class Bound:
    """A proven lower bound with the objective it goes with, and the dual constraint behind it."""

    objective: float
    value: float
    attained: float
    limit: float


@dataclass(frozen=True)
class LargeProblem:
    """Blocks of rows, in natural units, and how to train on them.

    Attributes
    ----------
    shards : Shards
    setting : Setting
        That of all blocks.
    beta : float
    fit_intercept : bool
    n_rows, n_features, n_outputs : int
        Features with the column of ones, if there is one.
    """

    shards: Shards
    setting: Setting
    beta: float
    fit_intercept: bool
    n_rows: int
    n_features: int
    n_outputs: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the weights."""
        return len(self.setting.gates), self.n_features, self.n_outputs

    def evaluate(self, W: Array, intercept: FloatArray) -> Point:
        """Objective and gradients, in the precision of the weights."""
        F = self.shards.map(on.outputs, W=W, intercept=intercept)
        value, G, g = self.shards.reduce(on.gradient, F)
        return Point(W, intercept, F, value + self.penalty(W), G, g)

    def penalty(self, W: Array) -> float:
        """Beta times the sum of norms."""
        return self.beta * float(group_norms(W).sum())

    def steering_bound(self, point: Point) -> float:
        """About what :meth:`certify` would find, from what is at hand."""
        worst = float(group_norms(point.G).max(initial=0.0))
        return float(self.shards.reduce(on.steering, point.F, c=min(1.0, self.beta / max(worst, 1e-300)))[0])

    def best_constant(self) -> FloatArray:
        """The intercept of the best network without weights."""
        b = np.zeros(self.n_outputs)
        if not self.fit_intercept:
            return b
        for _ in range(50):
            g, H = self.shards.reduce(on.slopes, intercept=b)
            step = np.linalg.lstsq(H, g)[0] if self.setting.loss.coupled else g / np.maximum(np.diag(H), 1e-300)
            move = np.clip(step, -1.0, 1.0)
            b = b - move
            if np.abs(move).max(initial=0.0) < 1e-9:
                break
        return b

    def certify(self, W: Array, intercept: FloatArray) -> Bound:
        """Objective and lower bound in double precision, with the rounding of all sums accounted for."""
        shards = self.shards
        W = W.astype(np.float64)
        F = shards.map(on.outputs, W=W, intercept=intercept)
        objective = shards.reduce(on.value, F)[0] + self.penalty(W)
        V = shards.map(on.dual_point, F)
        if self.fit_intercept:
            V = shards.map(on.centred, V, moments=shards.reduce(on.moments, V)[0])
        G, size = shards.reduce(on.constraint, V)
        worst = float(group_norms(G).max(initial=0.0))
        # Sums of n products of p terms each, in any order: relative to the sum of absolute values.
        eps = float(np.finfo(float).eps)
        limit = (1.0 + 64 * eps * self.n_features * self.n_outputs) * worst + 2 * (self.n_rows + 64) * eps * size

        spare = self.n_rows * (4 if self.fit_intercept else 1)  # sums of V are zero up to rounding of as many terms

        def value(c: float) -> float:
            dual, terms = shards.reduce(on.dual_value, V, c=c)
            return float(dual - rounding(terms, spare))

        c_max = self.beta / limit if limit > eps * size else 1.0
        best = best_scale(value, c_max * (1.0 - 8 * eps))
        return Bound(float(objective), value(best), worst, limit)
