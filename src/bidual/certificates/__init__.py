"""Certificates and the bounds behind them. They know nothing of how a network was trained."""

from bidual.certificates.certificate import Certificate, relative_gap
from bidual.certificates.dual import DualBound, lower_bound, sufficient
from bidual.certificates.normalised import NormalisedBounds, WhiteBlocks
from bidual.certificates.patterns import ConeBounds, certify_patterns, pattern_bound, slack, spectral_bound

__all__ = [
    "Certificate",
    "ConeBounds",
    "DualBound",
    "NormalisedBounds",
    "WhiteBlocks",
    "certify_patterns",
    "lower_bound",
    "pattern_bound",
    "relative_gap",
    "slack",
    "spectral_bound",
    "sufficient",
]
