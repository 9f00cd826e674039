"""Patches of images: where they are, how they are normalised and whitened, and what filters answer to them.

Images are rows of a matrix, flat in the order (height, width, channel). No function here holds the patches of more
than a few images at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.utils.random import sample_without_replacement

from bidual._util.tuning import tuning
from bidual._util.typing import Array, IntArray

#: Patches looked at, for each one that is wanted: some are constant, some equal.
_SURPLUS = 4


@dataclass(frozen=True)
class PatchGrid:
    """All patches of an image, in the order of the cells in which their answers are pooled.

    Attributes
    ----------
    corners : ndarray, shape (n_patches,)
        The first entry, in a flat image, of each patch.
    inside : ndarray, shape (q,)
        The entries of a patch, counted from its first.
    bounds : ndarray, shape (n_cells + 1,)
        Cell c holds the patches ``bounds[c]`` to ``bounds[c + 1]``.
    """

    corners: IntArray
    inside: IntArray
    bounds: IntArray

    @classmethod
    def of(
        cls, image_shape: tuple[int, int, int], patch_shape: tuple[int, int], stride: int, cells: tuple[int, int]
    ) -> PatchGrid:
        """Patches of this shape every ``stride`` pixels, in ``cells`` of rows and columns, as equal as may be.

        There are no empty cells: never more than there are patches in that direction.
        """
        height, width, channels = image_shape
        tops = np.arange(0, height - patch_shape[0] + 1, stride)
        lefts = np.arange(0, width - patch_shape[1] + 1, stride)
        corners = [
            (rows[:, None] * width + columns).ravel() * channels
            for rows in np.array_split(tops, min(cells[0], len(tops)))
            for columns in np.array_split(lefts, min(cells[1], len(lefts)))
        ]
        lines = np.arange(patch_shape[0])[:, None] * width * channels
        inside = (lines + np.arange(patch_shape[1] * channels)).ravel()
        return cls(np.concatenate(corners), inside, np.cumsum([0, *map(len, corners)]))

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.bounds) - 1

    def pieces(self) -> Iterator[tuple[int, IntArray]]:
        """Every cell with the corners of its patches, those of a large cell in several pieces."""
        longest = max(1, tuning().patch_entries // max(len(self.inside), tuning().filters))
        for cell, (first, last) in enumerate(zip(self.bounds[:-1], self.bounds[1:], strict=True)):
            for start in range(first, last, longest):
                yield cell, self.corners[start : min(start + longest, last)]


def draw_patches(X: Array, grid: PatchGrid, count: int, random_state: np.random.RandomState) -> Array:
    """Up to ``count`` patches at random places of random images, no two equal and none constant.

    There are fewer if not so many are found among :data:`_SURPLUS` times as many.
    """
    places = len(grid.corners)
    drawn = sample_without_replacement(
        len(X) * places, min(len(X) * places, _SURPLUS * count), method="auto", random_state=random_state
    )
    drawn = random_state.permutation(drawn)  # some methods draw in order
    patches = X[(drawn // places)[:, None], grid.corners[drawn % places, None] + grid.inside]
    patches = patches[patches.min(axis=1) < patches.max(axis=1)]
    _, first = np.unique(patches, axis=0, return_index=True)
    return patches[np.sort(first)[:count]]


def normalise(patches: Array, epsilon: float) -> Array:
    r"""Each patch as :math:`(p - \mathrm{mean}(p)) / \sqrt{\mathrm{var}(p) + \epsilon}` (004 Algorithm 2), in place."""
    patches -= patches.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", patches, patches) / patches.shape[1]
    patches *= (1.0 / np.sqrt(variance + epsilon))[:, None]
    return patches


def zca(patches: Array, epsilon: float) -> Array:
    r"""The whitening :math:`V (D + \epsilon I)^{-1/2} V^T` of the covariance :math:`V D V^T` of patches (rows)."""
    centred = patches - patches.mean(axis=0)
    D, V = np.linalg.eigh(centred.T @ centred / len(patches))
    return (V / np.sqrt(np.maximum(D, 0.0) + epsilon)) @ V.T


@dataclass(frozen=True)
class FilterBank:
    r"""Filters on normalised patches: :math:`(k_f^T \tilde p - \tau)_+`, pooled over the patches of each cell.

    Attributes
    ----------
    grid : PatchGrid
    kernels : ndarray of float32, shape (q, n_filters)
        The :math:`k_f`.
    offset, scale : float
        Pixels x are taken as ``(x - offset) / scale``, so that single precision suffices.
    epsilon : float
        How patches are normalised, in these units.
    threshold : float
        :math:`\tau`.
    average : bool
        Whether a cell has the mean, and not the maximum, of the answers in it.
    """

    grid: PatchGrid
    kernels: Array
    offset: float
    scale: float
    epsilon: float
    threshold: float
    average: bool

    def blocks(self, X: Array) -> Iterator[tuple[slice, Array]]:
        """Pooled answers ``(rows, n_cells * n_filters)`` of images (rows of X), a few of them at a time."""
        q, n_filters = self.kernels.shape
        most, at_once = tuning().patch_entries, tuning().filters
        kernels = [np.ascontiguousarray(self.kernels[:, f : f + at_once]) for f in range(0, n_filters, at_once)]
        pieces = list(self.grid.pieces())
        step = max(1, most // (max(len(corners) for _, corners in pieces) * max(q, kernels[0].shape[1])))
        for start in range(0, len(X), step):
            rows = slice(start, min(start + step, len(X)))
            images = ((X[rows] - self.offset) / self.scale).astype(np.float32)
            yield rows, self._pooled(images, pieces, kernels).reshape(len(images), -1)

    def _pooled(self, images: Array, pieces: list[tuple[int, IntArray]], kernels: list[Array]) -> Array:
        pool = np.add if self.average else np.maximum
        shape = (len(images), self.grid.n_cells, self.kernels.shape[1])
        out = np.full(shape, 0.0 if self.average else -np.inf, dtype=np.float32)
        for cell, corners in pieces:
            index = corners[:, None] + self.grid.inside
            patches = normalise(images.take(index, axis=1).reshape(-1, index.shape[1]), self.epsilon)
            f = 0
            for kernel in kernels:
                answers = (patches @ kernel).reshape(len(images), len(corners), -1)
                if self.average:
                    self._activate(answers)
                part = out[:, cell, f : f + kernel.shape[1]]
                pool(part, pool.reduce(answers, axis=1), out=part)
                f += kernel.shape[1]
        if self.average:
            out /= np.diff(self.grid.bounds)[:, None].astype(np.float32)
            return out
        return self._activate(out)  # the ReLU of the maximum is the maximum of the ReLUs

    def _activate(self, answers: Array) -> Array:
        if self.threshold:
            answers -= np.float32(self.threshold)
        return np.maximum(answers, 0.0, out=answers)
