"""Neurons that a search has found, with their values in the dual constraint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidual._util.typing import Array, FloatArray


@dataclass(frozen=True)
class Candidates:
    r"""Neurons with their values :math:`a^T G^T (M u)_+`, best first.

    Attributes
    ----------
    directions : ndarray, shape (k, r)
        Unit vectors u in reduced coordinates.
    outputs : ndarray, shape (k, C)
        Unit output directions a.
    values : ndarray, shape (k,)
    """

    directions: FloatArray
    outputs: FloatArray
    values: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def none(cls, r: int, C: int) -> Candidates:
        """No candidates."""
        return cls(np.zeros((0, r)), np.zeros((0, C)), np.zeros(0))

    @property
    def best(self) -> float:
        """The largest value, zero if there is none."""
        return float(self.values[0]) if len(self) else 0.0

    def take(self, index: Array | slice) -> Candidates:
        """Only the candidates in ``index``."""
        return Candidates(self.directions[index], self.outputs[index], self.values[index])

    def joined(self, other: Candidates) -> Candidates:
        """Both, best first."""
        values = np.concatenate([self.values, other.values])
        order = np.argsort(-values, kind="stable")
        return Candidates(
            np.concatenate([self.directions, other.directions])[order],
            np.concatenate([self.outputs, other.outputs])[order],
            values[order],
        )

    def distinct(self, limit: int, cosine: float = 0.999) -> Candidates:
        """The best ``limit`` candidates of which no two are nearly the same neuron."""
        kept: list[int] = []
        fresh = np.ones(len(self), dtype=bool)
        for i in range(len(self)):
            if len(kept) == limit:
                break
            if fresh[i]:  # few are: the whole matrix of likenesses would cost more
                kept.append(i)
                fresh &= (self.directions @ self.directions[i]) * (self.outputs @ self.outputs[i]) < cosine
        return self.take(np.array(kept, dtype=np.int64))


def unit_rows(U: FloatArray) -> FloatArray:
    """Rows scaled to norm one; zero rows dropped."""
    norms = np.linalg.norm(U, axis=1)
    return U[norms > 0] / norms[norms > 0, None]
