"""Neurons without a ReLU (001 sec. 2)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bidual._util.rounding import spectral_norm
from bidual._util.typing import FloatArray
from bidual.atoms.base import Atoms
from bidual.atoms.neurons import Neurons


@dataclass(frozen=True)
class Linear(Atoms):
    """Neurons that compute M u.

    Attributes
    ----------
    centre : ndarray, shape (n,), or None
        Weights of the mean row, which is zero to dual points that sum to zero: M may be centred by it, which keeps more
        digits. None where they do not (no intercept).
    """

    centre: FloatArray | None = field(default=None, kw_only=True)

    def hidden_of(self, neurons: Neurons) -> FloatArray:
        return np.asarray(self.M @ neurons.U.T)

    def norm_limit(self, V: FloatArray) -> float:
        r""":math:`\|M^T V\|_2`, which is the constraint itself, with rounding."""
        M = self.M if self.centre is None else self.M - self.centre @ self.M
        rounding = 2 * (len(M) + 16) * np.finfo(float).eps
        return spectral_norm(M.T @ V) + rounding * float(np.linalg.norm(V, axis=1) @ np.linalg.norm(M, axis=1))
