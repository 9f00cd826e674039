r"""The regularisation path: optimal networks for a decreasing sequence of weight decays.

Above :math:`\beta_{\max}` the best network has no neurons. Below, its neurons change little from one beta to the next,
so that each training starts from the network before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from bidual._util.checks import check_number, check_prove, check_seed, check_time_limit, check_verbose, shown
from bidual._util.clock import clock
from bidual._util.progress import task
from bidual._util.typing import Array, FloatArray
from bidual._util.watch import watching
from bidual.architectures import Architecture
from bidual.bounds import Certificate
from bidual.losses import Loss
from bidual.networks import Network
from bidual.solvers import METHODS, Constant, Options, Solver
from bidual.training.activations import ACTIVATIONS
from bidual.training.routing import pose_data
from bidual.training.train import Trainable, Trained

#: The network without neurons is optimal if its gap is within rounding.
_CONSTANT_GAP = 1e-7


@dataclass(frozen=True)
class SolutionPath(Sequence[Trained]):
    """Trained networks for decreasing betas; item ``k`` is the :class:`~bidual.training.train.Trained` at ``betas[k]``.

    Attributes
    ----------
    betas : ndarray, shape (k,)
        Decreasing.
    points : list of Trained
        Network, certificate, history, iterations and status for each beta.
    tol : float
        The gap asked for.
    elapsed : float
        Seconds for the whole path.
    interrupted : bool
        Whether Ctrl-C ended it early: then these are the points finished by then.
    """

    betas: FloatArray
    points: list[Trained] = field(repr=False)
    tol: float
    elapsed: float
    interrupted: bool = False

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[Trained]:
        return iter(self.points)

    @overload
    def __getitem__(self, index: int) -> Trained: ...
    @overload
    def __getitem__(self, index: slice) -> list[Trained]: ...
    def __getitem__(self, index: int | slice) -> Trained | list[Trained]:
        return self.points[index]

    @property
    def networks(self) -> list[Network]:
        """The trained networks."""
        return [point.network for point in self.points]

    @property
    def certificates(self) -> list[Certificate]:
        """Their certificates."""
        return [point.certificate for point in self.points]

    @property
    def objectives(self) -> FloatArray:
        """Regularised training objectives, evaluated on the networks."""
        return np.array([c.objective for c in self.certificates])

    @property
    def lower_bounds(self) -> FloatArray:
        """Proven lower bounds on the optima."""
        return np.array([c.lower_bound for c in self.certificates])

    @property
    def gaps(self) -> FloatArray:
        """Proven relative gaps; loose unless ``prove`` was given."""
        return np.array([c.gap for c in self.certificates])

    @property
    def likely_bounds(self) -> FloatArray:
        """Lower bounds on the optima as audited search believes."""
        return np.array([c.likely_bound for c in self.certificates])

    @property
    def likely_gaps(self) -> FloatArray:
        """Relative gaps as audited search believes: what ``tol`` refers to."""
        return np.array([c.likely_gap for c in self.certificates])

    @property
    def n_neurons(self) -> Array:
        """Numbers of hidden neurons."""
        return np.array([network.n_neurons for network in self.networks])

    @property
    def converged(self) -> Array:
        """Which of the likely gaps are at most ``tol``."""
        return self.likely_gaps <= self.tol

    def network_at(self, beta: float) -> Network:
        """The network trained at ``beta``; of a beta between two of the path, the one nearest on the log scale.

        Between two betas of the path this is an approximation: train at ``beta`` for a certificate.
        """
        if not (np.isfinite(beta) and beta > 0):
            raise ValueError(f"beta must be a positive number, got {beta!r}")
        low, high = self.betas[-1] * (1 - 1e-9), self.betas[0] * (1 + 1e-9)
        if not low <= beta <= high:
            raise ValueError(f"beta={beta:g} is outside of the path, {self.betas[-1]:g} to {self.betas[0]:g}")
        return self.points[int(np.abs(np.log(self.betas) - np.log(beta)).argmin())].network

    def warn_unless_converged(self, stacklevel: int = 2) -> None:
        """One ConvergenceWarning that names the betas whose likely gap is larger than asked for."""
        if missed := [f"{beta:.3g}" for beta in self.betas[~self.converged]]:
            warnings.warn(
                f"the likely gap is above tol={self.tol:g} at {len(missed)} of {len(self)} betas: "
                f"{', '.join(missed)} (largest {self.likely_gaps.max():.2e}); raise max_iter or time_limit, or "
                "beta_min_ratio",
                ConvergenceWarning,
                stacklevel=stacklevel + 1,
            )


def beta_max(
    X: Array,
    y: Array,
    *,
    loss: str | Loss = "squared",
    architecture: str | Architecture = "two_layer",
    bias: bool | str = True,
    fit_intercept: bool = True,
    sample_weight: Array | None = None,
    random_state: int | np.random.RandomState | None = 0,
) -> float:
    r"""The smallest weight decay at which the network without neurons is optimal.

    With M the features and A the pooling of the architecture (two layers: M = [X, 1], A = I) and V minus the gradient
    of the mean loss at the best constant output,

    .. math:: \beta_{\max} = \max_{\|u\| \le 1} \| (A^T V)^T (M u)_+ \|_2 .

    It scales as the problem does: without bias, s X has :math:`s \beta_{\max}`, and with the squared loss t y has
    :math:`t \beta_{\max}`.

    Parameters
    ----------
    X : array of shape (n, d)
    y : array of shape (n,) or (n, C)
        Targets; labels of any type if the loss is one for classes.
    loss, architecture, bias, fit_intercept, sample_weight
        As in :class:`bidual.ReLURegressor` and :class:`bidual.ReLUClassifier`.
    random_state : int, RandomState or None, default=0
        Of the local search.

    Returns
    -------
    float

    Notes
    -----
    With one output and at most 20,000 activation patterns the maximum is taken over all of them, exactly. Otherwise it
    is the largest value found by local search from many starts: a lower bound, as a rule attained. A loss with kinks
    ("absolute", "quantile", "hinge") has many dual points at the best constant; the one used is a solution of the
    dual of the problem without neurons, so that the result is then an upper bound on the smallest such beta.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLURegressor, beta_max
    >>> X, y = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    >>> top = beta_max(X, y)
    >>> ReLURegressor(beta=top).fit(X, y).n_neurons_, ReLURegressor(beta=0.9 * top).fit(X, y).n_neurons_ > 0
    (0, True)
    """
    check_seed(random_state)
    data = pose_data(X, y, sample_weight, loss=loss, architecture=architecture, bias=bias, fit_intercept=fit_intercept)
    return data.beta_max(Options(random_state=random_state))


def solution_path(
    X: Array,
    y: Array,
    betas: Array | None = None,
    n_betas: int = 20,
    beta_min_ratio: float = 1e-3,
    *,
    loss: str | Loss = "squared",
    architecture: str | Architecture = "two_layer",
    activation: str = "relu",
    method: str = "adaptive",
    n_patterns: int | None = None,
    bias: bool | str = True,
    fit_intercept: bool = True,
    sample_weight: Array | None = None,
    tol: float = 1e-3,
    max_iter: int = 200,
    time_limit: float | None = None,
    prove: float | bool | str = False,
    random_state: int | np.random.RandomState | None = None,
    verbose: int = 0,
) -> SolutionPath:
    r"""Optimal networks for a decreasing sequence of weight decays, each trained from the one before.

    Parameters
    ----------
    X : array of shape (n, d)
    y : array of shape (n,) or (n, C)
        Targets; labels of any type if the loss is one for classes.
    betas : array or None, default=None
        Positive weight decays, in any order. None means ``n_betas`` of them, evenly spaced on the log scale from
        :func:`beta_max`, whose network has no neurons, down to ``beta_min_ratio`` times that.
    n_betas : int, default=20
    beta_min_ratio : float, default=1e-3
    loss, architecture, activation, method, n_patterns, bias, fit_intercept, sample_weight, max_iter, random_state
        As in :class:`bidual.ReLURegressor` and :class:`bidual.ReLUClassifier`.
    tol : float, default=1e-3
        Relative likely gap to reach at every beta.
    time_limit : float or None, default=None
        Seconds for each beta.
    prove : bool, "auto" or float, default=False
        As in :class:`bidual.ReLURegressor`, for each beta. False leaves it at a bound by norms, which costs nothing.
    verbose : int, default=0
        1: a line for each beta; 2: the progress of every training.

    Returns
    -------
    SolutionPath
        After Ctrl-C, of the betas that were finished by then (``interrupted`` says so); if there are none, that is a
        ``KeyboardInterrupt``, as a second Ctrl-C always is.

    Warns
    -----
    ConvergenceWarning
        Once, with the betas whose likely gap is larger than ``tol``.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import solution_path
    >>> X, y = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    >>> path = solution_path(X, y, n_betas=4, random_state=0)
    >>> len(path), int(path.n_neurons[0]), bool((path.likely_gaps <= 1e-3).all())
    (4, 0, True)
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}: use one of {', '.join(map(repr, METHODS))}")
    check_number("tol", tol)
    check_number("max_iter", max_iter, at_least=1, integer=True)
    check_time_limit(time_limit)
    check_seed(random_state)
    check_verbose(verbose)
    check_prove(prove)
    if activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation {activation!r}: use one of {', '.join(map(repr, ACTIVATIONS))}")
    if n_patterns is not None:
        check_number("n_patterns", n_patterns, at_least=1, integer=True)
    data = pose_data(
        X,
        y,
        sample_weight,
        loss=loss,
        architecture=architecture,
        bias=bias,
        fit_intercept=fit_intercept,
        activation=activation,
        method=method,
    )
    options = Options(
        tol=tol,
        max_iter=max_iter,
        time_limit=time_limit,
        n_patterns=n_patterns,
        random_state=fixed_seed(random_state),
        audit=tol <= 1e-3,
        prove=prove,
        verbose=int(verbose),
    )
    began = clock()
    with watching():
        path = trace(data, beta_grid(data, betas, n_betas, beta_min_ratio, options), method, options, activation)
    path = replace(path, elapsed=clock() - began)
    path.warn_unless_converged()
    return path


