"""Smooth stand-ins for losses with kinks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bidual._util.typing import FloatArray
from bidual.losses import DualBox, Loss
from bidual.problem import Problem


def output_scale(problem: Problem) -> float:
    """A typical size of the outputs: one for classes, the spread of the targets otherwise."""
    if problem.loss.classification:
        return 1.0
    centre = problem.w @ problem.Y if problem.fit_intercept else 0.0
    return float(np.sqrt(problem.w @ ((problem.Y - centre) ** 2).sum(axis=1))) or 1.0


def first_epsilon(problem: Problem) -> float:
    """How much a loss with kinks is smoothed at first; zero for one without."""
    return 0.0 if problem.loss.smooth else 0.1 * output_scale(problem)


def sharper(epsilon: float, gap: float, objective: float, tol: float) -> float:
    """The next, smaller one: the smoothing must not be what limits the gap."""
    # once the smoothed problem is solved the gap is about epsilon / 2; less smoothing before is only slower
    return max(min(epsilon, 0.5 * gap * objective), 0.2 * tol * objective)


def smoothed(loss: Loss, epsilon: float) -> Loss:
    """The loss smoothed by ``epsilon``; itself if that is zero, or if it has no kinks."""
    return loss if loss.smooth or not epsilon else SmoothedLoss(loss, epsilon)


class SmoothedLoss(Loss):
    r"""The Moreau envelope of a loss with a dual box without curvature (absolute, quantile, hinge).

    The conjugate gains :math:`\tfrac\epsilon2 \|v\|^2`, so that the gradient is the point of the box nearest to
    :math:`(f - y) / \epsilon` (with a threshold, of what is beyond it), and the value is below that of the loss by at
    most :math:`\epsilon / 2` times the largest :math:`\|v\|^2`.
    """

    smooth: ClassVar[bool] = True

    def __init__(self, base: Loss, epsilon: float) -> None:
        self.base, self.epsilon = base, float(epsilon)
        self.lipschitz = 1.0 / self.epsilon  # type: ignore[misc]
        self.full_domain = base.full_domain  # type: ignore[misc]

    def rows(self, F: FloatArray, Y: FloatArray) -> FloatArray:  # noqa: D102
        box = self._box(Y)
        V = box.slopes(F - Y, self.epsilon)
        return np.asarray((V * (F - Y) - box.threshold * np.abs(V) - 0.5 * self.epsilon * V**2).sum(axis=1))

    def row_gradients(self, F: FloatArray, Y: FloatArray) -> FloatArray:  # noqa: D102
        return self._box(Y).slopes(F - Y, self.epsilon)

    def row_curvatures(self, F: FloatArray, Y: FloatArray) -> FloatArray:  # noqa: D102
        box, E = self._box(Y), F - Y
        beyond = np.abs(E) - box.threshold
        curved = (beyond >= 0) & (np.abs(box.slopes(E, self.epsilon)) == beyond / self.epsilon)
        return np.where(curved, 1.0 / self.epsilon, 0.0)

    def row_conjugates(self, V: FloatArray, Y: FloatArray) -> FloatArray:  # noqa: D102
        return self.base.row_conjugates(V, Y) + 0.5 * self.epsilon * (V**2).sum(axis=1)

    def clip_rows(self, V: FloatArray, Y: FloatArray) -> FloatArray:  # noqa: D102
        return self.base.clip_rows(V, Y)

    def _box(self, Y: FloatArray) -> DualBox:
        box = self.base.dual_box(Y)
        if box is None:
            raise TypeError(
                f"the loss {self.base.name!r} has neither a dual box nor curvature: give it dual_box, or smooth=True "
                "and row_curvatures"
            )
        return box
