"""Pooling with entries of both signs: what is bounded, and what rounding is charged to, takes their sizes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from bidual import enumerate_patterns
from bidual._util.clock import clock
from bidual.atoms import Relu
from bidual.bounds import bound_by_norms
from bidual.bounds.oracle import METHODS, DualConstraint, bound_oracle
from bidual.bounds.patterns import slack
from bidual.losses import get_loss
from bidual.problem import Problem

from .helpers import lp_patterns


def signed_problem(seed, C=1, n=5, N=9, p=2):
    """Random rows, some of them opposite to others, pooled with both signs; and a dual point."""
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((N, p))
    M[n:] = -M[: N - n]
    A = sp.csr_array(rng.standard_normal((n, N)) * (rng.random((n, N)) < 0.6))
    w = np.full(n, 1 / n)
    return Problem(Relu(M, A), np.zeros((n, C)), w, get_loss("squared"), 1.0, False), rng.standard_normal((n, C))


def constraint_on_a_circle(problem, V):
    """Values of the dual constraint, evaluated from scratch, at directions all around."""
    angles = np.linspace(0, 2 * np.pi, 3001)
    hidden = problem.atoms.A.toarray() @ np.maximum(problem.atoms.M @ np.stack([np.cos(angles), np.sin(angles)]), 0)
    return np.linalg.norm(V.T @ hidden, axis=0)


@pytest.mark.parametrize("seed", range(3))
def test_sizes_are_those_without_cancellation(seed):
    problem, V = signed_problem(seed)
    atoms, A = problem.atoms, np.abs(problem.atoms.A.toarray())
    norms = np.linalg.norm(atoms.M, axis=1)
    np.testing.assert_allclose(atoms.loads(V), np.linalg.norm(A.T @ np.abs(V), axis=1), rtol=1e-14)
    assert atoms.mass(V) == pytest.approx(np.linalg.norm(A.T @ np.abs(V), axis=1) @ norms, rel=1e-14)
    assert atoms.largest_hidden == pytest.approx((A @ norms).max(), rel=1e-14)
    assert atoms.gain == pytest.approx(A.sum() / len(A), rel=1e-14)


def test_sizes_of_a_pooling_without_signs_are_what_they_were():
    M, A = np.random.default_rng(0).standard_normal((4, 2)), sp.csr_array(np.array([[1.0, 2, 0, 0], [0, 0, 3, 0.5]]))
    atoms = Relu(M, A)
    assert atoms.unsigned is atoms
    assert Relu(M).unsigned.A is None


def test_rows_that_cancel_are_charged_for_rounding_and_bounded_by_their_sizes():
    # m twice with the weights 1 and -1: the neuron is zero, what rounding may hide of it is not
    M, A, V = np.array([[3.0, 4.0], [3.0, 4.0]]), sp.csr_array(np.array([[1.0, -1.0]])), np.array([[2.0]])
    problem = Problem(Relu(M, A), np.zeros((1, 1)), np.ones(1), get_loss("squared"), 1.0, False)
    assert problem.atoms.largest_hidden == 10.0
    assert problem.atoms.mass(V) == 20.0
    assert DualConstraint.at(problem, V).slack > 20 * np.finfo(float).eps
    assert slack(problem, enumerate_patterns(M), V) > 20 * np.finfo(float).eps


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("C", [1, 2])
def test_no_bound_is_below_the_constraint(seed, C):
    problem, V = signed_problem(seed, C)
    truth = constraint_on_a_circle(problem, V).max()
    assert bound_by_norms(problem, V).limit >= truth
    for method in METHODS:
        if method == "patterns" and C > 1:
            continue
        found = bound_oracle(problem, V, method=method, deadline=clock() + 0.2)
        assert found.bound >= truth
        assert found.recheck(problem, V) >= truth
        assert found.value <= truth * (1 + 1e-4)


@pytest.mark.parametrize("bias", [False, True])
def test_opposite_rows_have_the_patterns_of_one_of_them_and_its_complement(bias):
    rng = np.random.default_rng(0)
    M = np.column_stack([rng.standard_normal((5, 2)), np.ones(5)])[:, : 2 + bias]
    one, both = enumerate_patterns(M).active, enumerate_patterns(np.vstack([M, -M])).active
    assert {tuple(row) for row in both} == {(*row, *~row) for row in one}
    assert {tuple(row) for row in one} == {tuple(row) for row in lp_patterns(M)}
