r"""Whitening of rows: what 001 Thm 4.3 and 004 Lemma 2.4 ask of the data.

With the compact SVD :math:`X = U S V^T` both :math:`X V S^{-1} = U` and :math:`X V S^{-1} V^T = U V^T` have
:math:`\tilde X \tilde X^T = I` if the rows are independent. The second is as close to X as can be; it is what is called
zero-phase whitening (004 has the name for the first one).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidual._util.typing import FloatArray

#: Largest deviation of :math:`X X^T` from the identity that still counts as white.
WHITE = 1e-9


@dataclass(frozen=True)
class Whitening:
    r"""An affine map :math:`\tilde x = x T + t` that makes training rows white.

    Attributes
    ----------
    matrix : ndarray, shape (d, r), or None
        T; None leaves the rows as they are.
    bias : ndarray, shape (r,), or None
        t.
    exact : bool
        Whether :math:`\tilde X \tilde X^T = I`. Otherwise the rows are linearly dependent, and :math:`\tilde X` has
        singular values one and zero only.
    """

    matrix: FloatArray | None
    bias: FloatArray | None
    exact: bool

    @classmethod
    def of(cls, X: FloatArray, *, zero_phase: bool = False) -> Whitening:
        r"""The whitening of these rows: none if :math:`X X^T = I`, else :math:`T = V S^{-1}` of their SVD.

        Dependent rows first get a column of ones, which may make them independent. ``zero_phase`` turns the result back
        into the coordinates of X, :math:`T = V S^{-1} V^T`.

        Examples
        --------
        >>> import numpy as np
        >>> from bidual.closed_form.whitening import Whitening
        >>> X = np.array([[2.0, 0.0, 0.0], [1.0, 3.0, 1.0]])
        >>> white = Whitening.of(X, zero_phase=True).apply(X)
        >>> bool(np.allclose(white @ white.T, np.eye(2)))
        True
        """
        n = len(X)
        if n <= X.shape[1] and np.abs(X @ X.T - np.eye(n)).max() <= WHITE:
            return cls(None, None, True)
        T, rank = _inverse_factor(X, zero_phase)
        if rank == n:
            return cls(T, None, True)
        T, rank = _inverse_factor(np.column_stack([X, np.ones(n)]), zero_phase)
        return cls(T[:-1], T[-1], rank == n)

    def apply(self, X: FloatArray) -> FloatArray:
        r""":math:`\tilde X`."""
        whitened = X if self.matrix is None else X @ self.matrix
        return whitened if self.bias is None else whitened + self.bias


def _inverse_factor(X: FloatArray, zero_phase: bool) -> tuple[FloatArray, int]:
    _, S, Vt = np.linalg.svd(X, full_matrices=False)
    r = int((S / S.max(initial=np.finfo(float).tiny) > max(X.shape) * np.finfo(float).eps).sum())
    T = Vt[:r].T / S[:r]
    return (T @ Vt[:r] if zero_phase else T), r
