"""Activation patterns of a matrix: all of them, or a sample."""

from bidual.arrangements.enumerate import enumerate_patterns, few_patterns
from bidual.arrangements.patterns import Patterns, count_patterns, row_space
from bidual.arrangements.sample import cluster_directions, flip_nearest, patterns_of, sample_patterns

__all__ = [
    "Patterns",
    "cluster_directions",
    "count_patterns",
    "enumerate_patterns",
    "few_patterns",
    "flip_nearest",
    "patterns_of",
    "row_space",
    "sample_patterns",
]
