"""Neurons with output weights at every position of a sample: convolutions whose maps are flattened."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from bidual._util.typing import FloatArray
from bidual.atoms.abilities import Ability
from bidual.atoms.columns import FullColumns
from bidual.atoms.neurons import Neurons
from bidual.atoms.relu import Relu


@dataclass(frozen=True)
class Heads(Relu):
    r"""Neurons with output weights at each of K positions of a sample (003 eq. 9 with a ReLU).

    .. math:: F_i = \sum_j \sum_k (x_{ik}^T u_j)_+ \alpha_{jk} + b, \qquad \alpha_{jk} \in R^C.

    Rows of A are the positions of sample 1, of sample 2, ...; the columns of alpha are the outputs of position 1, of
    position 2, .... A neuron costs :math:`\|u_j\| \|\alpha_j\|_F`, and the dual constraint is that of K C outputs,
    :math:`\| (\sum_i v_i (x_{ik}^T u)_+)_k \|_F \le \beta`: position k sees the dual point in its own columns only.
    """

    n_positions: int = 1

    can: ClassVar[frozenset[Ability]] = frozenset({"all patterns", "plain oracle"})

    @property
    def n_samples(self) -> int:
        return super().n_samples // self.n_positions

    def n_coefficients(self, n_outputs: int) -> int:
        return self.n_positions * n_outputs

    @property
    def pools(self) -> bool:
        return self.n_positions > 1

    @property
    def gain(self) -> float:
        return 1.0

    @cached_property
    def _flat(self) -> sp.csr_array:
        """A with the positions of a sample side by side, ``(n, K N)``."""
        assert self.A is not None
        return sp.csr_array(self.A.reshape((self.n_samples, self.n_positions * self.A.shape[1])))

    def pool(self, hidden: FloatArray) -> FloatArray:
        """Lifted rows with values for all positions, ``(N, K C)``, to samples: each position takes its own."""
        N, K = len(hidden), self.n_positions
        C = hidden.shape[1] // K
        return np.asarray(self._flat @ hidden.reshape(N, K, C).swapaxes(0, 1).reshape(K * N, C))

    def spread(self, V: FloatArray) -> FloatArray:
        lifted = np.asarray(self._flat.T @ V).reshape(self.n_positions, -1, V.shape[1])
        return np.ascontiguousarray(lifted.swapaxes(0, 1)).reshape(lifted.shape[1], -1)

    def hidden(self, U: FloatArray) -> FloatArray:
        raise TypeError("neurons with a head have an output for every position: see contributions")

    def outputs(self, neurons: Neurons) -> FloatArray:
        return self.combine(np.maximum(self.M @ neurons.U.T, 0.0), neurons.alpha) + neurons.intercept

    def stacked(self, activations: FloatArray) -> FloatArray:
        assert self.A is not None
        H = np.asarray(self.A @ activations).reshape(self.n_samples, self.n_positions, -1)
        return H.swapaxes(1, 2).reshape(self.n_samples, -1)

    def combine(self, activations: FloatArray, alpha: FloatArray) -> FloatArray:
        assert self.A is not None
        K, m = self.n_positions, len(alpha)
        C = alpha.shape[1] // K
        H = np.asarray(self.A @ activations).reshape(self.n_samples, K * m)
        return H @ alpha.reshape(m, K, C).swapaxes(0, 1).reshape(K * m, C)

    def contributions(self, activations: FloatArray, alpha: FloatArray) -> FloatArray:
        assert self.A is not None
        K, m = self.n_positions, len(alpha)
        H = np.asarray(self.A @ activations).reshape(self.n_samples, K, m)
        heads = alpha.reshape(m, K, alpha.shape[1] // K)
        return np.einsum("ikm,mkc->icm", H, heads, optimize=True)

    def columns(self, neurons: Neurons) -> FullColumns:
        return FullColumns(self.contributions(np.maximum(self.reduced @ neurons.U.T, 0.0), neurons.alpha))

    def contributions_of(self, neurons: Neurons) -> FloatArray:
        return self.contributions(np.maximum(self.M @ neurons.U.T, 0.0), neurons.alpha)
