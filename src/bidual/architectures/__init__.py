"""Architectures: how data become features, and how neurons become a network."""

from __future__ import annotations

from bidual._util.checks import shown
from bidual.architectures.base import Architecture, Lift
from bidual.architectures.batch_norm import BatchNorm, truncate
from bidual.architectures.convolutional import Convolutional
from bidual.architectures.leaky import LeakyReLU
from bidual.architectures.parallel import Parallel
from bidual.architectures.standardised import Standardised
from bidual.architectures.two_layer import TwoLayer

ARCHITECTURES: dict[str, type[Architecture]] = {
    cls.name: cls for cls in (TwoLayer, LeakyReLU, BatchNorm, Convolutional, Parallel)
}

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "BatchNorm",
    "Convolutional",
    "LeakyReLU",
    "Lift",
    "Parallel",
    "Standardised",
    "TwoLayer",
    "get_architecture",
    "truncate",
]


def get_architecture(architecture: str | Architecture) -> Architecture:
    """The architecture named so, with default options, or the object itself."""
    if isinstance(architecture, Architecture):
        return architecture
    named = {name: cls for name, cls in Architecture.registry.items() if cls is not Convolutional}  # needs kernel_size
    if isinstance(architecture, str) and architecture in named:
        return named[architecture]()
    names = ", ".join(map(repr, sorted(named)))
    raise ValueError(f"unknown architecture {shown(architecture)}: use one of {names}, or an Architecture object")
