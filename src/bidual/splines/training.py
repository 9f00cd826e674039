"""From arrays to a certified spline network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual._util.clock import clock
from bidual._util.progress import task
from bidual._util.ranges import check_range
from bidual._util.typing import Array, FloatArray
from bidual.architectures import TwoLayer
from bidual.bounds import Bound
from bidual.bounds.evidence import Evidence
from bidual.losses import ExactFit, Loss, Margin
from bidual.networks import Network, TwoLayerNetwork
from bidual.problem import Problem
from bidual.solvers.base import HistoryEntry, Options
from bidual.splines.exact import exact_fit
from bidual.splines.generation import Generated, generate
from bidual.splines.line import Line, find_line
from bidual.splines.problem import METHOD, LineAtoms, SplineProblem
from bidual.splines.ramps import Ramps, ramps_of
from bidual.training.objective import Objective
from bidual.training.posed import Posed
from bidual.training.rows import Rows
from bidual.training.train import Trained, watched
from bidual.training.units import Units

#: Times that a network is scaled to meet a margin.
_TRIES = 8
#: Bounds that differ by less, relatively, differ by rounding.
_SAME = 1e-10


@dataclass(frozen=True)
class SplineSet(Posed):
    """Rows on a line, in the order of their coordinates, with the problem of free biases posed on them.

    Attributes
    ----------
    line : Line
    c : ndarray, shape (n,)
        The coordinates of the distinct rows.
    """

    problem: Problem[LineAtoms]
    line: Line
    c: FloatArray

    @classmethod
    def of(cls, objective: Objective, X: FloatArray, Y: FloatArray, sample_weight: Array | None) -> SplineSet:
        """Pose the problem on rows ``X (n, d)`` and encoded targets ``Y (n, C)``, in any order."""
        if type(objective.architecture) is not TwoLayer:
            raise ValueError(f"free biases are for networks of two layers, not for {objective.architecture!r}")
        loss = objective.acting_loss
        rows = Rows.of(X, Y, sample_weight, exact=not loss.finite)
        line = find_line(rows.X)
        c = line.coordinates(rows.X)
        order = np.argsort(c, kind="stable")
        X, Y, c, w = rows.X[order], rows.Y[order], c[order], rows.w[order]
        away = line.distances(X) / (float(c[-1] - c[0]) or 1.0)
        M = (c - 0.5 * (c[0] + c[-1]))[:, None]
        problem = Problem(LineAtoms(M, away=away), Y, w, loss, objective.acting_beta, True)
        return cls(X, problem, objective, rows.faint, line, c)

    def evidence(self, bound: Bound, classes: tuple[Any, ...] | None = None) -> Evidence | None:
        """What it takes to check a bound again; None if V proves less than that in rounding."""
        if bound.settle(self.natural).value < (1.0 - _SAME) * bound.value:
            return None
        return super().evidence(bound, classes)

    def check_network(self, network: Network, gated: bool) -> None:
        """Raise if the network is not one of those that the problem is about."""
        if not isinstance(network, TwoLayerNetwork) or not network.free_bias or gated:
            raise TypeError(f"expected a two-layer network with free biases, got {network!r}")


def train_spline(
    X: FloatArray,
    Y: FloatArray,
    sample_weight: Array | None = None,
    *,
    loss: Loss,
    beta: float,
    options: Options | None = None,
) -> Trained:
    r"""The best network with free hidden biases on rows that lie on a line (004 Cor. 3.2, 3.4, Theorem 5.2, A.7).

    Parameters
    ----------
    X : ndarray, shape (n, d)
        One column, or rows on a line.
    Y : ndarray, shape (n, C)
        Encoded targets.
    sample_weight : ndarray, shape (n,), or None
    loss : Loss
    beta : float
        0 asks for the smallest network that minimises the loss exactly.
    options : Options or None
        ``tol``, ``max_iter`` (rounds), ``time_limit`` and ``verbose`` count.
    """
    options = Options(tol=1e-6) if options is None else options
    objective = Objective(loss, float(beta), bias="free")
    return watched(options, lambda watch: _trained(objective, X, Y, sample_weight, options))


def _trained(
    objective: Objective, X: FloatArray, Y: FloatArray, sample_weight: Array | None, options: Options
) -> Trained:
    began = clock()
    check_range(X=X, y=Y)
    posed = SplineSet.of(objective, X, Y, sample_weight)
    X, Y, loss, units = posed.X, posed.problem.Y, posed.problem.loss, posed.units
    natural = posed.natural.of(LineAtoms)
    _check_fit(posed.c, Y, loss)
    assert natural is not None
    problem = SplineProblem.of(natural)
    with task("training", options.verbose, units.value):
        found = (exact_fit if isinstance(natural.loss, ExactFit) else generate)(problem, options)
    # ramps that change outputs of order one, and with them the loss, by less than matters
    effect = max(problem.beta, float(problem.x[-1] - problem.x[0]))
    spare = 0.05 * options.tol * found.spline.objective / effect if loss.finite else 0.0
    network = ramps_in_units(problem, found, units, posed.c, spare).network(posed.line)
    if isinstance(loss, Margin):
        network = _meeting(network, X, Y)
    certificate = posed.certificate(network, found.bound, method=METHOD, began=began)
    history = units.restore_history(found.history)
    last = HistoryEntry(history[-1].elapsed, certificate.objective, certificate.lower_bound, network.n_neurons)
    return Trained(network, certificate, objective, [*history[:-1], last], found.n_iter, found.status)


def _meeting(network: TwoLayerNetwork, X: FloatArray, Y: FloatArray) -> TwoLayerNetwork:
    """The network scaled so that it meets the margin exactly, at the cost of what was missing."""
    for _ in range(_TRIES):  # scaled weights are rounded anew
        least = float((Y * network.evaluate(X)).min())
        if not 0.5 < least < 1.0:
            break
        network = network.scaled((2.0 - least) / least)
    return network


def ramps_in_units(problem: SplineProblem, found: Generated, units: Units, c: FloatArray, spare: float) -> Ramps:
    """The ramps of a spline, in the units of the data with coordinates ``c``; see :func:`ramps_of`."""
    spline = found.spline
    chain, scale = spline.chain, units.outputs / units.inputs
    t = c[problem.nodes[spline.knots]]
    return ramps_of(t, chain.g[0] * units.outputs + units.shift, chain.right * scale, chain.left * scale, spare * scale)


def _check_fit(c: FloatArray, Y: FloatArray, loss: Loss) -> None:
    """Refuse what no function can fit: at one place the loss asks for an interval of outputs from every row."""
    if loss.finite:
        return
    first = np.unique(c, return_index=True)[1]
    high, low = (extreme.reduceat(Y, first, axis=0) for extreme in (np.maximum, np.minimum))
    F = loss.nearest_outputs(high, low)
    if (loss.nearest_outputs(F, high) != F).any():
        raise ValueError("beta=0 asks for an exact fit, but equal inputs have different targets; use beta > 0")
