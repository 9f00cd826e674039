r"""Linear convolutional networks of the squared loss, as one convex problem in the linear map they are.

A network :math:`f(x_i) = \sum_{j,k} (x_{ik}^T u_j) \alpha_{jk}` (003 eq. 9) depends on the matrix
:math:`Z = [z_1, \dots, z_K] = \sum_j u_j \alpha_j^T` alone, whose cheapest filters cost its nuclear norm (003 eq. 12):

.. math:: \min_{Z, b} \; \tfrac12 \sum_i w_i \Big\| \sum_k Z_k^T x_{ik} + b - y_i \Big\|^2 + \beta \|Z\|_*,

the constraint of the dual being :math:`\sigma_{\max}([X_1^T V, \dots, X_K^T V]) \le \beta` (003 eq. 11; eq. 10 prints 1
where the square of beta belongs). With several outputs, :math:`Z_k` has a column for each (003 A.7).

Circular filters of full length (003 eq. 13) are diagonal in the Fourier basis: with the unitary DFT,
:math:`\hat z = \sqrt d \, \hat u \odot \hat\alpha`, and the cheapest way to reach :math:`\hat z` costs
:math:`\|\hat z\|_1 / \sqrt d`: 003 eq. 14 leaves out this root. Several channels and outputs leave a matrix
:math:`\hat Z_\omega` at every frequency, whose nuclear norm takes the place of the absolute value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from scipy.linalg import eigh

from bidual._util.clock import clock
from bidual._util.patches import Window, fold, unfold
from bidual._util.progress import closed, note
from bidual._util.status import Status
from bidual._util.typing import Array, FloatArray
from bidual._util.watch import watching
from bidual.bounds import ByFormula, relative_gap
from bidual.networks import ConvolutionalNetwork, DeepNetwork

#: Seconds between two lines of progress.
_REPORT = 0.5
#: Steps between two bounds: a bound costs about as much as a step.
_EVERY = 10
#: Share of the largest singular value below which one is rounding.
_RANK = 1e-12


@dataclass(frozen=True)
class Filters:
    """Maps from the patches of tensors of one ``shape``: Z has shape (h, K C)."""

    window: Window
    shape: tuple[int, ...]
    n_outputs: int

    @property
    def n_patches(self) -> int:
        """Positions of the filters, K."""
        return prod(self.window.grid(self.shape))

    def coef(self, Z: FloatArray) -> FloatArray:
        """The map on tensors, ``(size, C)``."""
        return fold(self.window, Z.reshape(len(Z), self.n_patches, -1).transpose(1, 0, 2), self.shape)

    def adjoint(self, G: FloatArray) -> FloatArray:
        """The adjoint of :meth:`coef`."""
        W = unfold(self.window, G, self.shape)
        return W.transpose(1, 0, 2).reshape(W.shape[1], -1)

    @cached_property
    def multiplicity(self) -> FloatArray:
        """How many patches show each entry of a tensor: ``coef adjoint`` is multiplication by it."""
        h = self.window.size(self.shape)
        return fold(self.window, np.ones((self.n_patches, h, 1)), self.shape)

    def cost(self, Z: FloatArray) -> float:
        """The nuclear norm."""
        return float(np.linalg.svd(Z, compute_uv=False).sum())

    def dual_norm(self, G: FloatArray) -> float:
        """The largest singular value."""
        return float(np.linalg.norm(G, 2)) if G.size else 0.0

    def shrink(self, G: FloatArray, t: float) -> tuple[FloatArray, float]:
        r"""The minimiser Z of :math:`\tfrac12 \|Z - G\|^2 + t \cdot` cost, and its cost."""
        P, sigma, Qt = np.linalg.svd(G, full_matrices=False)
        sigma = np.maximum(sigma - t, 0.0)
        return (P * sigma) @ Qt, float(sigma.sum())

    def factors(self, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Balanced filters ``(m, h)`` and output weights ``(m, K C)`` with sum_j u_j alpha_j^T = Z."""
        P, sigma, Qt = np.linalg.svd(Z, full_matrices=False)
        kept = sigma > _RANK * sigma.max(initial=0.0)
        root = np.sqrt(sigma[kept])
        return (P[:, kept] * root).T, root[:, None] * Qt[kept]

    def network(self, Z: FloatArray, intercept: FloatArray) -> ConvolutionalNetwork:
        """The network of the cheapest filters."""
        U, alpha = self.factors(Z)
        w = self.window
        grid = w.grid(self.shape)
        how = {} if w.kernel is None else {"stride": w.stride, "padding": w.padding, "circular": w.circular}
        layer = DeepNetwork([U.T, alpha], activation="linear")
        return ConvolutionalNetwork(layer, w.kernel, **how, pooling="flatten", intercept=intercept, grid=grid)  # type: ignore[arg-type]


