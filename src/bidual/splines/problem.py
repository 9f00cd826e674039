r"""Training a network with free biases on data on a line, and its dual.

.. math:: \min_{b, a, c} \; \sum_i w_i \ell\Big(b + \sum_k a_k (x_i - t_k)_+ + \sum_k c_k (t_k - x_i)_+, \; y_i\Big)
          + \beta \sum_k (\|a_k\| + \|c_k\|),

with one ramp of each kind at every distinct :math:`t_k = x_i` (004 Cor. 3.2, Theorem 5.2; A.7 Theorem 1 for vectors).
That no other kinks are needed shows in the dual,

.. math:: \max_V \; -L^*(-V) \quad \text{s.t.} \quad 1^T V = 0, \quad \Big\|\sum_i v_i (x_i - t)_+\Big\| \le \beta,
          \quad \Big\|\sum_i v_i (t - x_i)_+\Big\| \le \beta \quad \text{for all } t:

as functions of t the two sums are linear between neighbouring data points, hence their norms convex there and largest
at data points; beyond the data they are zero or, as :math:`1^T V = 0`, constant. So the largest value of the dual
constraint over *all* neurons is a maximum over n numbers, found exactly by two cumulative sums.

**The norm as one of functions.** Let the spline have slopes :math:`d_1, \dots, d_{N-1}` between the data points and
:math:`S = \sum_k |d_{k+1} - d_k|`. With one output the smallest penalty of a network that computes it on the data is

.. math:: \max\Big(S, \; \tfrac12 \big(S + |d_1 + d_{N-1}|\big)\Big).

This is the larger of the total variation of the slope and |left slope + right slope| of a function on the whole line,
minimised over how it goes on beyond the data: a straight line costs its slope once, as one ramp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bidual._util.typing import FloatArray, IntArray
from bidual.atoms import Atoms, Neurons, Relu
from bidual.bounds import Bound, lower_bound
from bidual.bounds.dual import Centring, certain_value
from bidual.bounds.proof import Proof
from bidual.losses import Loss
from bidual.problem import Problem

_EPS = float(np.finfo(float).eps)
_LONG = float(np.finfo(np.longdouble).eps)


@dataclass(frozen=True)
class LineAtoms(Atoms):
    """Neurons with free biases on sorted rows on a line: M is their coordinate, with the middle at zero.

    Attributes
    ----------
    away : ndarray, shape (n,)
        Distances of the rows from the line, relative to the length of the data.
    """

    away: FloatArray = field(kw_only=True)

    def hidden_of(self, neurons: Neurons) -> FloatArray:
        return np.maximum(self.M @ neurons.U[:, :1].T + neurons.U[:, 1], 0.0)

    def norm_limit(self, V: FloatArray) -> float:
        """None: ramps that begin far away are as large as one likes."""
        return np.inf


@dataclass(frozen=True)
class KinkProof(Proof):
    """The constraint at every data point, where it is largest: nothing needs to be stored."""

    kind = "kinks"

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The largest value, with slack."""
        ramps = problem.of(LineAtoms)
        if ramps is None:
            raise ValueError("a proof by kinks is about networks with free biases on rows on a line")
        return SplineProblem.of(ramps).limit(V)


#: Why the largest value at the data points is the largest of all, and in words.
KINKS = KinkProof()
METHOD = "a kink at every data point priced"


@dataclass(frozen=True)
class SplineProblem:
    """Rows sorted by their coordinate, in natural units (:mod:`bidual.training.units`).

    Attributes
    ----------
    x : ndarray, shape (n,)
    Y : ndarray, shape (n, C)
    w : ndarray, shape (n,)
        Positive, with sum one.
    loss : Loss
    beta : float
    away : ndarray, shape (n,)
        Distances of the rows from the line, and from where they are without rounding.
    """

    x: FloatArray
    Y: FloatArray
    w: FloatArray
    loss: Loss
    beta: float
    away: FloatArray

    @classmethod
    def of(cls, problem: Problem[LineAtoms]) -> SplineProblem:
        """A problem in natural units in the form that splines are trained in."""
        x = problem.atoms.M[:, 0]
        away = problem.atoms.away * float(x[-1] - x[0]) + 2 * _EPS * np.abs(x)
        return cls(x, problem.Y, problem.w, problem.loss, problem.beta, away)

    @cached_property
    def nodes(self) -> IntArray:
        """The first row at each distinct x."""
        return np.unique(self.x, return_index=True)[1]

    @property
    def n_outputs(self) -> int:
        """C."""
        return int(self.Y.shape[1])

    @cached_property
    def dense(self) -> Problem:
        """The same loss on the same rows, for what is not special to splines."""
        return Problem(Relu(self.x[:, None]), self.Y, self.w, self.loss, self.beta, fit_intercept=True)

    def constraint(self, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Norms of the dual constraint of the ramps to the right and to the left of every node, ``(N,)`` each."""
        v = np.add.reduceat(V.astype(np.longdouble), self.nodes, axis=0)
        spacing = np.diff(self.x[self.nodes]).astype(np.longdouble)[:, None]
        zero = np.zeros((1, self.n_outputs), dtype=np.longdouble)
        from_left = np.concatenate([zero, np.cumsum(spacing * np.cumsum(v, axis=0)[:-1], axis=0)])
        flipped = np.cumsum(v[::-1], axis=0)[:-1]
        from_right = np.concatenate([zero, np.cumsum(spacing[::-1] * flipped, axis=0)])[::-1]
        return _norms(from_right), _norms(from_left)

    def slack(self, V: FloatArray) -> float:
        """What rounding, the distance of rows from the line and a sum of V that is not quite zero may have hidden."""
        reach = float(self.x[-1] - self.x[0])
        size = float(np.linalg.norm(V, axis=1).sum())
        rounding = (4 * len(V) * _LONG + 8 * _EPS) * reach * size
        return rounding + self.remainder(V) * reach + float(np.linalg.norm(V, axis=1) @ self.away)

    def remainder(self, V: FloatArray) -> float:
        r""":math:`\|1^T V\|`, exactly rounded: what one row would have to give for the sum to be zero."""
        return math.hypot(*(math.fsum(column) for column in V.T))

    def limit(self, V: FloatArray) -> float:
        """An upper bound on the dual constraint at V."""
        return float(np.maximum(*self.constraint(V)).max(initial=0.0)) + self.slack(V)

    def bound(self, V: FloatArray, *, exact: bool = True) -> tuple[Bound, FloatArray]:
        """The lower bound that ``V`` proves (after moving it into the domain), and the dual constraint at the nodes.

        Unless ``exact`` the best multiple of V is not searched for.
        """
        V = self.loss.dual_point(V, self.Y, self.w, centred=True)
        values = np.maximum(*self.constraint(V))
        largest, limit = float(values.max(initial=0.0)), self.limit(V)
        if exact:
            return lower_bound(self.dense, V, largest, limit, KINKS), values
        c = min(1.0, self.beta / limit) if limit > 0 else 1.0
        value = certain_value(self.dense, c * V, Centring.of(self.dense, V).scaled(c))
        return Bound(value, V, largest, limit, KINKS, c), values


def spline_norm(slopes: FloatArray) -> float:
    """The smallest penalty of a network with these slopes ``(N - 1,)`` between the data points."""
    if not len(slopes):
        return 0.0
    variation = float(np.abs(np.diff(slopes)).sum())
    return max(variation, 0.5 * (variation + abs(float(slopes[0] + slopes[-1]))))


def _norms(u: FloatArray) -> FloatArray:
    return np.sqrt((u**2).sum(axis=1)).astype(np.float64)
