"""Trained neurons on lifted features: weights and output weights, branches, gated ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bidual._util.typing import BoolArray, FloatArray, IntArray


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
    def lengths(self) -> FloatArray:
        r""":math:`\|u_j\|`, as far as hidden weights cost anything."""
        return np.linalg.norm(self.U, axis=1)

    @cached_property
    def costs(self) -> FloatArray:
        r""":math:`\|u_j\| \|\alpha_j\|`, what each neuron costs at balanced weights."""
        return self.lengths * np.linalg.norm(self.alpha, axis=1)

    def balanced(self) -> Neurons:
        r"""The same function with :math:`\|u_j\| = \|\alpha_j\|`, the cheapest scaling (003 Thm 1).

        Neurons that do nothing are removed.
        """
        u, a = self.lengths, np.linalg.norm(self.alpha, axis=1)
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
class FreeNeurons(Neurons):
    r"""Neurons whose biases, the last column of ``U``, cost nothing (004 eq. 2).

    A neuron without weights is a constant, which is the intercept's business (:meth:`bidual.atoms.FreeBias.settled`).
    """

    @cached_property
    def lengths(self) -> FloatArray:
        r""":math:`\|u_j\|` without the bias."""
        return np.linalg.norm(self.U[:, :-1], axis=1)


@dataclass(frozen=True)
class SubNetworks(Neurons):
    r"""Branches of a parallel network: ``U`` holds the weights of the leaves, ``(K, T p)``, beside the ``signs``.

    A branch costs :math:`\|W\|_F \|\alpha\|`, its path regulariser (002 Lemma 1).

    Attributes
    ----------
    signs : ndarray, shape (K, edges)
        See :class:`bidual.atoms.tree.Tree`.
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
