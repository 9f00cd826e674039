r"""Some rows of the training data with their targets, and what is computed on them.

The functions here are pure: they take a block and arrays and return arrays, whose sums over the blocks are the values
and gradients of training. Only such sums leave the place where the rows are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual.bounds.dual import rounding_terms
from bidual.losses import Loss
from bidual.programs.gated.products import MatrixProducts, Products, numpy_products, pack_gates

#: Makes the products of many rows: rows (n, p), bytes of gates (n, Q), number of gates, number of outputs.
MakeProducts = Callable[[Array, Array, int, int], Products]
#: Rows whose gates are computed at a time.
PIECE = 4096


@dataclass(frozen=True)
class Setting:
    """What all blocks have in common.

    Attributes
    ----------
    gates : ndarray, shape (P, p)
        On the rows as they are, with the bias last if there is one.
    loss : Loss
    bias : bool
        Whether the rows get a column of ones.
    unit : float
        The solver sees rows divided by it.
    shift : ndarray, shape (C,)
    outputs : float
        The solver sees targets less ``shift``, divided by ``outputs``.
    products : callable
        The backend.
    keep : bool
        Whether blocks keep their rows in single precision between two passes, or read them again.
    """

    gates: FloatArray
    loss: Loss
    bias: bool
    unit: float
    shift: FloatArray
    outputs: float
    products: MakeProducts = numpy_products
    keep: bool = True


class Block:
    """Rows ``X (n, d)`` of any type (a slice of a memory map, say), encoded targets and weights.

    Parameters
    ----------
    X : array of shape (n, d)
    Y : ndarray, shape (n, C)
    w : ndarray, shape (n,)
        Shares of the rows in the mean over all blocks.
    setting : Setting
    """

    def __init__(self, X: Array, Y: FloatArray, w: FloatArray, setting: Setting) -> None:
        self.X, self.w, self.setting = X, np.asarray(w, dtype=np.float64), setting
        self.Y = (np.asarray(Y, dtype=np.float64) - setting.shift) / setting.outputs
        self._kept: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.w)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}  # what can be computed again does not travel

    def rows(self, dtype: type = np.float32, index: Array | slice = slice(None)) -> Array:
        """The rows as the solver sees them, ``(n, p)``: with the column of ones, divided by the unit."""
        if dtype is np.float32 and "rows" in self._kept:
            return self._kept["rows"][index]
        X = np.asarray(self.X[index])
        M = np.empty((len(X), X.shape[1] + self.setting.bias), dtype=dtype)
        np.divide(X, self.setting.unit, out=M[:, : X.shape[1]], dtype=dtype, casting="unsafe")
        M[:, X.shape[1] :] = 1.0 / self.setting.unit
        return M

    @property
    def bits(self) -> Array:
        """The gates of each row, as bytes; computed in double precision, as the network does."""
        if "bits" not in self._kept:
            pieces = [self._open(slice(i, i + PIECE)) for i in range(0, len(self), PIECE)]
            self._kept["bits"] = np.concatenate(pieces)
        return self._kept["bits"]

    def _open(self, rows: slice) -> Array:
        gates, d = self.setting.gates, self.X.shape[1]
        margins = np.asarray(self.X[rows], dtype=np.float64) @ gates[:, :d].T
        if self.setting.bias:
            margins += gates[:, d]
        return pack_gates(margins >= 0)

    def products(self, dtype: type = np.float32) -> Products:
        """Products with these rows."""
        if dtype is np.float32 and "products" in self._kept:
            return self._kept["products"]
        M = self.rows(dtype)
        made = self.setting.products(M, self.bits, len(self.setting.gates), self.Y.shape[1])
        if dtype is np.float32 and self.setting.keep:
            self._kept.update(rows=M, products=made)
        return made

    def batch(self, index: Array) -> Products:
        """Products with a few of these rows."""
        M, bits, P = self.rows(np.float32, index), self.bits[index], len(self.setting.gates)
        few: MakeProducts = getattr(self.setting.products, "few", _few)
        return few(M, bits, P, self.Y.shape[1])


def _few(M: Array, bits: Array, n_gates: int, n_outputs: int) -> Products:
    return MatrixProducts(M, bits, n_gates)


def outputs(block: Block, *, W: Array, intercept: FloatArray) -> Array:
    """Outputs ``F (n, C)`` of weights ``W``, in their precision."""
    F = block.products(W.dtype.type).outputs(W)
    F += intercept.astype(F.dtype)
    return F


def value(block: Block, F: Array) -> tuple[float]:
    """Share of the block in the loss."""
    return (block.setting.loss.value(np.asarray(F, dtype=np.float64), block.Y, block.w),)


def gradient(block: Block, F: Array) -> tuple[float, Array, FloatArray]:
    """Share in the loss, and its gradients by the weights and by the intercept."""
    loss, F64 = block.setting.loss, np.asarray(F, dtype=np.float64)
    V = loss.gradient(F64, block.Y, block.w)
    G = block.products(F.dtype.type).correlations(V.astype(F.dtype, copy=False))
    return loss.value(F64, block.Y, block.w), G, V.sum(axis=0)


def sample(block: Block, F: Array, *, count: float, seed: int) -> tuple[Array, Array, FloatArray]:
    r"""Rows with their bytes of gates and curvatures, such that expected sums are those of all rows.

    A row is taken with a probability that grows with its curvature at ``F``: most rows of a trained classifier have
    next to none. ``count`` is the expected share of rows times the number of rows. Curvatures are ``(m, C)``, or
    ``(m, C, C)`` if outputs interact.
    """
    loss, F64 = block.setting.loss, np.asarray(F, dtype=np.float64)
    total = loss.curvature(F64, block.Y, block.w).sum(axis=1)
    share = 0.9 * total / max(float(total.sum()), np.finfo(float).tiny) + 0.1 / max(len(block), 1)
    chance = np.minimum(1.0, count * len(block) * share)
    taken = np.flatnonzero(np.random.default_rng(seed).random(len(block)) < chance)
    weight = block.w[taken] / chance[taken]
    hessian = loss.row_hessians if loss.coupled else loss.row_curvatures
    H = hessian(F64[taken], block.Y[taken])
    return block.rows(np.float32, taken), block.bits[taken], H * weight.reshape(-1, *[1] * (H.ndim - 1))


def slopes(block: Block, *, intercept: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gradient ``(C,)`` and Hessian ``(C, C)`` of the loss of a network without weights by its intercept."""
    loss, F = block.setting.loss, np.broadcast_to(intercept, block.Y.shape)
    H = np.einsum("n,nij->ij", block.w, loss.row_hessians(F, block.Y))
    return loss.gradient(F, block.Y, block.w).sum(axis=0), H


