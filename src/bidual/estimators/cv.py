"""Estimators that choose their weight decay by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import indexable
from sklearn.utils.parallel import Parallel, delayed

from bidual._util.checks import check_number, shown
from bidual._util.data import check_weights
from bidual._util.progress import task
from bidual._util.typing import Array, BoolArray, FloatArray
from bidual.architectures import Architecture
from bidual.estimators.base import AUTO, BaseReLU
from bidual.estimators.certified import store
from bidual.estimators.choosing import path_scores
from bidual.estimators.classifier import ReLUClassifier
from bidual.estimators.regressor import ReLURegressor
from bidual.losses import Loss
from bidual.training.activations import ACTIVATIONS
from bidual.training.paths import beta_grid, fixed_seed

#: Processes that no machine has: more is a slip.
_MOST_JOBS = 10_000
#: Parameters of the cross-validation itself; the others are those of the plain estimator.
_OWN = ("betas", "n_betas", "beta_min_ratio", "cv", "scoring", "n_jobs", "one_standard_error", "patience")


class CrossValidated(BaseReLU):
    """The search for beta, on top of a plain estimator (``_plain``) from which prediction is inherited."""

    _plain: ClassVar[type[BaseReLU]]
    beta_: float
    betas_: FloatArray
    scores_: FloatArray
    mean_score_: FloatArray
    std_score_: FloatArray
    best_index_: int
    converged_: BoolArray

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None, groups: Array | None = None) -> Self:
        """Choose beta by cross-validation, then train on all rows.

        Parameters
        ----------
        X : array of shape (n, d)
        y : array of shape (n,) or (n, C)
        sample_weight : array of shape (n,) or None
            Used in training, and in scoring by every scorer that takes weights.
        groups : array of shape (n,) or None
            Given to the splitter ``cv``.

        Notes
        -----
        Ctrl-C in the cross-validation is a ``KeyboardInterrupt``: a beta cannot be chosen. In the last training it
        ends that with the best network so far.
        """
        plain = self._estimator()
        plain._check_parameters()
        data = plain._pose(X, y, sample_weight)  # validates everything before any work
        if self.n_jobs is not None and (not isinstance(self.n_jobs, int | np.integer) or self.n_jobs == 0):
            raise ValueError(f"n_jobs must be None or an integer other than 0, got {shown(self.n_jobs)}")
        if self.n_jobs is not None and abs(int(self.n_jobs)) > _MOST_JOBS:
            raise ValueError(f"n_jobs must be at most {_MOST_JOBS}, got {shown(self.n_jobs)}")
        if self.patience is not None:
            check_number("patience", self.patience, at_least=1, integer=True)
        betas = beta_grid(data, self.betas, self.n_betas, self.beta_min_ratio, plain._how()["options"])
        X, y, groups = indexable(X, y, groups)
        weight = None if sample_weight is None else check_weights(sample_weight, X)
        splitter = check_cv(self.cv, y, classifier=isinstance(plain, ReLUClassifier))
        scorer = check_scoring(plain, scoring=self.scoring)
        splits = list(splitter.split(X, y, groups))
        if not splits:
            raise ValueError(f"cv={shown(self.cv)} makes no folds: give a number of them, or a splitter")
        patience = None if self.patience is None else (int(self.patience), 0.0)
        inner = clone(plain).set_params(verbose=max(0, int(self.verbose) - 1))
        jobs = (
            delayed(path_scores)(clone(inner), X, y, weight, train, test, betas, scorer, patience)
            for train, test in splits
        )
        folds: list[tuple[FloatArray, BoolArray]] = []
        with task("cross-validation", self.verbose) as progress:
            for fold in Parallel(n_jobs=self.n_jobs, return_as="generator")(jobs):
                folds.append(fold)
                if self.verbose:
                    best = int(np.nanargmax(fold[0])) if np.isfinite(fold[0]).any() else 0
                    progress.note(
                        f"fold {len(folds)} of {len(splits)}: best score {fold[0][best]:.6g} at beta {betas[best]:.4g}",
                        len(folds) / len(splits),
                    )
        scores = np.column_stack([scores for scores, _ in folds])
        reached = max(1, int(np.cumprod(~np.isnan(scores).any(axis=1)).sum()))  # by every fold
        self.betas_, self.scores_ = betas[:reached], scores[:reached]
        self.converged_ = np.column_stack([converged for _, converged in folds])[:reached]
        self._choose()
        plain.set_params(beta=self.beta_)._finish(data.at(self.beta_).train(**plain._how(X)))
        self.__dict__.update({name: value for name, value in vars(plain).items() if name not in plain.get_params()})
        self._warn_of_folds()
        return self

    def _estimator(self) -> Any:
        """The plain estimator with the parameters of this one, beta yet to be set."""
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in _OWN}
        if self.scale == AUTO:  # betas of one's own count in the units of the columns
            parameters["scale"] = self.betas is None and not ACTIVATIONS[self.activation].gated
        return self._plain(**{**parameters, "beta": 1.0, "random_state": fixed_seed(self.random_state)})

    def _choose(self) -> None:
        """The beta of the best mean score, or the largest one within a standard error of it."""
        self.mean_score_, self.std_score_ = self.scores_.mean(axis=1), self.scores_.std(axis=1)
        if not np.isfinite(self.mean_score_).any():
            raise ValueError("no beta has a finite mean score: check scoring, and that every fold can be scored")
        best = int(np.nanargmax(self.mean_score_))  # of equal ones the first, which has the largest beta
        if self.one_standard_error:
            error = self.std_score_[best] / np.sqrt(max(self.scores_.shape[1] - 1, 1))
            best = int(np.flatnonzero(self.mean_score_ >= self.mean_score_[best] - error)[0])
        self.best_index_, self.beta_ = best, float(self.betas_[best])

    def _warn_of_folds(self) -> None:
        missed = ~self.converged_
        if missed.any():
            betas = ", ".join(f"{beta:.3g}" for beta in self.betas_[missed.any(axis=1)])
            warnings.warn(
                f"{missed.sum()} of {missed.size} trainings in the folds ended with a likely gap above "
                f"tol={self.tol_:g}, at beta = {betas}: their scores are those of networks that may not be "
                "optimal (see converged_); raise max_iter or time_limit, or beta_min_ratio",
                ConvergenceWarning,
                stacklevel=3,
            )


class ReLURegressorCV(CrossValidated, ReLURegressor):
    r"""A :class:`ReLURegressor` whose weight decay is chosen by cross-validation.

    Every fold is one :func:`solution path <bidual.solution_path>` over the same betas; the one of the best mean score
    is then trained on all rows.

    Parameters
    ----------
    betas : array or None, default=None
        Positive weight decays to choose from. None means ``n_betas`` of them, evenly spaced on the log scale from
        :func:`bidual.beta_max` of all rows down to ``beta_min_ratio`` times that.
    n_betas : int, default=20
    beta_min_ratio : float, default=1e-3
    cv : int, splitter or iterable of (train, test), default=5
        As in :class:`sklearn.model_selection.GridSearchCV`.
    scoring : str, callable or None, default=None
        A scorer, larger is better; None is R² (accuracy for classes). It is given the sample weights if it takes them.
    n_jobs : int or None, default=None
        Folds trained in parallel; the result does not depend on it.
    one_standard_error : bool, default=False
        Choose the largest beta whose mean score is within one standard error of the best:
        :math:`\bar s_k \ge \bar s_* - \hat\sigma_* / \sqrt K` with K folds and
        :math:`\hat\sigma_*` the standard deviation over them (K - 1 degrees of freedom).
    patience : int or None, default=3
        Betas in a row that score worse than the best one, after which the path of a fold ends; None: never.
    loss, architecture, activation, method, n_patterns, bias, fit_intercept, random_state
        As in :class:`ReLURegressor`.
    scale : bool or "auto", default="auto"
        As in :class:`ReLURegressor`; "auto": unless you give ``betas``, which count on the columns as they are.
    tol, max_iter, time_limit
        As in :class:`ReLURegressor`, for each beta of each fold.
    prove : "auto", False or float, default="auto"
        As in :class:`ReLURegressor`, for the final training; nothing is proven in the folds.
    verbose : int, default=0
        1: progress of the folds and of the last training; 2: of every beta; 3: of every training.

    Attributes
    ----------
    beta_ : float
        The chosen weight decay.
    betas_ : ndarray, shape (k,)
        Decreasing; those that the paths of all folds reached.
    scores_ : ndarray, shape (k, n_folds)
    mean_score_, std_score_ : ndarray, shape (k,)
        Over the folds.
    best_index_ : int
        Of ``beta_`` in ``betas_``.
    converged_ : ndarray of bool, shape (k, n_folds)
        Which trainings reached the likely gap ``tol``; a ``ConvergenceWarning`` says so if some did not.
    network_, certificate_, objective_, lower_bound_, gap_, likely_bound_, likely_gap_, n_neurons_, n_iter_, history_
        Of the final training, as in :class:`ReLURegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLURegressorCV
    >>> X = np.linspace(-2, 2, 24)[:, None]
    >>> y = np.abs(X[:, 0]) + 0.1 * np.sin(40 * X[:, 0])
    >>> est = ReLURegressorCV(n_betas=4, cv=3, tol=1e-2, random_state=0).fit(X, y)
    >>> est.scores_.shape, bool(est.converged_.all()), bool(est.likely_gap_ <= 1e-2)
    ((4, 3), True, True)
    """

    _plain = ReLURegressor

    def __init__(
        self,
        betas: Array | None = None,
        *,
        n_betas: int = 20,
        beta_min_ratio: float = 1e-3,
        cv: Any = 5,
        scoring: str | Callable[..., float] | None = None,
        n_jobs: int | None = None,
        one_standard_error: bool = False,
        patience: int | None = 3,
        loss: str | Loss = "squared",
        architecture: str | Architecture = "two_layer",
        scale: bool | str = "auto",
        activation: str = "relu",
        method: str = "adaptive",
        n_patterns: int | None = None,
        bias: bool | str = True,
        fit_intercept: bool = True,
        tol: float | str = "auto",
        max_iter: int = 200,
        time_limit: float | str | None = "auto",
        prove: float | bool | str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        store(self, locals())


class ReLUClassifierCV(CrossValidated, ReLUClassifier):
    r"""A :class:`ReLUClassifier` whose weight decay is chosen by cross-validation.

    Parameters
    ----------
    betas, n_betas, beta_min_ratio, cv, scoring, n_jobs, one_standard_error, patience
        As in :class:`ReLURegressorCV`; folds are stratified.
    loss, class_weight, architecture, scale, activation, method, n_patterns, bias, fit_intercept, random_state
        As in :class:`ReLUClassifier`.
    tol, max_iter, time_limit, prove, verbose
        As in :class:`ReLURegressorCV`.

    Attributes
    ----------
    classes_ : ndarray
    beta_, betas_, scores_, mean_score_, std_score_, best_index_, converged_
        As in :class:`ReLURegressorCV`.
    network_, certificate_, objective_, lower_bound_, gap_, likely_bound_, likely_gap_, n_neurons_, n_iter_, history_
        Of the final training, as in :class:`ReLUClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLUClassifierCV
    >>> X = np.linspace(-2, 2, 24)[:, None]
    >>> y = np.where(np.abs(X[:, 0]) < 1, "inner", "outer")
    >>> est = ReLUClassifierCV(n_betas=4, cv=3, tol=1e-2, random_state=0).fit(X, y)
    >>> est.predict([[0.0], [1.9]]).tolist()
    ['inner', 'outer']
    """

    _plain = ReLUClassifier

    def __init__(
        self,
        betas: Array | None = None,
        *,
        n_betas: int = 20,
        beta_min_ratio: float = 1e-3,
        cv: Any = 5,
        scoring: str | Callable[..., float] | None = None,
        n_jobs: int | None = None,
        one_standard_error: bool = False,
        patience: int | None = 3,
        loss: str | Loss = "logistic",
        class_weight: dict[Any, float] | str | None = None,
        architecture: str | Architecture = "two_layer",
        scale: bool | str = "auto",
        activation: str = "relu",
        method: str = "adaptive",
        n_patterns: int | None = None,
        bias: bool | str = True,
        fit_intercept: bool = True,
        tol: float | str = "auto",
        max_iter: int = 200,
        time_limit: float | str | None = "auto",
        prove: float | bool | str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        store(self, locals())
