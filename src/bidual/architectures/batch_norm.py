r"""Two-layer ReLU networks with batch normalisation (000).

Centred data have the compact SVD :math:`X - 1 \mu^T = U \Sigma V^T`. Normalising :math:`X w` column by column leaves
:math:`U q / \|q\|` with :math:`q = \Sigma V^T w`, so that a neuron with batch normalisation before the ReLU is an
ordinary one on the whitened features :math:`U' = [U, 1/\sqrt n]` (000 Theorem 2.2).

Training rows may stand for several equal ones, or carry weights: these count as so many rows. With the counts
:math:`c_i` and :math:`n = \sum_i c_i`, the SVD is that of :math:`\mathrm{diag}(\sqrt c)(X - 1 \mu^T)` and
:math:`U'^T \mathrm{diag}(c)\, U' = I`, which is what repeating the rows would give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual._util.checks import is_size, shown
from bidual._util.exact_rank import exact_rank
from bidual._util.typing import Array, BoolArray, FloatArray
from bidual.architectures.base import Architecture, Lift
from bidual.atoms import Neurons, Normalised, Relu
from bidual.atoms.abilities import Ability
from bidual.atoms.normalised import statistics
from bidual.networks import BatchNormNetwork, Network
from bidual.networks.batch_norm import POSITIONS

#: What the centred values are divided by.
NORMALISATIONS = ("norm", "std")

_EPS = float(np.finfo(float).eps)


class BatchNorm(Architecture):
    r"""One hidden layer with batch normalisation, trained on the statistics of the whole data (000 eq. 2, 3, 19).

    Weight decay charges the scales, the shifts and the output weights, as in
    :class:`~bidual.networks.BatchNormNetwork`; the scale of the hidden weights does not matter (000 Remark 1.2).

    Parameters
    ----------
    position : {"before", "after"}, default="before"
        Of the normalisation, as seen from the ReLU; "after" is that of 000 sec. 6.
    rank : int, float or None, default=None
        Train on the data truncated to their leading singular directions (000 sec. 4.2): an integer counts them, a
        float in (0, 1] is the fraction of the variance that they explain. Hidden weights then lie in their span.
        None keeps all.
    normalisation : {"norm", "std"}, default="norm"
        What the centred values are divided by: their 2-norm, as in the papers, or their standard deviation, as in
        torch. The networks are the same, but not the units in which their scales and shifts are charged: "std" with
        beta is "norm" with :math:`\beta / \sqrt n`. With "std" the meaning of beta does not change with the number of
        rows, and the objective is that of torch with weight decay on the weights of ``BatchNorm1d``, its bias, and the
        output weights.

    Notes
    -----
    ``bias`` of the estimators is the bias of the hidden layer. Before the ReLU the normalisation cancels it, and its
    own shift does its work: both values of ``bias`` train the same networks. After the ReLU it is a free parameter,
    as the hidden weights are.

    Sample weights count as that many rows, also in the mean, the norm and n.

    Constant columns of X get zero weight.
    """

    name = "batch_norm"

    def __init__(self, position: str = "before", rank: float | None = None, normalisation: str = "norm") -> None:
        if position not in POSITIONS:
            raise ValueError(f"position must be 'before' or 'after' (the ReLU), got {position!r}")
        if normalisation not in NORMALISATIONS:
            raise ValueError(f"normalisation must be 'norm' or 'std', got {shown(normalisation)}")
        _check_rank(rank)
        self.position = position
        self.rank = rank
        self.normalisation = normalisation

    @property
    def can(self) -> frozenset[Ability]:
        return Relu.can - {"gates"} if self.position == "before" else Normalised.can

    @classmethod
    def of(cls, network: Network) -> BatchNorm:
        std = getattr(network, "n_samples", None) == 1.0
        return cls(getattr(network, "position", "before"), normalisation="std" if std else "norm")

    def stated(self, network: Network) -> Network:
        if isinstance(network, BatchNormNetwork) and self.normalisation == "std":
            return network.as_of(1.0)
        return network

    def lift(self, X: FloatArray, *, bias: bool, counts: FloatArray | None = None) -> Lift:
        counts = np.ones(len(X)) if counts is None else counts
        whitening = CentredSVD.of(X, counts, self.rank)
        n = whitening.n if self.normalisation == "norm" else 1.0
        if self.position == "before":
            return BeforeLift(X, whitening, counts, n)
        return AfterLift(X, whitening, counts, n, bias=bias, truncate=self.rank is not None)


def _check_rank(rank: Any) -> None:
    if rank is None:
        return
    if isinstance(rank, bool) or not isinstance(rank, int | float | np.integer | np.floating):
        raise ValueError(f"rank must be an integer >= 1, a fraction in (0, 1] or None, got {shown(rank)}")
    if _counts(rank) and not is_size(rank):
        raise ValueError(f"rank must be at least 1 and at most the rank of the centred data, got {shown(rank)}")
    if not _counts(rank) and not 0 < rank <= 1:
        raise ValueError(f"rank as a fraction of the variance must lie in (0, 1], got {shown(rank)}")


def _counts(rank: Any) -> bool:
    """Whether the rank counts directions; otherwise it is a fraction of the variance."""
    return isinstance(rank, int | np.integer)


@dataclass(frozen=True)
class CentredSVD:
    r"""The SVD :math:`\mathrm{diag}(\sqrt c)(X - 1\mu^T) S^{-1} = Q \Sigma V^T`, truncated to k directions.

    Normalisation makes neurons blind to the scale of the columns, so that they are brought to one scale, S, before
    singular values are told from rounding. (A truncation is that of the columns as they are: S = I.)

    Attributes
    ----------
    n : float
        Number of rows, :math:`\sum_i c_i`.
    mean, rest : ndarray, shape (d,)
        :math:`\mu` is their sum: a mean in floating point, and what it misses.
    scale : ndarray, shape (d,)
        The diagonal of S, powers of two.
    sigma : ndarray, shape (k,)
        Singular values, decreasing.
    V : ndarray, shape (d, k)
    dropped : int
        Directions that the truncation left out, or that rounding may hide.
    """

    n: float
    mean: FloatArray
    rest: FloatArray
    scale: FloatArray
    sigma: FloatArray
    V: FloatArray
    dropped: int = 0

    @classmethod
    def of(cls, X: FloatArray, counts: FloatArray, rank: float | None = None) -> CentredSVD:
        """Whiten rows ``X (n, d)`` that stand for ``counts`` rows each."""
        n = float(counts.sum())
        # a constant column is centred to exact zeros
        mean = np.where(np.ptp(X, axis=0) > 0, counts @ X / n, X[0])
        rest = counts @ (X - mean) / n
        centred = X - mean - rest
        scale = _scales(centred)
        sigma, V = _svd(centred / scale, counts)
        r = len(sigma)
        if r == 0:
            raise ValueError(
                f"batch normalisation needs rows that differ: {len(X)} distinct row(s) of X leave nothing after "
                "centring (n_samples=1, or all columns are constant)"
            )
        hidden = _hidden(X, r)
        if rank is not None:
            leading, axes = _svd(centred, counts)
            k = _truncation(rank, leading)
            if k < r:
                return cls(n, mean, rest, np.ones_like(scale), leading[:k], axes[:, :k], hidden + r - k)
        return cls(n, mean, rest, scale, sigma, V, hidden)

    @property
    def restriction(self) -> str:
        """See :attr:`bidual.architectures.Lift.restriction`."""
        return f"rank {len(self.sigma)}" if self.dropped else ""

    def features(self, X: FloatArray) -> FloatArray:
        r""":math:`U = (X - 1 \mu^T) S^{-1} V \Sigma^{-1}`."""
        return self._standardised(X) @ self._map

    def rounding(self, X: FloatArray) -> FloatArray:
        """What rounding may have added to the features of each row, ``(n,)``: that of products and their sums."""
        sizes = np.abs(self._standardised(X)) @ np.abs(self._map)
        return (8 + len(self.V)) * _EPS * np.linalg.norm(sizes, axis=1)

    @property
    def _map(self) -> FloatArray:
        return self.V / self.sigma

    def _standardised(self, X: FloatArray) -> FloatArray:
        return (X - self.mean - self.rest) / self.scale


def _scales(columns: FloatArray) -> FloatArray:
    """Powers of two, by which nothing is rounded, near the largest entries of the columns; one for zeros."""
    largest = np.abs(columns).max(axis=0)
    return np.exp2(np.round(np.log2(np.where(largest > 0, largest, 1.0))))


def _svd(centred: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Singular values and right singular vectors ``(d, r)`` of weighted rows, without those lost in rounding."""
    rows = np.sqrt(counts)[:, None] * centred
    _, sigma, Vt = np.linalg.svd(rows, full_matrices=False)
    r = int((sigma > max(rows.shape) * _EPS * float(np.linalg.norm(rows))).sum())
    return sigma[:r], np.ascontiguousarray(Vt[:r].T)


