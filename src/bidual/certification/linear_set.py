r"""Linear networks of two layers and their dual constraint: :math:`\|X^T V\|_2 \le \beta` (001 sec. 2.2.1).

Those of filters have a row for each position of them, :math:`\|[X_1^T V, \ldots, X_K^T V]\|_2` (003 eq. 11).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np

from bidual._util.memory import require_memory
from bidual._util.patches import Window, check_sizes
from bidual._util.typing import Array, FloatArray
from bidual.atoms import Chains, Linear, LinearFilters
from bidual.bounds import Bound, Certificate, lower_bound
from bidual.bounds.evidence import Evidence
from bidual.bounds.proof import Proof
from bidual.certification.tangents import prove_chains
from bidual.losses import Squared
from bidual.networks import ConvolutionalNetwork, DeepNetwork, Network
from bidual.problem import Problem
from bidual.training.objective import Objective
from bidual.training.posed import Posed
from bidual.training.rows import Rows
from bidual.training.units import Units

#: The architectures, as evidence names them.
LINEAR_NET, LINEAR_CONV = "linear_net", "linear_conv"
#: Bounds that differ by less, relatively, differ by the order of summation.
SAME = 1e-10
#: A lower bound is given up for one that anybody can prove again, if that is lower by no more than this, relatively.
WORTH = 1e-7
#: Longest side of the smaller Gram matrix of a map on patches whose norm is proven again at the end of training.
LONGEST = 1500
#: Copies of a map on patches that its norm takes.
_COPIES = 4


@dataclass(frozen=True)
class LinearProof(Proof):
    r"""The spectral norm :math:`\|X^T V\|_2`: nothing needs to be stored."""

    kind = "linear"

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The norm, with rounding."""
        if not isinstance(problem.atoms, Linear):
            raise ValueError("a proof of the kind 'linear' is about linear networks")
        return problem.atoms.norm_limit(V)


@dataclass(frozen=True)
class LinearSet(Posed):
    """The distinct rows, with the problem of linear networks posed on them."""

    @classmethod
    def of(cls, objective: Objective, X: FloatArray, Y: FloatArray, sample_weight: Array | None) -> LinearSet:
        """Pose the problem on rows ``X (n, d)`` and targets ``Y (n, C)``."""
        rows = Rows.of(X, Y, sample_weight)
        return cls(rows.X, cls._problem(objective, rows, Linear(rows.X)), objective, rows.faint)

    @staticmethod
    def _problem(objective: Objective, rows: Rows, atoms: Linear) -> Problem:
        atoms = replace(atoms, centre=rows.w if objective.fit_intercept else None)
        return Problem(atoms, rows.Y, rows.w, objective.acting_loss, objective.acting_beta, objective.fit_intercept)

    @property
    def named(self) -> dict[str, Any]:
        """Architecture and options, as evidence names them."""
        return {"architecture": LINEAR_NET, "options": {"depth": 2}}

    def evidence(self, bound: Bound, classes: tuple[Any, ...] | None = None) -> Evidence | None:
        """As evidence names such networks."""
        kept = super().evidence(bound, classes)
        return None if kept is None else replace(kept, **self.named)

    def check_network(self, network: Network, gated: bool) -> None:
        """Raise if the network is not one of those that the problem is about."""
        _check_layers(network, 2)
        if not self.objective.fit_intercept and has_bias(network, -1):
            raise ValueError("the model has an output intercept, the claim is about networks without")

    def with_evidence(self, certificate: Certificate, network: Network) -> Certificate:
        """The certificate with the residual of ``network`` as a dual point, if that proves its lower bound.

        What is said of the dual constraint is then said of this dual point: another one, though it differs by rounding
        only, may have another constraint where the residual is small.
        """
        units, natural = self.units, self.natural
        residual = natural.Y - (network.evaluate(self.X) - units.shift) / units.outputs
        fit_intercept = natural.fit_intercept
        V = natural.loss.dual_point(natural.w[:, None] * residual, natural.Y, natural.w, centred=fit_intercept)
        atoms = natural.atoms
        assert isinstance(atoms, Linear)
        bound = lower_bound(natural, V, atoms.attained(V), atoms.norm_limit(V), LinearProof())
        shown = units.restore_bound(bound)
        if shown.value < (1.0 - WORTH) * certificate.lower_bound:
            return certificate
        if shown.value < (1.0 - SAME) * certificate.lower_bound:
            certificate = replace(certificate, lower_bound=shown.value, likely_bound=shown.value)
        return replace(certificate, attained=shown.attained, limit=shown.limit, evidence=self.evidence(bound))


@dataclass(frozen=True)
class ChainSet(LinearSet):
    """The distinct rows, with the problem of linear networks of more than two layers posed on them."""

    @classmethod
    def with_depth(
        cls, depth: int, objective: Objective, X: FloatArray, Y: FloatArray, sample_weight: Array | None
    ) -> ChainSet:
        """Pose the problem of so many layers on rows ``X (n, d)`` and targets ``Y (n, C)``."""
        rows = Rows.of(X, Y, sample_weight)
        return cls(rows.X, cls._problem(objective, rows, Chains(rows.X, depth=depth)), objective, rows.faint)

    @cached_property
    def units(self) -> Units:
        """Those of the data, with targets of mean zero: weight decay of chains has units of its own."""
        return replace(Units.of(self.problem), inputs=1.0, outputs=1.0, loss=self.problem.loss)

    @property
    def _chains(self) -> Problem[Chains]:
        chains = self.natural.of(Chains)
        assert chains is not None
        return chains

    @property
    def named(self) -> dict[str, Any]:
        """Architecture and options, as evidence names them."""
        return {"architecture": LINEAR_NET, "options": {"depth": self._chains.atoms.depth}}

    def check_network(self, network: Network, gated: bool) -> None:
        """Raise if the network is not one of those that the problem is about."""
        _check_layers(network, self._chains.atoms.depth)
        if not self.objective.fit_intercept and has_bias(network, -1):
            raise ValueError("the model has an output intercept, the claim is about networks without")

    def with_evidence(self, certificate: Certificate, network: Network) -> Certificate:
        """The certificate with the residuals of several maps as dual points, if they prove nearly its lower bound."""
        assert isinstance(network, DeepNetwork)
        problem = self._chains
        found = prove_chains(problem, np.linalg.multi_dot(network.layers), certificate.lower_bound)
        bound = found.lower_bound(problem, np.zeros_like(problem.Y))
        if bound.value < (1.0 - WORTH) * certificate.lower_bound:
            return certificate
        value = min(bound.value, certificate.objective)
        return replace(certificate, lower_bound=value, likely_bound=value, evidence=self.evidence(bound))


