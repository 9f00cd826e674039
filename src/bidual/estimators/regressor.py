"""ReLU networks for regression."""

from __future__ import annotations

from functools import partial

from sklearn.metrics import r2_score

from bidual._util.data import validate_data
from bidual._util.typing import Array
from bidual.architectures import Architecture
from bidual.estimators.base import BaseReLU, Encoded
from bidual.estimators.certified import Numbers
from bidual.losses import get_loss
from bidual.training.targets import check_data


class ReLURegressor(Numbers, BaseReLU):
    r"""A ReLU network trained to the global optimum of its weight-decay objective.

    .. math:: \min_{m,\, u,\, \alpha,\, b} \; \sum_i w_i \, \ell(f(x_i), y_i)
              + \frac{\beta}{2} \sum_{j=1}^m \big(\|u_j\|^2 + \|\alpha_j\|^2\big),
              \qquad f(x) = \sum_j (u_j^T [x, 1])_+ \alpha_j + b,

    over weights and width. Weights :math:`w_i` are the sample weights, normalised to sum to one.

    Parameters
    ----------
    beta : float or "auto", default="auto"
        Weight decay. "auto" chooses it from the data: of eight shares of :func:`~bidual.beta_max`, from .3 down to
        .001, the largest whose networks score about as well as the best on rows that were held out
        (:mod:`bidual.estimators.choosing`); ``beta_`` tells. The certificate is then about that beta. ``beta=0`` asks
        for the network of smallest penalty that fits the data exactly (003 eq. 6); the objective is then that penalty.
        Data that no network fits raise :class:`~bidual.solvers.InfeasibleError`, with the proof.
    loss : str or Loss, default="squared"
        The name of a loss for numbers ("squared", "huber", "absolute", "quantile", ...), or an object from
        :mod:`bidual.losses`.
    architecture : str or Architecture, default="two_layer"
        "two_layer", "batch_norm", or an object with options such as :class:`~bidual.BatchNorm`. With
        :class:`~bidual.Convolutional`, X holds images, sequences or patches.
    scale : bool or "auto", default="auto"
        Whether the network sees every column (of images: channel) with mean zero and deviation one, as
        :class:`~bidual.architectures.Standardised` does; weight decay then counts on those columns, and units do not
        matter. "auto": if beta is "auto" (and ``activation="relu"``). A beta of your own counts on the columns as
        they are: the setting of the papers. Columns of a sparse X are divided by their deviations only, as by
        ``StandardScaler(with_mean=False)``: zeros stay zeros.
    activation : {"relu", "gated"}, default="relu"
        "gated" trains :math:`f(x) = \sum_i 1[g_i^T [x, 1] \ge 0] \, W_i^T [x, 1] + b` with fixed gates, at the cost
        :math:`\beta \sum_i \|W_i\|_F` (with one output: weight decay). This is a group lasso: much faster, for smooth
        losses, and proven optimal among networks with these gates. ``method`` then has nothing to choose.
    method : {"adaptive", "exact", "sampled", "closed_form", "cutting_plane", "cutting_plane_l1"}, default="adaptive"
        "adaptive" finds the activation patterns by itself (column generation); its gap rests on an audited local
        search, and is proven where the patterns are few. "exact" enumerates every pattern (small rank only) and
        proves global optimality (several outputs: it generates hidden directions until branch and bound proves it);
        "sampled" solves the convex program on random patterns. "closed_form" insists on the
        formulas that exist for whitened rows and for batch normalisation on few rows (:mod:`bidual.closed_form`),
        which "adaptive" uses by itself where they hold.
        "cutting_plane" is the method of 004 with the spike-free relaxation (:mod:`bidual.solvers.cutting_plane`): fast
        and proven on spike-free data (:func:`~bidual.is_spike_free`), poor on others, as its gap then tells; in the
        variant "cutting_plane_l1" each neuron feeds one output.
    n_patterns : int or None, default=None
        Patterns drawn by "sampled", or gates of "gated"; None means 100.
    gates : array, Network, estimator, "trained" or None, default=None
        Gates of activation="gated": vectors (P, d), or (P, d + 1) with their biases, or a network or fitted estimator
        whose neurons serve (inside a cross-validation give its ``network_``: estimators are cloned unfitted there), or
        a list of such. None draws ``n_patterns`` Gaussian ones (on many rows each is placed at a quantile of the data,
        see ``backend``); "trained" takes those of a ReLU network after a few passes of Adam over the rows, which often
        generalise better. Of gates that agree on all rows the first is used.
        With method="sampled" their patterns are used, and random ones only if ``n_patterns`` is given too.
    bias : bool or "free", default=True
        Hidden biases, regularised like weights; "free" ones cost nothing (004), which needs ``fit_intercept``. (Batch
        normalisation has a shift of its own: see :class:`~bidual.BatchNorm`.)
    fit_intercept : bool, default=True
        Free output bias.
    tol : float or "auto", default="auto"
        Relative *likely* gap to reach, ``likely_gap_``; the proven one, ``gap_``, is what ``prove`` makes of it.
        "auto" is 1e-4, and of "adaptive" 1e-3, or 1e-2 once predictions no longer change (by 2 % of their deviation in
        a round); after two such rounds it ends whatever the gap, and warns if that is above 1e-2. A number goes on
        until that gap is reached.
    max_iter : int, default=200
        Rounds of "adaptive", iterations of the convex solver otherwise.
    time_limit : float, None or "auto", default="auto"
        Seconds for all of ``fit``, after which the best network so far is returned with its gap, as after Ctrl-C.
        Compiling, once in an environment, is not counted.
        "auto" is ten seconds, of more than 200,000 entries of X :math:`10 \sqrt{n d / 200000}`, while ``tol`` is
        "auto"; no limit if ``tol`` is a number.
    max_neurons : int or None, default=None
        Largest width of the network of "adaptive" (of parallel networks: number of branches); the gap then tells what
        the narrowness costs.
    audit : bool or "auto", default="auto"
        Whether "adaptive" checks its gap by a wider search before it says that it is done; "auto": if ``tol <= 1e-3``.
    prove : "auto", False or float, default="auto"
        Seconds for proving a lower bound once training is done: the strongest oracle that applies
        (:mod:`bidual.bounds.oracle`) bounds the dual constraint. "auto" takes half as long as training took, at
        least one second; never beyond ``time_limit``. False leaves it at a bound by norms, which costs nothing.
    warm_start : bool, default=False
        Start from the network of the previous fit ("sampled": its patterns are added; "gated": its gates, unless
        ``gates`` says which).
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1: progress (a bar on a terminal, lines elsewhere) and the certificate; 2: lines on a terminal too.
    backend : {"auto", "numpy", "torch"}, default="auto"
        How activation="gated" is trained on many rows: in blocks, in bounded memory, by compiled loops ("numpy") or on
        a device of torch. "auto" does so from 10,000 targets (rows times outputs) on, and for dask arrays, whose rows
        stay on the cluster; a name does so whatever the size. X may be a memory map
        (``np.load("X.npy", mmap_mode="r")``) of any numeric type; it is not copied. See
        :mod:`bidual.training.row_blocks`.
    device : str or None, default=None
        Of backend="torch": "cpu", "cuda", "mps".
    checkpoint : path or None, default=None
        File to which a long training on many rows writes its state now and then, and from which it goes on if it
        exists. None keeps nothing.

    Attributes
    ----------
    network_ : Network
        The trained network.
    certificate_ : Certificate
    objective_ : float
    lower_bound_, gap_ : float
        Proven.
    likely_bound_, likely_gap_ : float
        As audited search believes.
    n_neurons_, n_iter_ : int
    beta_ : float
        The weight decay trained with.
    tol_ : float
        The likely gap above which fit warns.
    status_ : str
        Why training ended: "converged", "stopped at time_limit", "interrupted", ...
    history_ : list of HistoryEntry
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    ReLUClassifier : The same for classes.
    SplineRegressor : One input (or rows on a line) and biases that cost nothing: exact, in time linear in the rows.

    Notes
    -----
    Training stops when ``(objective_ - likely_bound_) / objective_ <= tol``; otherwise a ``ConvergenceWarning`` says
    what was reached. ``time_limit`` holds for the choice of beta, the training and the proof together; a fit that it
    does not end depends on nothing but data and ``random_state``. Ctrl-C during the choice of beta is a
    ``KeyboardInterrupt``: nothing has been trained yet.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLURegressor
    >>> X = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]])
    >>> y = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    >>> est = ReLURegressor(beta=0.01, method="exact").fit(X, y)
    >>> bool(est.gap_ < 1e-6), est.certificate_.scope
    (True, 'global')
    """

    def _encode(self, architecture: Architecture, X: Array, y: Array, sample_weight: Array | None) -> Encoded:
        loss = get_loss(self.loss)
        if loss.classification:
            raise ValueError(f"the loss {loss.name!r} is for classes: use ReLUClassifier, or a regression loss")
        check = partial(validate_data, self)
        X, y = check_data(architecture, X, y, check, self.activation, multi_output=True, y_numeric=True)
        self._single = y.ndim == 1
        return X, loss.encode(y), loss, sample_weight

    def score(self, X: Array, y: Array, sample_weight: Array | None = None) -> float:
        """R² of the predictions."""
        stacked = self._stacked(X, y, sample_weight)
        if stacked is None:
            return super().score(X, y, sample_weight)
        return float(r2_score(stacked[0], stacked[1], sample_weight=stacked[2]))
