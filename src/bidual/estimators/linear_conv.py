"""Linear convolutional networks for regression."""

from __future__ import annotations

from math import prod

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._util.checks import check_number, check_time_limit, check_verbose
from bidual._util.clock import clock
from bidual._util.data import check_weights, normalise_weights, validate_data
from bidual._util.memory import require_memory
from bidual._util.patches import Sizes, Window, check_sizes
from bidual._util.progress import task
from bidual._util.ranges import check_range
from bidual._util.typing import Array, FloatArray
from bidual.bounds import Certificate
from bidual.closed_form.linear_conv import Filters, FourierFilters, fit_filters
from bidual.estimators.certified import Certified, Numbers
from bidual.networks import ConvolutionalNetwork

#: Copies of the weights on all patches that a step makes.
_COPIES = 8


class LinearConvRegressor(Numbers, Certified):
    r"""A linear convolutional network, trained to the global optimum of its weight-decay objective (003 sec. 4.2, 4.3).

    .. math:: \min_{u, \alpha, b} \; \sum_i \frac{w_i}2 \Big\| \sum_{j,k} (x_{ik}^T u_j) \alpha_{jk} + b - y_i \Big\|^2
              + \frac\beta2 \sum_j \big( \|u_j\|^2 + \|\alpha_j\|^2 \big)

    over filters :math:`u_j` on the patches :math:`x_{ik}`, their number, and output weights for every position.

    Parameters
    ----------
    kernel_size : int, sequence of int or None, default=3
        Size of the filters, as in :class:`~bidual.Convolutional`. None: explicit patches ``(n, K, h)``; with
        ``circular``, filters as long as the inputs.
    circular : bool, default=False
        Whether patches wrap around. With filters of full length the problem is then an l1 norm in the Fourier basis
        (003 eq. 14, with the factor :math:`d^{-1/2}` that it lacks); shorter ones are exact too, by the nuclear norm
        (003 eq. 12) of their patches.
    beta : float, default=1e-3
        Weight decay of the mean loss, positive.
    fit_intercept : bool, default=True
        Free output bias.
    stride, padding : int or sequence of int
        As in :class:`~bidual.Convolutional`; circular patches have stride one and no padding.
    tol : float, default=1e-6
        Relative gap to reach.
    max_iter : int, default=20000
        Proximal steps.
    time_limit : float or None, default=None
        Seconds after which the best network so far is returned, with its gap. So does Ctrl-C.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    network_ : ConvolutionalNetwork
        The filters, orthogonal to each other if they are not circular, and their output weights.
    coef_ : ndarray, of the shape of a sample, or (C, that shape)
        The linear function itself.
    intercept_ : float or ndarray, shape (C,)
    certificate_ : Certificate
    objective_, lower_bound_, gap_, likely_bound_, likely_gap_ : float
    n_neurons_, n_iter_ : int

    Notes
    -----
    X has shape ``(n, length, channels)``, ``(n, length)`` or ``(n, height, width, channels)``, for two sizes also
    ``(n, height, width)``. A step costs two products with X and one singular value decomposition of h x K numbers, or
    an FFT of length d; patches of X are never copied.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import LinearConvRegressor
    >>> X = np.random.default_rng(0).standard_normal((40, 8))
    >>> y = (X[:, 1:] - X[:, :-1]) @ np.arange(7)  # one filter: differences
    >>> est = LinearConvRegressor(kernel_size=2, beta=0.1, fit_intercept=False).fit(X, y)
    >>> est.n_neurons_, bool(est.gap_ <= 1e-6)
    (1, True)
    """

    network_: ConvolutionalNetwork
    coef_: FloatArray
    intercept_: float | FloatArray

    def __init__(
        self,
        kernel_size: Sizes | None = 3,
        circular: bool = False,
        beta: float = 1e-3,
        fit_intercept: bool = True,
        *,
        stride: Sizes = 1,
        padding: Sizes = 0,
        tol: float = 1e-6,
        max_iter: int = 20_000,
        time_limit: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel_size = kernel_size
        self.circular = circular
        self.beta = beta
        self.fit_intercept = fit_intercept
        self.stride = stride
        self.padding = padding
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.verbose = verbose

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> LinearConvRegressor:
        """Train on tensors ``X`` and targets ``y``, ``(n,)`` or ``(n, C)``."""
        began = clock()
        X, y = validate_data(self, X, y, dtype=np.float64, allow_nd=True, multi_output=True, y_numeric=True)
        check_number("beta", self.beta, at_least=float(np.finfo(float).tiny))
        check_number("tol", self.tol, at_least=0.0)
        check_number("max_iter", self.max_iter, at_least=1, integer=True)
        check_time_limit(self.time_limit)
        check_verbose(self.verbose)
        if sample_weight is not None:
            sample_weight = check_weights(sample_weight, X, ensure_non_negative=True)
        check_range(X=X, y=y)
        w = normalise_weights(sample_weight, len(X))
        Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        filters = self._filters(X.shape, Y.shape[1])
        beta, used = float(self.beta), w > 0
        with task("training", self.verbose):
            found = fit_filters(
                filters,
                X[used].reshape(int(used.sum()), -1),
                Y[used],
                w[used],
                beta=beta,
                fit_intercept=bool(self.fit_intercept),
                tol=float(self.tol),
                max_iter=int(self.max_iter),
                time_limit=self.time_limit,
                verbose=int(self.verbose),
            )
        self.network_ = filters.network(found.Z, found.intercept)
        self.n_iter_, self.status_ = found.n_iter, found.status
        self._single = np.ndim(y) == 1
        coef = filters.coef(found.Z).T.reshape(-1, *X.shape[1:])
        self.coef_, self.intercept_ = (
            (coef[0], float(found.intercept[0])) if self._single else (coef, np.asarray(found.intercept))
        )
        objective = self.network_.objective(X, Y, beta=beta, sample_weight=w)
        certificate = Certificate.of(
            objective,
            found.bound,
            scope="global",
            beta=beta,
            loss="squared",
            method=f"multipliers of the {'Fourier' if isinstance(filters, FourierFilters) else 'nuclear norm'} program",
            began=began,
        )
        from bidual.certification.linear_set import prove_filters

        proving = filters.network(*found.proving)
        self.certificate_ = prove_filters(certificate, proving, X, Y, sample_weight, bool(self.fit_intercept))
        self._warn_unless(self.tol, found.status, "raise max_iter or time_limit, or centre and scale X")
        return self

    def _filters(self, shape: tuple[int, ...], n_outputs: int) -> Filters:
        """What filters there may be."""
        size = None if self.kernel_size is None else check_sizes("kernel_size", self.kernel_size, 1)
        stride, padding = check_sizes("stride", self.stride, 1), check_sizes("padding", self.padding, 0)
        if not self.circular:
            window = Window.of(size, stride, padding, len(shape))
            K, h = prod(window.grid(shape)), window.size(shape)
            require_memory(
                8 * (_COPIES * K * h * n_outputs + window.padded(shape)),
                f"a filter bank of {K:,} positions with {h:,} weights each",
                "Use less padding, a larger stride or a smaller kernel_size.",
            )
            return Filters(window, shape, n_outputs)
        if np.any(np.not_equal(stride, 1)) or np.any(padding):
            raise ValueError("circular patches have stride=1 and padding=0")
        axes = 2 if len(shape) == 4 or (size is not None and np.ndim(size) and np.size(size) == 2) else 1
        space = shape[1 : 1 + axes]
        window = Window.of(space if size is None else size, 1, 0, len(shape), circular=True)
        window.grid(shape)  # raises if it is too large
        return (FourierFilters if window.kernel == space else Filters)(window, shape, n_outputs)

    def _outputs(self, X: Array) -> FloatArray:
        check_is_fitted(self, "network_")
        X = validate_data(self, X, reset=False, dtype=np.float64, allow_nd=True)
        return self.network_.forward(self.network_.check_inputs(X))
