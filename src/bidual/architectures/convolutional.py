r"""Convolutional networks with one hidden layer (003 sec. 4 and A.1, 000 sec. 3).

Every patch of every sample is a row of M, and A adds up the patches of a sample: the network
:math:`f(x_i) = \sum_j \sum_k (x_{ik}^T u_j)_+ \alpha_j` is :math:`A (M U^T)_+ \alpha`. Equal patches, of which images
have many, are one row of M; their numbers are the entries of A.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import scipy.sparse as sp

from bidual._util.memory import require_memory
from bidual._util.patches import Sizes, Window, check_sizes, distinct_patches
from bidual._util.typing import Array, FloatArray
from bidual.architectures.base import Architecture, Lift
from bidual.architectures.batch_norm import BatchNorm
from bidual.architectures.two_layer import TwoLayer
from bidual.arrangements import cluster_directions
from bidual.atoms import Atoms, GatedNeurons, Heads, Neurons, Relu
from bidual.atoms.abilities import Ability
from bidual.networks import ConvolutionalNetwork, DeepNetwork, Network
from bidual.networks.convolutional import POOLINGS

#: Copies of the lifted features that training makes: M itself, in the coordinates of its row space, transposed, and
#: in single precision, each with room to scale it.
_COPIES = 8


class Convolutional(Architecture):
    r"""One layer of filters with shared, pooled or fully connected outputs.

    .. math:: f(x_i) = \sum_j \sum_k (x_{ik}^T u_j + b_j)_+ \alpha_j + b

    with the patches :math:`x_{ik}` that a window of ``kernel_size`` shows of sample i (003 A.1). Weight decay charges
    every filter and every output weight once.

    Parameters
    ----------
    kernel_size : int, sequence of int or None
        Size of the window. An integer stands for a square one on images ``(n, height, width, channels)`` and for its
        length on sequences ``(n, length, channels)`` or ``(n, length)``; two integers are for images, also without
        channels. None: X holds explicit patches ``(n, K, h)``.
    stride : int or sequence of int, default=1
    padding : int or sequence of int, default=0
        Zeros on both sides of every spatial axis.
    batch_norm : bool, default=False
        Batch normalisation before the ReLU, over all patches of all samples (000 Theorem 3.1).
    pooling : {"sum", "average", None, "flatten"}, default="sum"
        "average" divides by the number of patches K. None leaves a label to every patch (003 sec. 4.1): ``y`` then has
        the shape ``(n, *grid)``, or ``(n, *grid, C)`` for several numbers. "flatten" gives every position output
        weights :math:`\alpha_{jk}` of its own, as the fully connected layer after flattened activations does.

    Notes
    -----
    The number of activation patterns is polynomial in the number of patches for a fixed filter size, so that
    ``method="exact"`` is for filters of few entries.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import Convolutional, ReLURegressor
    >>> X = np.array([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0]])
    >>> est = ReLURegressor(1e-3, architecture=Convolutional(2), bias=False).fit(X, [1.0, 1.0, 0.0, 2.0])
    >>> est.predict([[0.0, 0.0, 1.0, 0.0]]).round(1).tolist(), est.network_.filters.shape[1:]
    ([1.0], (2, 1))
    """

    name = "convolutional"

    def __init__(
        self,
        kernel_size: Sizes | None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        batch_norm: bool = False,
        pooling: str | None = "sum",
    ) -> None:
        if not isinstance(batch_norm, bool | np.bool_):
            raise ValueError(f"batch_norm must be True or False, got {batch_norm!r}")
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(map(repr, POOLINGS))}; got {pooling!r}")
        self.kernel_size = None if kernel_size is None else check_sizes("kernel_size", kernel_size, 1)
        self.stride = check_sizes("stride", stride, 1)
        self.padding = check_sizes("padding", padding, 0)
        self.batch_norm = bool(batch_norm)
        self.pooling = pooling

    @property
    def tensors(self) -> bool:
        return True

    @property
    def can(self) -> frozenset[Ability]:
        if self.pooling == "flatten":
            return Heads.can
        own: frozenset[Ability] = Relu.can - {"gates"} if self.batch_norm else Relu.can
        return own if self.pooling is None else own - {"formula"}

    @classmethod
    def of(cls, network: Network) -> Convolutional:
        if not isinstance(network, ConvolutionalNetwork):
            raise TypeError(f"expected a convolutional network, got {type(network).__name__}")
        options = network.options()
        if options.pop("circular"):
            raise ValueError("networks with circular patches are for LinearConvRegressor only")
        if isinstance(network.layer, DeepNetwork):
            raise ValueError("linear filters are for LinearConvRegressor only, which has a certificate of its own")
        del options["grid"]
        return cls(**options, batch_norm=network.layer.kind == BatchNorm.name)

    def window(self, ndim: int) -> Window:
        """The window on tensors of so many axes."""
        return Window.of(self.kernel_size, self.stride, self.padding, ndim)

    def patches(self, X: Array) -> Array:
        """The patches ``(n, *grid, *kernel, channels)`` of tensors, without copying them; explicit ones as they are."""
        X = np.asarray(X)
        return self.window(X.ndim).view(X)

    def cluster(
        self, X: Array, n_clusters: int = 50, random_state: int | np.random.RandomState | None = None
    ) -> FloatArray:
        """Centres of clusters of the patches of X, ``(n_clusters, h)``: the patterns of 003 A.1.

        Give them to an estimator as ``gates``, with ``method="sampled"`` or ``activation="gated"``.
        """
        X = np.asarray(X, dtype=np.float64)
        return cluster_directions(self.window(X.ndim).rows(X), n_clusters, random_state)

    def stack(self, shape: tuple[int, ...], y: Array) -> Array | None:
        if self.pooling is not None or y is None:
            return None
        y, grid = np.asarray(y), self.window(len(shape)).grid(shape)
        for places in (grid, (prod(grid),)):
            if y.shape == (shape[0], *places):
                return y.ravel()
            if y.shape[:-1] == (shape[0], *places):
                return y.reshape(-1, y.shape[-1])
        if y.shape[:1] == (shape[0] * prod(grid),) and y.ndim <= 2:  # already stacked
            return y
        raise ValueError(
            f"pooling=None asks for a target at each of the {prod(grid)} patches of a sample: y must have shape "
            f"{(shape[0], *grid)} (or one more axis, for several numbers), got {y.shape}"
        )

    def lift(self, X: FloatArray, *, bias: bool, counts: FloatArray | None = None) -> Lift:
        window = self.window(X.ndim)
        K, h = prod(window.grid(X.shape)), window.size(X.shape)
        # output weights for every position: the gradient has columns for all of them
        check_memory(len(X) * K, h + 1 + (K if self.pooling == "flatten" else 0), K, window.padded(X.shape))
        rows, which = distinct_patches(window.rows(X))
        counts = np.ones(len(X)) if counts is None else counts
        of_patches = np.repeat(counts, len(which) // len(counts))
        inner = BatchNorm() if self.batch_norm else TwoLayer()
        numbers = np.bincount(which, weights=of_patches, minlength=len(rows)).astype(np.float64)
        layer = inner.lift(rows, bias=bias, counts=numbers)
        return ConvolutionalLift(layer, self, window, X.shape, which)


class ConvolutionalLift(Lift):
    """The lift of the distinct patches, with the pooling of patches into samples."""

    def __init__(
        self, layer: Lift, architecture: Convolutional, window: Window, shape: tuple[int, ...], which: Array
    ) -> None:
        self.layer, self.M, self.rounding = layer, layer.M, layer.rounding
        self.pooling, self.window, self.grid = architecture.pooling, window, window.grid(shape)
        if self.pooling is not None or len(which) > len(self.M):
            self.A = pooling_matrix(which, len(self.M), prod(self.grid), self.pooling)

    def atoms(self, w: FloatArray) -> Atoms:
        K = prod(self.grid)
        return Heads(self.M, self.A, n_positions=K) if self.pooling == "flatten" and K > 1 else super().atoms(w)

    @property
    def restriction(self) -> str:
        return self.layer.restriction

    def recover(self, neurons: Neurons) -> ConvolutionalNetwork:
        silent = replace(neurons, intercept=np.zeros(neurons.alpha.shape[1]))
        return self._network(self.layer.recover(silent), neurons.intercept)

    def neurons(self, network: Network) -> Neurons:
        network = self._checked(network)
        neurons = self.layer.neurons(network.layer)
        return replace(neurons, intercept=network.intercept)

    def gates(self, gates: Array | Network) -> FloatArray:
        if isinstance(gates, Network):
            return self.layer.gates(gates)
        vectors = np.asarray(gates, dtype=np.float64)
        return self.layer.gates(vectors.reshape(len(vectors), -1) if vectors.ndim > 2 else vectors)

    def recover_gated(self, neurons: GatedNeurons) -> ConvolutionalNetwork:
        silent = replace(neurons, intercept=np.zeros_like(neurons.intercept))
        return self._network(self.layer.recover_gated(silent), neurons.intercept)

    def gated_neurons(self, network: Network) -> GatedNeurons:
        network = self._checked(network)
        return replace(self.layer.gated_neurons(network.layer), intercept=network.intercept)

    def _network(self, layer: Network, intercept: FloatArray) -> ConvolutionalNetwork:
        w = self.window
        how: dict[str, Any] = {} if w.kernel is None else {"stride": w.stride, "padding": w.padding}
        grid = self.grid if self.pooling == "flatten" else None
        return ConvolutionalNetwork(layer, w.kernel, **how, pooling=self.pooling, intercept=intercept, grid=grid)

    def _checked(self, network: Network) -> ConvolutionalNetwork:
        """The network, if it is one of this architecture."""
        if not isinstance(network, ConvolutionalNetwork):
            raise TypeError(f"expected a convolutional network, got {type(network).__name__}")
        if network.window != self.window or network.pooling != self.pooling:
            raise ValueError(f"{network!r} takes or pools its patches in another way than the architecture says")
        return network


def pooling_matrix(which: Array, n_rows: int, K: int, pooling: str | None) -> sp.csr_array:
    """A: from the distinct patches to samples, or to positions; ``which`` are the patches of sample 1, sample 2, ..."""
    places = np.arange(len(which))
    ones = np.full(len(which), 1.0 / K if pooling == "average" else 1.0)
    if pooling in (None, "flatten"):
        return sp.csr_array((ones, (places, which)), shape=(len(which), n_rows))
    return sp.csr_array((ones, (places // K, which)), shape=(len(which) // K, n_rows))


def check_memory(n_patches: int, n_features: int, K: int, n_padded: int = 0, available: int | None = None) -> None:
    """Refuse, with the numbers, patches whose copies (and padded tensors, of so many entries) will not fit."""
    require_memory(
        8 * (_COPIES * n_patches * n_features + n_padded),
        f"training on {n_patches:,} patches of {n_features:,} entries ({K:,} for each sample)",
        "Use less padding, a larger stride, a smaller kernel_size or fewer samples.",
        available,
    )