class FourierFilters(Filters):
    r"""Circular filters of full length: Z is the map itself, ``(d channels, C)``.

    The cost is :math:`d^{-1/2} \sum_\omega \|\hat Z_\omega\|_*`, with :math:`\hat Z_\omega` of shape (channels, C).
    """

    @property
    def space(self) -> tuple[int, ...]:
        """Spatial axes of the tensors."""
        assert self.window.kernel is not None
        return self.shape[1 : 1 + len(self.window.kernel)]

    def coef(self, Z: FloatArray) -> FloatArray:  # noqa: D102
        return Z

    def adjoint(self, G: FloatArray) -> FloatArray:  # noqa: D102
        return G

    @cached_property
    def multiplicity(self) -> FloatArray:  # noqa: D102
        return np.ones((prod(self.shape[1:]), 1))

    def _transform(self, Z: FloatArray) -> Array:
        """Matrices ``(d, channels, C)`` at the frequencies."""
        axes = tuple(range(len(self.space)))
        Z_hat = np.fft.fftn(Z.reshape(*self.space, -1, self.n_outputs), axes=axes, norm="ortho")
        return Z_hat.reshape(prod(self.space), -1, self.n_outputs)

    def _back(self, Z_hat: Array) -> FloatArray:
        axes = tuple(range(len(self.space)))
        Z = np.fft.ifftn(Z_hat.reshape(*self.space, *Z_hat.shape[1:]), axes=axes, norm="ortho").real
        return np.ascontiguousarray(Z.reshape(-1, Z_hat.shape[2]))

    def _values(self, Z: FloatArray) -> FloatArray:
        return np.linalg.svd(self._transform(Z), compute_uv=False)

    def cost(self, Z: FloatArray) -> float:  # noqa: D102
        return float(self._values(Z).sum()) / np.sqrt(prod(self.space))

    def dual_norm(self, G: FloatArray) -> float:  # noqa: D102
        return float(self._values(G).max(initial=0.0)) * np.sqrt(prod(self.space))

    def shrink(self, G: FloatArray, t: float) -> tuple[FloatArray, float]:  # noqa: D102
        root = float(np.sqrt(prod(self.space)))
        P, sigma, Qh = np.linalg.svd(self._transform(G), full_matrices=False)
        sigma = np.maximum(sigma - t / root, 0.0)
        return self._back((P * sigma[:, None, :]) @ Qh), float(sigma.sum()) / root

    def factors(self, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        r"""One filter for each singular value of the matrices: :math:`\hat u = \hat\alpha = \sqrt\sigma / d^{1/4}`.

        Filters are real because opposite frequencies are given conjugate factors.
        """
        Z_hat, d = self._transform(Z), prod(self.space)
        P, sigma, Qh = np.linalg.svd(Z_hat, full_matrices=False)
        index = np.arange(d).reshape(self.space)
        opposite = np.roll(np.flip(index), 1, axis=tuple(range(index.ndim))).ravel()
        own = opposite == index.ravel()
        P_own, _, Qh_own = np.linalg.svd(Z_hat[own].real, full_matrices=False)
        P[own], Qh[own] = P_own, Qh_own
        later = opposite < index.ravel()
        P[later], Qh[later] = P[opposite[later]].conj(), Qh[opposite[later]].conj()
        used = int((sigma > _RANK * sigma.max(initial=0.0)).any(axis=0).sum())
        root = np.sqrt(sigma[:, :used]) / d**0.25
        axes = tuple(range(1, index.ndim + 1))

        def space(values: Array) -> FloatArray:  # (d, c, m) to (m, d c)
            _, c, m = values.shape
            tensor = np.moveaxis(values, 2, 0).reshape(m, *self.space, c)
            return np.fft.ifftn(tensor, axes=axes, norm="ortho").real.reshape(m, d * c)

        return space(P[:, :, :used] * root[:, None, :]), space(np.swapaxes(Qh[:, :used], 1, 2) * root[:, None, :])


@dataclass(frozen=True)
class Fit:
    """A map with a proven lower bound, and the map whose residual proves it."""

    Z: FloatArray
    intercept: FloatArray
    proving: tuple[FloatArray, FloatArray]
    bound: ByFormula
    n_iter: int
    status: str


def fit_filters(
    filters: Filters,
    X: FloatArray,
    Y: FloatArray,
    w: FloatArray,
    *,
    beta: float,
    fit_intercept: bool,
    tol: float,
    max_iter: int,
    time_limit: float | None = None,
    verbose: int = 0,
) -> Fit:
    """Accelerated proximal gradient steps with restarts, until the relative duality gap is ``tol``.

    Ctrl-C and the time limit end it with the best map so far.

    Parameters
    ----------
    filters : Filters
    X : ndarray, shape (n, size)
        Tensors as rows.
    Y : ndarray, shape (n, C)
    w : ndarray, shape (n,)
        Weights that sum to one.
    """
    began = clock()
    C = Y.shape[1]
    mean_x, mean_y = (w @ X, w @ Y) if fit_intercept else (np.zeros(X.shape[1]), np.zeros(C))
    root = np.sqrt(w)[:, None]
    X, Y = root * (X - mean_x), root * (Y - mean_y)
    spread = X * np.sqrt(filters.multiplicity[:, 0])
    gram = spread @ spread.T if len(X) <= X.shape[1] else spread.T @ spread
    largest = float(eigh(gram, eigvals_only=True, subset_by_index=(len(gram) - 1, len(gram) - 1))[0])
    size = float(np.linalg.norm(spread))
    step = 1.0 / max(largest + 1e-9 * size**2, np.finfo(float).tiny)
    # inner products of n terms, and an SVD, are right up to this
    rounding = 8 * (len(X) + 64) * float(np.finfo(float).eps) * size

    def bound(R: FloatArray) -> ByFormula:
        if fit_intercept:  # a free intercept asks for multipliers without mean
            R = R - root * (root[:, 0] @ R)
        along, square = float((R * Y).sum()), float((R**2).sum())
        norm, off = filters.dual_norm(filters.adjoint(X.T @ R)), rounding * float(np.sqrt(square))
        attained, G = max(0.0, norm - off), norm + off
        if square == 0.0:
            return ByFormula(0.0, attained, G)
        c = min(max(along / square, 0.0), beta / G if G > 0 else np.inf)
        terms = (c * along, -0.5 * c**2 * square)
        value = sum(terms) - 32 * float(np.finfo(float).eps) * sum(map(abs, terms))
        return ByFormula(value, attained, G)

    Z = np.zeros_like(filters.adjoint(np.zeros((X.shape[1], C))))
    ahead, F, F_ahead = Z, np.zeros_like(Y), np.zeros_like(Y)
    momentum, value = 1.0, 0.5 * float((Y**2).sum())
    proving, best = Z, bound(Y)
    status: str = Status.MAX_ITER
    k, reported = 0, -np.inf
    with watching(time_limit) as watch:
        while k < max_iter and value - best.value > tol * value:
            elapsed = clock() - began
            if watch.late():
                status = watch.status
                break
            k += 1
            new, cost = filters.shrink(ahead + step * filters.adjoint(X.T @ (Y - F_ahead)), step * beta)
            F_new = X @ filters.coef(new)
            new_value = 0.5 * float(((Y - F_new) ** 2).sum()) + beta * cost
            if new_value > value and momentum > 1.0:
                ahead, F_ahead, momentum = Z, F, 1.0
                continue
            faster = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            push = (momentum - 1.0) / faster
            ahead, F_ahead = new + push * (new - Z), F_new + push * (F_new - F)
            still = np.linalg.norm(new - Z) <= 4 * np.finfo(float).eps * np.linalg.norm(new)
            Z, F, value, momentum = new, F_new, new_value, faster
            if k % _EVERY == 0 or still:
                found = bound(Y - F)
                if found.value > best.value:
                    proving, best = Z, found
                if verbose and elapsed - reported > _REPORT:
                    reported, gap = elapsed, relative_gap(value, best.value)
                    note(f"{elapsed:8.2f} s  {k:6d} steps  objective {value:.8g}  gap {gap:.1e}", closed(gap, tol))
            if still:
                status = Status.STALLED
                break
        else:
            status = Status.CONVERGED if value - best.value <= tol * value else status
    if k % _EVERY and status != Status.CONVERGED:  # the last steps deserve a bound too
        found = bound(Y - F)
        if found.value > best.value:
            proving, best = Z, found

    def intercept(Z: FloatArray) -> FloatArray:
        return np.asarray(mean_y - mean_x @ filters.coef(Z))

    return Fit(Z, intercept(Z), (proving, intercept(proving)), best, k, status)