@dataclass(frozen=True)
class FilterSet(LinearSet):
    """The distinct tensors, with the problem of linear filters posed on them.

    Attributes
    ----------
    window : Window
        What filters see.
    """

    window: Window

    @classmethod
    def with_window(
        cls, window: Window, objective: Objective, X: FloatArray, Y: FloatArray, sample_weight: Array | None
    ) -> FilterSet:
        """Pose the problem on tensors ``X (n, ...)`` and targets ``Y (n, C)``."""
        K, h = prod(window.grid(X.shape)), window.size(X.shape)
        require_memory(
            8 * (_COPIES * K * h * Y.shape[1] + window.padded((len(X), *X.shape[1:]))),
            f"filters with {h:,} weights at {K:,} positions",
            "Nobody trains such filters.",
        )
        rows = Rows.of(X, Y, sample_weight)
        atoms = LinearFilters(rows.X.reshape(len(rows.X), -1), window=window, shape=X.shape)
        return cls(rows.X, cls._problem(objective, rows, atoms), objective, rows.faint, window)

    @property
    def named(self) -> dict[str, Any]:
        """The window."""
        w = self.window
        options = {"kernel_size": w.kernel, "stride": w.stride or 1, "padding": w.padding or 0, "circular": w.circular}
        return {"architecture": LINEAR_CONV, "options": options}

    def check_network(self, network: Network, gated: bool) -> None:
        """Raise if the network is not one of those that the problem is about."""
        if not isinstance(network, ConvolutionalNetwork):
            raise TypeError(f"expected a convolutional network, got {network!r}")
        if network.window != self.window or network.pooling != "flatten":
            raise ValueError(f"{network!r} takes or pools its patches in another way than the claim says")
        _check_layers(network.layer, 2)
        if has_bias(network.layer, -1):
            raise ValueError("the layer of the model has biases")


def window_of(options: dict[str, Any], ndim: int) -> Window:
    """The window that options of evidence name, for tensors of so many axes; ValueError if there is no such window."""
    if set(options) != {"kernel_size", "stride", "padding", "circular"} or not isinstance(options["circular"], bool):
        raise ValueError(f"linear filters have other options than {options}")
    kernel = options["kernel_size"]
    size = None if kernel is None else check_sizes("kernel_size", kernel, 1)
    stride, padding = check_sizes("stride", options["stride"], 1), check_sizes("padding", options["padding"], 0)
    if options["circular"] and (kernel is None or np.any(np.not_equal(stride, 1)) or np.any(padding)):
        raise ValueError("circular patches have a kernel_size, stride=1 and padding=0")
    return Window.of(size, stride, padding, ndim, circular=options["circular"])


def _check_layers(network: Network, depth: int) -> None:
    """Raise unless the network is a linear one of so many layers, with no bias but that of its output."""
    if not isinstance(network, DeepNetwork) or network.activation != "linear" or len(network.layers) != depth:
        raise TypeError(f"expected a linear network of {depth} layers, got {network!r}")
    if network.whitening is not None or any(has_bias(network, k) for k in range(depth - 1)):
        raise ValueError("the model whitens its inputs, or has hidden biases")


def has_bias(network: Network, layer: int) -> bool:
    """Whether a layer of a deep network has a bias that is not zero."""
    assert isinstance(network, DeepNetwork)
    bias = network.biases[layer]
    return bias is not None and bool(np.any(bias))


def prove_linear(
    certificate: Certificate, network: DeepNetwork, X: FloatArray, Y: FloatArray, sample_weight: Array | None,
    fit_intercept: bool,
) -> Certificate:  # fmt: skip
    """The certificate with what proves its bound again; there is nothing for ``beta = 0``."""
    depth = len(network.layers)
    if certificate.beta == 0:
        return certificate
    objective = Objective(Squared(), certificate.beta, bias=False, fit_intercept=fit_intercept)
    pose = LinearSet.of if depth == 2 else partial(ChainSet.with_depth, depth)
    return pose(objective, X, Y, sample_weight).with_evidence(certificate, network)


def prove_filters(
    certificate: Certificate, network: ConvolutionalNetwork, X: FloatArray, Y: FloatArray, sample_weight: Array | None,
    fit_intercept: bool,
) -> Certificate:  # fmt: skip
    """The certificate with what proves its bound again, unless that takes too long (:data:`LONGEST`).

    ``network`` is the one whose residual proves it.
    """
    window = network.window
    if min(prod(window.grid(X.shape)) * Y.shape[1], window.size(X.shape)) > LONGEST:
        return certificate
    objective = Objective(Squared(), certificate.beta, bias=False, fit_intercept=fit_intercept)
    return FilterSet.with_window(window, objective, X, Y, sample_weight).with_evidence(certificate, network)
