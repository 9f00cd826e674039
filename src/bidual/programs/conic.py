r"""The finite convex program on a set of activation patterns, handed to Clarabel.

For patterns :math:`D_1, \dots, D_P`, signs :math:`s = \pm 1` and outputs c, 003 eq. 8 and 39 read

.. math:: \min_{z, b} \; L\Big(\sum_{i,s,c} s\, A D_i M z_{isc} e_c^T + 1 b^T\Big) + \beta \sum_{i,s,c} \|z_{isc}\|
          \quad \text{s.t.} \quad (2 D_i - I) M z_{isc} \ge 0.

With one output this is the exact program of the papers. With several, every neuron feeds one output: a
restriction, so that its value is an upper bound for vector outputs; :mod:`bidual.programs.shared` has the others.

The blocks come from the atoms (:mod:`bidual.atoms.blocks`), whose order of coordinates the variables of a group share:
for batch normalisation after the ReLU this is 000 Theorem 6.1, for branches 002 Theorem 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import clarabel
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from bidual._util.clock import clock
from bidual._util.memory import require_memory
from bidual._util.status import Status
from bidual._util.typing import BoolArray, FloatArray
from bidual.atoms import Blocks, Neurons
from bidual.losses import ConeForm
from bidual.problem import Problem

_CONES = {
    "zero": lambda size: [clarabel.ZeroConeT(size)],
    "nonnegative": lambda size: [clarabel.NonnegativeConeT(size)],
    "exponential": lambda size: [clarabel.ExponentialConeT()] * size,
}

#: What Clarabel says when there is an iterate worth keeping.
_STATUS = {
    "Solved": Status.SOLVED,
    "AlmostSolved": Status.ROUGHLY,
    "MaxIterations": Status.MAX_ITER,
    "MaxTime": Status.TIME_LIMIT,
    "InsufficientProgress": Status.STALLED,
    "CallbackTerminated": Status.INTERRUPTED,
}

#: Where it does not say these, there may be no solution at all.
_UNDOUBTED = ("Solved", "MaxTime", "CallbackTerminated")


class ConicFailure(RuntimeError):
    """The conic solver has no answer: numbers of too many sizes."""


class InfeasibleError(ValueError):
    """No network on these patterns fits the data exactly."""


@dataclass(frozen=True)
class ConicResult:
    """Solution of the finite program.

    Attributes
    ----------
    Z : ndarray, shape (2, C, P, r)
        Weights of the blocks: sign (+, -), output, pattern, reduced coordinate.
    intercept : ndarray, shape (C,)
    V : ndarray, shape (n, C)
        Dual point: minus the gradient of the loss, from the multipliers.
    cone_multipliers : ndarray, shape (2, C, Q)
        Multipliers of the cone rows, in the order of ``Blocks.cone_pairs``.
    status : Status
    """

    Z: FloatArray
    intercept: FloatArray
    V: FloatArray
    cone_multipliers: FloatArray
    status: Status
    iterations: int


class ConicProgram(ABC):
    r"""A loss of blocks that are linear in their weights, each charged by its norm and kept in a cone.

    .. math:: \min_{z, b} \; L(K z + 1 b^T) + \beta \sum_k \|z_k\| \quad \text{s.t.} \quad G z \ge 0.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        # The solver's tolerances are absolute below one, so that it is given the objective in units of beta.
        self.unit = 1.0 / float(np.clip(problem.beta, 1e-9, 1e9))

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the weights: groups of blocks, blocks, coordinates."""

    @abstractmethod
    def fit(self) -> sp.csc_array:
        """K, ``(n C, weights)``; in every group coordinate k of block i is column ``k P + i``."""

    @abstractmethod
    def cone_rows(self) -> sp.csc_array:
        """G, ``(Q, weights)``."""

    @abstractmethod
    def outputs(self, Z: FloatArray, intercept: FloatArray) -> FloatArray:
        """What blocks with these weights add up to, ``(n, C)``."""

    @property
    def charged(self) -> BoolArray | None:
        """Coordinates of each block of a group that its cost counts; None means all of them."""
        return None

    @property
    def n_free(self) -> int:
        """Free intercepts. A coupled loss does not see a shift of all outputs, so that one of them stays zero."""
        return (self.problem.n_outputs - self.problem.loss.coupled) * self.problem.fit_intercept

    def costs(self, Z: FloatArray) -> FloatArray:
        """What each block costs, of the shape of Z without its last axis."""
        return np.linalg.norm(Z if self.charged is None else Z * self.charged, axis=-1)

    @abstractmethod
    def check_memory(self, available: int | None = None) -> None:
        """Refuse, with the numbers, a program that will not fit."""

    # ---- assembly ------------------------------------------------------------------------------

    def assemble(self, form: ConeForm) -> tuple[sp.csc_array, FloatArray, sp.csc_array, FloatArray, list[object]]:
        """Clarabel's ``P, q, A, b, cones`` for variables ``[e, t, z groups, norms, intercept]``."""
        problem = self.problem
        *lead, P, r = self.shape
        groups, C = int(np.prod(lead, dtype=np.int64)), problem.n_outputs
        nC, n_t, n_z, n_free = problem.Y.size, len(form.linear_t), groups * P * r, self.n_free
        # F = offset + e as rows of the equality: -e + K z + 1 b = offset.
        equality = [
            -sp.eye_array(nC, format="csc"),
            sp.csc_array((nC, n_t)),
            self.fit(),
            sp.csc_array((nC, groups * P)),
        ]
        if problem.fit_intercept:
            equality.append(sp.csc_array(sp.kron(np.ones((len(problem.Y), 1)), sp.eye_array(C, n_free))))
        A_rows = [sp.hstack(equality, format="csc")]
        b = [form.offset.ravel()]
        cones: list[object] = [clarabel.ZeroConeT(nC)]

        def pad(left: sp.csc_array | None, z: sp.csc_array | None, tau: sp.csc_array | None, k: int) -> sp.csc_array:
            """A row block with zeros where a part is absent."""
            return sp.hstack(
                [
                    sp.csc_array((k, nC + n_t)) if left is None else left,
                    sp.csc_array((k, n_z)) if z is None else z,
                    sp.csc_array((k, groups * P)) if tau is None else tau,
                    sp.csc_array((k, n_free)),
                ],
                format="csc",
            )

        if form.G_e is not None:
            A_rows.append(pad(sp.hstack([form.G_e, form.G_t], format="csc"), None, None, len(form.h)))
            b.append(form.h)
            for kind, count in form.cones:
                cones += _CONES[kind](count)
        G = self.cone_rows()
        if Q := G.shape[0]:
            A_rows.append(pad(None, -G, None, Q))
            b.append(np.zeros(Q))
            cones.append(clarabel.NonnegativeConeT(Q))
        A_rows.append(pad(None, *_norm_cones(groups, P, r, self.charged), groups * P * (r + 1)))
        b.append(np.zeros(groups * P * (r + 1)))
        cones += [clarabel.SecondOrderConeT(r + 1)] * (groups * P)

        Q_e = form.quadratic_e if sp.issparse(form.quadratic_e) else sp.diags_array(form.quadratic_e)
        rest = np.concatenate([form.quadratic_t, np.zeros(n_z + groups * P + n_free)])
        quadratic = sp.triu(sp.block_diag([Q_e, sp.diags_array(rest)]), format="csc")
        linear = np.concatenate(
            [
                np.full(nC, form.linear_e) if np.isscalar(form.linear_e) else form.linear_e,
                form.linear_t,
                np.zeros(n_z),
                np.full(groups * P, problem.beta),
                np.zeros(n_free),
            ]
        )
        A = sp.vstack(A_rows, format="csc")
        return quadratic * self.unit, linear * self.unit, A, np.concatenate(b), cones

    # ---- solution ------------------------------------------------------------------------------

    def solve(
        self,
        form: ConeForm,
        *,
        tol: float = 1e-9,
        max_iter: int = 200,
        time_limit: float | None = None,
        verbose: int = 0,
        stop: Callable[[], bool] | None = None,
    ) -> ConicResult:
        """Solve the program with the loss given as a cone form.

        ``stop`` is asked after every iteration; when it says True the iterate at hand is returned.
        """
        began = clock()
        *lead, P, r = self.shape
        C = self.problem.n_outputs
        quadratic, linear, A, b, cones = self.assemble(form)
        settings = clarabel.DefaultSettings()
        settings.verbose = verbose > 1
        settings.max_iter = max_iter
        settings.max_threads = 1  # the same digits whatever the machine
        settings.tol_gap_rel = settings.tol_feas = tol
        settings.tol_gap_abs = 1e-14
        if time_limit is not None:
            settings.time_limit = max(time_limit - (clock() - began), 1e-3)
        solver = clarabel.DefaultSolver(quadratic, linear, A, b, cones, settings)
        if stop is not None:
            solver.set_termination_callback(lambda info: bool(stop()))
        solution = solver.solve()
        word = str(solution.status).split(".")[-1]
        failed = word not in _STATUS
        doubtful = not self.problem.loss.finite and word not in _UNDOUBTED  # a finite loss takes any outputs
        if doubtful and ("PrimalInfeasible" in word or _contradictory(A, b, cones)):
            raise InfeasibleError(
                f"no network fits these data exactly on the {P} {self.what} in use: equal inputs with "
                "different targets cannot be interpolated, and without bias the network is zero at zero. Use beta > 0"
            )
        x, y = np.array(solution.x), np.array(solution.z)
        if failed or not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ConicFailure(
                f"the conic solver stopped with status {word}; the data may be badly scaled (standardise the "
                "columns), or beta far too small"
            )
        nC, n_t, size = self.problem.Y.size, len(form.linear_t), int(np.prod(self.shape, dtype=np.int64))
        z = x[nC + n_t : nC + n_t + size].reshape(*lead, r, P).swapaxes(-1, -2)
        start = nC + len(form.h)
        norms = size + size // r if r else 0  # rows of the norms' cones, which come last
        return ConicResult(
            Z=np.ascontiguousarray(z),
            intercept=np.concatenate([x[len(x) - self.n_free :], np.zeros(C - self.n_free)]),
            V=-y[:nC].reshape(-1, C) / self.unit,
            cone_multipliers=y[start : len(y) - norms].reshape(*lead, -1) / self.unit,
            status=_STATUS[word],
            iterations=int(solution.iterations),
        )

    #: What the blocks stand for.
    what: ClassVar[str]


