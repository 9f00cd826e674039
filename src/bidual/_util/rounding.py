r"""What floating point does to sums, norms and factorisations: bounds that are proven, not guessed.

With the unit roundoff :math:`u = 2^{-53}` and :math:`\gamma_k = k u / (1 - k u)`, every order of summation (fused or
not) gives :math:`|fl(x^T y) - x^T y| \le \gamma_n |x|^T |y|`, and :math:`\gamma_j + \gamma_k \le \gamma_{j+k}`. If the
Cholesky factorisation of a symmetric A runs to its end, then
:math:`\lambda_{\min}(A) \ge -\gamma_{n+1} (1 - \gamma_{n+1})^{-1} \mathrm{tr}(A)` (Rump, BIT 46, 2006). Data are in
natural units (:mod:`bidual.training.units`): what underflow hides from them is covered by an absolute ``VANISHED``.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dsymv
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from bidual._util.sparse import is_sparse, lengths
from bidual._util.tuning import tuning
from bidual._util.typing import FloatArray

#: Unit roundoff of double precision.
UNIT = 2.0**-53
#: Smallest normal number: more than 2^50 products that underflow, together.
TINY = float(np.finfo(float).tiny)
#: Norms of numbers below 1e-154 vanish, as their squares do: more than 10^12 of them together.
VANISHED = 1e-140
#: Size from which not all eigenvalues are computed for the largest one, and its relative accuracy then.
LARGE, CLOSE = 500, 1e-7


def gamma(k: float) -> float:
    r""":math:`\gamma_k`, itself not rounded down."""
    if k * UNIT >= 0.5:
        return np.inf
    return (k + 1) * UNIT / (1.0 - (k + 1) * UNIT)


def cholesky_error(A: FloatArray) -> float:
    r"""How negative an eigenvalue of ``A (..., n, n)``, rounded on its diagonal, may be if its Cholesky factors exist.

    Rump's bound, with one more unit of the trace for a diagonal that was rounded once.
    """
    g = gamma(A.shape[-1] + 2)
    return g / (1.0 - g) * float(np.trace(A, axis1=-2, axis2=-1).max(initial=0.0)) * (1.0 + g) + TINY


def largest_eigenvalue(S: FloatArray) -> float:
    r"""An upper bound on the largest eigenvalue of the symmetric matrices ``S (..., n, n)``, given by lower triangles.

    For a guess t the Cholesky factors of :math:`t I - S` prove :math:`\lambda_{\max}(S) \le t` up to
    :func:`cholesky_error`; without them Frobenius' norm is the bound.
    """
    n = S.shape[-1]
    if not S.size:
        return 0.0
    if not np.isfinite(S).all():
        return np.inf
    diagonal = np.arange(n)
    try:
        guess = _guess(S)
        step = 4 * gamma(n + 4) * float(np.abs(S[..., diagonal, diagonal]).sum(axis=-1).max()) + TINY
        for t in guess + step * np.array([1.0, 10.0, 100.0]):
            A = -S
            A[..., diagonal, diagonal] += t
            try:
                np.linalg.cholesky(A)
            except np.linalg.LinAlgError:
                continue
            return float(t + cholesky_error(A))
    except np.linalg.LinAlgError:  # no guess
        pass
    lower = np.tril(S)
    return float(np.sqrt(2.0 * (lower**2).sum(axis=(-2, -1)).max())) * (1.0 + gamma(n * n + 2)) + TINY


def _guess(S: FloatArray) -> float:
    """About the largest eigenvalue, and hardly less: of a large matrix by Lanczos' method, in a tenth of the time."""
    if S.ndim == 2 and len(S) > LARGE:
        product = LinearOperator(S.shape, matvec=lambda v: dsymv(1.0, S.T, v, lower=0), dtype=np.float64)
        try:
            values = eigsh(product, 1, which="LA", v0=np.ones(len(S)), tol=CLOSE, return_eigenvectors=False)
            return float(values[0]) + CLOSE * abs(float(values[0]))
        except ArpackError:
            pass
    return float(np.linalg.eigvalsh(S)[..., -1].max())


def spectral_norm(B: FloatArray) -> float:
    r"""An upper bound on the largest singular value of the matrices ``B (..., m, n)``.

    From the Gram matrix of the shorter side, whose rounding is at most :math:`\gamma_k \|B\|_F^2`, k being the longer
    side, in the spectral norm.
    """
    if not B.any():
        return 0.0
    T = np.swapaxes(B, -1, -2)
    return _norm_of_gram(T @ B if B.shape[-2] >= B.shape[-1] else B @ T, max(B.shape[-2:]))


def scaled_norm(M: FloatArray, d: FloatArray) -> float:
    r"""An upper bound on :math:`\|D M\|_2` of the rows of ``M (n, p)`` times those of ``d (n, 1)``.

    As :func:`spectral_norm`, some rows at a time; by Frobenius' norm where the Gram matrix would take too long, and of
    sparse rows.
    """
    n, p = M.shape
    if is_sparse(M) or max(n, p) * min(n, p) ** 2 > tuning().long_gram:
        square = float(((d[:, 0] * lengths(M)) ** 2).sum())
        return float(np.sqrt(square)) * (1.0 + gamma(n + p + 8)) + np.sqrt(TINY)
    if n <= p:
        return spectral_norm(d * M)
    gram: FloatArray = np.zeros((p, p))
    step = tuning().gram_rows
    for i in range(0, n, step):
        rows = d[i : i + step] * M[i : i + step]
        gram += rows.T @ rows
    return _norm_of_gram(gram, n)


def _norm_of_gram(gram: FloatArray, longer: int) -> float:
    """The norm of matrices with these Gram matrices, of so many rows (or columns, whichever are more)."""
    trace = float(np.trace(gram, axis1=-2, axis2=-1).max())
    square = largest_eigenvalue(gram) + gamma(2 * longer + 4) * trace + TINY
    return float(np.sqrt(max(square, 0.0)) * (1.0 + 4 * UNIT))


def stretch(basis: FloatArray) -> float:
    r"""An upper bound on :math:`\|B\|_2` of a nearly orthonormal basis ``B (p, r)``: :math:`1 + \|B^T B - I\|`."""
    p, r = basis.shape
    defect = float(np.linalg.norm(basis.T @ basis - np.eye(r)))
    return 1.0 + defect * (1.0 + gamma(r * r + 4)) + gamma(2 * (p + 2)) * (r + 1)
