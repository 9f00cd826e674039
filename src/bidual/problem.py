r"""The training problem every solver and certificate works on.

An architecture turns data into a feature matrix M (N x p) and a fixed pooling A (n x N); a network is

.. math:: F = A (M U^T)_+ \, \alpha + 1 b^T, \qquad U \in R^{m \times p}, \; \alpha \in R^{m \times C},

and training minimises :math:`L(F) + \beta \sum_j \|u_j\| \|\alpha_j\|`, which equals the weight-decay
objective :math:`L(F) + \tfrac\beta2 \sum_j (\|u_j\|^2 + \|\alpha_j\|^2)` at balanced weights (003 Lemma 2).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from bidual._rounding import VANISHED, gamma, spectral_norm
from bidual._typing import BoolArray, FloatArray, IntArray
from bidual.abilities import Ability
from bidual.arrangements.patterns import row_axes, span_of
from bidual.losses import Loss
from bidual.tree import Tree


@dataclass(frozen=True)
class Neurons:
    """Hidden weights ``U`` (m x p) on the lifted features, output weights ``alpha`` (m x C) and intercept (C)."""

    U: FloatArray
    alpha: FloatArray
    intercept: FloatArray

    def __len__(self) -> int:
        return len(self.U)

    @classmethod
    def none(cls, p: int, intercept: FloatArray) -> Neurons:
        """The network without neurons."""
        return cls(np.zeros((0, p)), np.zeros((0, len(intercept))), intercept)

    @cached_property
    def costs(self) -> FloatArray:
        r""":math:`\|u_j\| \|\alpha_j\|`, what each neuron costs at balanced weights."""
        return np.linalg.norm(self.U, axis=1) * np.linalg.norm(self.alpha, axis=1)

    def balanced(self) -> Neurons:
        r"""The same function with :math:`\|u_j\| = \|\alpha_j\|`, the cheapest scaling (003 Thm 1).

        Neurons that do nothing are removed.
        """
        u, a = np.linalg.norm(self.U, axis=1), np.linalg.norm(self.alpha, axis=1)
        alive = (u > 0) & (a > 0)
        ratio = np.sqrt(a[alive] / u[alive])[:, None]
        kept = self.take(alive)
        return replace(kept, U=kept.U * ratio, alpha=kept.alpha / ratio)

    def take(self, index: IntArray | BoolArray) -> Neurons:
        """Only the neurons in ``index``."""
        return replace(self, U=self.U[index], alpha=self.alpha[index])

    def in_units(self, inputs: float, outputs: float, shift: FloatArray) -> Neurons:
        """The same neurons for features times ``inputs`` and outputs times ``outputs`` plus ``shift``."""
        return replace(self, U=self.U / inputs, alpha=self.alpha * outputs, intercept=self.intercept * outputs + shift)


@dataclass(frozen=True)
class SubNetworks(Neurons):
    r"""Branches of a parallel network: ``U`` holds the weights of the leaves, ``(K, T p)``, beside the ``signs``.

    A branch costs :math:`\|W\|_F \|\alpha\|`, its path regulariser (002 Lemma 1).

    Attributes
    ----------
    signs : ndarray, shape (K, edges)
        See :class:`bidual.tree.Tree`.
    """

    signs: FloatArray

    def take(self, index: IntArray | BoolArray) -> SubNetworks:
        """Only the branches in ``index``."""
        return replace(self, U=self.U[index], alpha=self.alpha[index], signs=self.signs[index])

    def joined(self, other: SubNetworks) -> SubNetworks:
        """Together with the branches of ``other``."""
        pairs = ((self.U, other.U), (self.alpha, other.alpha), (self.signs, other.signs))
        U, alpha, signs = (np.concatenate(pair) for pair in pairs)
        return replace(self, U=U, alpha=alpha, signs=signs)


@dataclass(frozen=True)
class GatedNeurons:
    r"""Gated neurons :math:`F = \sum_i A D_i M W_i + 1 b^T` with gates :math:`D_i = \mathrm{diag}(1[M g_i \ge 0])`.

    Attributes
    ----------
    gates : ndarray, shape (m, p)
        The fixed vectors :math:`g_i` on the lifted features.
    W : ndarray, shape (m, p, C)
    intercept : ndarray, shape (C,)
    """

    gates: FloatArray
    W: FloatArray
    intercept: FloatArray

    def __len__(self) -> int:
        return len(self.gates)

    @cached_property
    def costs(self) -> FloatArray:
        r""":math:`\|W_i\|_F`."""
        return np.sqrt((self.W**2).sum(axis=(1, 2)))

    def balanced(self) -> GatedNeurons:
        """Without the neurons that do nothing."""
        alive = self.costs > 0
        return GatedNeurons(self.gates[alive], self.W[alive], self.intercept)

    def in_units(self, inputs: float, outputs: float, shift: FloatArray) -> GatedNeurons:
        """The same neurons for features times ``inputs`` and outputs times ``outputs`` plus ``shift``."""
        return GatedNeurons(self.gates, self.W * (outputs / inputs), self.intercept * outputs + shift)


@dataclass(frozen=True)
class Problem:
    r"""Minimise :math:`L(A (M U^T)_+ \alpha + 1 b^T) + \beta \sum_j \|u_j\| \|\alpha_j\|`.

    Attributes
    ----------
    M : ndarray, shape (N, p)
        Lifted features.
    A : sparse array of shape (n, N) or None
        Pooling of lifted rows into samples, with non-negative entries; None is the identity.
    Y : ndarray, shape (n, C)
        Encoded targets.
    w : ndarray, shape (n,)
        Positive weights that sum to one.
    loss : Loss
    beta : float
        Strength of weight decay, positive.
    fit_intercept : bool
        Whether b is free (unregularised) or zero.
    """

    M: FloatArray
    A: sp.csr_array | None
    Y: FloatArray
    w: FloatArray
    loss: Loss
    beta: float
    fit_intercept: bool

    #: Whether neurons compute ``A (M u)_+``, which the oracles know, and not something of their own.
    plain: ClassVar[bool] = True
    #: What training may do with such neurons.
    can: ClassVar[frozenset[Ability]] = frozenset({"ordinary neurons", "finite program", "all patterns", "formula"})

    @property
    def n_outputs(self) -> int:
        return int(self.Y.shape[1])

    @property
    def n_coefficients(self) -> int:
        """Output weights of a neuron: columns of alpha."""
        return self.n_outputs

    @cached_property
    def basis(self) -> FloatArray:
        """Orthonormal basis ``(p, r)`` of the row space of M: training happens in these coordinates."""
        return span_of(self.M.shape, *self._axes)

    @cached_property
    def _axes(self) -> tuple[FloatArray, FloatArray]:
        """Singular values and right singular vectors of M: the dearest thing to know of many rows, wanted often."""
        return row_axes(self.M[self.M.any(axis=1)])

    @property
    def axes(self) -> tuple[FloatArray, FloatArray]:
        """Singular values of :attr:`reduced` and its right singular vectors, as rows."""
        s, Vt = self._axes
        rank = self.basis.shape[1]
        return (s, Vt) if rank == self.M.shape[1] else (s[:rank], np.eye(rank))

    @cached_property
    def reduced(self) -> FloatArray:
        """M in the coordinates of :attr:`basis`, ``(N, r)``."""
        return self.M if self.basis.shape[1] == self.M.shape[1] else self.M @ self.basis

    @property
    def relu_inputs(self) -> FloatArray:
        """The rows whose signs are the activation patterns."""
        return self.M

    @cached_property
    def row_norms(self) -> FloatArray:
        """Norms of the rows of M."""
        return np.linalg.norm(self.M, axis=1)

    @cached_property
    def largest_hidden(self) -> float:
        """The largest value that a neuron of unit cost has on any row of the data, at most."""
        return float(np.max(self.row_norms if self.A is None else self.A @ self.row_norms, initial=0.0))

    @cached_property
    def pools(self) -> bool:
        """Whether samples have several lifted rows."""
        return self.A is not None and self.A.nnz > self.A.shape[0]

    @cached_property
    def gain(self) -> float:
        """What pooling multiplies a constant by, on average."""
        return 1.0 if self.A is None else float(self.A.sum()) / self.A.shape[0]

    def pool(self, hidden: FloatArray) -> FloatArray:
        """``A hidden``: lifted rows to samples."""
        return hidden if self.A is None else np.asarray(self.A @ hidden)

    def spread(self, V: FloatArray) -> FloatArray:
        """``A^T V``: a gradient at the outputs, seen by the lifted rows."""
        return V if self.A is None else np.asarray(self.A.T @ V)

    def hidden(self, U: FloatArray) -> FloatArray:
        """``A (M U^T)_+``: what neurons with weights ``U (m, p)`` compute, ``(n, m)``."""
        return self.pool(np.maximum(self.M @ U.T, 0.0))

    def hidden_of(self, neurons: Neurons) -> FloatArray:
        """What these neurons compute, ``(n, m)``."""
        return self.hidden(neurons.U)

    def outputs(self, neurons: Neurons) -> FloatArray:
        """``F`` of the neurons, ``(n, C)``."""
        return self.hidden_of(neurons) @ neurons.alpha + neurons.intercept

    def combine(self, activations: FloatArray, alpha: FloatArray) -> FloatArray:
        """Outputs ``(n, C)`` of neurons with ``activations (N, m)``, without the intercept."""
        return self.pool(activations) @ alpha

    def contributions(self, activations: FloatArray, alpha: FloatArray) -> FloatArray:
        """What each neuron adds to the outputs, ``(n, C, m)``."""
        return self.pool(activations)[:, None, :] * alpha.T

    def contributions_of(self, neurons: Neurons) -> FloatArray:
        """What each of these neurons adds to the outputs, ``(n, C, m)``."""
        return self.hidden_of(neurons)[:, None, :] * neurons.alpha.T

    def no_neurons(self, p: int, intercept: FloatArray) -> Neurons:
        """The network without neurons, on ``p`` features."""
        return Neurons(np.zeros((0, p)), np.zeros((0, self.n_coefficients)), intercept)

    def loss_value(self, F: FloatArray) -> float:
        return self.loss.value(F, self.Y, self.w)

    def objective(self, neurons: Neurons) -> float:
        """Loss plus beta times the cost of the neurons."""
        return self.loss_value(self.outputs(neurons)) + self.beta * float(neurons.costs.sum())

    def dual_value(self, V: FloatArray) -> float:
        r"""The dual objective :math:`-L^*(-V)` (003 Theorem 6)."""
        return -self.loss.conjugate(-V, self.Y, self.w)

    def norm_limit(self, V: FloatArray) -> float:
        r"""An upper bound on the dual constraint at V that takes no search, with rounding.

        With :math:`G = A^T V`, :math:`(t)_+ = (t + |t|) / 2` and any positive :math:`d_i`

        .. math:: \| G^T (M u)_+ \| \le \tfrac12 \big( \|G^T M\| + \|D^{-1} G\| \, \|D M\| \big),
                  \qquad d_i^2 = \|G_i\| / \|m_i\|,

        in spectral norms, which the largest eigenvalues of small Gram matrices give.

        Rounding: G is a sum of at most n terms, :math:`G^T M` one of N; with :math:`S = \sum_i (|A|^T |V|)_i \|m_i\|`
        the first is off by :math:`\gamma_n S` and the second by :math:`\gamma_N S`, in the constraint. All else is
        relative to :math:`\|D^{-1} G\| \, \|D M\| \le S`: the entries of the scaled matrices, the norms in S, the units
        of the data and of V.
        """
        G = self.spread(V)
        sizes = np.linalg.norm(G, axis=1)
        used = (sizes > 0) & (self.row_norms > 0)
        G, M = G[used], self.M[used]
        d = np.sqrt(sizes[used] / self.row_norms[used])[:, None]
        limit = 0.5 * (spectral_norm(G.T @ M) + spectral_norm(G / d) * spectral_norm(d * M))
        return limit + gamma(len(V) + len(self.M) + 2 * self.M.shape[1] + 40) * self.mass(V) + self.vanished(V)

    def vanished(self, V: FloatArray) -> float:
        """What underflow may hide from the dual constraint."""
        return VANISHED if V.any() and self.M.any() else 0.0

    def mass(self, V: FloatArray) -> float:
        r""":math:`\sum_i \|(|A|^T |V|)_i\| \|m_i\|`: what rounding in the dual constraint is relative to."""
        return float(np.linalg.norm(self.spread(np.abs(V)), axis=1) @ self.row_norms)


@dataclass(frozen=True)
class HeadProblem(Problem):
    r"""The same for neurons with output weights at each of K positions of a sample (003 eq. 9 with a ReLU).

    .. math:: F_i = \sum_j \sum_k (x_{ik}^T u_j)_+ \alpha_{jk} + b, \qquad \alpha_{jk} \in R^C.

    Rows of A are the positions of sample 1, of sample 2, ...; the columns of alpha are the outputs of position 1, of
    position 2, .... A neuron costs :math:`\|u_j\| \|\alpha_j\|_F`, and the dual constraint is that of K C outputs,
    :math:`\| (\sum_i v_i (x_{ik}^T u)_+)_k \|_F \le \beta`: position k sees the dual point in its own columns only.
    """

    n_positions: int = 1

    can: ClassVar[frozenset[Ability]] = frozenset({"all patterns"})

    @property
    def n_coefficients(self) -> int:
        return self.n_positions * self.n_outputs

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
        return sp.csr_array(self.A.reshape((len(self.Y), self.n_positions * self.A.shape[1])))

    def pool(self, hidden: FloatArray) -> FloatArray:
        """Lifted rows with values for all positions, ``(N, K C)``, to samples: each position takes its own."""
        N = len(hidden)
        K, C = self.n_positions, self.n_outputs
        return np.asarray(self._flat @ hidden.reshape(N, K, C).swapaxes(0, 1).reshape(K * N, C))

    def spread(self, V: FloatArray) -> FloatArray:
        lifted = np.asarray(self._flat.T @ V).reshape(self.n_positions, -1, V.shape[1])
        return np.ascontiguousarray(lifted.swapaxes(0, 1)).reshape(lifted.shape[1], -1)

    def hidden(self, U: FloatArray) -> FloatArray:
        raise TypeError("neurons with a head have an output for every position: see contributions")

    def outputs(self, neurons: Neurons) -> FloatArray:
        return self.combine(np.maximum(self.M @ neurons.U.T, 0.0), neurons.alpha) + neurons.intercept

    def combine(self, activations: FloatArray, alpha: FloatArray) -> FloatArray:
        assert self.A is not None
        K, m = self.n_positions, len(alpha)
        H = np.asarray(self.A @ activations).reshape(len(self.Y), K * m)
        return H @ alpha.reshape(m, K, self.n_outputs).swapaxes(0, 1).reshape(K * m, self.n_outputs)

    def contributions(self, activations: FloatArray, alpha: FloatArray) -> FloatArray:
        assert self.A is not None
        n, m = len(self.Y), len(alpha)
        H = np.asarray(self.A @ activations).reshape(n, self.n_positions, m)
        heads = alpha.reshape(m, self.n_positions, self.n_outputs)
        return np.einsum("ikm,mkc->icm", H, heads, optimize=True)

    def contributions_of(self, neurons: Neurons) -> FloatArray:
        return self.contributions(np.maximum(self.M @ neurons.U.T, 0.0), neurons.alpha)


@dataclass(frozen=True)
class NormalisedProblem(Problem):
    r"""The same for neurons that are normalised after the ReLU (000 eq. 19).

    M = [X, k 1], where the last column carries the shift (:math:`k = 1/\sqrt n`). A neuron with weights (q, a)
    computes

    .. math:: k \Big( \|q\| \, \frac{z - 1 w^T z}{(w^T (z - 1 w^T z)^2)^{1/2}} + a 1 \Big), \qquad z = (X q)_+ ,

    the direction of q being the hidden weights, its length the scale :math:`\gamma`. One output only.
    """

    plain: ClassVar[bool] = False
    can: ClassVar[frozenset[Ability]] = frozenset({"finite program", "all patterns", "formula"})

    @property
    def relu_inputs(self) -> FloatArray:
        return self.M[:, :-1]

    def hidden(self, U: FloatArray) -> FloatArray:
        z = np.maximum(self.M[:, :-1] @ U[:, :-1].T, 0.0)
        mean, deviation = statistics(z, self.w)
        scale = np.where(deviation > 0, np.linalg.norm(U[:, :-1], axis=1), 0.0) / np.where(
            deviation > 0, deviation, 1.0
        )
        return self.M[:, -1:] * ((z - mean) * scale + U[:, -1])

    @cached_property
    def largest_hidden(self) -> float:
        r""":math:`k / \sqrt{w_i}`, as :math:`\sum_i w_i h_i^2 \le k^2`."""
        return float(self.M[0, -1] / np.sqrt(self.w.min()))

    def norm_limit(self, V: FloatArray) -> float:
        r""":math:`k (\sum_i v_i^2 / w_i)^{1/2}`: a neuron of unit cost has the weighted norm k at most."""
        size = np.sqrt((V[:, 0] ** 2 / self.w).sum())
        return float(self.M[0, -1] * size * (1.0 + 4 * (len(V) + 4) * np.finfo(float).eps))


@dataclass(frozen=True)
class ParallelProblem(Problem):
    r"""The same for branches with the path regulariser (002 eq. 5).

    A branch with leaves W (T x p) and signs s computes :math:`\phi(W)` of :mod:`bidual.tree` on M.

    Attributes
    ----------
    tree : Tree
        The shape of the branches.
    """

    tree: Tree = field(default=Tree((1,)))

    plain: ClassVar[bool] = False
    can: ClassVar[frozenset[Ability]] = frozenset({"finite program", "all patterns"})

    def leaves(self, U: FloatArray) -> FloatArray:
        """Pre-activations of the leaves of weights ``U (K, T p)``, ``(n, K, T)``."""
        T = self.tree.leaves
        # rows last in memory, which is what the loops over trees are fast with
        return (U.reshape(-1, self.M.shape[1]) @ self.M.T).reshape(-1, T, len(self.M)).transpose(2, 0, 1)

    def hidden_of(self, neurons: Neurons) -> FloatArray:
        assert isinstance(neurons, SubNetworks)
        return self.tree.value(self.leaves(neurons.U), neurons.signs)

    @cached_property
    def largest_hidden(self) -> float:
        return float(np.sqrt(self.tree.leaves) * self.row_norms.max(initial=0.0))

    def norm_limit(self, V: FloatArray) -> float:
        r""":math:`\sqrt T` times that of neurons.

        On its cell a branch computes :math:`\sum_t \pm D_t M w_t` with :math:`\sum_t \|w_t\| \le \sqrt T`, and the
        bound by norms holds for every diagonal :math:`D_t` of zeros and ones.
        """
        return float(np.sqrt(self.tree.leaves)) * super().norm_limit(V)

    def no_neurons(self, p: int, intercept: FloatArray) -> SubNetworks:
        T, p = self.tree.leaves, self.M.shape[1]
        empty = np.zeros((0, T * p)), np.zeros((0, len(intercept)))
        return SubNetworks(*empty, intercept, np.zeros((0, self.tree.edges)))


def statistics(z: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted mean and standard deviation of each column; a deviation within rounding of zero is zero."""
    mean = w @ z
    deviation = np.sqrt(w @ (z - mean) ** 2)
    return mean, np.where(deviation > 1e-13 * np.sqrt(w @ z**2), deviation, 0.0)
