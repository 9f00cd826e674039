r"""Patches of tensors: what a filter sees.

A window of ``kernel`` entries slides over the spatial axes of a tensor ``(n, *space, channels)``; at each of the K
positions of its grid it shows a patch :math:`x_{ik} \in R^h`, the matrices :math:`X_k` of 003 sec. 4. Patches are views
of the (padded) tensor: they are copied in pieces, where a matrix product needs them in one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from bidual._util.checks import LARGEST_SIZE, is_size, shown
from bidual._util.typing import Array, FloatArray, IntArray

#: A size for each spatial axis, or one for all of them.
Sizes: TypeAlias = int | Sequence[int]

#: Entries of the patches copied at once.
PIECE = 4_000_000
_SHAPES = {1: "(n, length, channels) or (n, length)", 2: "(n, height, width, channels) or (n, height, width)"}


@dataclass(frozen=True)
class Window:
    """A sliding window; see :meth:`of`.

    Attributes
    ----------
    kernel : tuple of int or None
        Its size along each spatial axis; None: the tensors ``(n, K, h)`` are patches already.
    stride, padding : tuple of int
        Steps between positions, and zeros added on both sides, along each spatial axis.
    circular : bool
        Whether the window wraps around instead (stride one, no padding: as many positions as entries).
    """

    kernel: tuple[int, ...] | None
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    circular: bool = False

    @classmethod
    def of(cls, kernel_size: Sizes | None, stride: Sizes, padding: Sizes, ndim: int, circular: bool = False) -> Window:
        """The window for tensors of ``ndim`` axes.

        An integer ``kernel_size`` is for sequences if ``ndim`` is 2 or 3, for images if it is 4; a sequence of sizes
        says itself how many spatial axes there are.
        """
        if kernel_size is None:
            if ndim != 3:
                raise ValueError(
                    f"kernel_size=None is for explicit patches (n, K, h); X has {ndim} axes: give a kernel_size for "
                    "images and sequences"
                )
            return cls(None)
        axes = ({2: 1, 3: 1, 4: 2}.get(ndim, 0)) if isinstance(kernel_size, int | np.integer) else len(kernel_size)
        if axes not in _SHAPES or ndim not in (axes + 1, axes + 2):
            wanted = _SHAPES.get(axes, " or ".join(_SHAPES.values()))
            raise ValueError(f"kernel_size={kernel_size!r} needs X of shape {wanted}; X has {ndim} axes")
        return cls(_each(kernel_size, axes), _each(stride, axes), _each(padding, axes), circular)

    def tensor(self, X: FloatArray) -> FloatArray:
        """``X`` with its axis of channels, padded."""
        if self.kernel is None:
            return X
        axes = len(self.kernel)
        if X.ndim not in (axes + 1, axes + 2):
            raise ValueError(f"X must have shape {_SHAPES[axes]}, got {X.shape}")
        X = X if X.ndim == axes + 2 else X[..., None]
        if self.circular:
            return np.pad(X, [(0, 0), *((0, k - 1) for k in self.kernel), (0, 0)], mode="wrap")
        return np.pad(X, [(0, 0), *((p, p) for p in self.padding), (0, 0)]) if any(self.padding) else X

    def grid(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Positions along each spatial axis of tensors of this shape: ``(K,)`` for explicit patches."""
        if self.kernel is None:
            return (shape[1],)
        space = shape[1 : 1 + len(self.kernel)]
        if self.circular:
            room = tuple(s - k for s, k in zip(space, self.kernel, strict=True))
            grid = space if min(room) >= 0 else (0,)
        else:
            padded = tuple(s + 2 * p for s, p in zip(space, self.padding, strict=True))
            grid = tuple((s - k) // t + 1 for s, k, t in zip(padded, self.kernel, self.stride, strict=True))
        if min(grid) < 1:
            raise ValueError(f"the window {self.kernel} is larger than X, whose spatial axes are {space}")
        return grid

    def padded(self, shape: tuple[int, ...]) -> int:
        """Entries of all tensors with their padding."""
        space = (s + 2 * p for s, p in zip(shape[1:], self.padding, strict=False))
        return prod((shape[0], *space, *shape[1 + len(self.padding) :]))

    def size(self, shape: tuple[int, ...]) -> int:
        """Entries of a patch, h."""
        if self.kernel is None:
            return shape[2]
        return prod(self.kernel) * (shape[-1] if len(shape) == len(self.kernel) + 2 else 1)

    def view(self, X: FloatArray) -> FloatArray:
        """The patches ``(n, *grid, *kernel, channels)``, without copying them."""
        X = np.asarray(X)
        self.grid(X.shape)
        T = self.tensor(X)
        if self.kernel is None:
            return T
        axes = len(self.kernel)
        windows = np.lib.stride_tricks.sliding_window_view(T, self.kernel, axis=tuple(range(1, axes + 1)))
        steps = (slice(None), *(slice(None, None, s) for s in self.stride))
        return np.moveaxis(windows[steps], axes + 1, -1)

    def rows(self, X: FloatArray) -> FloatArray:
        """The patches as rows ``(n K, h)``, sample by sample: a copy (a view of explicit patches)."""
        return self.view(X).reshape(-1, self.size(np.shape(X)))

    def pieces(self, X: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """``(samples, their patches as rows)``, in pieces that bound the memory."""
        each = prod(self.grid(X.shape)) * self.size(X.shape)
        step = max(1, PIECE // max(1, each))
        for start in range(0, len(X), step):
            part = slice(start, min(start + step, len(X)))
            yield part, self.rows(X[part])


def _each(size: Sizes, axes: int) -> tuple[int, ...]:
    return (int(size),) * axes if isinstance(size, int | np.integer) else tuple(map(int, size))


def check_sizes(name: str, size: Any, at_least: int) -> Any:
    """The size as an integer or a tuple of them."""
    values = [size] if not isinstance(size, tuple | list) else list(size)
    for v in values:
        if not is_size(v, at_least):
            raise ValueError(
                f"{name} must be an integer >= {at_least} (at most {LARGEST_SIZE}), or one for each spatial axis; got "
                f"{shown(size)}"
            )
    if len(values) not in _SHAPES:
        raise ValueError(f"{name} must have one or two entries, got {shown(size)}")
    return tuple(map(int, values)) if isinstance(size, tuple | list) else int(size)


def distinct_patches(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """The distinct rows, and which of them each row is: many patches of an image are alike."""
    rows = np.ascontiguousarray(rows + 0.0)  # -0.0 equals 0.0
    if not rows.shape[1]:
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return rows, np.arange(len(rows))
    return rows[first], np.asarray(inverse.ravel(), dtype=np.int64)


def as_filters(weights: Array, window: Window) -> Array:
    """Weights on patches ``(m, h)`` as filters ``(m, *kernel, channels)``; as they are for explicit patches."""
    if window.kernel is None:
        return weights
    return weights.reshape(len(weights), *window.kernel, weights.shape[1] // prod(window.kernel))


def fold(window: Window, weights: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    r"""Weights on every patch, ``(K, h, C)``, as weights on the tensors of this ``shape``, ``(size, C)``.

    The adjoint of taking patches: :math:`\sum_k x_{ik}^T W_k = x_i^T` ``fold(W)``, which costs no copy of the patches.
    """
    K, h, C = weights.shape
    if window.kernel is None:
        return weights.reshape(K * h, C)
    axes, grid = len(window.kernel), window.grid(shape)
    channels = h // prod(window.kernel)
    W = weights.reshape(*grid, *window.kernel, channels, C)
    space = shape[1 : 1 + axes]
    out = np.zeros((*np.array(window.tensor(np.empty((1, *space, 1))).shape[1:-1]), channels, C))
    for offset in np.ndindex(*window.kernel):
        where = tuple(slice(o, o + s * g, s) for o, s, g in zip(offset, window.stride, grid, strict=True))
        out[where] += W[(slice(None),) * axes + offset]
    if window.circular:  # what lies beyond the end belongs to the beginning
        for axis, s in enumerate(space):
            head, tail = np.split(out, [s], axis=axis)
            head[(slice(None),) * axis + (slice(tail.shape[axis]),)] += tail
            out = head
    else:
        out = out[tuple(slice(p, p + s) for p, s in zip(window.padding, space, strict=True))]
    return out.reshape(-1, C)


def unfold(window: Window, weights: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Weights ``(size, C)`` on tensors of this ``shape``, as every patch sees them: ``(K, h, C)``; see :func:`fold`."""
    C = weights.shape[1]
    rows = window.rows(weights.T.reshape(C, *shape[1:]))
    return rows.reshape(C, -1, window.size(shape)).transpose(1, 2, 0)