def _hidden(X: FloatArray, r: int) -> int:
    """How many more directions than ``r`` the rows have after centring, in exact arithmetic."""
    if r == min(len(X) - 1, int((np.ptp(X, axis=0) > 0).sum())):
        return 0
    return exact_rank(np.column_stack([X, np.ones(len(X))])) - 1 - r


def truncate(X: Array, rank: float) -> FloatArray:
    r"""The truncated data :math:`g(X) = 1 \mu^T + U_k \Sigma_k V_k^T` of 000 sec. 4.2.

    Parameters
    ----------
    X : array of shape (n, d)
    rank : int or float
        Number of singular directions to keep, or the fraction of the variance that they explain.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual.architectures import truncate
    >>> truncate(np.array([[0.0, 0.0], [2.0, 0.1], [4.0, 0.0]]), 1).round(2).tolist()
    [[0.0, 0.03], [2.0, 0.03], [4.0, 0.03]]
    """
    _check_rank(rank)
    X = np.asarray(X, dtype=np.float64)
    white = CentredSVD.of(X, np.ones(len(X)), rank)
    return (X - white.mean) / white.scale @ white.V @ white.V.T * white.scale + white.mean


def _truncation(rank: float | None, sigma: FloatArray) -> int:
    """How many singular directions to keep."""
    if rank is None:
        return len(sigma)
    if _counts(rank):
        if rank > len(sigma):
            raise ValueError(f"rank={rank} is larger than {len(sigma)}, the rank of the centred data")
        return int(rank)
    explained = np.cumsum(sigma**2) / (sigma**2).sum()
    return min(len(sigma), int(np.searchsorted(explained, rank * (1 - 1e-12))) + 1)


