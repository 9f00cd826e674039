r"""Training in natural units, whatever the units of the data.

With :math:`M = s M'`, :math:`Y = t Y' + c` and a loss of the residual with
:math:`\ell(tf, ty) = t^p \ell'(f, y)`, a network :math:`(U', \alpha', b')` on the scaled data stands for
:math:`(U'/s, t \alpha', t b' + c)` on the original ones, and

.. math:: L(F) + \beta \sum_j \|u_j\| \|\alpha_j\| = t^p \Big( L'(F') + \beta' \sum_j \|u'_j\| \|\alpha'_j\| \Big),
          \qquad \beta' = \beta \, t^{1-p} / s.

Solvers therefore always see features of mean square norm one and targets of mean square one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bidual._util.typing import FloatArray
from bidual.atoms import GatedNeurons, Neurons
from bidual.bounds import Bound
from bidual.losses import Loss
from bidual.problem import KindT, Problem
from bidual.solvers.base import HistoryEntry, Solution


@dataclass(frozen=True)
class Units:
    """The scales s, t and shift c of a problem, and the way there and back."""

    inputs: float
    outputs: float
    shift: FloatArray
    power: int
    loss: Loss

    @classmethod
    def of(cls, problem: Problem) -> Units:
        """Units in which the problem is of order one."""
        rows = problem.atoms.row_norms
        inputs = _root_mean_square(rows, np.full(len(rows), 1.0 / len(rows)))
        return cls.of_targets(inputs, problem.Y, problem.w, problem.loss, problem.fit_intercept)

    @classmethod
    def of_targets(cls, inputs: float, Y: FloatArray, w: FloatArray, loss: Loss, fit_intercept: bool) -> Units:
        """Units for rows of root mean square norm ``inputs`` and targets ``Y (n, C)``."""
        still = cls(inputs, 1.0, np.zeros(Y.shape[1]), 0, loss)
        shift = np.zeros(Y.shape[1])
        if fit_intercept:  # a constant column is shifted to exact zeros
            shift = np.where(np.ptp(Y, axis=0) > 0, w @ Y, Y[0])
        outputs = _root_mean_square(Y - shift, w)
        scaled = loss.rescaled(outputs)
        if scaled is None:
            return still
        return cls(inputs, outputs, shift, scaled[1], scaled[0])

    @property
    def value(self) -> float:
        """What an objective in these units is multiplied with."""
        return float(self.outputs**self.power)

    def normalise(self, problem: Problem[KindT]) -> Problem[KindT]:
        """The same problem in these units."""
        return replace(
            problem,
            atoms=replace(problem.atoms, M=problem.atoms.M / self.inputs),
            Y=(problem.Y - self.shift) / self.outputs,
            loss=self.loss,
            beta=self.normalise_beta(problem.beta),
        )

    def normalise_beta(self, beta: float) -> float:
        """Weight decay in these units."""
        return beta * self.outputs ** (1 - self.power) / self.inputs

    def normalise_neurons(self, neurons: Neurons | GatedNeurons) -> Neurons | GatedNeurons:
        """Neurons of the original problem in these units."""
        return neurons.in_units(1.0 / self.inputs, 1.0 / self.outputs, -self.shift / self.outputs)

    def restore(self, solution: Solution) -> Solution:
        """A solution of the normalised problem as one of the original problem."""
        return replace(
            solution,
            neurons=solution.neurons.in_units(self.inputs, self.outputs, self.shift).balanced(),
            bound=self.restore_bound(solution.bound),
            history=self.restore_history(solution.history),
        )

    def restore_history(self, history: list[HistoryEntry]) -> list[HistoryEntry]:
        """The same with the objectives and bounds of the original problem."""
        return [
            replace(h, objective=h.objective * self.value, likely_bound=h.likely_bound * self.value) for h in history
        ]

    def restore_bound(self, bound: Bound) -> Bound:
        """A bound on the normalised problem as one on the original problem."""
        value, slope = self.value, self.outputs ** (self.power - 1)
        return replace(
            bound,
            value=bound.value * value,
            V=bound.V * slope,
            attained=bound.attained * slope * self.inputs,
            limit=bound.limit * slope * self.inputs,
        )


def _root_mean_square(values: FloatArray, w: FloatArray) -> float:
    """Weighted root mean square, safe from overflow; one for zeros."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return 1.0
    return largest * float(np.sqrt(w @ ((values / largest).reshape(len(w), -1) ** 2).sum(axis=1)))
