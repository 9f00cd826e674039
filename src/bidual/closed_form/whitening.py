"""Whitening of rows: what 001 Thm 4.3 asks of the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidual._typing import FloatArray

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
    def of(cls, X: FloatArray) -> Whitening:
        r"""The whitening of these rows: none if :math:`X X^T = I`, else :math:`T = V S^{-1}` of their SVD.

        Dependent rows first get a column of ones, which may make them independent.
        """
        n = len(X)
        if n <= X.shape[1] and np.abs(X @ X.T - np.eye(n)).max() <= WHITE:
            return cls(None, None, True)
        T = _inverse_factor(X)
        if T.shape[1] == n:
            return cls(T, None, True)
        T = _inverse_factor(np.column_stack([X, np.ones(n)]))
        return cls(T[:-1], T[-1], T.shape[1] == n)

    def apply(self, X: FloatArray) -> FloatArray:
        r""":math:`\tilde X`."""
        whitened = X if self.matrix is None else X @ self.matrix
        return whitened if self.bias is None else whitened + self.bias


def _inverse_factor(X: FloatArray) -> FloatArray:
    _, S, Vt = np.linalg.svd(X, full_matrices=False)
    r = int((S / S.max(initial=np.finfo(float).tiny) > max(X.shape) * np.finfo(float).eps).sum())
    return Vt[:r].T / S[:r]
