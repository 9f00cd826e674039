"""The pricing oracle against enumeration, grids and its own values."""

from __future__ import annotations

import numpy as np
import pytest

from bidual.arrangements import enumerate_patterns
from bidual.atoms import Relu
from bidual.losses import get_loss
from bidual.problem import Problem
from bidual.solvers.engine import _kernels
from bidual.solvers.engine._polish import polish
from bidual.solvers.engine.pricing import Pricer


def make(M, V=None, A=None):
    M = np.asarray(M, dtype=float)
    n = len(M) if A is None else A.shape[0]
    Y = np.ones((n, 1 if V is None else V.shape[1]))
    return Problem(Relu(M, A), Y, np.full(n, 1.0 / n), get_loss("squared"), 0.1, False)


def best_over_cells(X, v):
    """max of v^T (X u)_+ over the unit ball, cell by cell: a second-order cone program each."""
    cp = pytest.importorskip("cvxpy")
    patterns = enumerate_patterns(X)
    best = 0.0
    for i, active in enumerate(patterns.active):
        rows = patterns.rows_of(i)
        u = cp.Variable(X.shape[1])
        signs = 2.0 * active[rows] - 1.0
        cell = [cp.norm(u) <= 1, cp.multiply(signs, X[rows] @ u) >= 0]
        best = max(best, cp.Problem(cp.Maximize((active * v) @ X @ u), cell).solve(solver="CLARABEL"))
    return best


@pytest.mark.parametrize(("n", "d", "seed"), [(6, 2, 0), (10, 2, 1), (8, 3, 2), (9, 3, 3)])
def test_strong_pricing_finds_the_maximum_over_all_cells(n, d, seed):
    rng = np.random.default_rng(seed)
    X, v = rng.standard_normal((n, d)), rng.standard_normal((n, 1))
    found = Pricer(make(X, v), rng).strong(v, np.zeros((0, d)), 64)
    truth = max(best_over_cells(X, v[:, 0]), best_over_cells(X, -v[:, 0]))
    assert found.best == pytest.approx(truth, rel=1e-6)


def test_integer_ties_and_duplicate_rows():
    rng = np.random.default_rng(0)
    X = rng.integers(-1, 2, size=(12, 3)).astype(float)
    v = rng.integers(-2, 3, size=(12, 1)).astype(float)
    found = Pricer(make(X, v), rng).strong(v, np.zeros((0, 3)), 64)
    truth = max(best_over_cells(X, v[:, 0]), best_over_cells(X, -v[:, 0]))
    assert found.best == pytest.approx(truth, rel=1e-6)


def test_one_output_is_searched_on_a_sample_as_well_as_on_all_rows():
    rng = np.random.default_rng(0)
    for _ in range(3):
        X, v = np.column_stack([rng.standard_normal((80, 6)), np.ones(80)]), rng.standard_normal((80, 1))
        pricer, nothing = Pricer(make(X, v), np.random.default_rng(0)), np.zeros((0, 7))
        assert pricer.sampled(v, nothing, 32).best >= 0.995 * pricer.strong(v, nothing, 64).best


@pytest.mark.parametrize("search", ["quick", "strong", "audit"])
@pytest.mark.parametrize("C", [1, 3])
def test_values_are_attained_and_directions_are_unit_vectors(search, C):
    rng = np.random.default_rng(1)
    X, V = rng.standard_normal((60, 5)), rng.standard_normal((60, C))
    pricer = Pricer(make(X, V), rng)
    found = getattr(pricer, search)(V, rng.standard_normal((4, 5)), 16)
    H = np.maximum(X @ found.directions.T, 0.0)
    np.testing.assert_allclose(np.einsum("nk,nc,kc->k", H, V, found.outputs), found.values, rtol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(found.directions, axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found.outputs, axis=1), 1.0, rtol=1e-12)
    assert (np.diff(found.values) <= 0).all()


def test_vector_outputs_against_a_grid_of_angles():
    rng = np.random.default_rng(2)
    X, V = rng.standard_normal((15, 2)), rng.standard_normal((15, 3))
    angles = np.linspace(0, 2 * np.pi, 200_001)
    U = np.stack([np.cos(angles), np.sin(angles)])
    truth = np.linalg.norm(V.T @ np.maximum(X @ U, 0.0), axis=0).max()
    found = Pricer(make(X, V), rng).strong(V, np.zeros((0, 2)), 64)
    assert found.best == pytest.approx(truth, rel=1e-7)
    assert found.best >= truth * (1 - 1e-12)


def test_polishing_never_lowers_the_value():
    rng = np.random.default_rng(3)
    X, V = rng.standard_normal((80, 6)), rng.standard_normal((80, 1))
    U = rng.standard_normal((50, 6))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    before = np.maximum(X @ U.T, 0.0).T @ V[:, 0]
    values = np.zeros(50)
    polish(np.ascontiguousarray(X.T), V, U.copy(), np.ones((50, 1)), False, 0.0, values, 0, 50)
    assert (values >= before - 1e-12).all()


def test_the_number_of_threads_does_not_matter(monkeypatch):
    rng = np.random.default_rng(4)
    X, V = rng.standard_normal((70, 4)), rng.standard_normal((70, 1))
    many = Pricer(make(X, V), np.random.default_rng(0)).strong(V, X[:5], 32)

    def alone(work, n, piece):
        for i in range(0, n, piece):
            work(i, min(i + piece, n))

    monkeypatch.setattr(_kernels, "over_pieces", alone)
    one = Pricer(make(X, V), np.random.default_rng(0)).strong(V, X[:5], 32)
    np.testing.assert_array_equal(many.values, one.values)
    np.testing.assert_array_equal(many.directions, one.directions)


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((4, 2)),
        np.ones((5, 3)),
        np.outer(np.arange(-2.0, 3.0), [1.0, 2.0]),
        np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]),
        np.diag([1e-6, 1.0, 1e6]),
        np.array([[2.0]]),
    ],
    ids=["zero", "rank one", "line", "zero column", "scales", "one row"],
)
def test_degenerate_data(X):
    rng = np.random.default_rng(5)
    V = rng.standard_normal((len(X), 1))
    problem = make(X, V)
    pricer = Pricer(problem, rng)
    none = np.zeros((0, problem.atoms.reduced.shape[1]))
    for search in (pricer.quick, pricer.strong, pricer.audit):
        found = search(V, none, 8)
        assert np.isfinite(found.values).all()
        assert found.best <= np.abs(V).T @ np.linalg.norm(X, axis=1) + 1e-9