class FiniteProgram(ConicProgram):
    """The convex program of a problem on fixed patterns.

    Parameters
    ----------
    problem : Problem
    blocks : Blocks
        Its atoms on cells, ``problem.atoms.blocks(cells)``.
    """

    what = "activation patterns"

    def __init__(self, problem: Problem, blocks: Blocks) -> None:
        super().__init__(problem)
        self.blocks = blocks

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the block weights: signs, outputs, patterns, coordinates."""
        return 2, self.problem.n_outputs, len(self.blocks), self.blocks.size

    def memory(self) -> int:
        """Estimated bytes that assembling and factorising will take."""
        signs, C, P, r = self.shape
        n = len(self.problem.Y)
        entries = signs * C * r * (self.blocks.n_entries + len(self.blocks.cone_pairs[0]) + 2 * P)
        # Copies of the constraint matrix (ours, the solver's, its scaled one, the KKT matrix) and the factor, in
        # which the output rows fill up: r n for every block, and a dense triangle.
        return 16 * (4 * entries + signs * C * P * r * (r + n) + (n * C) ** 2 // 2)

    def check_memory(self, available: int | None = None) -> None:
        """Refuse, with the numbers, a program that will not fit."""
        _, C, P, r = self.shape
        require_memory(
            self.memory(),
            f"the convex program on {P:,} patterns ({2 * C * P * r:,} variables, "
            f"{2 * C * len(self.blocks.cone_pairs[0]):,} cone rows)",
            "Use method='sampled' with a smaller n_patterns, or fewer rows or columns",
            available,
        )

    @property
    def charged(self) -> BoolArray | None:
        """See :class:`bidual.atoms.blocks.Blocks`."""
        return self.blocks.charged

    @cached_property
    def _design(self) -> sp.csc_array:
        return self.blocks.design()

    def fit(self) -> sp.csc_array:
        """The design of the blocks on every output, with both signs."""
        C = self.problem.n_outputs
        spread = [_to_output(self._design, c, C) for c in range(C)]
        return sp.hstack([*spread, *(-k for k in spread)], format="csc")

    def cone_rows(self) -> sp.csc_array:
        """Those of the blocks, for all signs and outputs."""
        signs, C, *_ = self.shape
        return sp.csc_array(sp.block_diag([self.blocks.cone_matrix()] * (signs * C), format="csc"))

    def outputs(self, Z: FloatArray, intercept: FloatArray) -> FloatArray:
        """``(n, C)``."""
        _, C, P, r = self.shape
        return np.asarray(self._design @ (Z[0] - Z[1]).swapaxes(1, 2).reshape(C, r * P).T) + intercept

    # ---- what it means -------------------------------------------------------------------------

    def neurons(self, result: ConicResult) -> Neurons:
        """What the blocks compute, as neurons."""
        return self.blocks.neurons(result.Z, result.intercept)

    def known_bounds(self, V: FloatArray, result: ConicResult) -> FloatArray:
        r"""Bounds :math:`\|s\,M^T D_i A^T v_c + M^T (2 D_i - I) \lambda\|` of the solver's multipliers: (2, C, P)."""
        signs, C, P, r = self.shape
        if self.blocks.charged is not None:  # multipliers of the solver leave the other coordinates only nearly free
            return np.full((signs, C, P), np.inf)
        gradients = (self._design.T @ V).T.reshape(1, C, r, P)
        multipliers = np.maximum(result.cone_multipliers, 0.0).reshape(signs * C, -1)
        normals = np.asarray(self.blocks.cone_matrix().T @ multipliers.T).T.reshape(signs, C, r, P)
        return np.linalg.norm(np.concatenate([gradients, -gradients]) + normals, axis=2)


