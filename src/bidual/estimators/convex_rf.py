"""Convex-RF: filters from image patches without labels, by extreme points."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from bidual._util.checks import check_number, check_seed
from bidual._util.clock import clock
from bidual._util.data import validate_data
from bidual._util.progress import note
from bidual._util.ranges import check_range
from bidual._util.tuning import tuning
from bidual._util.typing import Array
from bidual.estimators.filter_bank import FilterBank, PatchGrid, draw_patches, normalise, zca
from bidual.geometry.extreme_points import extreme_points

#: Patches from which the whitening is estimated, if there are not more filters.
_WHITENING_PATCHES = 10_000
#: A patch this close to the hull of the others, relative to the length of the longest one, is inside.
_INSIDE = 1e-6


class ConvexRF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Convolutional features of images, the filters being extreme points of their patches (004 Algorithm 2).

    Patches :math:`p_i` are drawn at random, normalised to
    :math:`(p_i - \mathrm{mean}(p_i)) / \sqrt{\mathrm{var}(p_i) + \epsilon}` and, if wanted, whitened. What the others
    cannot mix is a filter (004 Lemma 2.7, eq. 10):

    .. math:: u_i = \frac{p_i - \sum_{j \ne i} \lambda_j p_j}{\|p_i - \sum_{j \ne i} \lambda_j p_j\|_2}, \qquad
              \lambda = \arg\min_{\lambda \ge 0, \, 1^T \lambda = 1} \Big\|p_i - \sum_{j \ne i} \lambda_j p_j\Big\|_2 .

    An image is then described by :math:`(u_i^T p - \tau)_+` of its own patches p, treated alike, the largest answer
    (or the mean) in each cell of a grid. Any linear or convex model may follow; the paper's is l1-penalised least
    squares.

    Parameters
    ----------
    n_filters : int, default=500
        Patches drawn, each of which gives a filter unless it lies in the convex hull of the others.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Of rows that are flat images (in the order height, width, channel). None: as the images given say; flat rows of
        :math:`s^2` entries are grey squares, other flat rows are signals, images one pixel high.
    patch_size : int or (int, int), default=6
        Height and width of the patches, at most those of the image.
    stride : int, default=1
        Pixels from one patch to the next.
    filters : {"extreme_points", "patches"}, default="extreme_points"
        "patches" takes the patches themselves, scaled to length one, as filters: what is gained by (10) is measured
        against these.
    whiten : bool, default=False
        Whether patches are whitened (ZCA). Good for natural images, bad for strokes on a flat ground.
    epsilon : float, default=0.01
        Added to the variance of a patch before dividing by its root, in units of the mean variance of patches.
    zca_epsilon : float, default=0.1
        Added to the eigenvalues of the covariance of normalised patches.
    pooling : {"max", "average"}, default="max"
    cells : int or (int, int), default=2
        Rows and columns of the grid in which answers are pooled; 2 means quadrants.
    threshold : float, default=0.0
        :math:`\tau`; the paper's is zero.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 reports on long transformations.

    Attributes
    ----------
    filters_ : ndarray, shape (n_filters, height, width, channels)
        The :math:`u_i`, filters on normalised and whitened patches.
    whitening_ : ndarray, shape (q, q), or None
    n_filters_ : int
    image_shape_ : (height, width, channels)
    scale_ : float
        Root of the mean variance of a patch, the unit of ``epsilon``.
    n_features_in_ : int

    Notes
    -----
    Features are single precision, ``n_filters_`` for each cell (cell by cell). Beside them no more memory is needed
    than for the patches of a few images. They do not change when all pixels are multiplied by a positive number, or a
    number is added to all of them.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from bidual import ConvexRF
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(ConvexRF(100, patch_size=4, random_state=0), RidgeClassifier())
    >>> bool(model.fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.95)
    True
    """

    filters_: Array
    whitening_: Array | None
    image_shape_: tuple[int, int, int]
    scale_: float

    def __init__(
        self,
        n_filters: int = 500,
        *,
        image_shape: Sequence[int] | None = None,
        patch_size: int | Sequence[int] = 6,
        stride: int = 1,
        filters: str = "extreme_points",
        whiten: bool = False,
        epsilon: float = 0.01,
        zca_epsilon: float = 0.1,
        pooling: str = "max",
        cells: int | Sequence[int] = 2,
        threshold: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_filters = n_filters
        self.image_shape = image_shape
        self.patch_size = patch_size
        self.stride = stride
        self.filters = filters
        self.whiten = whiten
        self.epsilon = epsilon
        self.zca_epsilon = zca_epsilon
        self.pooling = pooling
        self.cells = cells
        self.threshold = threshold
        self.random_state = random_state
        self.verbose = verbose

    # ---- learning the filters --------------------------------------------------------------------

    def fit(self, X: Array, y: Array | None = None) -> ConvexRF:
        """Learn filters from images ``X``: (n, height, width[, channels]), or flat rows. Labels are not used."""
        self._check_parameters()
        X = self._flat(X, reset=True)
        check_range(X=X)
        grid = self._grid()
        rng = check_random_state(self.random_state)
        count = max(self.n_filters, _WHITENING_PATCHES) if self.whiten else self.n_filters
        drawn = draw_patches(X, grid, count, rng).astype(np.float64)
        if len(drawn) < 2:
            one = "n_features=1: " if X.shape[1] == 1 else "n_samples=1: " if len(X) == 1 else ""
            raise ValueError(
                f"{one}filters need at least two different patches that are not constant, and the images have "
                f"{len(drawn)}: give more images, or check image_shape and patch_size"
            )
        offset, self.scale_ = float(drawn.mean()), _contrast(drawn)
        patches = normalise((drawn - offset) / self.scale_, self.epsilon)
        self.whitening_ = zca(patches, self.zca_epsilon) if self.whiten else None
        patches = patches[: self.n_filters]
        if self.whitening_ is not None:
            patches = patches @ self.whitening_
        unit = _extreme_points(patches) if self.filters == "extreme_points" else _scaled(patches)
        if len(unit) < self.n_filters:
            warnings.warn(
                f"{len(unit)} filters instead of {self.n_filters}: {len(patches)} different patches were drawn, of "
                f"which {len(patches) - len(unit)} lie in the convex hull of the others; use larger patches, or fewer "
                "filters",
                stacklevel=2,
            )
        self.filters_ = unit.reshape(-1, *self._patch_shape(), self.image_shape_[2])
        self._bank = FilterBank(
            grid=grid,
            kernels=(unit.T if self.whitening_ is None else self.whitening_ @ unit.T).astype(np.float32),
            offset=offset,
            scale=self.scale_,
            epsilon=self.epsilon,
            threshold=self.threshold,
            average=self.pooling == "average",
        )
        return self

    @property
    def n_filters_(self) -> int:
        """Number of filters."""
        return len(self.filters_)

    # ---- applying them ---------------------------------------------------------------------------

    def transform(self, X: Array) -> Array:
        """Features of images, ``(n, n_cells * n_filters_)`` in single precision."""
        check_is_fitted(self, "filters_")
        X = self._flat(X, reset=False)
        out = np.empty((len(X), self._n_features_out), dtype=np.float32)
        began = reported = clock()
        for rows, features in self._bank.blocks(X):
            out[rows] = features
            if self.verbose and (now := clock()) - reported > tuning().report_seconds:
                note(f"{rows.stop} of {len(X)} images, {now - began:.0f} s")
                reported = now
        return out

    @property
    def _n_features_out(self) -> int:
        return self._bank.grid.n_cells * self.n_filters_

    # ---- shapes and parameters -------------------------------------------------------------------

    def _flat(self, X: Array, reset: bool) -> Array:
        """The images as rows, their shape noted (or compared)."""
        if getattr(X, "ndim", 2) > 2:
            X = np.asarray(X)
            shape = tuple(X.shape[1:]) + (1,) * (X.ndim == 3)
            if len(shape) != 3 or 0 in shape:
                raise ValueError(f"images must have shape (n, height, width[, channels]), got {X.shape}")
            expected = self._given_shape() if reset else self.image_shape_
            if expected is not None and shape != expected:
                raise ValueError(f"X has images of shape {shape}, but {expected} is expected")
            X = X.reshape(len(X), -1)
        else:
            shape = None
        X = validate_data(self, X, reset=reset, dtype=(np.float32, np.float64, np.uint8))
        if reset:
            self.image_shape_ = shape or self._given_shape() or _guessed_shape(X.shape[1])
            if np.prod(self.image_shape_) != X.shape[1]:
                raise ValueError(f"X has {X.shape[1]} columns, which are no images of image_shape={self.image_shape}")
        return X

    def _given_shape(self) -> tuple[int, int, int] | None:
        if self.image_shape is None:
            return None
        shape = tuple(self.image_shape) if np.ndim(self.image_shape) == 1 else ()
        if len(shape) not in (2, 3):
            raise ValueError(
                f"image_shape must be (height, width) or (height, width, channels), got {self.image_shape!r}"
            )
        for k in shape:
            check_number("image_shape", k, at_least=1, integer=True)
        height, width, channels = (*shape, 1)[:3]
        return height, width, channels

    def _patch_shape(self) -> tuple[int, int]:
        height, width = _pair(self.patch_size)
        return min(height, self.image_shape_[0]), min(width, self.image_shape_[1])

    def _grid(self) -> PatchGrid:
        rows, columns = _pair(self.cells)
        return PatchGrid.of(self.image_shape_, self._patch_shape(), self.stride, (rows, columns))

    def _check_parameters(self) -> None:
        check_seed(self.random_state)
        check_number("n_filters", self.n_filters, at_least=1, integer=True)
        check_number("stride", self.stride, at_least=1, integer=True)
        for name in ("patch_size", "cells"):
            sizes = _pair(getattr(self, name))
            if len(sizes) != 2:
                raise ValueError(f"{name} must be one integer or two, got {getattr(self, name)!r}")
            for k in sizes:
                check_number(name, k, at_least=1, integer=True)
        for name in ("epsilon", "zca_epsilon"):
            check_number(name, getattr(self, name), at_least=0.0)
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive: a patch without contrast would be divided by zero")
        check_number("threshold", self.threshold, at_least=0.0)
        if self.filters not in ("extreme_points", "patches"):
            raise ValueError(f"unknown filters {self.filters!r}: use 'extreme_points' or 'patches'")
        if self.pooling not in ("max", "average"):
            raise ValueError(f"unknown pooling {self.pooling!r}: use 'max' or 'average'")
        if not isinstance(self.whiten, bool | np.bool_):
            raise ValueError(f"whiten must be True or False, got {self.whiten!r}")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _pair(size: int | Sequence[int]) -> Sequence[int]:
    return size if isinstance(size, Sequence) else (size, size)


def _contrast(patches: Array) -> float:
    """Root of the mean variance of patches, whatever their units."""
    unit = np.ptp(patches, axis=1).max()
    return float(unit * np.sqrt((patches / unit).var(axis=1).mean()))


def _guessed_shape(n_features: int) -> tuple[int, int, int]:
    side = round(n_features**0.5)
    return (side, side, 1) if side * side == n_features else (1, n_features, 1)


def _extreme_points(patches: Array) -> Array:
    """Filters (10) of the patches that are outside the convex hull of the others."""
    found = extreme_points(patches)
    outside = found.heights > _INSIDE * np.linalg.norm(patches, axis=1).max()
    if not outside.any():
        raise ValueError("every patch lies in the convex hull of the others: use larger patches, or fewer filters")
    return found.U[outside]


def _scaled(patches: Array) -> Array:
    return patches / np.linalg.norm(patches, axis=1, keepdims=True)
