"""Data that no network fits exactly, said before any training, with the proof."""

from __future__ import annotations

import numpy as np

from bidual._util.typing import FloatArray
from bidual.atoms import Relu
from bidual.problem import Problem
from bidual.programs.conic import InfeasibleError
from bidual.programs.feasible import contradiction

#: Samples, and entries of each, that a sentence shows.
_SHOWN, _ENTRIES = 4, 4


def check_feasible(problem: Problem, X: FloatArray) -> None:
    """Raise InfeasibleError if the loss is an indicator that no network on the samples ``X`` meets."""
    relu = problem.of(Relu)
    if problem.loss.finite or relu is None or "ordinary neurons" not in relu.atoms.can:
        return
    V = contradiction(relu)
    if V is None:
        return
    places = len(V) // len(X)
    rows = np.flatnonzero(V.any(axis=1))
    samples, weights, targets = X[rows // places], V[rows], problem.Y[rows]
    used = weights.any(axis=0)
    alike = len(rows) == 2 and np.array_equal(samples[0], samples[1])
    if alike:
        why = (
            f"the sample {_words(samples[0])} has the targets {_words(targets[0, used])} and {_words(targets[1, used])}"
        )
    else:
        shown = ", ".join(
            f"{w[used][0]:+.3g} at {_words(x)}" for w, x in list(zip(weights, samples, strict=True))[:_SHOWN]
        )
        more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        why = (
            f"outputs weighted by {shown}{more} add up to zero whatever the network, and targets do not (without "
            "hidden biases networks are homogeneous, up to the intercept; bias=True makes such data fit)"
        )
    raise InfeasibleError(f"no network fits these data exactly: {why}. Use beta > 0", samples, weights)


def _words(values: FloatArray) -> str:
    """Numbers as a sentence shows them."""
    flat = np.ravel(values)
    if len(flat) == 1:
        return f"{flat[0]:g}"
    return f"({', '.join(f'{v:g}' for v in flat[:_ENTRIES])}{', ...' if len(flat) > _ENTRIES else ''})"
