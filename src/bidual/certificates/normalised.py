r"""The dual constraint of neurons that are normalised after the ReLU (000 Theorem 6.1).

On pattern i with centring P, :math:`(I - 1 w^T) D_i X q = k B_i s` with
:math:`B_i^T \mathrm{diag}(w) B_i = I` and :math:`s = \Sigma_i V_i^T q`, from the SVD
:math:`\mathrm{diag}(\sqrt w)(I - 1 w^T) D_i X / k = Q_i \Sigma_i V_i^T`. A neuron :math:`k (B_i s + a 1)` costs
:math:`\|(s, a)\|`, and the constraint is that of an ordinary neuron with the white features :math:`k [B_i, 1]`.

Directions t in the null space of :math:`(I - 1 w^T) D_i X` cost nothing but help to stay in the cone
:math:`(2 D_i - I) X (V_i \Sigma_i^{-1} s + N_i t) \ge 0`. (The program printed in 000 eq. 20 has t = 0, which excludes,
for example, the neuron of its Theorem 6.2.)
"""

from __future__ import annotations

from functools import cached_property

import clarabel
import numpy as np
import scipy.sparse as sp

from bidual._memory import require_memory
from bidual._typing import BoolArray, FloatArray, IntArray
from bidual.arrangements import Patterns
from bidual.certificates.patterns import ConeBounds
from bidual.certificates.proof import Proof
from bidual.exact_rank import exact_rank
from bidual.problem import NormalisedProblem, Problem

#: Singular values this small, relative to the inputs of the ReLU, are zero.
NULL = 1e-11


class WhiteBlocks:
    r"""White coordinates of the patterns: each block has coordinates (s, t, a), padded to r + 1.

    Parameters
    ----------
    problem : NormalisedProblem
    patterns : Patterns
        Of ``problem.relu_inputs``.

    Attributes
    ----------
    plain : Problem
        The problem without the normalisation, whose reduced coordinates are those of q.
    B : ndarray, shape (P, n, r)
        The :math:`B_i`, zero in the coordinates t.
    E : ndarray, shape (P, r, r)
        From (s, t) to q: columns :math:`V_i \Sigma_i^{-1}` and :math:`N_i`.
    charged : ndarray of bool, shape (P, r + 1)
        Which coordinates cost: s and a.
    smallest : ndarray, shape (P,)
        The smallest singular value that is not zero.
    """

    def __init__(self, problem: NormalisedProblem, patterns: Patterns) -> None:
        self.problem, self.patterns = problem, patterns
        self.plain = Problem(
            problem.relu_inputs, None, problem.Y, problem.w, problem.loss, problem.beta, problem.fit_intercept
        )
        self.k = float(problem.M[0, -1])
        rows, root = self.plain.reduced, np.sqrt(problem.w)[:, None]
        require_memory(
            40.0 * len(patterns) * rows.size,  # five arrays of this size at a time
            f"batch normalisation after the ReLU on {len(patterns):,} activation patterns of {len(rows):,} rows",
            "Use a smaller n_patterns, method='adaptive', or fewer rows or columns",
        )
        T = patterns.active[:, :, None] * rows
        T = root * (T - np.einsum("n,pnk->pk", problem.w, T)[:, None, :]) / self.k
        Q, sigma, Vt = np.linalg.svd(T, full_matrices=False)
        live = sigma > NULL * np.linalg.norm(root * rows / self.k)
        self.B = np.where(live[:, None, :], Q / root, 0.0)
        self.E = Vt.swapaxes(1, 2) / np.where(live, sigma, 1.0)[:, None, :]
        self.charged = np.column_stack([live, np.ones(len(live), dtype=bool)])
        self.smallest = np.where(live, sigma, np.inf).min(axis=1)

    @cached_property
    def complete(self) -> bool:
        """Whether no direction of any pattern is hidden by rounding: normalised, it would be like any other."""
        X, r = self.problem.relu_inputs, self.charged[:, :-1].sum(axis=1)
        for active, rank in zip(self.patterns.active, r, strict=True):
            if rank == min(active.sum() - active.all(), X.shape[1]):
                continue
            # active rows can be made constant only if there are no others
            rows = np.column_stack([X, np.ones(len(X))]) if active.all() else X[active]
            if exact_rank(rows) - active.all() != rank:
                return False
        return True

    def normals(self, pattern: IntArray, row: IntArray) -> FloatArray:
        """Inward unit normals of the cones in the coordinates (s, t), for pairs of a pattern and a row."""
        sign = np.where(self.patterns.active[pattern, row], 1.0, -1.0)[:, None]
        normals = sign * np.einsum("bk,bkj->bj", self.plain.reduced[row], self.E[pattern])
        # Active rows do not see t.
        normals[np.abs(normals) <= NULL * np.linalg.norm(normals, axis=1, keepdims=True)] = 0.0
        lengths = np.linalg.norm(normals, axis=1, keepdims=True)
        return normals / np.where(lengths > 0, lengths, 1.0)


class NormalisedBounds(ConeBounds):
    """Bounds of the constraint over the cones, as for ordinary neurons but in the coordinates (s, a) of each pattern.

    Rows that see t take part only when a value is computed exactly: their multipliers must leave t free, which takes
    care to prove in floating point (:func:`polar_distance`).
    """

    def __init__(self, problem: NormalisedProblem, patterns: Patterns, blocks: WhiteBlocks | None = None) -> None:
        super().__init__(problem, patterns)
        self.blocks = WhiteBlocks(problem, patterns) if blocks is None else blocks

    def start(self, V: FloatArray, known: FloatArray | None = None) -> None:
        """See :meth:`ConeBounds.start`."""
        super().start(V, known)
        self._proven = np.where(self._exact, 0.0, np.linalg.norm(self._gradients, axis=-1))

    def tighten(self, threshold: float, sweeps: int = 200) -> None:
        """See :meth:`ConeBounds.tighten`."""
        super().tighten(threshold, sweeps)
        self._proven = np.minimum(self._proven, self.values)

    def proof(self) -> Proof | None:
        """See :meth:`ConeBounds.proof`: only if the multipliers are beyond doubt."""
        if self._proven.max(initial=0.0) > self._limit or not self.blocks.complete:
            return None
        from bidual.certificates.stored import NormalisedProof, SampledProof

        return (NormalisedProof if self.patterns.complete else SampledProof)(self.patterns)

    def _pattern_gradients(self, V: FloatArray) -> FloatArray:
        blocks = self.blocks
        s = np.einsum("pnk,n->pk", blocks.B, V[:, 0])
        return blocks.k * np.column_stack([s, np.full(len(s), V.sum())])[None]

    def _upper(self, value: float, V: FloatArray) -> float:
        r"""With rounding, and rows that the enumeration took for parallel: :math:`\|q\| \le \|s\| / \sigma_{\min}`."""
        blocks, w = self.blocks, self.problem.w
        size = float(np.sqrt((V[:, 0] ** 2 / w).sum()))
        r = blocks.B.shape[2]
        rms = float(np.sqrt(w @ (blocks.plain.row_norms**2)))
        relative = (r + 1) * self.patterns.tol + 4 * (r + 4) * np.finfo(float).eps
        hidden = size * (relative * rms / blocks.smallest + 16 * (r + 4) * np.finfo(float).eps * blocks.k)
        self._limit = float((self.values + hidden).max(initial=value))
        return self._limit

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
