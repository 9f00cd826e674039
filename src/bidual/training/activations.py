"""What an activation asks for: how to train it, and how its neurons become a network and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual._util.typing import FloatArray
from bidual.architectures import Lift
from bidual.atoms import GatedNeurons, Neurons
from bidual.atoms.abilities import Needs
from bidual.networks import Network
from bidual.problem import Problem
from bidual.solvers import METHODS, Gated, Solution, Solver
from bidual.solvers.constant import nothing
from bidual.solvers.gated import no_gates


@dataclass(frozen=True)
class Activation:
    """How to train with an activation.

    Attributes
    ----------
    solver : callable
        From the name of a method to the method.
    recover, neurons : callable
        From the neurons on a lift to a network, and back.
    nothing : callable
        The network without neurons, when given a problem and the reason for it, in words.
    gated : bool
        Whether the neurons have fixed gates.
    needs : tuple
        What it needs of a problem, see :mod:`bidual.atoms.abilities`.
    """

    solver: Callable[[str], Solver]
    recover: Callable[[Lift, Neurons | GatedNeurons], Network]
    neurons: Callable[[Lift, Network], Neurons | GatedNeurons]
    nothing: Callable[[Problem, str], Solution]
    gated: bool = False
    needs: Needs = ()


ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(
        solver=lambda method: METHODS[method],
        recover=lambda lift, neurons: lift.recover(neurons),  # type: ignore[arg-type]
        neurons=lambda lift, network: lift.neurons(network),
        nothing=nothing,
    ),
    # Fixed gates leave one convex program without patterns to find: there is nothing for ``method`` to choose.
    "gated": Activation(
        solver=lambda method: Gated(),
        recover=lambda lift, neurons: lift.recover_gated(neurons),  # type: ignore[arg-type]
        neurons=lambda lift, network: lift.gated_neurons(network),
        nothing=no_gates,
        gated=True,
        needs=Gated.needs,
    ),
}


def gate_vectors(lift: Lift, gates: Any) -> FloatArray | None:
    """Gate vectors ``(P, p)`` on a lift, of an array, a network or a list of such; None if none are given."""
    if gates is None:
        return None
    several = isinstance(gates, list | tuple) and any(np.ndim(g) != 1 for g in gates)
    return np.vstack([lift.gates(source) for source in (gates if several else [gates])])
