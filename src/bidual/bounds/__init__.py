"""Certificates and the bounds behind them. They know nothing of how a network was trained."""

from bidual.bounds.branches import LayeredBounds
from bidual.bounds.certificate import ByFormula, Certificate, ContradictionError, covers, joined_scope, relative_gap
from bidual.bounds.dual import Bound, bound_by_norms, lower_bound, sufficient
from bidual.bounds.free_bias import FreeBiasBounds
from bidual.bounds.normalised import NormalisedBounds
from bidual.bounds.patterns import ConeBounds, certify_patterns, pattern_bound, slack, spectral_bound
from bidual.bounds.rowwise import cone_bounds

__all__ = [
    "Bound",
    "ByFormula",
    "Certificate",
    "ConeBounds",
    "ContradictionError",
    "FreeBiasBounds",
    "LayeredBounds",
    "NormalisedBounds",
    "bound_by_norms",
    "certify_patterns",
    "cone_bounds",
    "covers",
    "joined_scope",
    "lower_bound",
    "pattern_bound",
    "relative_gap",
    "slack",
    "spectral_bound",
    "sufficient",
]
