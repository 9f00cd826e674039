r"""Parallel networks of three and more layers with the path regulariser (002)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from bidual._util.checks import LARGEST_SIZE, check_number, is_size, shown
from bidual._util.memory import require_memory
from bidual._util.typing import FloatArray, IntArray
from bidual.architectures.base import Architecture, Lift
from bidual.architectures.low_rank import LowRank, price_of_rank
from bidual.atoms import Branches, Neurons, SubNetworks
from bidual.atoms.abilities import Ability, Needs, needs
from bidual.atoms.tree import Tree
from bidual.losses import Loss
from bidual.networks import Network, ParallelNetwork

#: Branches that training holds at a time, at least.
_BRANCHES = 32


class Parallel(Architecture):
    r"""Any number of branches with m1 and m2 hidden neurons each, charged by their paths (002 eq. 4).

    .. math:: f(X) = \sum_k ((X W_{1k})_+ W_{2k})_+ W_{3k} + b, \qquad
              R = \sum_k \Big( \sum_{j_1, j_2} \|w_{1kj_1}\|^2 w_{2kj_1j_2}^2 \|w_{3kj_2}\|^2 \Big)^{1/2}

    with W1 of shape (d, m1), W2 (m1, m2), W3 (m2, C). ``network_`` is a :class:`bidual.ParallelNetwork`.

    Parameters
    ----------
    m1 : int, default=3
        First-layer neurons of a branch. With m1 = 1 a branch is a neuron of a two-layer network.
    m2 : int, default=1
        Second-layer neurons of a branch.
    deeper : sequence of int, default=()
        Widths of further hidden layers. The branches are then *trees*: a neuron feeds one neuron of the next layer, so
        that the layers below the last hidden one have m1, m2, ... neurons for each neuron above them. (A branch of 002
        eq. 1 shares neurons, which is a tree with equal subtrees: the optimum over trees is a lower bound for it.)
    rank : int, "auto" or None, default=None
        Train on the best approximation of X of this rank (002 sec. 3.1): the first-layer weights lie in the span of its
        leading singular directions. "auto" is the smallest rank that costs at most ``factor``.
        :func:`bidual.low_rank` tells what a rank may cost.
    factor : float, default=1.1
        With ``rank="auto"``: the objective may be at most so many times that of the optimum on all of X (002 Theorem
        2, see :mod:`bidual.architectures.low_rank`).

    Notes
    -----
    The neurons of the last hidden layer are copies of each other at the optimum: they only divide beta by
    :math:`\sqrt{m_2}` (002 Theorem 1).

    ``method="exact"`` is exact for three layers. ``"adaptive"`` enumerates all patterns where they are few, which is
    exact and proven, and otherwise searches for them: its bound then rests on local search. Deeper networks are
    always searched. Searches that do not find the branches of the network again, when they are not told of them,
    support no likely bound: training then ends with the proven one alone.

    ``bias`` of the estimators adds biases to the first layer, which are charged like weights.
    """

    name = "parallel"
    m1: int
    m2: int
    deeper: tuple[int, ...]
    rank: int | str | None
    factor: float

    def __init__(
        self,
        m1: int = 3,
        m2: int = 1,
        deeper: Sequence[int] = (),
        rank: int | str | None = None,
        factor: float = 1.1,
    ) -> None:
        for label, value in [("m1", m1), ("m2", m2), *(("deeper", m) for m in deeper)]:
            if not is_size(value):
                raise ValueError(f"{label}: widths must be integers >= 1 (at most {LARGEST_SIZE}), got {shown(value)}")
        if not (rank is None or rank == "auto" or is_size(rank)):
            raise ValueError(
                f"rank must be an integer >= 1 (at most {LARGEST_SIZE}), 'auto' or None, got {shown(rank)}"
            )
        check_number("factor", factor, at_least=1.0)
        self.m1, self.m2, self.deeper = int(m1), int(m2), tuple(int(m) for m in deeper)
        self.rank = rank
        self.factor = float(factor)

    @property
    def can(self) -> frozenset[Ability]:
        return Branches.can - {"all patterns"} if self.deeper else Branches.can

    @property
    def needs(self) -> Needs:
        return needs("weight decay") if self.rank == "auto" else ()  # without it every rank may cost anything

    @classmethod
    def of(cls, network: Network) -> Parallel:
        if not isinstance(network, ParallelNetwork) or network.depth < 3:
            raise ValueError(f"parallel networks have three layers at least, unlike {network!r}")
        *inner, last = (W.shape[2] for W in network.layers[:-1])
        # of a tree, every neuron has as many inputs as there are neurons below each of its layer; else it may have all
        fans = [
            a // b if a % b == 0 and (np.count_nonzero(W, axis=1) <= a // b).all() else a
            for W, (a, b) in zip(network.layers[1:], pairwise(inner), strict=False)
        ]
        m1, m2, *deeper = (*fans, inner[-1], last)
        return cls(m1, m2, deeper)

    @property
    def tree(self) -> Tree:
        """The shape of a branch below its last hidden layer."""
        return Tree((self.m1, self.m2, *self.deeper)[:-1])

    @property
    def copies(self) -> int:
        """Neurons of the last hidden layer."""
        return (self.m1, self.m2, *self.deeper)[-1]

    def price_of_rank(
        self, X: FloatArray, Y: FloatArray, w: FloatArray, *, loss: Loss, beta: float, fit_intercept: bool
    ) -> LowRank:
        """What the ranks of X may cost."""
        leaves = self.tree.leaves * self.copies
        return price_of_rank(X, Y, w, loss=loss, beta=beta, fit_intercept=fit_intercept, leaves=leaves)

    def settled(
        self, X: FloatArray, Y: FloatArray, w: FloatArray, *, loss: Loss, beta: float, fit_intercept: bool
    ) -> Parallel:
        if self.rank != "auto":
            return self
        table = self.price_of_rank(X, Y, w, loss=loss, beta=beta, fit_intercept=fit_intercept)
        return Parallel(self.m1, self.m2, self.deeper, table.rank_for(self.factor), self.factor)

    def lift(self, X: FloatArray, *, bias: bool, counts: FloatArray | None = None) -> ParallelLift:
        return ParallelLift(X, bias, self)


class ParallelLift(Lift):
    r"""M = :math:`\sqrt{m_2}` [X, 1], where the copies of the last hidden layer are the factor in front.

    A branch :math:`\phi(W) \alpha` on M is m2 copies of :math:`\phi` with output weights
    :math:`\alpha / \sqrt{m_2}`, whose path regulariser is :math:`\|W\|_F \|\alpha\|` (002 Proposition 1).
    """

    def __init__(self, X: FloatArray, bias: bool, architecture: Parallel) -> None:
        self.bias, self.architecture = bias, architecture
        self.d = X.shape[1]
        tree, copies = architecture.tree, architecture.copies
        require_memory(
            8 * _BRANCHES * (tree.leaves * (self.d + copies) + tree.nodes * len(X)),
            f"training branches of {tree.leaves:,} first-layer neurons and {copies:,} copies on {len(X):,} rows",
            "Use smaller widths.",
        )
        self.rank: int | None = None
        self.V: FloatArray | None = None
        if architecture.rank is not None:
            _, sigma, Vt = np.linalg.svd(X, full_matrices=False)
            full = int((sigma > sigma.max(initial=0.0) * max(X.shape) * np.finfo(float).eps).sum())
            self.rank = max(1, min(int(architecture.rank), full))
            self.V = Vt[: self.rank].T
            self._restricted = self.rank < full
        columns = X if self.V is None else X @ self.V
        self.scale = float(np.sqrt(architecture.copies))
        self.M = self.scale * (np.column_stack([columns, np.ones(len(X))]) if bias else columns)

    def atoms(self, w: FloatArray) -> Branches:
        return Branches(self.M, tree=self.architecture.tree)

    @property
    def restriction(self) -> str:
        return f"rank {self.rank}" if self.V is not None and self._restricted else ""

    def recover(self, neurons: Neurons) -> ParallelNetwork:
        assert isinstance(neurons, SubNetworks)
        kept = neurons.balanced()
        assert isinstance(kept, SubNetworks)
        tree, copies, K = self.architecture.tree, self.architecture.copies, len(kept)
        leaves = kept.U.reshape(K, tree.leaves, self.M.shape[1])
        first = leaves[:, :, :-1] if self.bias else leaves
        if self.V is not None:
            first = first @ self.V.T
        layers, start = [np.ascontiguousarray(first.swapaxes(1, 2))], 0
        for level, (m, size) in enumerate(zip(tree.widths, tree.sizes, strict=False)):
            # children of a node are neighbours; the root stands for all copies
            signs = kept.signs[:, start : start + size]
            W = np.zeros((K, size, size // m))
            W[:, np.arange(size), np.arange(size) // m] = signs
            layers.append(np.repeat(W, copies, axis=2) if level == len(tree.widths) - 1 else W)
            start += size
        layers.append(np.repeat(kept.alpha[:, None, :] / self.scale, copies, axis=1))
        return ParallelNetwork(layers, leaves[:, :, -1] if self.bias else None, kept.intercept)

    def neurons(self, network: Network) -> SubNetworks:
        if not isinstance(network, ParallelNetwork):
            raise TypeError(f"expected a parallel network, got {type(network).__name__}")
        if network.n_inputs != self.d:
            raise ValueError(f"the network takes {network.n_inputs} inputs, the data have {self.d}")
        tree, copies = self.architecture.tree, self.architecture.copies
        last = network.layers[-1].shape[1]
        if network.depth != len(tree.widths) + 2 or last > copies:
            raise ValueError(f"{network!r} is not of the architecture {self.architecture!r}")
        bias = network.hidden_bias
        if bias is not None and not self.bias and np.any(bias):
            raise ValueError("the network has hidden biases, but bias=False asks for none")
        first = network.layers[0].swapaxes(1, 2)  # (K, m, d)
        if self.V is not None:
            first = first @ self.V
        if self.bias:
            first = np.concatenate(
                [first, np.zeros((*first.shape[:2], 1)) if bias is None else bias[..., None]], axis=2
            )
        unfolded = [
            (*_unfold(tree, [W[k] for W in network.layers[1:-1]], first[k], j), network.layers[-1][k, j])
            for k in range(network.n_branches)
            for j in range(last)
        ]
        none = np.zeros((0, tree.leaves * self.M.shape[1])), np.zeros((0, tree.edges)), np.zeros((0, network.n_outputs))
        U, signs, heads = (np.stack(part) for part in zip(*unfolded, strict=True)) if unfolded else none
        return SubNetworks(U, self.scale * heads / copies, network.intercept, signs)


def _unfold(tree: Tree, layers: list[FloatArray], first: FloatArray, root: int) -> tuple[FloatArray, FloatArray]:
    """Leaves ``(T p)`` and signs of the tree below neuron ``root`` of the last hidden layer.

    Every node takes its strongest children; a branch with more of them is not such a tree.
    """
    nodes: IntArray = np.array([root])
    size, signs = np.ones(1), []
    for W, m in zip(reversed(layers), reversed(tree.widths), strict=True):
        columns = W[:, nodes]  # (children, nodes)
        order = np.argsort(-np.abs(columns), axis=0, kind="stable")
        if len(order) > m and np.any(np.take_along_axis(columns, order[m:], axis=0)):
            raise ValueError(f"a neuron has more than {m} inputs of its own: not of the tree {tree.widths}")
        chosen = order[:m]
        if len(chosen) < m:  # a narrower network: leaves of weight zero
            chosen = np.concatenate([chosen, np.tile(order[:1], (m - len(chosen), 1))])
        weight = np.take_along_axis(columns, chosen, axis=0)
        weight[len(order) :] = 0.0
        size = (size * np.abs(weight)).T.ravel()
        signs.append(np.where(weight < 0, -1.0, 1.0).T.ravel())
        nodes = chosen.T.ravel()
    return (size[:, None] * first[nodes]).ravel(), np.concatenate(signs[::-1])
