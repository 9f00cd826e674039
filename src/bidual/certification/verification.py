"""Whether the numbers of a certificate follow from its evidence and the data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import check_array

from bidual._util.sparse import compressed, dense, is_sparse
from bidual._util.typing import Array
from bidual._util.wrapped import unwrap
from bidual.bounds import Certificate, covers, joined_scope
from bidual.bounds.evidence import Evidence
from bidual.bounds.proof import NormProof
from bidual.bounds.stored import GateProof
from bidual.certification.case import on_rows
from bidual.certification.linear_set import LINEAR_CONV, LINEAR_NET, ChainSet, FilterSet, LinearSet, window_of
from bidual.models import Model, as_network
from bidual.networks import GatedNetwork, Network
from bidual.splines.problem import KinkProof
from bidual.training.objective import Objective
from bidual.training.posed import Posed
from bidual.training.routing import stays_sparse
from bidual.training.targets import encode_known

#: Digits of a claim that must be reproduced, relative to it: what another order of summation may change.
RTOL = 1e-9
#: The same of the dual constraint's bound and value, which no claim rests on, relative to beta.
SHOWN = 1e-6
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
        raise ValueError(
            f"this certificate cannot be verified, its proof was not kept: no file holds one of the kind "
            f"'{certificate.method}', train again to have it proven"
        )
    model, X, y = unwrap(model, X, y)
    if isinstance(model, Model):
        X, y = model.transform(X), y if model.target.classes is not None else _scaled(model, y)
    network = None if model is None else as_network(model, X)
    if certificate.loss != evidence.loss.name or (certificate.beta == 0 and evidence.loss.finite):
        return f"the claim is about the loss {certificate.loss!r} and beta={certificate.beta:g}, the evidence is not"
    for name, value in certificate.stated.items():
        if not np.isclose(value, getattr(certificate, name), atol=1e-12):
            return f"the {name} does not follow from the objective and the bounds"
    try:
        posed = pose(certificate, evidence, X, y, sample_weight)
    except MemoryError as error:  # options that nobody trains with
        return str(error)
    units, natural = posed.units, posed.natural
    scope = joined_scope(evidence.proof.scope(natural), posed.restriction)
    if not covers(scope, certificate.scope):
        return f"the claim is about networks of the scope {certificate.scope!r}, the evidence about {scope!r}"
    try:
        bound = evidence.bound(natural)
    except ValueError as error:
        if len(evidence.V) != len(natural.Y):
            raise
        return str(error)
    bound = posed.accounted(units.restore_bound(bound))
    proven, limit = bound.value, bound.limit
    if not proven >= certificate.lower_bound - RTOL * abs(certificate.lower_bound) - ATOL * units.value:
        return f"the evidence proves a lower bound of {proven:.9g}, not {certificate.lower_bound:.9g}"
    shown = SHOWN * max(limit, posed.problem.beta)
    if certificate.limit is not None and not certificate.limit >= limit - shown:
        return f"the evidence bounds the dual constraint by {limit:.9g}, not {certificate.limit:.9g}"
    if certificate.attained is not None and not 0 <= certificate.attained <= limit + shown:
        return f"no neuron attains {certificate.attained:.9g}: the dual constraint is at most {limit:.9g}"
    rescaled = certificate.rescaled_objective
    if rescaled is not None and not proven * (1.0 - RTOL) <= rescaled <= certificate.objective * (1.0 + RTOL):
        return f"rescaling cannot lead to {rescaled:.9g} from an objective of {certificate.objective:.9g}"
    # an exact fit up to a tolerance may be smaller than one
    least = proven * (1.0 - SHOWN) - ATOL * units.value if scope == "global" and certificate.beta > 0 else -np.inf
    if network is not None and certificate.objective < least:
        return f"the objective {certificate.objective:.9g} is below what is proven for all networks, {proven:.9g}"
    if network is None:
        return None
    try:
        network = on_rows(network, posed.objective.architecture, network.check_inputs(X), sample_weight)
    except ValueError as error:
        return _of_another_kind(error)
    return _other_network(certificate, evidence, posed, network)


def _of_another_kind(error: Exception) -> str:
    return f"the model is of another kind than the claim: {error}"


def objective_of(evidence: Evidence, beta: float) -> Objective:
    """What the networks of a claim minimise; linear ones are no architecture."""
    if evidence.architecture in (LINEAR_NET, LINEAR_CONV):
        return Objective(evidence.loss, beta, bias=False, fit_intercept=evidence.fit_intercept)
    return Objective.of(evidence, beta)


def pose(certificate: Certificate, evidence: Evidence, X: Array, y: Array, sample_weight: Array | None) -> Posed:
    """The training problem that the certificate is about."""
    kind: Callable[..., Posed]
    tensors = False
    objective = objective_of(evidence, certificate.beta)
    if evidence.architecture in (LINEAR_NET, LINEAR_CONV):
        tensors = evidence.architecture == LINEAR_CONV
        depth: Any = evidence.options.get("depth")
        layers = set(evidence.options) == {"depth"} and type(depth) is int and depth >= 2
        if evidence.bias is not False or not (tensors or layers):
            raise ValueError("linear networks have two layers or more, or filters, and no hidden biases")
        kind = partial(FilterSet.with_window, window_of(evidence.options, np.ndim(X))) if tensors else LinearSet.of
        if not tensors and depth != 2:
            kind = partial(ChainSet.with_depth, depth)
    else:
        kind = Objective.pose
    if evidence.bias == "free" and isinstance(evidence.proof, KinkProof):
        from bidual.splines.training import SplineSet  # numba takes a moment to load: only when it is needed

        kind = SplineSet.of
    if is_sparse(X):
        keeps = isinstance(evidence.proof, NormProof) and stays_sparse(objective, X)
        X = compressed(X) if keeps else dense(X)
    allow_nd = tensors or objective.architecture.tensors
    X = check_array(X, dtype=np.float64, allow_nd=allow_nd, accept_sparse="csr")
    stacked = objective.architecture.stack(X.shape, y)
    Y = encode_known(evidence.loss, y if stacked is None else stacked, evidence.classes, evidence.V.shape[1])
    if evidence.loss.classification:
        evidence.loss.encode(Y)  # raises on codes that the loss does not know
    if len(Y) % X.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, y has {len(Y)}")
    return kind(objective, X, Y, sample_weight)


def _other_network(certificate: Certificate, evidence: Evidence, posed: Posed, network: Network) -> str | None:
    """Why the network is not the one that the certificate is about; None if it may be."""
    gated = isinstance(evidence.proof, GateProof)
    if gated != isinstance(network.core, GatedNetwork):
        return (
            f"the model is a {type(network).__name__}, the claim is about networks with{'' if gated else 'out'} gates"
        )
    if not evidence.fit_intercept and np.any(getattr(network, "intercept", 0.0)):
        return "the model has an output intercept, the claim is about networks without"
    if getattr(network.core, "free_bias", False) != (evidence.bias == "free"):
        return "the model charges its hidden biases otherwise than the claim says"
    try:
        posed.check_network(network, gated)
        objective = posed.value(network)
    except (TypeError, ValueError) as error:
        return _of_another_kind(error)
    if not np.isclose(objective, certificate.objective, rtol=RTOL, atol=0.0):
        return f"the model has the objective {objective:.9g}, the claim is about {certificate.objective:.9g}"
    return None


def _scaled(model: Model, y: Array) -> Array:
    return (np.asarray(y, dtype=np.float64) - model.target.centre) / model.target.scale


def verify(certificate: Certificate, X: Array, y: Array, sample_weight: Array | None, model: Any = None) -> bool:
    """Whether the certificate's numbers follow from its evidence and these data."""
    return refusal(certificate, X, y, sample_weight, model) is None


Certificate.verifier = verify
