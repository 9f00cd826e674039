"""Bounds hold in spite of rounding, by proof: against 50 digits and against fractions, on data that provoke it."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp

from bidual import enumerate_patterns
from bidual._util.rounding import gamma, largest_eigenvalue, spectral_norm, stretch
from bidual.atoms import Branches, Normalised, Relu
from bidual.atoms.tree import Tree
from bidual.bounds import lower_bound
from bidual.bounds.oracle import bound_oracle
from bidual.bounds.oracle.base import DualConstraint
from bidual.bounds.oracle.compact import Side, prove, relax
from bidual.bounds.oracle.outputs import Cover
from bidual.bounds.patterns import cone_value, pattern_bound
from bidual.bounds.proof import proof_from_dict, proof_to_dict
from bidual.losses import get_loss
from bidual.problem import Problem


def problem_of(M, C=1, A=None):
    n = len(M) if A is None else A.shape[0]
    return Problem(Relu(np.asarray(M, float), A), np.zeros((n, C)), np.full(n, 1 / n), get_loss("squared"), 1.0, False)


def true_norm(B):
    """The spectral norm to 50 digits."""
    with mpmath.workdps(50):
        return max(mpmath.svd_r(mpmath.matrix(B.tolist()), compute_uv=False))


def awkward(rng, m, n):
    """Matrices whose Gram matrices lose digits: columns far apart, nearly equal rows, offsets, rank one."""
    B = rng.standard_normal((m, n))
    kind = rng.integers(5)
    if kind == 0:
        B = B * 10.0 ** rng.uniform(-8, 8, n)
    elif kind == 1:
        B = B[:1] + 1e-9 * B
    elif kind == 2:
        B = B + 1e9
    elif kind == 3:
        B = np.outer(B[:, 0], B[0])
    return B


@pytest.mark.parametrize("seed", range(40))
def test_spectral_norms_are_never_below_the_truth_and_hardly_above(seed):
    rng = np.random.default_rng(seed)
    B = awkward(rng, *rng.integers(1, 8, 2))
    truth, bound = true_norm(B), spectral_norm(B)
    assert truth <= bound <= truth * (1 + mpmath.mpf("1e-13"))


def test_the_norm_of_a_stack_is_the_largest_one():
    B = np.random.default_rng(0).standard_normal((5, 3, 4))
    assert spectral_norm(B) == pytest.approx(max(np.linalg.norm(b, 2) for b in B), rel=1e-12)
    assert spectral_norm(np.zeros((0, 3))) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_largest_eigenvalues_are_never_below_the_truth_even_of_indefinite_matrices(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    S = awkward(rng, n, n)
    S = np.tril(S) + np.tril(S, -1).T
    with mpmath.workdps(50):
        truth = max(mpmath.eigsy(mpmath.matrix(S.tolist()), eigvals_only=True))
    assert truth <= largest_eigenvalue(S) <= truth + 1e-12 * np.linalg.norm(S)


def test_no_number_has_no_eigenvalue_below_infinity():
    assert largest_eigenvalue(np.array([[np.nan]])) == np.inf


@pytest.mark.parametrize("seed", range(10))
def test_the_stretch_of_a_basis_is_at_least_its_norm(seed):
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((6, 3)))[0] * (1.0 + 1e-15 * rng.standard_normal(3))
    assert true_norm(Q) <= stretch(Q) <= 1.0 + 1e-13


def test_units_of_rounding_add_up():
    assert gamma(5) + gamma(7) <= gamma(12) + 2.0**-53
    assert gamma(2.0**60) == np.inf


@pytest.mark.parametrize("seed", range(60))
def test_one_row_is_bounded_by_its_norm_and_not_below(seed):
    # every bound is an equality here: nothing hides what rounding takes away
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    M = rng.standard_normal((1, d)) * 10.0 ** rng.uniform(-5, 5, d)
    V = rng.standard_normal((1, 1))
    truth = Fraction(float(V[0, 0])) ** 2 * sum(Fraction(float(x)) ** 2 for x in M[0])
    problem = problem_of(M)
    found = [problem.atoms.norm_limit(V), pattern_bound(problem, enumerate_patterns(M), V)[1]]
    found += [bound_oracle(problem, V, method=m).bound for m in ("patterns", "cones", "compact")]
    for bound in found:
        assert Fraction(bound) ** 2 >= truth
        assert bound <= float(truth) ** 0.5 * (1 + 1e-2)


def test_weights_that_cancel_when_they_are_pooled_are_counted_by_their_sizes():
    # 1e9 + 1/3 - 1e9 has seven digits left: an error of 1e-8, which no share of the result itself would cover
    big = 1e9 + 1.0 / 3.0
    V = np.array([[big], [0.1], [-1e9], [0.7]])
    A = sp.csr_array(np.array([[0.3, 0.0], [0.3, 1.0], [0.3, 0.0], [0.1, 0.9]]))
    M = np.array([[1.0, 2.0], [2.0, -1.0]])
    weights = [
        sum(Fraction(float(a)) * Fraction(float(v)) for a, v in zip(A.toarray()[:, i], V[:, 0], strict=True))
        for i in range(2)
    ]
    truth = 5 * sum(w**2 for w in weights)  # orthogonal rows of one length, both weights positive
    problem = problem_of(M, A=A)
    assert min(weights) > 0
    for method in ("patterns", "cones", "compact", "signs"):
        assert Fraction(bound_oracle(problem, V, method=method).bound) ** 2 >= truth
    assert Fraction(problem.atoms.norm_limit(V)) ** 2 >= truth


def test_multipliers_of_narrow_cones_are_charged_for_their_rounding():
    # n_1 + n_2 is nothing but rounding, which multipliers of 1e12 would turn into a false zero
    normals = np.array([[0.6, 0.8], [-0.6, -0.8]]) + np.array([[0.0, 0.0], [1e-13, 0.0]])
    c = np.array([-1.0, 0.0])
    multipliers = np.full(2, 1e13)
    assert cone_value(c, normals, multipliers) >= 1e-3
    assert cone_value(c, normals, np.zeros(2)) == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["patterns", "cones", "compact", "signs"])
def test_bounds_are_what_their_proofs_say_again(method):
    rng = np.random.default_rng(3)
    problem, V = problem_of(rng.standard_normal((12, 3))), rng.standard_normal((12, 1))
    found = bound_oracle(problem, V, method=method, rtol=1e-2)
    assert proof_from_dict(proof_to_dict(found.proof)).bound(problem, V) == pytest.approx(found.bound, rel=1e-11)


@pytest.mark.parametrize("seed", range(12))
def test_the_relaxation_evaluated_with_its_rounding_is_hardly_looser(seed):
    rng = np.random.default_rng(seed)
    n, r = int(rng.integers(5, 40)), int(rng.integers(2, 9))
    side = Side.of(rng.standard_normal((n, r)), rng.standard_normal(n), 1.0)
    if seed % 2:
        side = side.where(0, 1).where(1, -1)
    relaxed = relax(side)
    with mpmath.workdps(50):
        plain = _relaxation(side, relaxed.x)
    assert plain <= relaxed.bound <= plain * (1 + mpmath.mpf("1e-8"))


def _relaxation(side, x):
    r"""The bound of the multipliers to 50 digits: the minimum over mu of :math:`\mu + b^T (\mu I - Q)^{-1} b / 4`."""
    mp, r, F = mpmath.mpf, side.X.shape[1], len(side.fixed)
    plus, minus, values = side.plus, side.minus, iter(x.astype(float).tolist())
    rows = [mpmath.matrix(row) for row in side.X.tolist()]
    Q, b, const = mpmath.zeros(r, r), mpmath.zeros(r, 1), mp(0)
    for i, (w, sign) in enumerate(zip(side.w.tolist(), side.signs.tolist(), strict=True)):
        b += mp(w) * (1 + sign) / 2 * rows[i]
    for i in plus:
        s = mpmath.exp(next(values))
        Q += mp(side.w[i]) * s / 4 * rows[i] * rows[i].T
        const += mp(side.w[i]) / s / 4
    for i in minus:
        k, p, m = (mpmath.exp(next(values)) for _ in range(3))
        total, half = k + p + m, mp(side.w[i]) / 2
        Q += half * k / total * rows[i] * rows[i].T
        b += half * (p - m) / total * rows[i]
    cuts = [int(side.signs[f]) * rows[f] for f in side.fixed]
    log_lam = [next(values) for _ in cuts]
    pairs = {(f, g): mpmath.exp(next(values)) for f in range(F) for g in range(f)}
    for f, cut in enumerate(cuts):
        y = mpmath.matrix([next(values) for _ in range(r)])
        b += mpmath.sqrt((y.T * y)[0] + mpmath.exp(2 * log_lam[f])) * cut
        Q -= (cut * y.T + y * cut.T) / 2
        for g in range(f):
            Q += pairs[f, g] * (cut * cuts[g].T + cuts[g] * cut.T) / 2
    eigenvalues, vectors = mpmath.eigsy(Q)
    shares = [t**2 / 4 for t in (vectors.T * b)]
    low = max(max(eigenvalues), mp(0))
    high = low + mpmath.sqrt(sum(shares)) + 1
    low += mp("1e-30")
    for _ in range(170):  # the derivative grows with mu
        mu = (low + high) / 2
        slope = 1 - sum(t / (mu - e) ** 2 for t, e in zip(shares, eigenvalues, strict=True))
        low, high = (low, mu) if slope > 0 else (mu, high)
    return side.scale * (const + high + sum(t / (high - e) for t, e in zip(shares, eigenvalues, strict=True)))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_multipliers_that_are_no_numbers_prove_nothing_false(wrong):
    rng = np.random.default_rng(5)
    X, v = rng.standard_normal((8, 3)), rng.standard_normal(8)
    side = Side.of(X, v, 1.0)
    x = relax(side).x.copy()
    U = rng.standard_normal((2000, 3))
    attained = (np.maximum(U @ X.T, 0.0) @ v / np.linalg.norm(U, axis=1)).max()
    for k in range(len(x)):
        tampered = x.copy()
        tampered[k] = wrong
        assert prove(side, tampered) >= attained


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_a_relaxation_of_no_positive_scale_is_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        Side.of(np.eye(2), np.ones(2), scale)


def test_fewer_rows_than_outputs_are_bounded_in_all_outputs():
    rng = np.random.default_rng(0)
    for C in (3, 8):
        problem, V = problem_of(rng.standard_normal((2, 3)), C), rng.standard_normal((2, C))
        found = bound_oracle(problem, V, method="compact")
        assert len(found.proof.axes) == C
        assert found.bound >= found.value > 0


def test_a_constraint_lost_in_rounding_still_limits_the_scale():
    # the rows are equal and their weights cancel; a limit of 1e-9 is below the rounding of 1e8 - 1e8 and yet one
    problem = problem_of(np.ones((2, 1)))
    V = np.array([[1e8], [-1e8]])
    tight = Problem(Relu(problem.atoms.M), problem.Y, problem.w, problem.loss, 1e-12, False)
    bound = lower_bound(tight, V, 1e-9, 1e-9)
    assert bound.scale * bound.limit <= tight.beta


def test_the_oracle_refuses_neurons_that_are_no_plain_ones():
    M, Y, w, loss = np.random.default_rng(0).standard_normal((4, 3)), np.zeros((4, 1)), np.full(4, 0.25), "squared"
    for atoms in (Normalised(M, w=w), Branches(M, tree=Tree((2,)))):
        problem = Problem(atoms, Y, w, get_loss(loss), 1.0, False)
        for method in ("auto", "patterns", "cones", "compact", "signs"):
            with pytest.raises(ValueError, match=r"neurons that compute \(Mu\)_\+"):
                bound_oracle(problem, np.ones((4, 1)), method=method)
        with pytest.raises(ValueError, match="neurons that compute"):
            DualConstraint.at(problem, np.ones((4, 1)))


@pytest.mark.parametrize("edge", [(0, 99), (-1, 0), (0, 0), (0, 2)])
def test_an_edge_that_the_cones_of_outputs_do_not_have_is_refused_in_words(edge):
    with pytest.raises(ValueError, match="no edge"):  # 0 and 2 are opposite
        Cover(np.eye(2), [edge])