class BeforeLift(Lift):
    r"""M = [U, 1/sqrt n] (000 Theorem 2.2); where standard deviations are divided by, that times sqrt n.

    Weights s on M are :math:`w = V \Sigma^{-1} s_{1:k}`, :math:`\gamma = \|s_{1:k}\|` and the shift :math:`s_{k+1}`.

    Attributes
    ----------
    n : float
        What the normalisation takes for the number of rows; one, if it divides by standard deviations.
    """

    scale_free = True

    def __init__(self, X: FloatArray, whitening: CentredSVD, counts: FloatArray, n: float) -> None:
        self.whitening, self.n = whitening, n
        white = np.column_stack([whitening.features(X), np.full(len(X), 1 / np.sqrt(whitening.n))])
        # the white features nearest to these differ from them by no more than their Gram matrix from the identity
        gram = white.T @ (counts[:, None] * white)
        excess = float(np.linalg.norm(gram - np.eye(len(gram)))) + (len(X) + 4) * _EPS
        self.M = self._stretch * white
        self.rounding = self._stretch * (whitening.rounding(X) + excess * np.linalg.norm(white, axis=1))

    @property
    def _stretch(self) -> float:
        return float(np.sqrt(self.whitening.n / self.n))

    @property
    def restriction(self) -> str:
        return self.whitening.restriction

    def recover(self, neurons: Neurons) -> BatchNormNetwork:
        balanced, to = neurons.balanced(), self.whitening
        s = balanced.U[:, :-1]
        gamma = np.linalg.norm(s, axis=1)
        # A neuron that is all shift still needs something to normalise. Units of one standard deviation.
        q = np.where(gamma[:, None] > 0, s, np.eye(1, s.shape[1])) / np.where(gamma > 0, gamma, 1.0)[:, None]
        W = np.sqrt(to.n) * (q / to.sigma) @ to.V.T / to.scale
        return BatchNormNetwork(
            hidden_weights=W,
            output_weights=balanced.alpha,
            gamma=gamma,
            shift=balanced.U[:, -1],
            mean=W @ to.mean + W @ to.rest,
            norm=np.full(len(W), np.sqrt(self.n)),
            n_samples=self.n,
            intercept=balanced.intercept,
        )

    def neurons(self, network: Network) -> Neurons:
        to = self.whitening
        network = _batch_norm_network(network, "before", len(to.mean))
        gates = network.gate_vectors()
        W, b = gates[:, :-1], gates[:, -1]
        s = ((W * to.scale) @ to.V) * to.sigma
        U = np.column_stack([s, np.sqrt(to.n) * (W @ to.mean + b + W @ to.rest)])
        return Neurons(U / self._stretch, network.output_weights, network.intercept)


