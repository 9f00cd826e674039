"""How good a network is while somebody else's training goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from bidual._util.checks import check_flag, check_number, check_time_limit
from bidual._util.typing import Array
from bidual._util.watch import watching
from bidual._util.wrapped import inside
from bidual.bounds import Certificate
from bidual.certification import Improved, certify
from bidual.certification.case import pose
from bidual.networks import Network

#: Options of :func:`~bidual.certify` that are handed on.
_OPTIONS = {"loss", "sample_weight", "random_state", "verbose"}


class Checked(NamedTuple):
    """What was known after an epoch."""

    epoch: int
    certificate: Certificate


class CertifyCallback:
    """What :func:`certify_callback` returns; call it once an epoch.

    Attributes
    ----------
    history : list of (epoch, certificate)
    best : Network or None
        The best network that was found on the way, for whoever wants to go on from it.
    """

    def __init__(
        self,
        model: Any,
        X: Array,
        y: Array,
        *,
        beta: float,
        every: int = 1,
        tol: float = 1e-2,
        time_limit: float | None = 5.0,
        bias: bool | None = None,
        fit_intercept: bool = True,
        report: Callable[[str], object] | None = print,
        **options: Any,
    ) -> None:
        check_number("every", every, at_least=1, integer=True)
        check_number("tol", tol)
        check_number("beta", beta, above=0.0)
        check_time_limit(time_limit)
        check_flag("fit_intercept", fit_intercept)
        if report is not None and not callable(report):
            raise ValueError(f"report must be a function of a string, or None, got {report!r}")
        if unknown := options.keys() - _OPTIONS:
            raise TypeError(f"certify_callback does not know {', '.join(map(repr, sorted(unknown)))}")
        if inside(model) is not None:
            raise ValueError(
                f"a {type(model).__name__} may change what the network inside sees: give that network, and the rows as "
                "it sees them"
            )
        self.model, self.X, self.y, self.every, self.tol, self.report = model, X, y, every, tol, report
        self.time_limit, self.beta, self.bias, self.fit_intercept = time_limit, beta, bias, fit_intercept
        self.options = options
        self.history: list[Checked] = []
        self.best: Network | None = None
        self._epoch = 0
        self._bound: Certificate | None = None  # of the best network, with the best bound

    def __call__(self, epoch: int | None = None) -> Certificate | None:
        """The certificate of the model as it is now; None in epochs that are not looked at.

        ``epoch`` is its number; None counts the calls, from 1.
        """
        self._epoch = self._epoch + 1 if epoch is None else int(epoch)
        if self._epoch % self.every:
            return None
        with watching(self.time_limit) as watch:
            if self._bound is None or self._bound.gap > self.tol:
                self._search()
        assert self._bound is not None
        # bounds are about the problem: those of earlier epochs hold for the network of this one
        certificate = replace(self._bound, objective=self._value(), rescaled_objective=None, witness=None)
        self.history.append(Checked(self._epoch, certificate))
        if self.report is not None:
            self.report(f"epoch {self._epoch}: objective {certificate.objective:.6g}, {_gaps(certificate)}")
        if watch.interrupted:
            raise KeyboardInterrupt  # it was meant for the training as well
        return certificate

    def _search(self) -> None:
        """A better bound and a better network, from this one on."""
        found = certify(
            self.model,
            self.X,
            self.y,
            beta=self.beta,
            bias=self.bias,
            fit_intercept=self.fit_intercept,
            tol=self.tol,
            time_limit=self.time_limit,
            improve=True,
            **self.options,
        )
        assert isinstance(found, Improved)
        before, new = self._bound, found.certificate
        if before is None:
            self._bound, self.best = new, found.network
            return
        if new.objective < before.objective:
            self.best = found.network
        objective = min(before.objective, new.objective)
        proven = max(before, new, key=lambda certificate: certificate.lower_bound)
        likely = max(before, new, key=lambda certificate: certificate.likely_bound)
        self._bound = replace(
            proven, objective=objective, likely_bound=likely.likely_bound, likely_method=likely.likely_method
        )

    def _value(self) -> float:
        """The objective of the model as it is now."""
        loss, weight = self.options.get("loss"), self.options.get("sample_weight")
        case = pose(self.model, self.X, self.y, self.beta, loss, None, self.bias, self.fit_intercept, weight)
        return case.data.value(case.network)


def _gaps(certificate: Certificate) -> str:
    """The gaps in words."""
    likely = f", likely gap {certificate.likely_gap:.2g}" if certificate.tells_more else ""
    return f"proven gap {certificate.gap:.2g}{likely}"


def certify_callback(model: Any, X: Array, y: Array, *, beta: float, **options: Any) -> CertifyCallback:
    r"""Watch the gap of a network while you train it yourself: a function to call after every epoch.

    It evaluates :math:`\sum_i w_i \ell(f(x_i), y_i) + \tfrac\beta2 (\|W_1\|^2 + \|b_1\|^2 + \|W_2\|^2)` of the network
    as it is then, and says by how much that is above a proven lower bound on any network of any width. The bound is
    that of :func:`~bidual.certify`; it is about the problem and not about the network, so that time is spent on it
    only until it is within ``tol`` of the best network known.

    Parameters
    ----------
    model : network
        What is trained: a torch module, a scikit-learn MLP (between calls of ``partial_fit``), ...; as in
        :func:`~bidual.certify`. It is only read: random streams, modes and gradients stay as they are.
    X, y : array
        All training rows, as the network sees them.
    beta : float
        Weight decay of the mean loss.
    every : int, default=1
        Look at every so many epochs only.
    tol : float, default=1e-2
        Stop improving the bound when the best network known is proven to be so close.
    time_limit : float or None, default=5.0
        Seconds for one call.
    bias : bool or None, default=None
        Whether the competing networks have hidden biases; None: if this one has.
    fit_intercept : bool, default=True
        Whether they have a free output intercept.
    report : function of a string, or None, default=print
    loss, sample_weight, random_state, verbose
        As in :func:`~bidual.certify`.

    Returns
    -------
    CertifyCallback
        ``callback(epoch)`` returns a :class:`~bidual.Certificate`; ``callback.history`` keeps them, and
        ``callback.best`` is the best network met while bounding.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import certify_callback
    >>> X, y = np.array([[-1.0], [1.0], [2.0]]), np.array([1.0, 1.0, 2.0])
    >>> weights = {"hidden_weights": np.ones((2, 1)), "output_weights": np.ones((2, 1))}
    >>> callback = certify_callback(weights, X, y, beta=0.01, fit_intercept=False, report=None)
    >>> for epoch in (1, 2):
    ...     certificate = callback(epoch)
    ...     weights["hidden_weights"][1] -= 2.0  # a training of a single step: |x|
    >>> [bool(checked.certificate.gap < 0.1) for checked in callback.history]
    [False, True]
    """
    return CertifyCallback(model, X, y, beta=beta, **options)
