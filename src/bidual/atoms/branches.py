"""Branches of parallel networks: trees of neurons with the path regulariser (002)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from sklearn.utils import check_random_state

from bidual._util.typing import FloatArray
from bidual.arrangements import Patterns
from bidual.arrangements.enumerate import TooManyPatternsError
from bidual.atoms.abilities import Ability
from bidual.atoms.base import Atoms
from bidual.atoms.branch_blocks import BranchBlocks
from bidual.atoms.branch_cells import LayeredPatterns, enumerate_layered, layered_patterns_of
from bidual.atoms.neurons import Neurons, SubNetworks
from bidual.atoms.tree import Tree


@dataclass(frozen=True)
class Branches(Atoms):
    r"""Branches with the path regulariser (002 eq. 5).

    A branch with leaves W (T x p) and signs s computes :math:`\phi(W)` of :mod:`bidual.atoms.tree` on M.

    Attributes
    ----------
    tree : Tree
        The shape of the branches.
    """

    tree: Tree = field(kw_only=True)

    merges: ClassVar[bool] = False
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
        return float(np.sqrt(self.tree.leaves)) * self.masked_limit(V)

    def none(self, p: int, intercept: FloatArray) -> SubNetworks:
        T, p = self.tree.leaves, self.M.shape[1]
        empty = np.zeros((0, T * p)), np.zeros((0, len(intercept)))
        return SubNetworks(*empty, intercept, np.zeros((0, self.tree.edges)))

    def cells(self) -> LayeredPatterns:
        """All cells of three-layer branches."""
        return enumerate_layered(self.reduced, self.tree.leaves)

    def few_cells(self, limit: int) -> LayeredPatterns | None:
        if len(self.tree.widths) > 1:
            return None
        try:
            return enumerate_layered(self.reduced, self.tree.leaves, max_cells=limit)
        except TooManyPatternsError:
            return None

    def some_cells(
        self,
        count: int,
        random_state: int | np.random.RandomState | None,
        start: Neurons | None = None,
        given: Patterns | None = None,
    ) -> LayeredPatterns:
        """Cells of random branches (003 Remark 3.2 for both layers), and those of a network to start from."""
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        branches = random_branches(self, count, 1, rng)
        if isinstance(start, SubNetworks):
            branches = replace(start, alpha=np.ones((len(start), 1))).joined(branches)
        return self.cells_of(branches)

    def cells_of(self, branches: SubNetworks) -> LayeredPatterns:
        """The distinct cells of these branches."""
        return layered_patterns_of(self.tree, self.leaves(branches.U), branches.signs)

    def blocks(self, cells: LayeredPatterns) -> BranchBlocks:
        return BranchBlocks(self, cells)


def random_branches(atoms: Branches, count: int, n_outputs: int, rng: np.random.Generator) -> SubNetworks:
    """Branches with Gaussian leaves of all lengths and random signs, of unit cost.

    Half of them have leaves whose kink passes through a random row, as far as the data allow: kinks outside of the
    data are of no use. A quarter have equal leaves, which is the cheapest way to be a single neuron.
    """
    tree, p = atoms.tree, atoms.M.shape[1]
    W = rng.standard_normal((count, tree.leaves, p)) @ (atoms.basis @ atoms.basis.T)
    W *= rng.exponential(size=(count, tree.leaves, 1))
    ones, half = _constant(atoms), slice(count // 2)
    if ones is not None:
        row = atoms.M[rng.integers(len(atoms.M), size=(count // 2, tree.leaves))]
        W[half] -= np.einsum("ktp,ktp->kt", W[half], row)[:, :, None] * ones
    equal = np.arange(count) % 4 == 0
    W[equal] = W[equal, :1]
    W /= np.maximum(np.linalg.norm(W, axis=(1, 2), keepdims=True), 1e-300)
    signs = np.where(equal[:, None], 1.0, random_signs(atoms.tree, count, rng))
    alpha = rng.standard_normal((count, n_outputs))
    alpha /= np.maximum(np.linalg.norm(alpha, axis=1, keepdims=True), 1e-300)
    return SubNetworks(W.reshape(count, tree.leaves * p), alpha, np.zeros(n_outputs), signs)


def random_signs(tree: Tree, count: int, rng: np.random.Generator) -> FloatArray:
    """Signs of ``count`` branches. The child that comes first has a plus: with minus signs only a node is dead."""
    signs = rng.choice([-1.0, 1.0], size=(count, tree.edges))
    start = 0
    for m, size in zip(tree.widths, tree.sizes, strict=False):
        signs[:, start : start + size : m] = 1.0
        start += size
    return signs


def _constant(atoms: Branches) -> FloatArray | None:
    """Weights that add a constant one, if there are any."""
    one = np.asarray(np.linalg.lstsq(atoms.M, np.ones(len(atoms.M)), rcond=None)[0], dtype=np.float64)
    return one if np.allclose(atoms.M @ one, 1.0, rtol=0, atol=1e-9) else None
