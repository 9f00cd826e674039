r"""The dual constraint of neurons that are normalised after the ReLU (000 Theorem 6.1).

It is that of an ordinary neuron with the white features of :mod:`bidual.atoms.white_blocks`, in its coordinates
(s, t, a).
"""

from __future__ import annotations

from functools import cached_property

import clarabel
import numpy as np
import scipy.sparse as sp

from bidual._util.rounding import spectral_norm
from bidual._util.typing import BoolArray, FloatArray, IntArray
from bidual.arrangements import Patterns
from bidual.atoms import Normalised
from bidual.bounds.patterns import ConeBounds
from bidual.bounds.proof import Proof, proof_by
from bidual.problem import Problem

#: Coordinates t that are free cost next to nothing in a projection that needs a price on everything.
FREE = 1e4


class NormalisedBounds(ConeBounds):
    """Bounds of the constraint over the cones, as for ordinary neurons but in the coordinates (s, a) of each pattern.

    Rows that see t take part only when a value is computed exactly: their multipliers must leave t free, which takes
    care to prove in floating point (:func:`polar_distance`).
    """

    kind = Normalised

    def __init__(self, problem: Problem[Normalised], patterns: Patterns) -> None:
        super().__init__(problem, patterns)
        self.blocks = problem.atoms.blocks(patterns)

    def start(self, V: FloatArray, known: FloatArray | None = None) -> None:
        """See :meth:`ConeBounds.start`."""
        super().start(V, known)
        self._proven = np.where(self._exact, 0.0, np.linalg.norm(self._gradients, axis=-1))

    def leave_out(self, sign: int) -> None:
        """See :meth:`ConeBounds.leave_out`."""
        super().leave_out(sign)
        self._proven[sign] = 0.0

    def tighten(self, threshold: float, sweeps: int = 200) -> None:
        """See :meth:`ConeBounds.tighten`."""
        super().tighten(threshold, sweeps)
        self._proven = np.minimum(self._proven, self.values)

    def proof(self) -> Proof | None:
        """See :meth:`ConeBounds.proof`: only if the multipliers are beyond doubt."""
        if self._proven.max(initial=0.0) > self._limit or not self.blocks.complete:
            return None
        if not self.patterns.complete:
            return proof_by("sampled", self.patterns)
        C = self.problem.n_outputs
        if C > 1:  # spectral norms, which any cover is no worse than
            return proof_by("shared", np.eye(C), [], None, self.patterns)
        return proof_by("normalised", self.patterns)

    def _pattern_gradients(self, V: FloatArray) -> FloatArray:
        blocks = self.blocks
        P, n, r = blocks.B.shape
        s = (blocks.B.swapaxes(1, 2).reshape(P * r, n) @ V).reshape(P, r, -1).transpose(2, 0, 1)
        shift = np.broadcast_to(V.sum(axis=0)[:, None, None], (V.shape[1], P, 1))
        return blocks.k * np.concatenate([s, shift], axis=2)

    def hidden(self, V: FloatArray) -> FloatArray:
        r"""Rounding, and rows that the enumeration took for parallel: :math:`\|q\| \le \|s\| / \sigma_{\min}`."""
        blocks, w = self.blocks, self.problem.w
        size = float(np.sqrt((V**2 / w[:, None]).sum()))
        r = blocks.B.shape[2]
        rms = float(np.sqrt(w @ (blocks.plain.row_norms**2)))
        relative = (r + 1) * self.patterns.tol + 4 * (r + 4) * np.finfo(float).eps
        return size * (relative * rms / blocks.smallest + 16 * (r + 4) * np.finfo(float).eps * blocks.k)

    def certain(self, value: float, hidden: FloatArray | float) -> float:
        """See :meth:`ConeBounds.certain`: by multipliers that are beyond doubt, of patterns that are."""
        return float((self._proven + hidden).max(initial=value)) if self.blocks.complete else np.inf

    def _upper(self, value: float, V: FloatArray) -> float:
        """To the accuracy of the solver; :meth:`proof` tells whether that is beyond doubt."""
        self._limit = float((self.values + self.hidden(V)).max(initial=value))
        return self._limit

    def joint(self, V: FloatArray) -> tuple[float, float]:
        """See :meth:`ConeBounds.joint`."""
        pieces = self.pieces(V)
        worst = max((spectral_norm(B) for B in pieces), default=0.0)
        limits = [spectral_norm(B) + more for B, more in zip(pieces, self.hidden(V), strict=True)]
        return worst, max(limits, default=0.0) if self.blocks.complete else np.inf

    def cone(self, pattern: int) -> FloatArray:
        """See :meth:`ConeBounds.cone`: what is free costs next to nothing, where a price is needed."""
        n = self.patterns.active.shape[1]
        normals = self.blocks.normals(np.full(n, pattern), np.arange(n)) * self._prices[pattern]
        lengths = np.linalg.norm(normals, axis=1, keepdims=True)
        return np.column_stack([normals / np.where(lengths > 0, lengths, 1.0), np.zeros(n)])

    def direction(self, pattern: int, z: FloatArray) -> FloatArray:
        """See :meth:`ConeBounds.direction`."""
        z = np.append(z[:-1] * self._prices[pattern], z[-1])
        return self.blocks.direction(pattern, z)

    @cached_property
    def _prices(self) -> FloatArray:
        return np.where(self.blocks.charged[:, :-1], 1.0, FREE)

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Pattern, row and normal of every facet."""
        P, N = self.patterns.active.shape
        if self.patterns.cone_rows is None:
            pattern, row = np.repeat(np.arange(P), N), np.tile(np.arange(N), P)
        else:
            indptr, row = self.patterns.cone_rows
            pattern = np.repeat(np.arange(P), np.diff(indptr))
        return pattern, row, self.blocks.normals(pattern, row)

    @cached_property
    def _normals(self) -> tuple[IntArray, FloatArray]:
        pattern, _, normals = self._pairs
        blind = ~((normals != 0) & ~self.blocks.charged[pattern, :-1]).any(axis=1)
        counts = np.bincount(pattern[blind], minlength=len(self.patterns))
        return np.concatenate([[0], np.cumsum(counts)]), np.column_stack([normals[blind], np.zeros(blind.sum())])

    def _solve(self, block: tuple[np.intp, ...]) -> float:
        if not self._exact[block]:
            self._proven[block] = min(self._proven[block], super()._solve(block))
            charged = self.blocks.charged[block[-1], :-1]
            if not charged.all():
                pattern, _, normals = self._pairs
                gradient, shift = self._gradients[block][:-1], self._gradients[block][-1]
                value, proven = polar_distance(gradient[charged], normals[pattern == block[-1]], charged)
                self.values[block] = min(self.values[block], float(np.hypot(value, shift)))
                self._proven[block] = min(self._proven[block], float(np.hypot(proven, shift)))
        return float(self.values[block])


def polar_distance(g: FloatArray, normals: FloatArray, charged: BoolArray) -> tuple[float, float]:
    r"""The largest :math:`g^T s` over the unit ball in the cone :math:`N_s s + N_t t \ge 0` with t free.

    It is at most :math:`\|g + N_s^T \lambda\|` for every :math:`\lambda \ge 0` with
    :math:`N_t^T \lambda = 0`. In floating point :math:`N_t^T \lambda = \rho` is not quite zero, which adds
    :math:`\rho^T t`. But rows with :math:`\lambda_i > 0` bound t in the span of theirs: for a unit vector u in it,
    :math:`\max_i -n_{t,i}^T u \ge (\lambda_{\min} \sigma_{\min} - \|\rho\|) / (2 \sum \lambda)`, the minimum and
    the smallest singular value being those of any of these rows that span the same.

    Returns
    -------
    value, proven : float
        The value to the accuracy of the solver, and a bound beyond doubt (infinite if there is none).
    """
    scale = float(np.linalg.norm(g))
    lam = _polar_multipliers(g / scale, normals, charged) if scale > 0 else None
    if lam is None:
        return scale, scale
    N_s, N_t = normals[:, charged], normals[:, ~charged]
    for _ in range(2):  # meet the equations to rounding, by changes relative to the multipliers
        lam = np.maximum(lam - lam * (N_t @ np.linalg.lstsq(N_t.T @ (lam[:, None] * N_t), N_t.T @ lam)[0]), 0.0)
    value = scale * float(np.linalg.norm(g / scale + N_s.T @ lam))
    seen = (lam > 0) & (N_t != 0).any(axis=1)
    if not seen.any():
        return value, value
    strong = seen & (lam > 1e-3 * lam[seen].max())
    sigma = np.linalg.svd(N_t[strong], compute_uv=False)
    rank = np.linalg.matrix_rank(N_t[seen], tol=1e-10)
    rho = np.linalg.norm(N_t.T @ lam) + 4 * len(lam) * np.finfo(float).eps * lam.sum()
    grip = (lam[strong].min() * sigma[rank - 1] - rho) / (2 * lam.sum()) if rank <= len(sigma) else 0.0
    return value, value + scale * rho / grip if grip > 0 else np.inf


def _polar_multipliers(g: FloatArray, normals: FloatArray, charged: BoolArray) -> FloatArray | None:
    """The multipliers of the nearest point to ``g`` in the cone, by a quadratic program; None if that fails."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    linear = np.zeros(len(charged))
    linear[charged] = -g
    solution = clarabel.DefaultSolver(
        sp.diags_array(charged.astype(np.float64), format="csc"),
        linear,
        sp.csc_array(-normals),
        np.zeros(len(normals)),
        [clarabel.NonnegativeConeT(len(normals))],
        settings,
    ).solve()
    multipliers = np.maximum(np.array(solution.z), 0.0)
    return multipliers if np.isfinite(multipliers).all() else None
