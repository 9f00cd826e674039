"""Proven bounds on the dual constraint against the truth: planted maxima in narrow cones, and tied integers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter

import numpy as np

from bidual._util.typing import FloatArray
from bidual.arrangements import enumerate_patterns
from bidual.atoms import Relu
from bidual.bounds.oracle import bound_oracle
from bidual.bounds.patterns import spectral_bound
from bidual.losses import get_loss
from bidual.problem import Problem
from sound.exact import greatest_square, rational, shortfall, square_at

#: Seconds for a bound; it is as valid as ever when they are over.
SECONDS = 0.08


@dataclass(frozen=True)
class Case:
    """Rows, weights, and the square of (a lower bound on) the maximum."""

    kind: str
    M: FloatArray
    V: FloatArray
    square: Fraction


def bounds(case: Case, seconds: float = SECONDS) -> Iterator[tuple[str, float]]:
    """All the ways to bound the constraint, by name."""
    n, C = case.V.shape
    problem = Problem(Relu(case.M), np.zeros((n, C)), np.full(n, 1.0 / n), get_loss("squared"), 1.0, False)
    yield "norms", problem.atoms.norm_limit(case.V)
    small = n <= 12 and case.M.shape[1] <= 4
    if small:
        yield "spectral", spectral_bound(problem, enumerate_patterns(case.M), case.V)[1]
    for method in ("patterns", "cones", "compact", "signs"):
        if method == "patterns" and not (small and C == 1):
            continue
        found = bound_oracle(problem, case.V, method=method, rtol=1e-12, deadline=perf_counter() + seconds)
        yield method, found.bound
        yield f"{method}, again", found.recheck(problem, case.V)


def violations(case: Case, seconds: float = SECONDS) -> dict[str, float]:
    """By how much each bound is below the truth, relative to it."""
    return {name: shortfall(bound, case.square) for name, bound in bounds(case, seconds)}


def planted(rng: np.random.Generator) -> Case:
    r"""A maximum that local search misses.

    With :math:`x_\pm = t \pm \delta e` for orthonormal e, t, :math:`(x_+^T u)_+ - 2 (t^T u)_+ + (x_-^T u)_+ =
    (\delta |e^T u| - |t^T u|)_+`: zero outside a slab of width :math:`\delta`. Slabs for all t orthogonal to e meet
    around e, where the sum is largest. The directions are the rows of an integer matrix, orthogonal up to its scale.
    """
    d, C = int(rng.integers(2, 6)), int(rng.choice([1, 1, 1, 2, 3]))
    delta = float(2.0 ** -rng.integers(3, 24))
    w = rng.integers(-2, 3, d)
    w[rng.integers(d)] += 3
    R = (w @ w * np.eye(d) - 2 * np.outer(w, w)).astype(float)  # a reflection, times the integer w^T w
    e, others = R[0], R[1:]
    rows = [row for t in others for row in (t + delta * e, t, t - delta * e)]
    weights = np.tile([1.0, -2.0, 1.0], d - 1)
    decoys = int(rng.integers(0, 4))
    M = np.vstack([*rows, rng.integers(-2, 3, (decoys, d))]).astype(float)
    noise = rng.integers(-4, 5, decoys) / 16.0 * delta
    head = np.ones(1) if C == 1 else rng.integers(1, 4, C).astype(float)
    V = np.concatenate([weights, noise])[:, None] * head
    return Case("planted", M, V, square_at(M, V, rational(e)))


def tied(rng: np.random.Generator) -> Case:
    """Integers with duplicated, opposite, parallel and zero rows; the maximum by enumeration."""
    n, d = int(rng.integers(1, 8)), int(rng.integers(1, 4))
    M = rng.integers(-2, 3, (n, d)).astype(float)
    for i in range(1, n):
        kind = rng.integers(8)
        if kind < 4:
            M[i] = M[rng.integers(i)] * (1.0, -1.0, 2.0, 0.0)[kind]
    V = rng.integers(-3, 4, (n, 1)).astype(float)
    return Case("tied integers", M, V, greatest_square(M, V[:, 0]))


def hard(rng: np.random.Generator) -> Case:
    """Floats as they come: columns far apart, nearly parallel rows, offsets, tiny and huge weights."""
    n, d = int(rng.integers(2, 9)), int(rng.integers(1, 5))
    M, V = rng.standard_normal((n, d)), rng.standard_normal((n, 1))
    kind = rng.integers(5)
    if kind == 0:
        M *= 10.0 ** rng.uniform(-8, 8, d)
    elif kind == 1:
        M = M[rng.integers(max(1, n // 2), size=n)] + 10.0 ** rng.uniform(-16, -4) * M
    elif kind == 2:
        M += 10.0 ** rng.uniform(2, 9) * rng.standard_normal(d)
    elif kind == 3:
        V *= 10.0 ** rng.uniform(-8, 8, (n, 1))
    else:
        M *= 10.0 ** rng.uniform(-8, 8, (n, 1))
    return Case("hard floats", M, V, greatest_square(M, V[:, 0]))


def nearly_tied(rng: np.random.Generator) -> Case:
    """Tied integers after a rotation and a perturbation at the size of rounding and of the tolerance of patterns."""
    case = tied(rng)
    d = case.M.shape[1]
    M = case.M @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    M = M * (1.0 + 10.0 ** rng.uniform(-17, -7) * rng.standard_normal(M.shape))
    return Case("nearly tied", M, case.V, greatest_square(M, case.V[:, 0]))


MAKERS = (planted, tied, hard, nearly_tied)
