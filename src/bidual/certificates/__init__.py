"""Certificates and the bounds behind them. They know nothing of how a network was trained."""

from bidual.certificates.certificate import Certificate, ContradictionError, joined_scope, relative_gap
from bidual.certificates.dual import Bound, bound_by_norms, lower_bound, sufficient
from bidual.certificates.normalised import NormalisedBounds, WhiteBlocks
from bidual.certificates.patterns import ConeBounds, certify_patterns, pattern_bound, slack, spectral_bound

__all__ = [
    "Bound",
    "Certificate",
    "ConeBounds",
    "ContradictionError",
    "NormalisedBounds",
    "WhiteBlocks",
    "bound_by_norms",
    "certify_patterns",
    "joined_scope",
    "lower_bound",
    "pattern_bound",
    "relative_gap",
    "slack",
    "spectral_bound",
    "sufficient",
]
