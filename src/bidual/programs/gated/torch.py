"""The products of :mod:`bidual.programs.gated.products` on torch tensors: on a GPU, or on the processor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from bidual._util.typing import Array
from bidual.programs.gated.products import Products

#: Entries of the largest temporary tensor.
BLOCK = 2**24


class TorchProducts:
    """Products with rows on a device; arrays go in and come out.

    Parameters
    ----------
    M : ndarray, shape (n, p)
    bits : ndarray of uint8, shape (n, Q)
    n_gates : int
    device : str
    """

    def __init__(self, M: Array, bits: Array, n_gates: int, device: str) -> None:
        self.n_gates, self.device = n_gates, device
        # Apple's devices have no double precision: what needs it stays on the processor
        double_on_host = M.dtype == np.float64 and device.startswith("mps")
        self.device = "cpu" if double_on_host else device
        self.M = torch.from_numpy(np.ascontiguousarray(M)).to(self.device)
        self.bits = torch.from_numpy(np.ascontiguousarray(bits)).to(self.device)
        self._weights = torch.arange(8, dtype=torch.uint8, device=self.device)

    def outputs(self, W: Array) -> Array:
        """``sum_i D_i M W_i``."""
        P, p, C = W.shape
        flat = self._tensor(W).reshape(P, p * C)
        parts = [
            torch.bmm(self.M[rows, None, :], (self._gates(rows) @ flat).reshape(-1, p, C))[:, 0]
            for rows in self._pieces(p * C)
        ]
        return np.asarray(torch.cat(parts).cpu().numpy())

    def correlations(self, V: Array) -> Array:
        """``M^T D_i V``."""
        p, C = self.M.shape[1], V.shape[1]
        values = self._tensor(V)
        G = torch.zeros((self.n_gates, p * C), dtype=self.M.dtype, device=self.device)
        for rows in self._pieces(p * C):
            weighted = (self.M[rows, :, None] * values[rows, None, :]).reshape(-1, p * C)
            G += self._gates(rows).T @ weighted
        return np.asarray(G.reshape(self.n_gates, p, C).cpu().numpy())

    def _tensor(self, values: Array) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(device=self.device, dtype=self.M.dtype)

    def _gates(self, rows: slice) -> torch.Tensor:
        bits = torch.bitwise_right_shift(self.bits[rows][:, :, None], self._weights) & 1
        return bits.reshape(len(bits), -1)[:, : self.n_gates].to(self.M.dtype)

    def _pieces(self, width: int) -> list[slice]:
        step = max(1, BLOCK // max(width, self.n_gates))
        return [slice(i, i + step) for i in range(0, max(len(self.M), 1), step)]


@dataclass(frozen=True)
class TorchBackend:
    """Makes :class:`TorchProducts` on one device."""

    device: str = "cpu"

    def __post_init__(self) -> None:
        try:
            torch.zeros(1, device=self.device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            raise ValueError(f"torch cannot use device={self.device!r}: {error}") from error

    def __call__(self, M: Array, bits: Array, n_gates: int, n_outputs: int) -> Products:
        """Products of rows."""
        return TorchProducts(M, bits, n_gates, self.device)

    few = __call__