def _contradictory(A: sp.csc_array, b: FloatArray, cones: list[object]) -> bool:
    """Whether the linear rows of a program alone cannot be met: norms can always be as large as they need to be."""
    kinds = (clarabel.ZeroConeT, clarabel.NonnegativeConeT)
    sizes = [cone.dim for cone in cones]  # type: ignore[attr-defined]
    kind = np.repeat([kinds.index(type(cone)) if type(cone) in kinds else len(kinds) for cone in cones], sizes)
    rows, equal, below = A.tocsr(), kind == 0, kind == 1
    found = linprog(np.zeros(A.shape[1]), rows[below], b[below], rows[equal], b[equal], bounds=(None, None))
    return bool(found.status == 2)


def _to_output(K: sp.csc_array, c: int, C: int) -> sp.csc_array:
    """Rows of ``K`` moved to output ``c`` of ``C`` interleaved ones."""
    return sp.csc_array((K.data, K.indices.astype(np.int64) * C + c, K.indptr), shape=(K.shape[0] * C, K.shape[1]))


def _norm_cones(groups: int, P: int, r: int, charged: BoolArray | None = None) -> tuple[sp.csc_array, sp.csc_array]:
    r"""Rows of the second-order cones :math:`(\tau_b, z_b)`: the parts acting on z and on :math:`\tau`.

    Coordinates that are not ``charged (P, r)`` are zero there.
    """
    block = np.arange(groups * P)
    top = block * (r + 1)
    group, pattern = np.divmod(block, P)
    k = np.arange(r)
    z_columns = (group[:, None] * r + k) * P + pattern[:, None]
    z_rows = top[:, None] + 1 + k
    shape = groups * P * (r + 1)
    entries = -np.ones((len(block), r)) if charged is None else -np.tile(charged, (groups, 1)).astype(np.float64)
    z = sp.csc_array((entries.ravel(), (z_rows.ravel(), z_columns.ravel())), shape=(shape, groups * P * r))
    tau = sp.csc_array((-np.ones(len(block)), (top, block)), shape=(shape, groups * P))
    return z, tau
