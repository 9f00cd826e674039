"""Whether the numbers of a certificate follow from its evidence and the data."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from sklearn.utils import check_array

from bidual._typing import Array, FloatArray
from bidual.architectures import Architecture
from bidual.certificates import Bound, Certificate, joined_scope
from bidual.certificates.evidence import Evidence
from bidual.certificates.stored import GateProof
from bidual.certification.linear_set import LINEAR_NET, LinearSet
from bidual.models import Model
from bidual.networks import GatedNetwork, Network, as_network
from bidual.problem import Problem
from bidual.targets import encode_known
from bidual.training import TrainingSet
from bidual.units import Units


class Posed(Protocol):
    """A training problem on the distinct samples of the data."""

    @property
    def X(self) -> FloatArray:
        """The samples."""

    @property
    def problem(self) -> Problem:
        """The problem."""

    @property
    def restriction(self) -> str:
        """What the networks are restricted to beyond their architecture."""

    def objective(self, network: Network) -> float:
        """The objective of a network on all rows of the user."""

    def accounted(self, bound: Bound) -> Bound:
        """A bound on the problem as posed as one on that of exact features."""

    def check_network(self, network: Network, gated: bool) -> None:
        """Raise if the network is not one of those that the problem is about."""


#: Digits of a claim that must be reproduced, relative to it: what another order of summation may change.
RTOL = 1e-9
#: The same where the claim is lost in cancellation, relative to the units of the objective.
ATOL = 1e-14


def refusal(certificate: Certificate, X: Array, y: Array, sample_weight: Array | None, model: Any) -> str | None:
    """Why the certificate is not accepted; None if everything it claims is proven.

    Raises
    ------
    ValueError
        If it has no evidence, or the data are not such as it is about.
    """
    evidence = certificate.evidence
    if evidence is None:
        raise ValueError("this certificate cannot be verified: its proof was not kept")
    if isinstance(model, Model):
        X, y = model.transform(X), y if model.target.classes is not None else _scaled(model, y)
    network = None if model is None else as_network(model)
    if certificate.loss != evidence.loss.name or (certificate.beta == 0) == evidence.loss.finite:
        return f"the claim is about the loss {certificate.loss!r} and beta={certificate.beta:g}, the evidence is not"
    for name, value in certificate.stated.items():
        if not np.isclose(value, getattr(certificate, name), atol=1e-12):
            return f"the {name} does not follow from the objective and the bounds"
    try:
        posed = pose(certificate, evidence, X, y, sample_weight)
    except MemoryError as error:  # options that nobody trains with
        return str(error)
    units = Units.of(posed.problem)
    natural, value = units.normalise(posed.problem), float(units.outputs**units.power)
    scope = joined_scope(evidence.proof.scope(natural), posed.restriction)
    if scope != certificate.scope:
        return f"the claim is about networks of the scope {certificate.scope!r}, the evidence about {scope!r}"
    try:
        bound = evidence.bound(natural)
    except ValueError as error:
        if len(evidence.V) != len(natural.Y):
            raise
        return str(error)
    bound = posed.accounted(units.restore_bound(bound))
    proven, limit = bound.value, bound.limit
    if not proven >= certificate.lower_bound - RTOL * abs(certificate.lower_bound) - ATOL * value:
        return f"the evidence proves a lower bound of {proven:.9g}, not {certificate.lower_bound:.9g}"
    if certificate.limit is not None and not certificate.limit >= limit * (1.0 - RTOL):
        return f"the evidence bounds the dual constraint by {limit:.9g}, not {certificate.limit:.9g}"
    if certificate.attained is not None and not 0 <= certificate.attained <= limit * (1.0 + RTOL):
        return f"no neuron attains {certificate.attained:.9g}: the dual constraint is at most {limit:.9g}"
    rescaled = certificate.rescaled_objective
    if rescaled is not None and not proven * (1.0 - RTOL) <= rescaled <= certificate.objective * (1.0 + RTOL):
        return f"rescaling cannot lead to {rescaled:.9g} from an objective of {certificate.objective:.9g}"
    return None if network is None else _other_network(certificate, evidence, posed, network)


def pose(certificate: Certificate, evidence: Evidence, X: Array, y: Array, sample_weight: Array | None) -> Posed:
    """The training problem that the certificate is about."""
    beta = certificate.beta or 1.0  # of an exact fit the evidence holds the loss of the limit
    if evidence.architecture == LINEAR_NET or evidence.bias == "free":
        X = check_array(X, dtype=np.float64)
        Y = encode_known(evidence.loss, y, evidence.classes, evidence.V.shape[1])
        if evidence.bias == "free":
            from bidual.splines.training import SplineSet  # numba takes a moment to load: only when it is needed

            return SplineSet.pose(X, Y, sample_weight, loss=evidence.loss, beta=beta)
        return LinearSet.pose(X, Y, sample_weight, loss=evidence.loss, beta=beta, fit_intercept=evidence.fit_intercept)
    cls = Architecture.registry.find(evidence.architecture)
    try:
        architecture = cls(**evidence.options)
    except TypeError as error:
        raise ValueError(f"the architecture {cls.name!r} has other options than {sorted(evidence.options)}") from error
    X = check_array(X, dtype=np.float64, allow_nd=architecture.tensors)
    stacked = architecture.stack(X.shape, y)
    y = y if stacked is None else stacked
    Y = encode_known(evidence.loss, y, evidence.classes, evidence.V.shape[1])
    if evidence.loss.classification:
        evidence.loss.encode(Y)  # raises on codes that the loss does not know
    if len(Y) % len(X):
        raise ValueError(f"X has {len(X)} rows, y has {len(Y)}")
    return TrainingSet.pose(
        X,
        Y,
        sample_weight,
        loss=evidence.loss,
        beta=beta,
        architecture=architecture,
        bias=evidence.bias is True,
        fit_intercept=evidence.fit_intercept,
    )


def _other_network(certificate: Certificate, evidence: Evidence, posed: Posed, network: Network) -> str | None:
    """Why the network is not the one that the certificate is about; None if it may be."""
    gated = isinstance(evidence.proof, GateProof)
    if gated != isinstance(getattr(network, "layer", network), GatedNetwork):
        return (
            f"the model is a {type(network).__name__}, the claim is about networks with{'' if gated else 'out'} gates"
        )
    if not evidence.fit_intercept and np.any(getattr(network, "intercept", 0.0)):
        return "the model has an output intercept, the claim is about networks without"
    if getattr(network, "free_bias", False) != (evidence.bias == "free"):
        return "the model charges its hidden biases otherwise than the claim says"
    try:
        posed.check_network(network, gated)
        objective = posed.objective(network)
    except (TypeError, ValueError) as error:
        return f"the model is of another kind than the claim: {error}"
    if not np.isclose(objective, certificate.objective, rtol=RTOL, atol=0.0):
        return f"the model has the objective {objective:.9g}, the claim is about {certificate.objective:.9g}"
    return None


def _scaled(model: Model, y: Array) -> Array:
    return (np.asarray(y, dtype=np.float64) - model.target.centre) / model.target.scale
