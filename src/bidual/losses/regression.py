"""Losses for real targets. Several targets add up column by column."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bidual._util.typing import FloatArray
from bidual.losses.base import ConeForm, DualBox, Loss, fit_tolerance

__all__ = ["Absolute", "EpsilonInsensitive", "ExactFit", "Huber", "Quantile", "RegressionLoss", "Squared", "Tube"]


def _entrywise(w: FloatArray, Y: FloatArray) -> FloatArray:
    """Row weights repeated for every output, flattened like ``E``."""
    return np.repeat(w, Y.shape[1])


class RegressionLoss(Loss):
    r"""A loss of the residual :math:`e = f - y`, summed over the outputs of a row."""

    def limit(self) -> Loss:
        return ExactFit()


class Squared(RegressionLoss):
    r""":math:`\tfrac12 (f - y)^2`, with conjugate :math:`\tfrac12 v^2 + v y` (003 eq. 2)."""

    name = "squared"
    smooth = True
    formula = True
    full_domain = True
    lipschitz = 1.0

    def rows(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return 0.5 * ((F - Y) ** 2).sum(axis=1)

    def row_gradients(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return F - Y

    def row_curvatures(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return np.ones_like(F)

    def row_conjugates(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        return (0.5 * V**2 + V * Y).sum(axis=1)

    def rescaled(self, t: float) -> tuple[Loss, int]:
        return self, 2

    def dual_box(self, Y: FloatArray) -> DualBox:
        return DualBox(np.full(Y.shape, -np.inf), np.full(Y.shape, np.inf), 1.0)

    def cone_form(self, Y: FloatArray, w: FloatArray) -> ConeForm:
        return ConeForm(offset=Y, quadratic_e=_entrywise(w, Y))


class Huber(RegressionLoss):
    r"""Quadratic for :math:`|e| \le \delta`, linear beyond.

    Conjugate :math:`\tfrac12 v^2 + v y` on :math:`|v| \le \delta`.

    Parameters
    ----------
    delta : float, default=1.0
        Where the loss turns linear, in units of the target.
    """

    name = "huber"
    smooth = True
    lipschitz = 1.0

    def __init__(self, delta: float = 1.0) -> None:
        if not (np.isfinite(delta) and delta > 0):
            raise ValueError(f"delta of the Huber loss must be positive, got {delta!r}")
        self.delta = float(delta)

    def rows(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        e = np.abs(F - Y)
        inner = np.minimum(e, self.delta)
        return (inner * (e - 0.5 * inner)).sum(axis=1)

    def row_gradients(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return np.clip(F - Y, -self.delta, self.delta)

    def row_curvatures(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return (np.abs(F - Y) <= self.delta).astype(np.float64)

    def row_conjugates(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        inside = np.abs(V) <= self.delta
        return np.where(inside, 0.5 * V**2 + V * Y, np.inf).sum(axis=1)

    def clip_rows(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        return np.clip(V, -self.delta, self.delta)

    def rescaled(self, t: float) -> tuple[Loss, int]:
        return Huber(self.delta / t), 2

    def dual_box(self, Y: FloatArray) -> DualBox:
        return DualBox(np.full(Y.shape, -self.delta), np.full(Y.shape, self.delta), 1.0)

    def cone_form(self, Y: FloatArray, w: FloatArray) -> ConeForm:
        if self.delta**2 * w.min() >= float(w @ (Y**2).sum(axis=1)):
            # no network better than zero has so large a residual, and a large delta is hard on conic solvers
            return Squared().cone_form(Y, w)
        # e = a + b - c with b, c >= 0: cost a^2/2 + delta (b + c).
        k = Y.size
        W, eye, zero = _entrywise(w, Y), sp.eye_array(k), sp.csc_array((k, k))
        return ConeForm(
            offset=Y,
            quadratic_e=np.zeros(k),
            quadratic_t=np.concatenate([W, np.zeros(2 * k)]),
            linear_t=self.delta * np.concatenate([np.zeros(k), W, W]),
            G_e=sp.csc_array(sp.vstack([eye, zero, zero])),
            G_t=sp.csc_array(sp.block_array([[-eye, -eye, eye], [None, -eye, None], [None, None, -eye]])),
            h=np.zeros(3 * k),
            cones=(("zero", k), ("nonnegative", 2 * k)),
        )


class Quantile(RegressionLoss):
    r"""Pinball loss :math:`\tau (y - f)_+ + (1 - \tau)(f - y)_+`.

    Conjugate :math:`v y` on :math:`-\tau \le v \le 1 - \tau`.

    Parameters
    ----------
    tau : float, default=0.5
        The quantile to estimate, between 0 and 1.
    """

    name = "quantile"

    def __init__(self, tau: float = 0.5) -> None:
        if not 0 < tau < 1:
            raise ValueError(f"tau of the quantile loss must lie strictly between 0 and 1, got {tau!r}")
        self.tau = float(tau)

    def _slopes(self) -> tuple[float, float]:
        """Cost of one unit below and above the target."""
        return self.tau, 1.0 - self.tau

    def rows(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        below, above = self._slopes()
        e = F - Y
        return (above * np.maximum(e, 0.0) + below * np.maximum(-e, 0.0)).sum(axis=1)

    def row_gradients(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        below, above = self._slopes()
        return np.where(F > Y, above, np.where(F < Y, -below, 0.0))

    def row_conjugates(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        below, above = self._slopes()
        return np.where((-below <= V) & (above >= V), V * Y, np.inf).sum(axis=1)

    def rescaled(self, t: float) -> tuple[Loss, int]:
        return self, 1

    def clip_rows(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        below, above = self._slopes()
        return np.clip(V, -below, above)

    def dual_box(self, Y: FloatArray) -> DualBox:
        below, above = self._slopes()
        return DualBox(np.full(Y.shape, -below), np.full(Y.shape, above), 0.0)

    def cone_form(self, Y: FloatArray, w: FloatArray) -> ConeForm:
        # e = a - b with a, b >= 0.
        below, above = self._slopes()
        k = Y.size
        W, eye, zero = _entrywise(w, Y), sp.eye_array(k), sp.csc_array((k, k))
        return ConeForm(
            offset=Y,
            quadratic_e=np.zeros(k),
            quadratic_t=np.zeros(2 * k),
            linear_t=np.concatenate([above * W, below * W]),
            G_e=sp.csc_array(sp.vstack([eye, zero, zero])),
            G_t=sp.csc_array(sp.block_array([[-eye, eye], [-eye, None], [None, -eye]])),
            h=np.zeros(3 * k),
            cones=(("zero", k), ("nonnegative", 2 * k)),
        )


class Absolute(Quantile):
    r""":math:`|f - y|`; conjugate :math:`v y` on :math:`|v| \le 1`. Twice the pinball loss of the median."""

    name = "absolute"

    def __init__(self) -> None:
        pass

    def _slopes(self) -> tuple[float, float]:
        return 1.0, 1.0


class EpsilonInsensitive(RegressionLoss):
    r"""The loss of support vector regression, :math:`(|f - y| - \epsilon)_+`.

    Conjugate :math:`v y + \epsilon |v|` on :math:`|v| \le 1`.

    Parameters
    ----------
    epsilon : float, default=0.1
        Residuals up to this size cost nothing, in units of the target.
    """

    name = "epsilon_insensitive"

    def __init__(self, epsilon: float = 0.1) -> None:
        if not (np.isfinite(epsilon) and epsilon >= 0):
            raise ValueError(f"epsilon of the epsilon-insensitive loss must not be negative, got {epsilon!r}")
        self.epsilon = float(epsilon)

    def rows(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return np.maximum(np.abs(F - Y) - self.epsilon, 0.0).sum(axis=1)

    def row_gradients(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return np.where(np.abs(F - Y) > self.epsilon, np.sign(F - Y), 0.0)

    def row_conjugates(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        return np.where(np.abs(V) <= 1.0, V * Y + self.epsilon * np.abs(V), np.inf).sum(axis=1)

    def clip_rows(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        return np.clip(V, -1.0, 1.0)

    def limit(self) -> Loss:
        return Tube(self.epsilon) if self.epsilon > 0 else ExactFit()

    def rescaled(self, t: float) -> tuple[Loss, int]:
        return EpsilonInsensitive(self.epsilon / t), 1

    def dual_box(self, Y: FloatArray) -> DualBox:
        return DualBox(np.full(Y.shape, -1.0), np.full(Y.shape, 1.0), 0.0, threshold=self.epsilon)

    def cone_form(self, Y: FloatArray, w: FloatArray) -> ConeForm:
        # t >= e - epsilon, t >= -e - epsilon, t >= 0
        k = Y.size
        eye, zero = sp.eye_array(k), sp.csc_array((k, k))
        return ConeForm(
            offset=Y,
            quadratic_e=np.zeros(k),
            quadratic_t=np.zeros(k),
            linear_t=_entrywise(w, Y),
            G_e=sp.csc_array(sp.vstack([eye, -eye, zero])),
            G_t=sp.csc_array(sp.vstack([-eye, -eye, -eye])),
            h=np.concatenate([np.full(2 * k, self.epsilon), np.zeros(k)]),
            cones=(("nonnegative", 3 * k),),
        )


class Tube(RegressionLoss):
    r"""The indicator of :math:`|f - y| \le \epsilon`, the limit of the epsilon-insensitive loss.

    It asks for the smallest network in the tube around the targets; conjugate :math:`v y + \epsilon |v|`.

    Parameters
    ----------
    epsilon : float, default=0.1
        Largest residual, in units of the target.
    tol : float, default=1e-6
        How much more, relative to ``max|y|``, still counts as inside in :meth:`rows`.
    """

    name = "tube"
    finite = False
    full_domain = True

    def __init__(self, epsilon: float = 0.1, tol: float = 1e-6) -> None:
        if not (np.isfinite(epsilon) and epsilon > 0):
            raise ValueError(f"epsilon of a tube must be positive, got {epsilon!r}; without one use ExactFit")
        self.epsilon, self.tol = float(epsilon), fit_tolerance(tol)

    def rows(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        allowed = self.epsilon + self.tol * float(np.abs(Y).max(initial=0.0))
        return np.where((np.abs(F - Y) <= allowed).all(axis=1), 0.0, np.inf)

    def row_gradients(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return np.zeros_like(F)

    def row_conjugates(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        return (V * Y + self.epsilon * np.abs(V)).sum(axis=1)

    def limit(self) -> Loss:
        return self

    def nearest_outputs(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return np.clip(F, Y - self.epsilon, Y + self.epsilon)

    def rescaled(self, t: float) -> tuple[Loss, int]:
        return Tube(self.epsilon / t, self.tol), 0

    def dual_box(self, Y: FloatArray) -> DualBox:
        return DualBox(np.full(Y.shape, -np.inf), np.full(Y.shape, np.inf), 0.0, threshold=self.epsilon)

    def cone_form(self, Y: FloatArray, w: FloatArray) -> ConeForm:
        k = Y.size
        eye = sp.eye_array(k)
        return ConeForm(
            offset=Y,
            quadratic_e=np.zeros(k),
            G_e=sp.csc_array(sp.vstack([eye, -eye])),
            G_t=sp.csc_array((2 * k, 0)),
            h=np.full(2 * k, self.epsilon),
            cones=(("nonnegative", 2 * k),),
        )


class ExactFit(RegressionLoss):
    r"""The indicator of :math:`f = y`: minimum-norm interpolation, 003 eq. 6; conjugate :math:`v y`.

    Parameters
    ----------
    tol : float, default=1e-6
        Largest residual, relative to ``max|y|``, that still counts as a fit in :meth:`rows`.
    """

    name = "exact_fit"
    finite = False
    formula = True
    full_domain = True

    def __init__(self, tol: float = 1e-6) -> None:
        self.tol = fit_tolerance(tol)

    def rows(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        allowed = self.tol * float(np.abs(Y).max(initial=0.0))
        return np.where((np.abs(F - Y) <= allowed).all(axis=1), 0.0, np.inf)

    def row_gradients(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return np.zeros_like(F)

    def row_conjugates(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        return (V * Y).sum(axis=1)

    def limit(self) -> Loss:
        return self

    def nearest_outputs(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return Y

    def rescaled(self, t: float) -> tuple[Loss, int]:
        return self, 0

    def dual_box(self, Y: FloatArray) -> DualBox:
        return DualBox(np.full(Y.shape, -np.inf), np.full(Y.shape, np.inf), 0.0)

    def cone_form(self, Y: FloatArray, w: FloatArray) -> ConeForm:
        k = Y.size
        return ConeForm(
            offset=Y,
            quadratic_e=np.zeros(k),
            G_e=sp.csc_array(sp.eye_array(k)),
            G_t=sp.csc_array((k, 0)),
            h=np.zeros(k),
            cones=(("zero", k),),
        )
