"""The outputs of given neurons as a linear function of their magnitudes: what corrective steps work with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bidual._util.typing import FloatArray


class Columns:
    """Neurons that compute ``H (n, m)``, with output weights ``alpha (m, C)``."""

    def __init__(self, H: FloatArray, alpha: FloatArray) -> None:
        self.H, self.alpha = H, alpha

    def outputs(self, t: FloatArray) -> FloatArray:
        """Outputs ``(n, C)`` of the neurons with magnitudes t."""
        used = np.flatnonzero(t)
        return np.asarray((self.H[:, used] * t[used]) @ self.alpha[used])

    def slopes(self, G: FloatArray) -> FloatArray:
        """The derivative of ``<G, outputs>``."""
        return np.asarray(np.einsum("kc,kc->k", self.H.T @ G, self.alpha))

    def of_output(self, c: int) -> FloatArray:
        """Contributions to output c, ``(n, m)``."""
        return self.H * self.alpha[:, c]

    def full(self) -> FloatArray:
        """Contributions to all outputs, ``(n, C, m)``."""
        return self.H[:, None, :] * self.alpha.T

    def gram(self, weights: FloatArray) -> FloatArray:
        """``sum_c Phi_c^T diag(weights_c) Phi_c``."""
        if (weights == weights[:, :1]).all():
            return np.asarray(((self.H * weights[:, :1]).T @ self.H) * (self.alpha @ self.alpha.T))
        return sum((P.T @ (w[:, None] * P) for P, w in self._with(weights)), start=np.zeros((len(self.alpha),) * 2))

    def _with(self, weights: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        return ((self.of_output(c), weights[:, c]) for c in range(weights.shape[1]))


class FullColumns(Columns):
    """The same for neurons that add ``Phi (n, C, m)``, of no special form."""

    def __init__(self, Phi: FloatArray) -> None:
        self.Phi = Phi

    def outputs(self, t: FloatArray) -> FloatArray:
        return self.Phi @ t

    def slopes(self, G: FloatArray) -> FloatArray:
        return G.ravel() @ self.Phi.reshape(G.size, -1)

    def of_output(self, c: int) -> FloatArray:
        return self.Phi[:, c]

    def full(self) -> FloatArray:
        return self.Phi

    def gram(self, weights: FloatArray) -> FloatArray:
        flat = self.Phi.reshape(weights.size, -1)
        return flat.T @ (weights.ravel()[:, None] * flat)
