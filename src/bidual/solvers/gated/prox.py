"""The proximal map of the group norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidual._util.typing import FloatArray, IntArray


@dataclass(frozen=True)
class Prox:
    r"""The prox of :math:`\sigma \beta \sum_i \|W_i\|_F` at Z, and its derivative.

    On blocks that stay, with :math:`s = 1 - \sigma\beta / \|Z_i\|` and :math:`\hat z = Z_i / \|Z_i\|`, the value is
    :math:`s Z_i` and the derivative :math:`J_i = s I + (1 - s) \hat z \hat z^T`; elsewhere both are zero.
    """

    value: FloatArray
    active: IntArray
    shrink: FloatArray
    direction: FloatArray
    norms: FloatArray

    @classmethod
    def at(cls, Z: FloatArray, threshold: float) -> Prox:
        """The prox of ``threshold * sum of norms``."""
        norms = np.sqrt(np.einsum("prc,prc->p", Z, Z))
        active = np.flatnonzero(norms > threshold)
        shrink = 1.0 - threshold / norms[active]
        value = np.zeros_like(Z)
        value[active] = shrink[:, None, None] * Z[active]
        return cls(value, active, shrink, Z[active] / norms[active, None, None], np.maximum(norms - threshold, 0.0))

    def derivative(self, Y: FloatArray) -> FloatArray:
        """``J Y`` on the active blocks."""
        along = np.einsum("prc,prc->p", self.direction, Y) * (1.0 - self.shrink)
        return self.shrink[:, None, None] * Y + along[:, None, None] * self.direction
