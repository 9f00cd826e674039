r"""Norms in the interior point method of :mod:`bidual.programs.outputs_corrective`.

A group of output weights a costs :math:`\beta s` with :math:`\|a\| \le s`; its dual variable is :math:`(\beta, y)` with
:math:`\|y\| \le \beta`, and :math:`(s, a) \circ (\beta, y) = \mu e` on the central path. Steps are scaled as Nesterov
and Todd do, :math:`W^{-2} = \eta^{-2} (2 (Jw)(Jw)^T - J)`, and s is eliminated: what is left is, for each group, a
multiple of the identity less one rank.
"""

from __future__ import annotations

import numpy as np

from bidual._util.typing import FloatArray

#: How far out the dual variables start at most.
_INSIDE = 0.95


def longest_in_cones(s: FloatArray, a: FloatArray, ds: FloatArray, da: FloatArray) -> float:
    """The longest step, at most one, that keeps :math:`s \\ge |a|` in all groups."""
    A, B = ds**2 - (da**2).sum(axis=1), s * ds - (a * da).sum(axis=1)
    C = np.maximum(s**2 - (a**2).sum(axis=1), 0.0)
    # the least positive root of A t^2 + 2 B t + C, which is C / (sqrt(B^2 - A C) - B) where there is one
    inside = B * B - A * C
    below = np.sqrt(np.maximum(inside, 0.0)) - B
    leaves = (inside >= 0) & (below > 0)
    return float((C[leaves] / below[leaves]).min(initial=1.0))


class Cones:
    """The groups: ``s (m,)``, ``a (m, g)`` and ``y (m, g)``, with the scaling and the last step.

    Parameters
    ----------
    a : ndarray, shape (m, g)
    y : ndarray, shape (m, g)
        What it is to be; inside the cones from the start.
    beta, mu : float
        The price of a norm, and the product to start with.
    """

    def __init__(self, a: FloatArray, y: FloatArray, beta: float, mu: float) -> None:
        self.beta, self.a = beta, a
        centre = 0.5 * mu / beta
        self.s = centre + np.sqrt(centre**2 + (a**2).sum(axis=1))
        self.y = y * np.minimum(1.0, _INSIDE * beta / np.maximum(np.linalg.norm(y, axis=1), 1e-300))[:, None]
        self.step = np.zeros_like(self.s), np.zeros_like(a), np.zeros_like(a)

    def scale(self) -> None:
        """The scaling at this point."""
        s, a, y, tiny = self.s, self.a, self.y, np.finfo(float).tiny
        self.det = np.maximum(s**2 - (a**2).sum(axis=1), tiny)
        x, z = np.sqrt(self.det), np.sqrt(np.maximum(self.beta**2 - (y**2).sum(axis=1), tiny))
        gamma = np.sqrt(0.5 + 0.5 * (s * self.beta + (a * y).sum(axis=1)) / (x * z))
        self.w0 = (s / x + self.beta / z) / (2.0 * gamma)
        self.w1 = (a / x[:, None] - y / z[:, None]) / (2.0 * gamma)[:, None]
        self.eta = np.sqrt(x / z)
        self.pull = self.eta**-2
        spread = 2.0 * self.w0**2 - 1.0
        self.unit = self.w1 * np.sqrt(2.0 / spread)[:, None]
        self.b00, self.ba0 = spread * self.pull, -2.0 * (self.w0 * self.pull)[:, None] * self.w1

    def aim(self, mu: float, second: bool) -> FloatArray:
        """Minus the y that a step to products ``mu`` has where a stays; with second order terms of the last step."""
        self.first, self.rest = mu * self.s / self.det - self.beta, (mu / self.det)[:, None] * self.a
        if second:
            q0, q1 = self._second_order()
            self.first, self.rest = self.first - q0, self.rest + q1
        return self.rest + self.ba0 * (self.first / self.b00)[:, None]

    def respond(self, da: FloatArray) -> None:
        """Take this step of a to be the next."""
        ds = (self.first - (self.ba0 * da).sum(axis=1)) / self.b00
        across = da - self.unit * (self.unit * da).sum(axis=1, keepdims=True)
        y = -self.rest - self.ba0 * (self.first / self.b00)[:, None] - self.pull[:, None] * across
        self.step = ds, da, y - self.y

    def longest(self) -> float:
        """The longest step, at most one."""
        ds, da, dy = self.step
        limit = np.full(len(self.s), self.beta)
        return min(longest_in_cones(self.s, self.a, ds, da), longest_in_cones(limit, self.y, np.zeros(len(limit)), dy))

    def advance(self, length: float) -> None:
        """Make so much of the step."""
        ds, da, dy = self.step
        self.s, self.a, self.y = self.s + length * ds, self.a + length * da, self.y + length * dy

    def complementarity(self, length: float) -> float:
        """The sum of the products after so much of the step."""
        ds, da, dy = self.step
        return float(
            (self.beta * (self.s + length * ds)).sum() + ((self.a + length * da) * (self.y + length * dy)).sum()
        )

    def _second_order(self) -> tuple[FloatArray, FloatArray]:
        r""":math:`W^{-1} (v \backslash (W^{-1} dx \circ W dz))` for the last step."""
        ds, da, dy = self.step
        x0, x1 = self._scaled(ds, da, inverse=True)
        z0, z1 = self._scaled(np.zeros_like(ds), dy)
        c0, c1 = x0 * z0 + (x1 * z1).sum(axis=1), x0[:, None] * z1 + z0[:, None] * x1
        v0, v1 = self._scaled(np.full_like(ds, self.beta), self.y)
        r0 = (v0 * c0 - (v1 * c1).sum(axis=1)) / np.maximum(v0**2 - (v1**2).sum(axis=1), np.finfo(float).tiny)
        return self._scaled(r0, (c1 - r0[:, None] * v1) / v0[:, None], inverse=True)

    def _scaled(self, u0: FloatArray, u1: FloatArray, inverse: bool = False) -> tuple[FloatArray, FloatArray]:
        """W u, or its inverse."""
        along, sign = (self.w1 * u1).sum(axis=1), -1.0 if inverse else 1.0
        size = self.eta**sign
        second = u1 + self.w1 * (along / (1.0 + self.w0) + sign * u0)[:, None]
        return size * (self.w0 * u0 + sign * along), size[:, None] * second
