"""From arrays to a certified spline network."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from bidual._typing import Array, FloatArray
from bidual.closed_form.certify import certificate_of
from bidual.losses import ExactFit, Loss, Margin
from bidual.problem import Problem
from bidual.solvers.base import HistoryEntry, Options
from bidual.splines.exact import exact_fit
from bidual.splines.generation import Generated, generate
from bidual.splines.line import find_line
from bidual.splines.problem import SplineProblem
from bidual.splines.ramps import Ramps, ramps_of
from bidual.training import Trained, distinct_rows
from bidual.units import Units

METHOD = "a kink at every data point priced"


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
    began = time.perf_counter()
    options = Options(tol=1e-6) if options is None else options
    X, Y, counts = distinct_rows(X, Y, sample_weight)
    line = find_line(X)
    c = line.coordinates(X)
    order = np.argsort(c, kind="stable")
    X, Y, c, w = X[order], Y[order], c[order], counts[order] / counts.sum()
    acting = loss if beta > 0 else loss.limit()
    penalty = float(beta) if beta > 0 else 1.0
    _check_fit(c, Y, acting)
    centred = Problem((c - 0.5 * (c[0] + c[-1]))[:, None], None, Y, w, acting, penalty, fit_intercept=True)
    units = Units.of(centred)
    natural = units.normalise(centred)
    problem = SplineProblem(natural.M[:, 0], natural.Y, w, natural.loss, natural.beta, line.distances(X) / units.inputs)
    found = (exact_fit if isinstance(natural.loss, ExactFit) else generate)(problem, options)
    # ramps that change outputs of order one, and with them the loss, by less than matters
    effect = max(problem.beta, float(problem.x[-1] - problem.x[0]))
    spare = 0.05 * options.tol * found.spline.objective / effect if acting.finite else 0.0
    network = ramps_in_units(problem, found, units, c, spare).network(line)
    if isinstance(acting, Margin):  # meet the margin exactly, at the cost of what was missing
        least = float((Y * network.forward(X)).min())
        network = network.scaled(1.0 / least) if 0.5 < least < 1.0 else network
    value = float(units.outputs**units.power)
    objective = acting.value(network.forward(X), Y, w) + penalty * network.penalty()
    slope = units.outputs ** (units.power - 1) * units.inputs
    certificate = certificate_of(
        objective,
        found.bound.value * value,
        beta=beta,
        loss=acting.name,
        method=METHOD,
        began=began,
        oracle=(found.bound.oracle_value * slope, found.bound.oracle_bound * slope),
    )
    history = [replace(h, objective=h.objective * value, lower_bound=h.lower_bound * value) for h in found.history]
    history[-1] = HistoryEntry(history[-1].elapsed, objective, certificate.lower_bound, network.n_neurons)
    return Trained(network, certificate, history, found.n_iter, found.status)


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
