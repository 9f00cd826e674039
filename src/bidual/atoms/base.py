r"""Atoms: what neurons of one kind compute on the rows of the training data.

An architecture turns data into a feature matrix M (N x p) and a fixed pooling A (n x N). A neuron with parameters
:math:`\theta` of unit cost computes :math:`\phi(\theta) \in R^n` on them, its *atom*; a network is a combination
:math:`F = \sum_j \phi(\theta_j) \alpha_j^T + 1 b^T` at the cost :math:`\sum_j \|\alpha_j\|`. Everything that depends
on what a neuron computes is here and in the files beside this one, one for each kind; loss, targets and weight decay
are the business of :class:`bidual.problem.Problem`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from bidual._util.rounding import VANISHED, gamma, scaled_norm, spectral_norm
from bidual._util.sparse import lengths, stored
from bidual._util.typing import BoolArray, FloatArray
from bidual.arrangements import Patterns, enumerate_patterns, few_patterns, patterns_of, sample_patterns
from bidual.arrangements.patterns import Cells, dear, rough_axes, row_axes, span_of, wide_space
from bidual.atoms.abilities import Ability
from bidual.atoms.blocks import Blocks, PatternBlocks
from bidual.atoms.columns import Columns
from bidual.atoms.neurons import Neurons


@dataclass(frozen=True)
class Atoms(ABC):
    """What neurons of one kind compute on lifted features.

    Attributes
    ----------
    M : ndarray, shape (N, p)
        Lifted features.
    A : sparse array of shape (n, N) or None
        Pooling of lifted rows into samples, with entries of any signs; None is the identity.
    """

    M: FloatArray
    A: sp.csr_array | None = None

    #: Whether two neurons of one cell and one head are one with the sum of their weights.
    merges: ClassVar[bool] = True
    #: What training may do with such neurons.
    can: ClassVar[frozenset[Ability]] = frozenset()

    # ---- features ------------------------------------------------------------------------------

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.M.shape[0] if self.A is None else self.A.shape[0])

    @cached_property
    def basis(self) -> FloatArray:
        """Orthonormal basis ``(p, r)`` of the row space of M: training happens in these coordinates.

        Where a factorisation is too dear, of the columns that are not zero; of few long rows, from their Gram matrix.
        """
        n, p = self.M.shape
        if not dear((n, p)):
            return span_of((n, p), *self._axes)
        if n >= p:
            return np.eye(p)[:, self._used]
        space = wide_space(self.M[self.M.any(axis=1)])
        return span_of((n, p), *self._axes) if space is None else space

    @cached_property
    def _used(self) -> BoolArray:
        """Columns that are not zero."""
        return np.asarray(self.M.any(axis=0))

    @cached_property
    def _axes(self) -> tuple[FloatArray, FloatArray]:
        """Singular values and right singular vectors of M: the dearest thing to know of many rows, wanted often."""
        return row_axes(self.M[self.M.any(axis=1)])

    @cached_property
    def axes(self) -> tuple[FloatArray, FloatArray]:
        """Singular values of :attr:`reduced` and its right singular vectors, as rows; zero for those that are lost."""
        if dear(self.M.shape):
            return rough_axes(self.reduced)
        s, Vt = self._axes
        rank = self.basis.shape[1]
        return (s, Vt) if rank == self.M.shape[1] else (s[:rank], np.eye(rank))

    @cached_property
    def reduced(self) -> FloatArray:
        """M in the coordinates of :attr:`basis`, ``(N, r)``."""
        if self.basis.shape[1] == self.M.shape[1]:
            return self.M
        n, p = self.M.shape
        return self.M[:, self._used] if n >= p and dear((n, p)) else self.M @ self.basis

    @cached_property
    def metric(self) -> FloatArray:
        """What makes Gaussians in reduced coordinates those of the data: along their long axes they are short."""
        if not self.reduced.shape[1]:
            return np.zeros((0, 0))
        s, Vt = self.axes
        Vt, s = Vt[s > 0], s[s > 0]  # none where there are no data
        return np.asarray((Vt.T / np.maximum(s, 1e-12 * s[0])) @ Vt) * float(s[0])

    @cached_property
    def unit(self) -> float:
        """The root mean square of the entries of :attr:`reduced`; one if there are none."""
        X = self.reduced
        return float(np.linalg.norm(X)) / X.size**0.5 if X.size else 1.0

    @property
    def relu_inputs(self) -> FloatArray:
        """The rows whose signs are the activation patterns."""
        return self.M

    @cached_property
    def row_norms(self) -> FloatArray:
        """Norms of the rows of M."""
        return lengths(self.M)

    @cached_property
    def largest_hidden(self) -> float:
        """The largest value that a neuron of unit cost has on any row of the data, at most."""
        return float(np.max(self.row_norms if self.A is None else abs(self.A) @ self.row_norms, initial=0.0))

    @cached_property
    def pools(self) -> bool:
        """Whether samples have several lifted rows."""
        return self.A is not None and self.A.nnz > self.A.shape[0]

    @cached_property
    def gain(self) -> float:
        """What pooling multiplies a constant by, on average, if nothing cancels."""
        return 1.0 if self.A is None else float(abs(self.A).sum()) / self.A.shape[0]

    def pool(self, hidden: FloatArray) -> FloatArray:
        """``A hidden``: lifted rows to samples."""
        return hidden if self.A is None else np.asarray(self.A @ hidden)

    def spread(self, V: FloatArray) -> FloatArray:
        """``A^T V``: a gradient at the outputs, seen by the lifted rows."""
        return V if self.A is None else np.asarray(self.A.T @ V)

    @cached_property
    def unsigned(self) -> Self:
        """The same with ``|A|``: sums of sizes, in which nothing cancels."""
        return self if self.A is None or (self.A.data >= 0).all() else replace(self, A=abs(self.A))

    def loads(self, V: FloatArray) -> FloatArray:
        r""":math:`\|(|A|^T |V|)_i\|` for the rows of M: what rounding in their weights ``A^T V`` is relative to."""
        return np.linalg.norm(self.unsigned.spread(np.abs(V)), axis=1)

    # ---- neurons -------------------------------------------------------------------------------

    @abstractmethod
    def hidden_of(self, neurons: Neurons) -> FloatArray:
        """What these neurons compute, ``(n, m)``."""

    def outputs(self, neurons: Neurons) -> FloatArray:
        """``F`` of the neurons, ``(n, C)``."""
        return self.hidden_of(neurons) @ neurons.alpha + neurons.intercept

    def contributions_of(self, neurons: Neurons) -> FloatArray:
        """What each of these neurons adds to the outputs, ``(n, C, m)``."""
        return self.hidden_of(neurons)[:, None, :] * neurons.alpha.T

    def columns(self, neurons: Neurons) -> Columns:
        """The outputs of neurons in the coordinates of :attr:`reduced`, in terms of their magnitudes."""
        return Columns(self.hidden_of(neurons), neurons.alpha)

    def n_coefficients(self, n_outputs: int) -> int:
        """Output weights of a neuron: columns of alpha."""
        return n_outputs

    def none(self, p: int, intercept: FloatArray) -> Neurons:
        """The network without neurons, on ``p`` features."""
        return self.neurons(np.zeros((0, p)), np.zeros((0, self.n_coefficients(len(intercept)))), intercept)

    def neurons(self, U: FloatArray, alpha: FloatArray, intercept: FloatArray) -> Neurons:
        """Neurons of this kind with these weights."""
        return Neurons(U, alpha, intercept)

    # ---- cells on which they are linear --------------------------------------------------------

    def cells(self) -> Cells:
        """All activation patterns."""
        return enumerate_patterns(self.relu_inputs)

    def few_cells(self, limit: int) -> Cells | None:
        """All of them if they are at most so many, else None."""
        return few_patterns(self.relu_inputs, limit)

    def some_cells(
        self,
        count: int,
        random_state: int | np.random.RandomState | None,
        start: Neurons | None = None,
        given: Patterns | None = None,
    ) -> Cells:
        """``count`` random ones, those of a network to start from, and those that are given."""
        inputs = self.relu_inputs
        directions = [np.zeros((0, inputs.shape[1]))]
        if start is not None:
            directions.append(start.U[:, : inputs.shape[1]])
        if given is not None:
            directions.append(given.witnesses)
        if count:
            directions.append(sample_patterns(inputs, count, random_state).witnesses)
        return patterns_of(inputs, np.concatenate(directions))

    def blocks(self, cells: Any) -> Blocks:
        """Neurons on ``cells`` of this kind, where they are linear."""
        return PatternBlocks(self, cells)

    # ---- the dual constraint -------------------------------------------------------------------

    @abstractmethod
    def norm_limit(self, V: FloatArray) -> float:
        """An upper bound on the dual constraint at V that takes no search, with rounding."""

    def masked_limit(self, V: FloatArray) -> float:
        r"""An upper bound of :math:`\|V^T A D M u\|` over unit vectors u and diagonals D of zeros and ones.

        That is the constraint of :math:`(M u)_+` among others. With :math:`G = A^T V`, :math:`D = (I + S) / 2` and any
        positive :math:`d_i`

        .. math:: \| G^T D M u \| \le \tfrac12 \big( \|G^T M\| + \|D^{-1} G\| \, \|D M\| \big),
                  \qquad d_i^2 = \|G_i\| / \|m_i\|,

        in spectral norms, which the largest eigenvalues of small Gram matrices give. Where that of M would be too
        dear, :math:`\|D M\|_F^2 = \sum_i \|G_i\| \|m_i\|` takes its place.

        Rounding: G is a sum of at most n terms, :math:`G^T M` one of N; with :math:`S = \sum_i (|A|^T |V|)_i \|m_i\|`
        the first is off by :math:`\gamma_n S` and the second by :math:`\gamma_N S`, in the constraint. All else is
        relative to :math:`\|D^{-1} G\| \, \|D M\| \le S`: the entries of the scaled matrices, the norms in S, the units
        of the data and of V.
        """
        G = self.spread(V)
        sizes = np.linalg.norm(G, axis=1)
        used = (sizes > 0) & (self.row_norms > 0)
        G, M = (G, self.M) if used.all() else (G[used], self.M[used])
        d = np.sqrt(sizes[used] / self.row_norms[used])[:, None]
        limit = 0.5 * (spectral_norm(G.T @ M) + spectral_norm(G / d) * scaled_norm(M, d))
        return limit + gamma(len(V) + self.M.shape[0] + 2 * self.M.shape[1] + 40) * self.mass(V) + self.vanished(V)

    def vanished(self, V: FloatArray) -> float:
        """What underflow may hide from the dual constraint."""
        return VANISHED if V.any() and stored(self.M).any() else 0.0

    def mass(self, V: FloatArray) -> float:
        r""":math:`\sum_i \|(|A|^T |V|)_i\| \|m_i\|`: what rounding in the dual constraint is relative to."""
        return float(self.loads(V) @ self.row_norms)