def fixed_seed(random_state: int | np.random.RandomState | None) -> int:
    """A seed that can be used more than once."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def beta_grid(
    data: Trainable, betas: Array | None, n_betas: int, beta_min_ratio: float, options: Options
) -> FloatArray:
    """The betas of a path, decreasing: those given, or a geometric sequence down from beta_max."""
    if betas is not None:
        try:
            given = np.unique(np.asarray(betas, dtype=np.float64).ravel())[::-1]
        except (TypeError, ValueError, OverflowError):  # not numbers at all
            given = np.zeros(0)
        if not (given.size and np.isfinite(given).all() and (given > 0).all()):
            raise ValueError(f"betas must be one or more positive numbers, got {shown(betas)}")
        return given
    check_number("n_betas", n_betas, at_least=1, integer=True)
    check_number("beta_min_ratio", beta_min_ratio)
    if not 0 < beta_min_ratio < 1:
        raise ValueError(f"beta_min_ratio must lie strictly between 0 and 1, got {beta_min_ratio!r}")
    # a constant that fits exactly is optimal for every beta
    top = data.beta_max(options) or 1.0
    return np.asarray(top * np.geomspace(1.0, beta_min_ratio, n_betas))


def trace(
    data: Trainable,
    betas: FloatArray,
    method: str | Solver,
    options: Options,
    activation: str = "relu",
    enough: Callable[[Sequence[Trained]], bool] | None = None,
) -> SolutionPath:
    """Train at each of the decreasing ``betas``, from the network at the one before.

    Ctrl-C leaves those that are finished; if there are none, it is a KeyboardInterrupt. ``enough`` is asked after
    every beta whether the path may end there.
    """
    began = clock()
    inner = replace(options, verbose=max(0, options.verbose - 1))
    points: list[Trained] = []
    with watching() as watch, task("path", options.verbose) as progress:
        for beta in betas:
            at_beta = data.at(beta)
            # No neurons while that is optimal; cheap to find out, and once it is not, it never is again.
            # (Gates without cones may do something where no ReLU can.)
            constant = (
                activation == "relu" and isinstance(method, str) and (not points or points[-1].network.n_neurons == 0)
            )
            point = at_beta.train(Constant(), inner) if constant else None
            if point is None or (point.certificate.likely_gap > _CONSTANT_GAP and not watch.interrupted):
                point = at_beta.train(method, inner, points[-1] if points else None, activation=activation)
            if watch.interrupted:  # this one is not finished
                break
            points.append(point)
            if enough is not None and enough(points):
                break
            if options.verbose:
                c = point.certificate
                progress.note(
                    f"beta {beta:.4g}  objective {c.objective:.8g}  likely gap {c.likely_gap:.1e}  "
                    f"{point.network.n_neurons} neurons  {c.elapsed:.2f} s",
                    len(points) / len(betas),
                )
    if not points:
        raise KeyboardInterrupt
    return SolutionPath(betas[: len(points)], points, options.tol, clock() - began, watch.interrupted)
