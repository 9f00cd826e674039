"""Neurons without a ReLU (001 sec. 2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

from bidual._util.patches import Window, unfold
from bidual._util.rounding import spectral_norm
from bidual._util.typing import FloatArray
from bidual.atoms.base import Atoms
from bidual.atoms.neurons import Neurons

_EPS = float(np.finfo(float).eps)


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
        G, moved = self._map(V)
        return spectral_norm(G) + moved

    def attained(self, V: FloatArray) -> float:
        r""":math:`\|M^T V\|_2` less rounding: some neuron certainly reaches it."""
        G, moved = self._map(V)
        largest = float(np.linalg.norm(G, 2)) if G.size else 0.0
        return max(0.0, largest * (1.0 - 16 * sum(G.shape) * _EPS) - moved)

    def _map(self, V: FloatArray) -> tuple[FloatArray, float]:
        """The matrix whose largest singular value is the constraint, and by how much rounding may have moved it."""
        M = self.M if self.centre is None else self.M - self.centre @ self.M
        rounding = 2 * (len(M) + 16) * _EPS
        moved = rounding * float(np.linalg.norm(V, axis=1) @ np.linalg.norm(M, axis=1))
        return self.seen(M.T @ V), self.reach * moved

    def seen(self, G: FloatArray) -> FloatArray:
        """The matrix whose singular values count, of a map ``G (d, C)``: the map itself."""
        return G

    @property
    def reach(self) -> float:
        """By how much :meth:`seen` may enlarge a map, in norm."""
        return 1.0


@dataclass(frozen=True)
class Chains(Linear):
    r"""Neurons M u at the ends of chains of ``depth`` layers: a map W costs :math:`\tfrac L2 \sum_j \sigma_j^{2/L}`.

    Attributes
    ----------
    depth : int
        L.
    """

    depth: int = field(default=2, kw_only=True)


@dataclass(frozen=True)
class LinearFilters(Linear):
    r"""Filters u that see every patch of a sample, with output weights of their own at each position (003 eq. 9).

    Rows of M are tensors. The map :math:`G = M^T V` as every patch sees it, :math:`[X_1^T V, \ldots, X_K^T V]` with the
    matrices :math:`X_k` of patches, has the dual constraint as its largest singular value (003 eq. 11).

    Attributes
    ----------
    window : Window
    shape : tuple of int
        Of the tensors; the first entry, their number, does not matter.
    """

    window: Window = field(default=Window(None), kw_only=True)
    shape: tuple[int, ...] = field(default=(), kw_only=True)

    def seen(self, G: FloatArray) -> FloatArray:
        """Columns for every position and output."""
        W = unfold(self.window, G, self.shape)
        return W.transpose(1, 0, 2).reshape(W.shape[1], -1)

    @property
    def reach(self) -> float:
        """An entry of a tensor is in no more patches than there are positions."""
        return float(np.sqrt(prod(self.window.grid(self.shape))))

    @property
    def largest_hidden(self) -> float:
        """No sample is seen at more positions either."""
        return self.reach * float(self.row_norms.max(initial=0.0))
