"""From arrays to a certified spline network."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bidual._typing import Array, FloatArray
from bidual._watch import INTERRUPTED, watching
from bidual.architectures import TwoLayer
from bidual.certificates import Bound
from bidual.certificates.evidence import Evidence
from bidual.closed_form.certify import certificate_of
from bidual.losses import ExactFit, Loss, Margin
from bidual.networks import Network, TwoLayerNetwork
from bidual.ranges import check_range
from bidual.solvers.base import HistoryEntry, Options
from bidual.splines.exact import exact_fit
from bidual.splines.generation import Generated, generate
from bidual.splines.line import Line, find_line
from bidual.splines.problem import KINKS, METHOD, LineProblem, SplineProblem
from bidual.splines.ramps import Ramps, ramps_of
from bidual.training import Faint, Trained, distinct_rows
from bidual.units import Units

#: Times that a network is scaled to meet a margin.
_TRIES = 8


#: Bounds that differ by less, relatively, differ by rounding.
_SAME = 1e-10


@dataclass(frozen=True)
class SplineSet:
    """Rows on a line, in the order of their coordinates, with the problem posed on them.

    Attributes
    ----------
    X : ndarray, shape (n, d)
        The distinct rows.
    problem : LineProblem
    line : Line
    c : ndarray, shape (n,)
        Their coordinates.
    """

    X: FloatArray
    problem: LineProblem
    line: Line
    c: FloatArray
    faint: Faint
    restriction: ClassVar[str] = ""

    @classmethod
    def pose(cls, X: FloatArray, Y: FloatArray, sample_weight: Array | None, *, loss: Loss, beta: float) -> SplineSet:
        """Pose the problem on rows ``X (n, d)`` and encoded targets ``Y (n, C)``, in any order."""
        faint = Faint.of(X, Y, sample_weight, float(loss.finite))
        X, Y, counts = distinct_rows(X, Y, sample_weight)
        line = find_line(X)
        c = line.coordinates(X)
        order = np.argsort(c, kind="stable")
        X, Y, c, w = X[order], Y[order], c[order], counts[order] / counts.sum()
        away = line.distances(X) / (float(c[-1] - c[0]) or 1.0)
        M = (c - 0.5 * (c[0] + c[-1]))[:, None]
        return cls(X, LineProblem(M, None, Y, w, loss, beta, True, away), line, c, faint)

    def evidence(self, bound: Bound, natural: LineProblem) -> Evidence | None:
        """What it takes to check a bound again, both in natural units; None if V proves less than that in rounding."""
        if bound.settle(natural).value < (1.0 - _SAME) * bound.value:
            return None
        return Evidence(bound.V, bound.scale, KINKS, self.problem.loss, None, TwoLayer.name, {}, "free", True)

    def objective(self, network: Network) -> float:
        """The objective of a network on all rows of the user."""
        problem = self.problem
        value = problem.loss_value(network.evaluate(self.X)) + problem.beta * network.penalty()
        return value + self.faint.loss(network, problem.loss)

    def accounted(self, bound: Bound) -> Bound:
        """The bound itself: the rows are as the user gave them."""
        return bound

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
    with watching(options.time_limit) as watch:
        trained = _train(X, Y, sample_weight, loss, beta, options)
    return replace(trained, status=INTERRUPTED) if watch.interrupted else trained


def _train(
    X: FloatArray, Y: FloatArray, sample_weight: Array | None, loss: Loss, beta: float, options: Options
) -> Trained:
    began = time.perf_counter()
    check_range(X=X, y=Y)
    acting = loss if beta > 0 else loss.limit()
    penalty = float(beta) if beta > 0 else 1.0
    posed = SplineSet.pose(X, Y, sample_weight, loss=acting, beta=penalty)
    X, Y, line, c, w = posed.X, posed.problem.Y, posed.line, posed.c, posed.problem.w
    _check_fit(c, Y, acting)
    units = Units.of(posed.problem)
    natural = units.normalise(posed.problem)
    assert isinstance(natural, LineProblem)
    problem = natural.spline
    found = (exact_fit if isinstance(natural.loss, ExactFit) else generate)(problem, options)
    # ramps that change outputs of order one, and with them the loss, by less than matters
    effect = max(problem.beta, float(problem.x[-1] - problem.x[0]))
    spare = 0.05 * options.tol * found.spline.objective / effect if acting.finite else 0.0
    network = ramps_in_units(problem, found, units, c, spare).network(line)
    if isinstance(acting, Margin):
        network = _meeting(network, X, Y)
    value = float(units.outputs**units.power)
    F = network.evaluate(X)
    bound = found.bound.fitting(natural.loss, (F - units.shift) / units.outputs, natural.Y)
    objective = acting.value(F, Y, w) + penalty * network.penalty() + posed.faint.loss(network, acting)
    slope = units.outputs ** (units.power - 1) * units.inputs
    certificate = certificate_of(
        objective,
        bound.value * value,
        beta=beta,
        loss=acting.name,
        method=METHOD,
        began=began,
        oracle=(found.bound.attained * slope, found.bound.limit * slope),
        evidence=posed.evidence(found.bound, natural),
    )
    history = [replace(h, objective=h.objective * value, likely_bound=h.likely_bound * value) for h in found.history]
    history[-1] = HistoryEntry(history[-1].elapsed, objective, certificate.lower_bound, network.n_neurons)
    return Trained(network, certificate, history, found.n_iter, found.status)


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
    """Refuse what no function can fit."""
    if loss.finite:
        return
    same = c[1:] == c[:-1]
    if (Y[1:][same] != Y[:-1][same]).any():
        raise ValueError("beta=0 asks for an exact fit, but equal inputs have different targets; use beta > 0")