class AfterLift(Lift):
    r"""M = [X, 1, 1/sqrt n]: what the ReLU works on, with a column of ones if there are biases, and the shift.

    Where standard deviations are divided by, n = 1 there.

    Weights on M are a direction in front of the ReLU, whose length is :math:`\gamma`, and the shift; see
    :class:`~bidual.atoms.Normalised`. As directions are free, X may stand in any coordinates: its columns are
    brought to one scale by powers of two and, if there are biases, moved to one of their values, both without
    rounding where that is possible. Truncation replaces X by :math:`X V`.
    """

    scale_free = True

    def __init__(
        self, X: FloatArray, whitening: CentredSVD, counts: FloatArray, n: float, *, bias: bool, truncate: bool
    ) -> None:
        self.whitening, self.n = whitening, n
        self.w = counts / whitening.n
        self.bias = bias
        self.restricted = truncate
        # coordinates are (x - origin)^T axes; weights w have the coordinates w^T back
        self.origin, self.axes, self.back = _coordinates(X, whitening if truncate else None, bias=bias)
        rows = (X - self.origin) @ self.axes
        ones = np.ones((len(X), 1))
        self.inputs = np.column_stack([rows, ones]) if bias else rows
        self.M = np.column_stack([self.inputs, ones / np.sqrt(n)])

    def atoms(self, w: FloatArray) -> Normalised:
        return Normalised(self.M, w=w)

    @property
    def restriction(self) -> str:
        return self.whitening.restriction if self.restricted else ""

    def recover(self, neurons: Neurons) -> BatchNormNetwork:
        balanced = neurons.balanced()
        q = balanced.U[:, :-1]
        gamma = np.linalg.norm(q, axis=1)
        mean, deviation = self._statistics(q)
        idle = deviation == 0  # all shift: any neuron that is not constant will do
        gamma[idle], q = 0.0, np.where(idle[:, None], self._varying(), q)
        mean, deviation = self._statistics(q)
        q, n = q / deviation[:, None], self.n
        W = q[:, : self.axes.shape[1]] @ self.axes.T
        return BatchNormNetwork(
            hidden_weights=W,
            hidden_bias=q[:, -1] - W @ self.origin if self.bias else None,
            output_weights=balanced.alpha,
            gamma=gamma,
            shift=balanced.U[:, -1],
            mean=mean / deviation,
            norm=np.full(len(q), np.sqrt(n)),
            n_samples=n,
            position="after",
            intercept=balanced.intercept,
        )

    def neurons(self, network: Network) -> Neurons:
        network = _batch_norm_network(network, "after", len(self.axes))
        gates, n = network.gate_vectors(), self.n
        q = gates[:, :-1] @ self.back
        if self.bias:
            q = np.column_stack([q, gates[:, -1] + gates[:, :-1] @ self.origin])
        elif np.any(gates[:, -1]):
            raise ValueError("the network has hidden biases, but bias=False asks for none")
        # The same function on these rows, whose statistics may be others than those of the network.
        mean, deviation = self._statistics(q)
        gamma = network.gamma / network.norm * deviation
        offset = network.gamma / network.norm * (mean - network.mean) + network.shift / np.sqrt(network.n_samples)
        sign = np.where(gamma < 0, -1.0, 1.0)[:, None]
        lengths = np.linalg.norm(q, axis=1)
        q = q * (np.abs(gamma) / np.where(lengths > 0, lengths, 1.0))[:, None]
        U = np.column_stack([np.sqrt(n) * q, sign * np.sqrt(n) * offset[:, None]])
        return Neurons(U, sign * network.output_weights, network.intercept)

    def _statistics(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation over the training rows, after the ReLU."""
        return statistics(np.maximum(self.inputs @ q.T, 0.0), self.w)

    def _varying(self) -> FloatArray:
        """A direction that the ReLU does not make constant: if one does, its opposite does not."""
        first = np.zeros(self.inputs.shape[1])
        first[: self.axes.shape[1]] = self.whitening.V[:, 0] / self.whitening.scale @ self.back
        return first if self._statistics(first[None])[1][0] > 0 else -first


def _coordinates(X: FloatArray, along: CentredSVD | None, *, bias: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Origin ``(d,)``, axes ``(d, k)`` and their dual ones ``(d, k)`` for the inputs of the ReLU."""
    d = X.shape[1]
    # a value in the middle, from which differences are exact wherever they can be
    origin = np.sort(X, axis=0)[len(X) // 2] if bias else np.zeros(d)
    origin = np.where(_exact_differences(X, origin).all(axis=0), origin, 0.0)
    axes = back = np.eye(d)
    if along is not None:
        axes, back = along.V / along.scale[:, None], along.V * along.scale[:, None]
    scale = _scales((X - origin) @ axes)
    return origin, axes / scale, back * scale


def _exact_differences(a: FloatArray, b: FloatArray) -> BoolArray:
    """Where ``a - b`` is not rounded (Knuth's error of a sum is zero)."""
    difference = a - b
    other = difference - a
    return np.asarray((a - (difference - other)) - (b + other) == 0.0)


def _batch_norm_network(network: Network, position: str, n_inputs: int) -> BatchNormNetwork:
    """The network, if it is one of this architecture."""
    if not isinstance(network, BatchNormNetwork) or network.position != position:
        raise TypeError(f"expected a network with batch normalisation {position} the ReLU, got {network!r}")
    if network.n_inputs != n_inputs:
        raise ValueError(f"the network takes {network.n_inputs} inputs, the data have another number")
    return network
