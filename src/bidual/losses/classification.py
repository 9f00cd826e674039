r"""Losses for classes.

Margin losses see targets -1/+1 and are functions of the margin :math:`m = y f`; with more than two
classes they are summed over the columns of a one-vs-rest coding. Softmax couples the outputs of a row
and sees one-hot targets.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, softmax, xlog1py, xlogy

from bidual._util.typing import Array, FloatArray
from bidual.losses.base import ConeForm, DualBox, Loss, fit_tolerance

__all__ = ["Hinge", "Logistic", "Margin", "MarginLoss", "Softmax", "SquaredHinge"]

_EPS = float(np.finfo(float).eps)


def one_hot(codes: Array, n_classes: int | None) -> FloatArray:
    """Class codes ``0..K-1`` as an ``(n, K)`` array of zeros and ones."""
    codes = np.asarray(codes)
    if not np.all(np.equal(np.mod(codes, 1), 0)) or codes.min(initial=0) < 0:
        raise ValueError("class codes must be the integers 0, 1, ..., K-1")
    codes = codes.astype(np.int64)
    k = max(2, int(codes.max(initial=0)) + 1) if n_classes is None else n_classes
    if codes.max(initial=0) >= k:
        raise ValueError(f"class code {codes.max()} is out of range for {k} classes")
    return np.eye(k)[codes]


class MarginLoss(Loss):
    r"""A convex, non-increasing function of the margin :math:`m = y f`, summed over outputs.

    In the dual, :math:`s = -y v \ge 0` is the weight of a row.
    """

    classification = True
    #: Largest dual weight s.
    s_max: float = np.inf

    @abstractmethod
    def phi(self, m: FloatArray) -> FloatArray:
        """The loss as a function of the margin."""

    @abstractmethod
    def phi_slope(self, m: FloatArray) -> FloatArray:
        """Its derivative, or a subgradient."""

    @abstractmethod
    def phi_conjugate(self, s: FloatArray) -> FloatArray:
        r""":math:`\sup_m -s m - \phi(m)` for s in the domain."""

    def rows(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return self.phi(Y * F).sum(axis=1)

    def row_gradients(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return Y * self.phi_slope(Y * F)

    def row_conjugates(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        s = -Y * V
        inside = (s >= 0) & (s <= self.s_max)
        value = self.phi_conjugate(np.clip(s, 0.0, self.s_max))
        return np.where(inside, value, np.inf).sum(axis=1)

    def clip_rows(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        return -Y * np.clip(-Y * V, 0.0, self.s_max)

    def _dual_box(self, Y: FloatArray, curvature: float) -> DualBox:
        """The box of :math:`v = -y s`, 0 <= s <= s_max."""
        return DualBox(np.where(Y > 0, -self.s_max, 0.0), np.where(Y > 0, 0.0, self.s_max), curvature)

    def encode(self, y: Array, n_classes: int | None = None) -> FloatArray:
        y = np.asarray(y)
        if y.ndim == 2:
            Y = y.astype(np.float64)
            if not np.isin(Y, (-1.0, 1.0)).all():
                raise ValueError(f"two-dimensional targets of the loss {self.name!r} must be -1 or +1")
            return Y
        values = np.unique(y)
        if n_classes in (None, 2) and np.isin(values, (-1, 1)).all():
            return y.astype(np.float64)[:, None]
        codes = 2.0 * one_hot(y, n_classes) - 1.0
        return codes[:, 1:2] if codes.shape[1] <= 2 else codes


class Logistic(MarginLoss):
    r""":math:`\log(1 + e^{-m})`; conjugate :math:`s \log s + (1 - s) \log(1 - s)` on :math:`0 \le s \le 1`."""

    name = "logistic"
    smooth = True
    s_max = 1.0
    lipschitz = 0.25

    def phi(self, m: FloatArray) -> FloatArray:
        return np.logaddexp(0.0, -m)

    def phi_slope(self, m: FloatArray) -> FloatArray:
        return -expit(-m)

    def phi_conjugate(self, s: FloatArray) -> FloatArray:
        return xlogy(s, s) + xlog1py(1.0 - s, -s)

    def row_sizes(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        # the slope log(s / (1 - s)); where 1 - s is rounding its place is not known, but |log eps| is all there can be
        s = np.clip(-Y * V, 0.0, 1.0)
        slope = np.abs(xlogy(s, s)) + np.abs(s * np.log1p(-np.minimum(s, 1.0 - _EPS)))
        return (slope - self.phi_conjugate(s) + s).sum(axis=1)

    def row_curvatures(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return expit(F) * expit(-F)

    def probabilities(self, F: FloatArray) -> FloatArray | None:
        return np.hstack([expit(-F), expit(F)]) if F.shape[1] == 1 else None

    def cone_form(self, Y: FloatArray, w: FloatArray) -> ConeForm:
        # exp(-m - t) <= a, exp(-t) <= b, a + b <= 1; an exponential cone is exp(x) <= z with (x, 1, z).
        k = Y.size
        y = Y.ravel()
        i = np.arange(k)
        one = np.ones(k)
        first, second = k + 3 * i, 4 * k + 3 * i
        # extra variables: t, a, b
        G_e = sp.csc_array((y, (first, i)), shape=(7 * k, k))
        rows = np.concatenate([i, i, first, first + 2, second, second + 2])
        columns = np.concatenate([k + i, 2 * k + i, i, k + i, i, 2 * k + i])
        entries = np.concatenate([one, one, one, -one, one, -one])
        G_t = sp.csc_array((entries, (rows, columns)), shape=(7 * k, 3 * k))
        h = np.zeros(7 * k)
        h[:k] = h[first + 1] = h[second + 1] = 1.0
        return ConeForm(
            offset=np.zeros_like(Y),
            quadratic_e=np.zeros(k),
            quadratic_t=np.zeros(3 * k),
            linear_t=np.concatenate([np.repeat(w, Y.shape[1]), np.zeros(2 * k)]),
            G_e=G_e,
            G_t=G_t,
            h=h,
            cones=(("nonnegative", k), ("exponential", 2 * k)),
        )


class Hinge(MarginLoss):
    r""":math:`(1 - m)_+`; conjugate :math:`-s` on :math:`0 \le s \le 1`."""

    name = "hinge"
    s_max = 1.0

    def phi(self, m: FloatArray) -> FloatArray:
        return np.maximum(1.0 - m, 0.0)

    def phi_slope(self, m: FloatArray) -> FloatArray:
        return -(m < 1.0).astype(np.float64)

    def phi_conjugate(self, s: FloatArray) -> FloatArray:
        return -s

    def limit(self) -> Loss:
        return Margin()

    def dual_box(self, Y: FloatArray) -> DualBox:
        return self._dual_box(Y, 0.0)

    def cone_form(self, Y: FloatArray, w: FloatArray) -> ConeForm:
        # t >= 1 - y e, t >= 0
        k = Y.size
        eye = sp.eye_array(k)
        return ConeForm(
            offset=np.zeros_like(Y),
            quadratic_e=np.zeros(k),
            quadratic_t=np.zeros(k),
            linear_t=np.repeat(w, Y.shape[1]),
            G_e=sp.csc_array(sp.vstack([sp.diags_array(-Y.ravel()), sp.csc_array((k, k))])),
            G_t=sp.csc_array(sp.vstack([-eye, -eye])),
            h=np.concatenate([-np.ones(k), np.zeros(k)]),
            cones=(("nonnegative", 2 * k),),
        )


class SquaredHinge(Hinge):
    r""":math:`\tfrac12 (1 - m)_+^2`; conjugate :math:`\tfrac12 s^2 - s` on :math:`s \ge 0`."""

    name = "squared_hinge"
    smooth = True
    s_max = np.inf
    lipschitz = 1.0

    def phi(self, m: FloatArray) -> FloatArray:
        return 0.5 * np.maximum(1.0 - m, 0.0) ** 2

    def phi_slope(self, m: FloatArray) -> FloatArray:
        return -np.maximum(1.0 - m, 0.0)

    def phi_conjugate(self, s: FloatArray) -> FloatArray:
        return 0.5 * s**2 - s

    def row_curvatures(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return (Y * F <= 1.0).astype(np.float64)

    def dual_box(self, Y: FloatArray) -> DualBox:
        return self._dual_box(Y, 1.0)

    def cone_form(self, Y: FloatArray, w: FloatArray) -> ConeForm:
        # t >= 1 - y e. No t >= 0: beyond the margin t = 0 is least anyway, and that bound would have neither slack nor
        # a multiplier, where interior points lose their digits.
        k = Y.size
        return ConeForm(
            offset=np.zeros_like(Y),
            quadratic_e=np.zeros(k),
            quadratic_t=np.repeat(w, Y.shape[1]),
            linear_t=np.zeros(k),
            G_e=sp.csc_array(sp.diags_array(-Y.ravel())),
            G_t=sp.csc_array(-sp.eye_array(k)),
            h=-np.ones(k),
            cones=(("nonnegative", k),),
        )


class Margin(MarginLoss):
    r"""The indicator of :math:`m \ge 1`: the maximum-margin network; conjugate :math:`-s` on :math:`s \ge 0`.

    Parameters
    ----------
    tol : float, default=1e-6
        Violation of the margin that still counts as met in :meth:`rows`.
    """

    name = "margin"
    finite = False

    def __init__(self, tol: float = 1e-6) -> None:
        self.tol = fit_tolerance(tol)

    def phi(self, m: FloatArray) -> FloatArray:
        return np.where(m >= 1.0 - self.tol, 0.0, np.inf)

    def phi_slope(self, m: FloatArray) -> FloatArray:
        return np.zeros_like(m)

    def phi_conjugate(self, s: FloatArray) -> FloatArray:
        return -s

    def nearest_outputs(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return Y * np.maximum(Y * F, 1.0)

    def dual_box(self, Y: FloatArray) -> DualBox:
        return self._dual_box(Y, 0.0)

    def cone_form(self, Y: FloatArray, w: FloatArray) -> ConeForm:
        k = Y.size
        return ConeForm(
            offset=np.zeros_like(Y),
            quadratic_e=np.zeros(k),
            G_e=sp.csc_array(sp.diags_array(-Y.ravel())),
            G_t=sp.csc_array((k, 0)),
            h=-np.ones(k),
            cones=(("nonnegative", k),),
        )


def _on_simplex(p: FloatArray, Y: FloatArray) -> FloatArray:
    """``p - Y`` for rows p on the simplex, from the entries of the other classes alone."""
    others = np.where(Y > 0, 0.0, p)
    return np.where(Y > 0, -others.sum(axis=1, keepdims=True), others)


class Softmax(Loss):
    r"""Cross-entropy :math:`\log \sum_c e^{f_c} - f_y`.

    Conjugate :math:`\sum_c p_c \log p_c` with :math:`p = v + y` on the simplex.
    """

    name = "softmax"
    classification = True
    smooth = True
    coupled = True
    lipschitz = 0.5

    def rows(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        # log(1 + sum of the others), with all digits where these are small
        ahead = np.where(Y > 0, -np.inf, F - (Y * F).sum(axis=1, keepdims=True))
        top = np.maximum(ahead.max(axis=1, keepdims=True), 0.0)
        others = np.exp(ahead - top).sum(axis=1)
        return top[:, 0] + np.log1p(others + np.expm1(-top[:, 0]))

    def row_gradients(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return _on_simplex(softmax(F, axis=1), Y)

    def row_curvatures(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        p = softmax(F, axis=1)
        return p * np.where(Y > 0, -_on_simplex(p, Y), 1.0 - p)

    def row_hessians(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        p = softmax(F, axis=1)
        H = -p[:, :, None] * p[:, None, :]
        H[:, np.arange(F.shape[1]), np.arange(F.shape[1])] = self.row_curvatures(F, Y)
        return H

    def row_conjugates(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        # The entries of the other classes are p; together with the row's own they sum to zero, up to rounding, and
        # p of the row's own class is what they leave of one: all digits of small p count.
        p, total = self._others(V, Y)
        inside = (p >= 0).all(axis=1) & (total <= 1.0) & (np.abs(V.sum(axis=1)) <= 1e-12)
        p, total = np.maximum(p, 0.0), np.minimum(total, 1.0)
        return np.where(inside, xlogy(p, p).sum(axis=1) + xlog1py(1.0 - total, -total), np.inf)

    def row_sizes(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        p, total = self._others(V, Y)
        slope = np.abs(xlogy(p, p)).sum(axis=1) + np.abs(total * np.log1p(-np.clip(total, 0.0, 1.0 - _EPS)))
        return slope + np.abs(self.row_conjugates(V, Y)) + total

    def _others(self, V: FloatArray, Y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Probabilities of the classes other than the row's own (zero for that), and their sum."""
        p = np.where(Y > 0, 0.0, V)
        return p, p.sum(axis=1)

    def clip_rows(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        p, _ = self._others(np.maximum(V, 0.0), Y)
        return _on_simplex(p / np.maximum(p.sum(axis=1, keepdims=True), 1.0), Y)

    def moments(self, V: FloatArray, Y: FloatArray, w: FloatArray) -> FloatArray:
        return np.stack([V.sum(axis=0), w @ Y])

    def centre(self, V: FloatArray, Y: FloatArray, w: FloatArray, moments: FloatArray | None = None) -> FloatArray:
        # V = w (Y - P): the columns of P must carry the mass of the classes. Overfull columns give up
        # the same fraction in every row, and the row hands it to the others: rows stay on the simplex.
        lacking, wanted = self.moments(V, Y, w) if moments is None else moments
        surplus, missing = np.maximum(-lacking, 0.0), np.maximum(lacking, 0.0)
        if surplus.sum() == 0.0 or missing.sum() == 0.0:
            return V
        given = (w[:, None] * Y - V) * (surplus / np.maximum(wanted - lacking, np.finfo(float).tiny))
        return V + given - given.sum(axis=1, keepdims=True) * (missing / missing.sum())

    def encode(self, y: Array, n_classes: int | None = None) -> FloatArray:
        y = np.asarray(y)
        Y = one_hot(y, n_classes) if y.ndim == 1 else y.astype(np.float64)
        if not (np.isin(Y, (0.0, 1.0)).all() and (Y.sum(axis=1) == 1.0).all()):
            raise ValueError("targets of the softmax loss must be class codes or one-hot rows")
        return Y

    def probabilities(self, F: FloatArray) -> FloatArray:
        return np.asarray(softmax(F, axis=1))

    def cone_form(self, Y: FloatArray, w: FloatArray) -> ConeForm:
        # t - f_y with sum_c exp(f_c - t) <= 1: one exponential cone per output, variables t (n) and a (n C).
        n, C = Y.shape
        k = n * C
        row = np.repeat(np.arange(n), C)
        entry = np.arange(k)
        cone = n + 3 * entry
        one = np.ones(k)
        G_e = sp.csc_array((-one, (cone, entry)), shape=(n + 3 * k, k))
        rows = np.concatenate([row, cone, cone + 2])
        columns = np.concatenate([n + entry, row, n + entry])
        G_t = sp.csc_array((np.concatenate([one, one, -one]), (rows, columns)), shape=(n + 3 * k, n + k))
        h = np.zeros(n + 3 * k)
        h[:n] = h[cone + 1] = 1.0
        return ConeForm(
            offset=np.zeros_like(Y),
            quadratic_e=np.zeros(k),
            linear_e=-(w[:, None] * Y).ravel(),
            quadratic_t=np.zeros(n + k),
            linear_t=np.concatenate([w, np.zeros(k)]),
            G_e=G_e,
            G_t=G_t,
            h=h,
            cones=(("nonnegative", n), ("exponential", k)),
        )
