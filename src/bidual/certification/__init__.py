r"""How far any network is from the best possible one.

A network with outputs F has the dual point :math:`V = -\nabla L(F)`; so has every better network found on the way, and
each of them, scaled into the dual constraint, bounds the optimum from below. :func:`certify` improves the dual point
by column generation (:mod:`bidual.solvers.engine`) and proves a bound on its constraint
(:mod:`bidual.bounds.oracle`); the network itself is only evaluated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bidual._util.checks import FREE, check_flag, check_number, check_seed, check_time_limit, check_verbose
from bidual._util.clock import clock
from bidual._util.typing import Array
from bidual._util.watch import watching
from bidual.architectures import Architecture, TwoLayer
from bidual.bounds import Certificate
from bidual.certification.case import Case, pose
from bidual.certification.verification import refusal, verify
from bidual.losses import Loss
from bidual.networks import GatedNetwork, Network
from bidual.solvers import Options
from bidual.training.train import Trained, TrainingSet

__all__ = ["METHODS", "Improved", "certify", "polish", "refusal", "verify"]

#: Ways to bound the dual constraint (:mod:`bidual.bounds.oracle`); "local" leaves it at norms.
METHODS = ("auto", "patterns", "cones", "compact", "signs", "local")


class Improved(NamedTuple):
    """A better network and its certificate."""

    network: Network
    certificate: Certificate


def certify(
    model: Any,
    X: Array,
    y: Array,
    *,
    beta: float | None = None,
    loss: str | Loss | None = None,
    architecture: str | Architecture | None = None,
    bias: bool | str | None = None,
    fit_intercept: bool | None = None,
    sample_weight: Array | None = None,
    method: str = "auto",
    tol: float = 1e-3,
    time_limit: float | None = 60.0,
    improve: bool = False,
    random_state: int | np.random.RandomState | None = None,
    verbose: int = 0,
) -> Certificate | Improved:
    r"""Bound how far a network is above the best possible one of its kind and any width.

    The network is judged by :math:`\sum_i w_i \ell(f(x_i), y_i) + \tfrac\beta2 (\|W_1\|^2 + \|b_1\|^2 + \|W_2\|^2)`;
    an output intercept is free, and so are the hidden biases of a network with ``free_bias``, or with ``bias="free"``.
    Other kinds have a weight decay of their own: a normalised network in units of the statistics of these rows (000 eq.
    3, :meth:`~bidual.networks.Network.restated`), one of more layers the path regulariser (002 eq. 4).

    Parameters
    ----------
    model : network
        A bidual network, model or fitted estimator; ``torch.nn.Sequential(Linear, ReLU, Linear)``, a module whose
        ``forward`` computes that, or another that :func:`bidual.networks.from_torch` knows; a fitted scikit-learn
        ``MLPRegressor`` or ``MLPClassifier`` with one ReLU layer, also the last step of a ``Pipeline``, in a
        ``TransformedTargetRegressor``, or chosen by a ``GridSearchCV``; weights ``(hidden (m, d), output (m, C))`` or
        ``(hidden, hidden_bias, output, intercept)``; a ``.json``, ``.pt``, ``.pth`` or ``.onnx`` file.
    X, y : array
        The training data: numbers, or labels with a classification loss. Images and sequences have their channels
        last. What stands before the network in a pipeline is applied to X, so that this is the table as it was before;
        the same holds for a target that is transformed.
    beta : float
        Weight decay; a model file knows its own.
    loss : str, Loss or None
        None: that of the model if it knows one (``MLPClassifier``: logistic), else squared.
    architecture : str, Architecture or None
        None: that of the network.
    bias : bool, "free" or None
    fit_intercept : bool or None
        Whether the competing networks have hidden biases and a free output intercept; None: if this one has. "free":
        hidden biases of which weight decay knows nothing.
    sample_weight : array or None
    method : {"auto", "patterns", "cones", "compact", "signs", "local"}
        How the dual constraint is bounded (:mod:`bidual.bounds.oracle`); "local" leaves it at the best guess of
        local search, beside a proof by norms.
    tol : float
        Stop when this relative gap is proven.
    time_limit : float or None
        Seconds. None sets no limit.
    improve : bool
        Return a better network too, with its own certificate.
    random_state : int, RandomState or None
    verbose : int

    Returns
    -------
    Certificate, or Improved (network, certificate) with ``improve=True``

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import certify
    >>> X, y = np.array([[-1.0], [1.0], [2.0]]), np.array([1.0, 1.0, 2.0])
    >>> by_hand = ([[1.0], [-1.0]], [[1.0], [1.0]])  # |x|
    >>> certificate = certify(by_hand, X, y, beta=0.01)
    >>> bool(certificate.gap < 0.05), certificate.scope
    (True, 'global')
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}: use one of {', '.join(map(repr, METHODS))}")
    check_number("tol", tol)
    check_time_limit(time_limit)
    check_flag("improve", improve)
    check_seed(random_state)
    check_verbose(verbose)
    options = Options(tol=tol, time_limit=time_limit, random_state=random_state, verbose=verbose)
    with watching(None if time_limit is None else float(time_limit)) as watch:
        began = clock()
        case = pose(model, X, y, beta, loss, architecture, bias, fit_intercept, sample_weight)
        if isinstance(case.network.core, GatedNetwork):
            best = case.data.train("adaptive", options, case.network, activation="gated", gates=case.network)
            return _beside(case, best, improve)  # fixed gates leave a convex program
        if _spline(case):
            return _beside(case, _best_spline(case, options), improve)
        from bidual.certification.search import Search  # numba takes a moment to load: only when it is needed

        search = Search(case, options, watch.deadline, method, began)
        search.prover.begin()
        search.improve()
        search.prove()
        if not improve:
            return search.certificate(case.network)
        network = min(case.network, search.better_network, key=case.data.value)
        return Improved(network, search.certificate(network))


def polish(model: Any, X: Array, y: Array, **options: Any) -> Improved:
    """A better network than ``model``, and how far from the best possible one it is; see :func:`certify`."""
    result = certify(model, X, y, improve=True, **options)
    assert isinstance(result, Improved)
    return result


def _spline(case: Case) -> bool:
    """Whether it is about free biases on rows on a line."""
    data = case.data
    if not isinstance(data, TrainingSet) or data.objective.bias != FREE or data.objective.architecture != TwoLayer():
        return False
    from bidual.splines.line import on_a_line

    return on_a_line(data.X)


def _best_spline(case: Case, options: Options) -> Trained:
    """Free hidden biases on rows on a line leave a convex program too: a spline."""
    from bidual.splines.training import train_spline

    assert isinstance(case.data, TrainingSet)
    problem = case.data.problem
    return train_spline(case.data.X, problem.Y, problem.w, loss=problem.loss, beta=problem.beta, options=options)


def _beside(case: Case, trained: Trained, improve: bool) -> Certificate | Improved:
    """The certificate of a network whose best competitor was trained."""
    objective = case.data.value(case.network)
    if improve and trained.certificate.objective < objective:
        return Improved(trained.network, trained.certificate)
    certificate = replace(trained.certificate, objective=objective)
    return Improved(case.network, certificate) if improve else certificate
