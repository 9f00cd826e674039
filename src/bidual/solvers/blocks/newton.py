r"""Newton steps from a sample of rows.

Around a point where groups are not zero the objective is smooth with the Hessian

.. math:: K^T H K + \Lambda, \qquad \Lambda_i = \frac{\beta}{\|W_i\|} (I - \hat w_i \hat w_i^T),

K the map from weights to outputs, H the curvature of the loss. A trained classifier is sure of most rows, which then
have no curvature to speak of: a few thousand rows, drawn by their curvature, stand for all of them
(:func:`bidual.programs.gated.block.sample`). The system is solved by conjugate gradients, preconditioned by a smaller
sample of rank-one terms :math:`\rho_r (D_r \otimes m_r \otimes e_r)(\cdot)^T` of the first part, inverted by
Woodbury's formula: their Gram matrix is a product of three small ones,

.. math:: B \Lambda^{-1} B^T = \sqrt{\rho \rho^T} \circ (D^T \mathrm{diag}(\lambda)^{-1} D) \circ (M M^T) \circ (E E^T).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import scipy.linalg as sl

from bidual._util.tuning import tuning
from bidual._util.typing import Array, FloatArray
from bidual.programs.gated.block import MakeProducts
from bidual.programs.gated.products import MatrixProducts

#: Conjugate gradient iterations, and their relative accuracy.
MAX_CG, CG_TOL = 40, 0.1
#: What is added to a Gram matrix, relative to its diagonal, until it has a factor in single precision.
LIFTS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3)
#: Ridge of a free intercept in the preconditioner, relative to its mean curvature: it has none of its own.
FREE = 1e-3


@dataclass(frozen=True)
class Sample:
    """Rows that stand for all: ``M (m, p)``, ``open (m, P)`` and curvatures ``H (m, C)`` or ``(m, C, C)``."""

    M: Array
    open: Array
    H: FloatArray

    @classmethod
    def joined(cls, parts: list[tuple[Array, Array, FloatArray]], gates: Array, n_gates: int) -> Sample:
        """The samples of all blocks, with some of the gates."""
        bits = np.concatenate([part[1] for part in parts])
        opened = np.unpackbits(bits, axis=1, count=n_gates, bitorder="little")[:, gates]
        return cls(np.concatenate([part[0] for part in parts]), opened, np.concatenate([part[2] for part in parts]))

    def curved(self, F: Array) -> Array:
        """``H F``, row by row."""
        if self.H.ndim == 2:
            return (self.H * F).astype(F.dtype)
        return np.matmul(self.H, F[:, :, None].astype(np.float64))[:, :, 0].astype(F.dtype)

    def terms(self, count: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Rank-one terms of the curvature: row numbers, unit directions (k, C) and weights, drawn by their weights."""
        m, C = self.H.shape[:2]
        if self.H.ndim == 2:
            weights, directions = self.H, np.broadcast_to(np.eye(C), (m, C, C))
        else:
            weights, vectors = np.linalg.eigh(self.H)
            directions = vectors.swapaxes(1, 2)
        flat = np.maximum(weights.ravel(), 0.0)
        chance = np.minimum(1.0, count * flat / max(float(flat.sum()), np.finfo(float).tiny))
        taken = np.flatnonzero(rng.random(len(flat)) < chance)
        E = directions[taken // C, taken % C].astype(np.float32)
        return taken // C, E, (flat[taken] / chance[taken]).astype(np.float32)


class Preconditioner:
    """An approximate inverse of the Hessian, by Woodbury's formula.

    Parameters
    ----------
    sample : Sample
    ridge : ndarray, shape (A,)
        Curvature of the penalty of each group.
    free : float
        The same for the intercept; zero if there is none.
    """

    def __init__(self, sample: Sample, ridge: FloatArray, free: float, rng: np.random.Generator) -> None:
        rows, self.E, weights = sample.terms(tuning().sample_terms, rng)
        self.ridge = ridge.astype(np.float32)[:, None, None]
        self.free = free
        self.root = np.sqrt(weights)
        M, opened = sample.M[rows], sample.open[rows]
        self.products = MatrixProducts(M, np.packbits(opened, axis=1, bitorder="little"), opened.shape[1])
        scaled = opened.astype(np.float32) / np.sqrt(self.ridge[:, 0, 0])
        gram = (scaled @ scaled.T) * (M @ M.T)
        if free:
            gram += np.float32(1.0 / free)
        gram *= self.E @ self.E.T
        gram *= self.root[:, None] * self.root
        self.factor = _factor(gram)

    def __call__(self, R: Array, r: FloatArray) -> tuple[Array, FloatArray]:
        """Weights and intercept."""
        Z, z = R / self.ridge, r / self.free if self.free else r
        t = self.root * np.einsum("kc,kc->k", self.products.outputs(Z) + z.astype(np.float32), self.E)
        s = self.root * sl.cho_solve(self.factor, t, check_finite=False)
        V = s[:, None] * self.E
        Z = Z - self.products.correlations(V) / self.ridge
        return Z, z - V.sum(axis=0) / self.free if self.free else z


def _factor(gram: Array) -> tuple[Array, bool]:
    """Cholesky factor of ``I + gram``, or, where single precision loses the identity, of something near."""
    size = float(gram.diagonal().max(initial=0.0))
    for lift in LIFTS:
        shifted = gram.copy()
        shifted[np.diag_indices_from(gram)] += np.float32(1.0 + lift * size)
        with suppress(np.linalg.LinAlgError):
            return sl.cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
    return np.eye(len(gram), dtype=np.float32), True


def newton_direction(
    sample: Sample,
    make: MakeProducts,
    gradient: tuple[Array, FloatArray],
    W: Array,
    ridge: FloatArray,
    *,
    damping: float,
    radial: float,
    free: bool,
    seed: int,
) -> tuple[Array, FloatArray]:
    r"""Approximate solution of ``Hessian step = -gradient`` on the groups of ``W (A, p, C)`` and the intercept.

    ``ridge`` is :math:`\beta / \|W_i\|`, with zero groups given a size by the caller; a share ``radial`` of it is kept
    along :math:`W_i` itself, and ``damping`` is added to everything.
    """
    rng = np.random.default_rng(seed)
    norms = np.sqrt(np.einsum("ijk,ijk->i", W, W, dtype=np.float64))
    units = (W / np.maximum(norms, 1e-300)[:, None, None]).astype(np.float32)
    lam = (ridge + damping).astype(np.float32)[:, None, None]
    tangent = (1.0 - radial) * np.where(norms > 0, ridge, 0.0).astype(np.float32)
    bits = np.packbits(sample.open, axis=1, bitorder="little")
    C = W.shape[2]
    products = make(sample.M, bits, len(W), C)
    trace = float(np.trace(sample.H.sum(axis=0)) if sample.H.ndim == 3 else sample.H.sum())
    precondition = Preconditioner(sample, ridge + damping, FREE * trace / C if free else 0.0, rng)

    def hessian(Z: Array, z: FloatArray) -> tuple[Array, FloatArray]:
        V = sample.curved(products.outputs(Z) + z.astype(np.float32))
        along = tangent * np.einsum("ijk,ijk->i", units, Z)
        result = products.correlations(V) + lam * Z - along[:, None, None] * units
        return result, V.sum(axis=0, dtype=np.float64) if free else np.zeros_like(z)

    def dot(a: tuple[Array, FloatArray], b: tuple[Array, FloatArray]) -> float:
        return float(np.einsum("ijk,ijk->i", a[0], b[0]).sum(dtype=np.float64) + a[1] @ b[1])

    R, r = -gradient[0], -gradient[1] if free else np.zeros(C)
    Z, z = np.zeros_like(R), np.zeros(C)
    Q, q = precondition(R, r)
    D, d = Q, q
    rz = first = dot((R, r), (Q, q))
    for _ in range(MAX_CG):
        HD, Hd = hessian(D, d)
        curvature = dot((D, d), (HD, Hd))
        if not curvature > 0:  # lost in rounding
            break
        alpha = rz / curvature
        Z, z = Z + np.float32(alpha) * D, z + alpha * d
        R, r = R - np.float32(alpha) * HD, r - alpha * Hd
        Q, q = precondition(R, r)
        rz, before = dot((R, r), (Q, q)), rz
        if not rz > CG_TOL**2 * first:
            break
        D, d = Q + np.float32(rz / before) * D, q + (rz / before) * d
    return Z, z
