r"""Second-order cones of the ramps' weights: many small ones, all alike."""

from __future__ import annotations

import numpy as np

from bidual._util.typing import FloatArray


class Cones:
    r"""Pairs :math:`x = (\tau, a)` and :math:`y = (\beta, -u)` of second-order cones, Nesterov-Todd scaled."""

    def __init__(self, count: int, C: int, beta: float, size: float) -> None:
        self.tau = np.full(count, size)
        self.beta = beta
        self.a, self.u = np.zeros((count, C)), np.zeros((count, C))
        self.da, self.du, self.d_tau = np.zeros((count, C)), np.zeros((count, C)), np.zeros(count)

    def gap(self) -> float:
        """Complementarity."""
        return float(self.beta * self.tau.sum() - (self.a * self.u).sum())

    def scale(self) -> FloatArray:
        """Update the scaling; returns the blocks ``(count, C, C)`` that take du to da."""
        x0, x1, y0, y1 = self.tau, self.a, np.full(len(self.tau), self.beta), -self.u
        dx, dy = _determinant(x0, x1), _determinant(y0, y1)
        rx, ry = np.sqrt(dx), np.sqrt(dy)
        x0, x1, y0, y1 = x0 / rx, x1 / rx[:, None], y0 / ry, y1 / ry[:, None]
        gamma = np.sqrt(0.5 * (1.0 + x0 * y0 + (x1 * y1).sum(axis=1)))
        self.w0, self.w1 = (x0 + y0) / (2 * gamma), (x1 - y1) / (2 * gamma)[:, None]
        self.eta = np.sqrt(rx / ry)
        self.lam = self._apply(np.full(len(self.tau), self.beta), -self.u)
        eye = np.eye(self.a.shape[1])
        return (self.eta**2)[:, None, None] * (2 * self.w1[:, :, None] * self.w1[:, None, :] + eye)

    def _apply(self, y0: FloatArray, y1: FloatArray, inverse: bool = False) -> tuple[FloatArray, FloatArray]:
        """The scaling W, or its inverse, times vectors."""
        w1 = -self.w1 if inverse else self.w1
        eta = 1.0 / self.eta if inverse else self.eta
        inner = (w1 * y1).sum(axis=1)
        head = eta * (self.w0 * y0 + inner)
        tail = eta[:, None] * (y1 + w1 * (y0 + inner / (1.0 + self.w0))[:, None])
        return head, tail

    def linearise(self, target: float, corrector: float) -> FloatArray:
        """Right-hand side of ``da = M du + rhs``."""
        l0, l1 = self.lam
        d0 = target - (l0**2 + (l1**2).sum(axis=1))
        d1 = -2 * l0[:, None] * l1
        if corrector:
            p0, p1 = self._apply(self.d_tau, self.da, inverse=True)
            q0, q1 = self._apply(np.zeros_like(self.d_tau), -self.du)
            d0 = d0 - corrector * (p0 * q0 + (p1 * q1).sum(axis=1))
            d1 = d1 - corrector * (p0[:, None] * q1 + q0[:, None] * p1)
        # divide by lambda in the Jordan algebra, then scale back
        determinant = _determinant(l0, l1)
        inner = (l1 * d1).sum(axis=1)
        e0 = (l0 * d0 - inner) / determinant
        e1 = (d1 - e0[:, None] * l1) / l0[:, None]
        self._r0, r1 = self._apply(e0, e1)
        return r1

    def direct(self, da: FloatArray, du: FloatArray) -> None:
        """Complete the step."""
        self.da, self.du = da, du
        self.d_tau = self._r0 + 2 * self.eta**2 * self.w0 * (self.w1 * du).sum(axis=1)

    def largest_steps(self) -> tuple[float, float]:
        """How far the primal and the dual step can go."""
        beta = np.full(len(self.tau), self.beta)
        primal = _cone_step(self.tau, self.a, self.d_tau, self.da)
        return primal, _cone_step(beta, self.u, np.zeros_like(beta), self.du)

    def gap_after(self, primal: float, dual: float) -> float:
        """Complementarity after such steps."""
        a, u = self.a + primal * self.da, self.u + dual * self.du
        return float(self.beta * (self.tau + primal * self.d_tau).sum() - (a * u).sum())

    def move(self, primal: float, dual: float) -> None:
        """Take them."""
        self.tau, self.u = self.tau + primal * self.d_tau, self.u + dual * self.du
        self.a = self.a + primal * self.da


def _determinant(x0: FloatArray, x1: FloatArray) -> FloatArray:
    size = np.linalg.norm(x1, axis=1)
    det = (x0 - size) * (x0 + size)
    if not (det > 0).all():
        raise np.linalg.LinAlgError("a point has left its cone")
    return det


def _cone_step(x0: FloatArray, x1: FloatArray, d0: FloatArray, d1: FloatArray) -> float:
    """The largest step for which ``(x0, x1) + step (d0, d1)`` stays in the second-order cone."""
    size = np.linalg.norm(x1, axis=1)
    c = (x0 - size) * (x0 + size)
    b = x0 * d0 - (x1 * d1).sum(axis=1)
    a = d0**2 - (d1**2).sum(axis=1)
    # smallest positive root of a t^2 + 2 b t + c, with c > 0
    root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
    divisor = -b + np.where(b**2 - a * c >= 0, root, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(divisor > 0, c / divisor, np.inf)
    return float(steps.min(initial=np.inf))
