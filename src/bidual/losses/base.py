r"""What a loss is.

A loss is a convex function :math:`\ell(f, y)` of one row of outputs :math:`f \in R^C`. Training
minimises its weighted mean

.. math:: L(F) = \sum_i w_i \, \ell(f_i, y_i), \qquad w_i \ge 0, \quad \sum_i w_i = 1,

and the dual (003 Theorem 6) needs the Fenchel conjugate
:math:`L^*(V) = \sum_i w_i \, \ell^*(v_i / w_i)`. A loss states the row-wise functions; the weighted
versions, which solvers and certificates call, are derived here once.

Shapes: ``F``, ``Y`` and ``V`` are ``(n, C)``, ``w`` is ``(n,)`` and positive (rows of weight zero
are removed before they get here).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bidual._util.checks import as_numbers
from bidual._util.registry import Registry
from bidual._util.typing import Array, FloatArray

__all__ = ["ConeForm", "DualBox", "Loss", "fit_tolerance"]


#: The largest tolerance of an exact fit: what fits no better is not one, whatever it costs.
_LOOSEST = 1e-3


def fit_tolerance(tol: float) -> float:
    """The tolerance of a loss that is zero or infinite."""
    if not 0 <= tol <= _LOOSEST:
        raise ValueError(f"tol of an exact fit, margin or tube must be between 0 and {_LOOSEST:g}, got {tol!r}")
    return float(tol)


@dataclass(frozen=True)
class ConeForm:
    r"""A loss as a cone program in ``E = F - offset`` and extra variables ``t``.

    .. math:: \min_t \; \tfrac12 e^T Q_e e + c_e^T e + \tfrac12 t^T \mathrm{diag}(q_t) t
              + c_t^T t \quad \text{s.t.} \quad h - G_e e - G_t t \in \mathcal K.

    ``e`` is ``E`` flattened row by row; :math:`Q_e` is symmetric (an array stands for its diagonal). ``cones`` lists
    pairs ``(kind, size)`` with kind ``"zero"``,
    ``"nonnegative"`` or ``"exponential"`` (size counts three-dimensional cones), in the order of
    the rows.
    """

    offset: FloatArray
    quadratic_e: FloatArray | sp.csc_array
    linear_e: FloatArray | float = 0.0
    quadratic_t: FloatArray = field(default_factory=lambda: np.zeros(0))
    linear_t: FloatArray = field(default_factory=lambda: np.zeros(0))
    G_e: sp.csc_array | None = None
    G_t: sp.csc_array | None = None
    h: FloatArray = field(default_factory=lambda: np.zeros(0))
    cones: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class DualBox:
    r"""A conjugate :math:`\ell^*(v) = \tfrac q2 \|v\|^2 + v^T y + \kappa \|v\|_1` on a box, infinite outside.

    The losses that are piecewise linear or quadratic are of this form. The box :math:`l \le v \le h` holds zero; its
    bounds have the shape of ``Y`` and may be infinite. Residuals up to the ``threshold`` :math:`\kappa` cost nothing.
    """

    lower: FloatArray
    upper: FloatArray
    curvature: float
    threshold: float = 0.0

    def slopes(self, E: FloatArray, epsilon: float = 0.0) -> FloatArray:
        r"""The slopes at residuals ``E`` of the loss that has :math:`\tfrac\epsilon2 \|v\|^2` more in its conjugate.

        :math:`\operatorname{argmax}_v \; v^T e - \kappa \|v\|_1 - \tfrac{q + \epsilon}2 \|v\|^2` over the box, for
        :math:`q + \epsilon > 0`.
        """
        beyond = E - np.clip(E, -self.threshold, self.threshold)
        return np.clip(beyond / (self.curvature + epsilon), self.lower, self.upper)

    def sided(self, Y: FloatArray) -> tuple[FloatArray, DualBox]:
        r"""Targets ``(k n, C)`` and a box without threshold whose losses add up, k rows in turn, to those of the rows.

        A threshold makes k = 2 of every row, as :math:`v = v_+ - v_-`: one side with the target :math:`y + \kappa` and
        :math:`0 \le v \le h`, one with :math:`y - \kappa` and :math:`l \le v \le 0`.
        """
        if self.threshold == 0.0:
            return Y, self
        k, zero = self.threshold, np.zeros_like(Y)
        lower, upper, targets = (
            np.stack(pair, axis=1).reshape(-1, Y.shape[1])
            for pair in ((zero, self.lower), (self.upper, zero), (Y + k, Y - k))
        )
        return targets, DualBox(lower, upper, self.curvature)


class Loss(ABC):
    """Base class of all losses; subclass it to train with your own.

    A new loss needs :meth:`rows`, :meth:`row_gradients` and :meth:`row_conjugates`;
    :meth:`row_curvatures` if it is ``smooth`` (then the convex program is solved by Newton steps), or
    :meth:`cone_form` to hand it to the conic solver in one piece.

    With a :attr:`name` of its own it can be given by that name, and models and certificates of it can be saved, loaded
    and verified, in any process that has imported its class. Its attributes are its parameters, stored as the
    arguments of ``__init__``: plain numbers, strings and lists.
    """

    #: All losses that have a name.
    registry: ClassVar[Registry[Loss]] = Registry("loss")
    #: Name accepted by the estimators, and stored in model files.
    name: ClassVar[str] = "custom"
    #: Whether targets are classes (encoded as -1/+1, or one-hot for a coupled loss).
    classification: ClassVar[bool] = False
    #: Whether the gradient is Lipschitz continuous.
    smooth: ClassVar[bool] = False
    #: Lipschitz constant of the row gradient (``inf`` for a non-smooth loss).
    lipschitz: ClassVar[float] = np.inf
    #: Whether :meth:`row_conjugates` is finite everywhere.
    full_domain: ClassVar[bool] = False
    #: Whether the loss is finite everywhere (an indicator is not).
    finite: ClassVar[bool] = True
    #: Whether the closed forms of :mod:`bidual.closed_form` are for this loss.
    formula: ClassVar[bool] = False
    #: Whether one row's outputs interact (softmax) instead of adding up column by column.
    coupled: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            Loss.registry.add(cls.name, cls)

    # ---- what a loss states, row by row ----------------------------------------------------

    @abstractmethod
    def rows(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        """Loss of every row, ``(n,)``."""

    @abstractmethod
    def row_gradients(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        """Gradient, or one subgradient, of every row, ``(n, C)``."""

    @abstractmethod
    def row_conjugates(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        r""":math:`\ell^*(v, y) = \sup_f v^T f - \ell(f, y)` of every row, ``(n,)``; ``inf`` off its domain."""

    def row_sizes(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        r"""The size of the terms of :meth:`row_conjugates` and of :math:`v^T \nabla \ell^*(v)`, ``(n,)``.

        Rounding errors of the conjugate are a few units relative to this.
        """
        return np.abs(self.row_conjugates(V, Y)) + (np.abs(V * Y) + V**2).sum(axis=1)

    def row_curvatures(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        """Diagonal of the Hessian of every row, ``(n, C)``."""
        raise TypeError(f"the loss {self.name!r} has no curvature: it is not smooth")

    def row_hessians(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        """Hessian of every row, ``(n, C, C)``."""
        return self.row_curvatures(F, Y)[:, :, None] * np.eye(F.shape[1])

    def clip_rows(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        """A point in the domain of the conjugate near ``V`` (``V`` itself if it is inside)."""
        return V

    def nearest_outputs(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        """The outputs nearest to ``F`` at which the loss is finite (``F`` itself unless it is an indicator)."""
        return F

    def cone_form(self, Y: FloatArray, w: FloatArray) -> ConeForm | None:
        """The weighted loss as a cone program, or None if it has no such form."""
        return None

    def dual_box(self, Y: FloatArray) -> DualBox | None:
        """The conjugate of every row as a quadratic on a box, or None if it is none."""
        return None

    def limit(self) -> Loss:
        r"""The loss of the limit :math:`\beta \to 0`: the indicator of the minimisers of this one.

        An indicator is its own limit.

        Raises
        ------
        ValueError
            If the infimum of the loss is not attained.
        """
        if not self.finite:
            return self
        raise ValueError(
            f"beta=0 asks for the smallest network of zero loss, but the loss {self.name!r} never "
            "reaches its infimum; use beta > 0, or a loss that does (squared, hinge, ...)"
        )

    def rescaled(self, t: float) -> tuple[Loss, int] | None:
        r"""For a loss of the residual: :math:`\ell'` and p with :math:`\ell(tf, ty) = t^p \ell'(f, y)`; else None."""
        return None

    def encode(self, y: Array, n_classes: int | None = None) -> FloatArray:
        """Targets as the ``(n, C)`` array this loss works on.

        Regression losses take ``(n,)`` or ``(n, C)`` numbers. Classification losses take class
        codes ``0..K-1`` (or -1/+1) or an array that is already encoded.
        """
        Y = as_numbers("y", y)
        if Y.ndim == 1:
            Y = Y[:, None]
        if Y.ndim != 2:
            raise ValueError(f"y must have one or two dimensions, got {Y.ndim}")
        return Y

    def probabilities(self, F: FloatArray) -> FloatArray | None:
        """Class probabilities ``(n, K)`` from outputs, or None if the loss does not model them."""
        return None

    # ---- what everybody else calls -----------------------------------------------------------

    def value(self, F: FloatArray, Y: FloatArray, w: FloatArray) -> float:
        """Weighted mean loss ``L(F)``."""
        return float(w @ self.rows(F, Y))

    def gradient(self, F: FloatArray, Y: FloatArray, w: FloatArray) -> FloatArray:
        """Gradient of ``L`` (a subgradient where it has a kink), ``(n, C)``."""
        return w[:, None] * self.row_gradients(F, Y)

    def curvature(self, F: FloatArray, Y: FloatArray, w: FloatArray) -> FloatArray:
        """Diagonal of the Hessian of ``L``, ``(n, C)``."""
        return w[:, None] * self.row_curvatures(F, Y)

    def conjugate(self, V: FloatArray, Y: FloatArray, w: FloatArray) -> float:
        """Fenchel conjugate ``L*(V)``; ``inf`` outside its domain."""
        return float(w @ self.row_conjugates(V / w[:, None], Y))

    def dual_point(self, V: FloatArray, Y: FloatArray, w: FloatArray, *, centred: bool) -> FloatArray:
        r"""Move ``V`` to a point with ``-V`` in the domain of ``L*`` and, if ``centred``, :math:`1^T V = 0`.

        The second condition is what a free output intercept puts into the dual. Domains contain zero
        and are convex, so that shrinking rows towards zero never leaves them.
        """
        V = -w[:, None] * self.clip_rows(-V / w[:, None], Y)
        if not self.full_domain:
            V = V * (1 - 4 * np.finfo(float).eps)  # multiplying and dividing by w may end one unit outside
        return self.centre(V, Y, w) if centred else V

    def moments(self, V: FloatArray, Y: FloatArray, w: FloatArray) -> FloatArray:
        """The sums over rows that :meth:`centre` needs, ``(k, C)``; those of parts of the rows add up."""
        if self.full_domain:
            return V.sum(axis=0)[None]
        return np.stack([np.maximum(V, 0.0).sum(axis=0), np.maximum(-V, 0.0).sum(axis=0)])

    def centre(self, V: FloatArray, Y: FloatArray, w: FloatArray, moments: FloatArray | None = None) -> FloatArray:
        r"""A point near ``V`` with :math:`1^T V = 0` that keeps ``-V`` in the domain of ``L*``.

        Given the ``moments`` of all rows, ``V`` may be a part of them.
        """
        moments = self.moments(V, Y, w) if moments is None else moments
        if self.full_domain:
            return V - w[:, None] * moments[0]
        tiny = np.finfo(float).tiny
        shrink = moments.min(axis=0) / np.maximum(moments, tiny)
        return np.maximum(V, 0.0) * shrink[0] - np.maximum(-V, 0.0) * shrink[1]

    def to_dict(self) -> dict[str, object]:
        """Name and parameters, for model files."""
        return {"name": Loss.registry.named(type(self), self.name), **vars(self)}

    def __repr__(self) -> str:
        parameters = ", ".join(f"{k}={v!r}" for k, v in vars(self).items())
        return f"{type(self).__name__}({parameters})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), tuple(sorted(vars(self).items()))))
