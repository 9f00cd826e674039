r"""The dual constraint over activation patterns.

On the cone of pattern i, :math:`v^T A (Mu)_+ = c^T u` with :math:`c = M^T D_i A^T v`. Its maximum over the cone and
the unit ball is bounded, for every :math:`\lambda \ge 0`, by

.. math:: \| c + M^T (2 D_i - I) \lambda \|,

and equals it for the best :math:`\lambda` (003 Lemma 4). A bound is always evaluated from explicit
multipliers, never taken from a solver; with m unit normals in r dimensions as multiplied, it is off by
:math:`\gamma_{m + r + 8} (\|c\| + \sum_k \lambda_k)`, large where cones are so narrow that the multipliers are.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from bidual._util.cores import over_pieces
from bidual._util.registry import ByKind
from bidual._util.rounding import gamma, spectral_norm, stretch
from bidual._util.typing import FloatArray, IntArray
from bidual._util.watch import checkpoint, current
from bidual.arrangements import Patterns
from bidual.arrangements.cones import cone_multipliers
from bidual.atoms import Atoms
from bidual.bounds.dual import Bound, lower_bound
from bidual.bounds.proof import Proof, proof_by
from bidual.problem import Problem

#: Beyond this many patterns a compiled loop pays for loading it.
MANY = 150
#: Blocks that a thread takes at a time.
_PIECE = 512


class ConeBounds:
    r"""Upper bounds of :math:`s\, v_c^T A (Mu)_+` over the unit ball in each cone, for both signs s and all outputs c.

    They start as the norms of the gradients and are tightened where it matters.

    Parameters
    ----------
    problem : Problem
    patterns : Cells
        Of its atoms.

    Attributes
    ----------
    values : ndarray, shape (2, C, P)
        The bounds at the dual point last given to :meth:`start`.
    """

    #: The bounds of each kind of neurons.
    registry: ClassVar[ByKind[type[ConeBounds]]] = ByKind()
    #: The kind of neurons whose constraint is bounded; a subclass that names one stands for it.
    kind: ClassVar[type[Atoms]]
    values: FloatArray

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            ConeBounds.registry.add(cls.kind, cls)

    def __init__(self, problem: Problem, patterns: Any) -> None:
        self.problem = problem
        self.patterns = patterns
        self._rows = problem.atoms.reduced

    def start(self, V: FloatArray, known: FloatArray | None = None) -> None:
        """Bounds at the dual point ``V (n, C)``, taking those ``known`` already, ``(2, C, P)``, into account."""
        gradients = self._pattern_gradients(V)
        self._gradients = np.stack([gradients, -gradients])  # (2, C, P, r)
        self.values = np.linalg.norm(self._gradients, axis=-1)
        if known is not None:
            self.values = np.minimum(self.values, known)
        self._exact = np.zeros(self.values.shape, dtype=bool)

    def leave_out(self, sign: int) -> None:
        """Of the blocks, one sign (0: plus, 1: minus) is of no interest at this dual point."""
        self.values[sign], self._exact[sign] = 0.0, True

    @property
    def gradients(self) -> FloatArray:
        """The gradients of all blocks, ``(2 C P, r)``."""
        return self._gradients.reshape(-1, self._gradients.shape[-1])

    def maximum(self) -> float:
        """The largest value, exact: tightens the largest bound until it is attained."""
        attained = 0.0
        while self.values.size:
            block = np.unravel_index(int(np.argmax(self.values)), self.values.shape)
            if self._exact[block] or self.values[block] <= attained:
                break
            checkpoint()
            attained = max(attained, self._solve(block))
        return attained

    def attained_by(self, patterns: IntArray) -> float:
        """The largest value, exact, on some of the patterns, for the first output and the sign plus."""
        return max((self._solve((np.intp(0), np.intp(0), i)) for i in patterns), default=0.0)

    def tighten(self, threshold: float, sweeps: int = 200) -> None:
        """Improve all bounds above ``threshold``, until they are below it or converged."""
        from bidual.bounds._kernels import tighten_cones

        sign, c, pattern = np.nonzero((self.values > threshold) & ~self._exact)
        indptr, normals = self._normals
        bounds, gradients = self.values[sign, c, pattern], self._gradients[sign, c, pattern]

        watch = current()

        def work(start: int, stop: int) -> None:
            watch.check()
            tighten_cones(gradients, pattern, indptr, normals, threshold, sweeps, bounds, start, stop)

        over_pieces(work, len(bounds), _PIECE)
        self.values[sign, c, pattern] = bounds

    def lower_bound(self, V: FloatArray, known: FloatArray | None = None) -> Bound:
        """Lower bound from ``V``: over all networks if the patterns are complete, else over those that are solved for.

        With several outputs these are networks on the patterns each of whose neurons feeds one output (scope
        "separate"; for those that feed all of them see :mod:`bidual.bounds.oracle.shared`); over complete patterns the
        bound is then the (weaker) spectral one, because neurons may feed all outputs at once.
        """
        if self._separate or self.problem.n_outputs == 1:
            return self.own(V, known)
        return lower_bound(self.problem, V, *self.joint(V), self.proof())

    @property
    def _separate(self) -> bool:
        """Whether the program of the patterns, in which a neuron feeds one output, is what is claimed to be solved."""
        return not self.patterns.complete

    def own(self, V: FloatArray, known: FloatArray | None = None) -> Bound:
        """Lower bound on the program of these patterns, in which a neuron feeds one output: what solving it goes by."""
        self.start(V, known)
        if len(self.patterns) > MANY:
            self.tighten(self.problem.beta)
        return self._bound(V, self.maximum())

    def proven(self, own: Bound) -> Bound:
        """A bound on the program of these patterns as one on all networks of the scope."""
        return own if own.proven else self.lower_bound(own.V)

    def _bound(self, V: FloatArray, value: float) -> Bound:
        limit = self._upper(value, V)
        claimed = self._separate or self.problem.n_outputs == 1
        return lower_bound(self.problem, V, value, limit, self.proof() if claimed else None)

    def proof(self) -> Proof | None:
        """Why values are bounds; None where the last ones are not beyond doubt."""
        if not self.patterns.complete:
            return proof_by("sampled", self.patterns)
        return proof_by("patterns" if self.problem.n_outputs == 1 else "spectral", self.patterns)

    def joint(self, V: FloatArray) -> tuple[float, float]:
        r"""Several outputs: value and upper bound of :math:`\max_i \|V^T A D_i M\|_2`, cones ignored."""
        return spectral_bound(self.problem, self.patterns, V)

    def _pattern_gradients(self, V: FloatArray) -> FloatArray:
        """Gradients of the constraint on each pattern, ``(C, P, r)``."""
        return pattern_gradients(self.problem, self.patterns, V)

    def _upper(self, value: float, V: FloatArray) -> float:
        """The largest value, with what rounding may hide from it."""
        return self.certain(value, self.hidden(V))

    def hidden(self, V: FloatArray) -> FloatArray | float:
        """What rounding may hide from the values at ``V``: of all of them, or of those on each pattern."""
        return slack(self.problem, self.patterns, V)

    def certain(self, value: float, hidden: FloatArray | float) -> float:
        """A bound beyond doubt on the largest of the values, which is ``value``."""
        return value + float(np.max(hidden, initial=0.0))

    def pieces(self, V: FloatArray) -> FloatArray:
        """The constraint at ``V`` on each pattern as a matrix: ``V^T phi = B_i z``, ``(P, C, r)``."""
        return self._pattern_gradients(V).swapaxes(0, 1)

    def cone(self, pattern: int) -> FloatArray:
        """Unit normals of the cone of z on a pattern, all rows."""
        return np.where(self.patterns.active[pattern], 1.0, -1.0)[:, None] * self._units

    def direction(self, pattern: int, z: FloatArray) -> FloatArray:
        """The direction of a neuron, in the reduced coordinates of its kind, that has these z on a pattern."""
        return z

    @cached_property
    def _units(self) -> FloatArray:
        sizes = np.linalg.norm(self._rows, axis=1, keepdims=True)
        return self._rows / np.where(sizes > 0, sizes, 1.0)

    @cached_property
    def _normals(self) -> tuple[IntArray, FloatArray]:
        """Inward unit normals of all cones, in compressed form."""
        P = len(self.patterns)
        if self.patterns.cone_rows is None:
            N = self.patterns.active.shape[1]
            indptr, row = np.arange(0, N * P + 1, N), np.tile(np.arange(N), P)
        else:
            indptr, row = self.patterns.cone_rows
        pattern = np.repeat(np.arange(P), np.diff(indptr))
        normals = np.where(self.patterns.active[pattern, row], 1.0, -1.0)[:, None] * self._rows[row]
        lengths = np.linalg.norm(normals, axis=1, keepdims=True)
        return indptr, normals / np.where(lengths > 0, lengths, 1.0)

    def _solve(self, block: tuple[np.intp, ...]) -> float:
        """The exact value of one block."""
        if not self._exact[block]:
            pattern = int(block[-1])
            indptr, normals = self._normals
            cone = normals[indptr[pattern] : indptr[pattern + 1]]
            self.values[block] = min(self.values[block], _cone_maximum(self._gradients[block], cone))
            self._exact[block] = True
        return float(self.values[block])


ConeBounds.registry.add(Atoms, ConeBounds)


def pattern_bound(problem: Problem, patterns: Patterns, V: FloatArray) -> tuple[float, float]:
    r"""Value and upper bound of :math:`\max |v_c^T A (Mu)_+|` over the cones of ``patterns`` and all outputs c."""
    bounds = ConeBounds(problem, patterns)
    bounds.start(V)
    value = bounds.maximum()
    return value, value + slack(problem, patterns, V)


def certify_patterns(problem: Problem, patterns: Patterns, V: FloatArray) -> Bound:
    """Lower bound from the dual point ``V`` over ``patterns``; see :meth:`ConeBounds.lower_bound`."""
    return ConeBounds(problem, patterns).lower_bound(V)


def spectral_bound(problem: Problem, patterns: Patterns, V: FloatArray) -> tuple[float, float]:
    r"""Upper bound of :math:`\max \|V^T A (Mu)_+\|` by spectral norms of :math:`V^T A D_i M`, ignoring the cones."""
    gradients = pattern_gradients(problem, patterns, V)
    worst = spectral_norm(gradients.swapaxes(0, 1))
    return worst, worst + slack(problem, patterns, V)


def gate_bound(problem: Problem, patterns: Patterns, V: FloatArray) -> float:
    r"""Upper bound of :math:`\max_i \|M^T D_i A^T V\|_F`, the constraint of a gated network."""
    norms = np.sqrt((pattern_gradients(problem, patterns, V) ** 2).sum(axis=(0, 2)))
    return float(norms.max(initial=0.0)) + slack(problem, patterns, V)


def pattern_gradients(problem: Problem, patterns: Patterns, V: FloatArray) -> FloatArray:
    r""":math:`M^T D_i A^T v_c` for all outputs and patterns, ``(C, P, r)``; a few thousand patterns at a time."""
    spread, rows = problem.atoms.spread(V), problem.atoms.reduced
    C, r = V.shape[1], rows.shape[1]
    weighted = (spread.T[:, :, None] * rows).transpose(1, 0, 2).reshape(len(rows), C * r)
    chunks = [
        patterns.active[start : start + 4096].astype(np.float64) @ weighted for start in range(0, len(patterns), 4096)
    ]
    stacked = np.concatenate(chunks) if chunks else np.zeros((0, C * r))
    return np.ascontiguousarray(stacked.reshape(len(patterns), C, r).swapaxes(0, 1))


def _cone_maximum(c: FloatArray, normals: FloatArray) -> float:
    r"""Upper bound, tight to rounding, of :math:`\max c^T u` over :math:`\|u\| \le 1`, ``normals @ u >= 0``."""
    scale = float(np.linalg.norm(c))
    if scale == 0.0 or not len(normals):
        return scale
    found = cone_multipliers(c / scale, normals)
    # the bound without multipliers still holds
    return cone_value(c, normals, np.zeros(len(normals)) if found is None else scale * found)


def cone_value(c: FloatArray, normals: FloatArray, multipliers: FloatArray) -> float:
    r""":math:`\|c + \sum_k \lambda_k n_k\|`, not rounded down; or, if that is less, :math:`\|c\|`."""
    m, r = normals.shape
    size, few = float(np.linalg.norm(c)), gamma(m + r + 8)
    value = float(np.linalg.norm(c + normals.T @ multipliers)) + few * float(multipliers.sum())
    return min(size, value) + few * size


def slack(problem: Problem, patterns: Patterns, V: FloatArray) -> float:
    r"""What rounding, the reduction to the row space and merged hyperplanes may hide from a bound.

    As for :meth:`bidual.bounds.oracle.base.DualConstraint.at`, for the coordinates of ``problem.atoms.basis``; the
    gradients sum up N rows, and their norms r squares. Rows within the angle ``tol`` of each other are one to the
    enumeration, at each of its levels. (That it misses no cell but for such rows, and for directions at which a few
    rows vanish up to rounding, rests on the enumeration; cones pay for the latter in :func:`cone_value`.)
    """
    p, rank = problem.atoms.basis.shape
    reduced = problem.atoms.reduced is not problem.atoms.M
    lost, more = np.zeros(len(problem.atoms.M)), 0.0
    if reduced:
        lost = np.linalg.norm(problem.atoms.M - problem.atoms.reduced @ problem.atoms.basis.T, axis=1)
        more = gamma((rank + 2) * (3 + np.sqrt(rank))) + stretch(problem.atoms.basis) - 1.0
    weight = problem.atoms.loads(V)
    relative = (rank + 1) * patterns.tol + more + gamma(len(V) + 2 * len(problem.atoms.M) + 2 * p + rank + 16)
    hidden = float(weight @ (lost + relative * problem.atoms.row_norms))
    return hidden * (1.0 + gamma(len(problem.atoms.M) + p + 4)) + problem.atoms.vanished(V)