def steering(block: Block, F: Array, *, c: float) -> tuple[float]:
    """The dual objective at c times minus the gradient: good enough to steer by."""
    loss, F64 = block.setting.loss, np.asarray(F, dtype=np.float64)
    V = loss.dual_point(-loss.gradient(F64, block.Y, block.w), block.Y, block.w, centred=False)
    return (-loss.conjugate(-c * V, block.Y, block.w),)


# ---- the certificate: everything in double precision ------------------------------------------------


def dual_point(block: Block, F: FloatArray) -> FloatArray:
    """Minus the gradient at ``F``, moved into the domain of the conjugate."""
    loss = block.setting.loss
    return loss.dual_point(-loss.gradient(F, block.Y, block.w), block.Y, block.w, centred=False)


def moments(block: Block, V: FloatArray) -> tuple[FloatArray]:
    """What :func:`centred` needs to know of all blocks."""
    return (block.setting.loss.moments(V, block.Y, block.w),)


def centred(block: Block, V: FloatArray, *, moments: FloatArray) -> FloatArray:
    """A dual point near ``V`` whose columns sum to zero over all blocks."""
    return block.setting.loss.centre(V, block.Y, block.w, moments)


def constraint(block: Block, V: FloatArray) -> tuple[FloatArray, float]:
    r"""``M^T D_i V`` of all gates, and :math:`\sum_n \|v_n\| \|m_n\|`, which bounds its rounding."""
    size = 0.0
    for i in range(0, len(block), PIECE):
        rows = slice(i, i + PIECE)
        lengths = np.linalg.norm(block.rows(np.float64, rows), axis=1)
        size += float(np.linalg.norm(V[rows], axis=1) @ lengths)
    return block.products(np.float64).correlations(V), size


def dual_value(block: Block, V: FloatArray, *, c: float) -> tuple[float, float]:
    """The dual objective at ``c V``, and the size of its terms."""
    loss = block.setting.loss
    return -loss.conjugate(-c * V, block.Y, block.w), rounding_terms(loss, c * V, block.Y, block.w)
