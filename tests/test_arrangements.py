"""Activation patterns against linear programs, closed-form counts and symmetries."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from bidual import ReLURegressor, count_patterns, enumerate_patterns, sample_patterns
from bidual.arrangements import Patterns, flip_nearest, patterns_of, row_space

from .helpers import lp_patterns

few = settings(max_examples=15)

DEGENERATE = {
    "duplicate rows": [[1, 2], [1, 2], [3, -1], [3, -1], [0, 1]],
    "opposite rows": [[1, 2], [-1, -2], [2, 4], [0, 1]],
    "zero rows": [[0, 0], [1, 1], [0, 0], [1, -1]],
    "all zero": [[0, 0, 0], [0, 0, 0]],
    "one row": [[3, 4]],
    "one column": [[1], [-2], [0], [5]],
    "rank one in the plane": [[1, 2], [2, 4], [-3, -6]],
    "rank two in space": [[1, 0, 1], [0, 1, 1], [1, 1, 2], [1, -1, 0], [2, 1, 3]],
    "collinear points with ones": [[0, 0, 1], [1, 1, 1], [2, 2, 1], [3, 3, 1], [1, 1, 1]],
    "grid with ones": [[a, b, 1] for a in (0, 1) for b in (0, 1, 2)],
    "line with ones": [[-2, 1], [-1, 1], [0, 1], [1, 1], [2, 1]],
    "coordinate planes": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]],
    "many planes through a line": [[1, 0, 0], [0, 1, 0], [1, 1, 0], [1, -1, 0], [0, 0, 1]],
    "cube corners": [[a, b, c] for a in (1, -1) for b in (1, -1) for c in (1, -1)],
    "four dimensions": [
        [1, 0, 0, 1],
        [0, 1, 0, 1],
        [0, 0, 1, 1],
        [1, 1, 0, 1],
        [1, 1, 1, 1],
        [0, 0, 0, 1],
        [1, 0, 1, 1],
    ],
}


def as_set(active):
    return {tuple(row) for row in np.asarray(active, dtype=bool).tolist()}


def signs(X, patterns):
    return np.where(patterns.active, 1.0, -1.0)


@pytest.mark.parametrize(
    ("n", "r"),
    [
        (1, 1),
        (3, 1),
        (1, 3),
        (2, 4),
        (7, 2),
        (30, 2),
        (6, 3),
        (15, 3),
        (5, 4),
        (10, 4),
        (6, 5),
        (9, 5),
        (10, 6),
        (11, 8),
    ],
)
def test_gaussian_data_have_exactly_as_many_patterns_as_the_formula(n, r):
    X = np.random.default_rng(n * 10 + r).standard_normal((n, r))
    patterns = enumerate_patterns(X)
    assert patterns.complete
    assert len(patterns) == 2 * sum(comb(n - 1, k) for k in range(r))
    assert len(as_set(patterns.active)) == len(patterns)


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_integer_data_have_exactly_the_cells_that_linear_programs_find(name):
    X = np.array(DEGENERATE[name], dtype=float)
    patterns = enumerate_patterns(X)
    assert as_set(patterns.active) == as_set(lp_patterns(X))
    assert len(as_set(patterns.active)) == len(patterns)


@few
@given(X=arrays(float, st.tuples(st.integers(1, 7), st.integers(1, 5)), elements=st.integers(-2, 2).map(float)))
def test_random_small_integer_matrices_have_exactly_the_cells_that_linear_programs_find(X):
    assert as_set(enumerate_patterns(X).active) == as_set(lp_patterns(X))


def test_linear_programs_over_all_sign_vectors_agree_with_the_prefix_search_of_the_referee():
    X = np.array(DEGENERATE["grid with ones"], dtype=float)
    found = set()
    for code in range(2 ** len(X)):
        s = np.where([(code >> i) & 1 for i in range(len(X))], 1.0, -1.0)
        result = linprog(np.zeros(3), A_ub=-s[:, None] * X, b_ub=-np.ones(len(X)), bounds=[(None, None)] * 3)
        if result.status == 0:
            found.add(tuple((s > 0).tolist()))
    assert found == as_set(lp_patterns(X)) == as_set(enumerate_patterns(X).active)


@pytest.mark.parametrize("name", DEGENERATE)
def test_witnesses_are_unit_directions_strictly_inside_their_cells(name):
    X = np.array(DEGENERATE[name], dtype=float)
    patterns = enumerate_patterns(X)
    np.testing.assert_allclose(np.linalg.norm(patterns.witnesses, axis=1), 1.0)
    hidden = patterns.witnesses @ X.T
    nonzero = np.linalg.norm(X, axis=1) > 0
    assert (hidden[:, nonzero] * signs(X, patterns)[:, nonzero] > 1e-6).all()
    for i in range(len(patterns)):
        np.testing.assert_array_equal(patterns.active[i], X @ patterns.witnesses[i] >= 0)


@pytest.mark.parametrize(
    "X",
    [
        np.random.default_rng(0).standard_normal((8, 3)),
        np.random.default_rng(1).standard_normal((7, 4)),
        np.random.default_rng(2).standard_normal((9, 6)),
        np.array(DEGENERATE["grid with ones"], dtype=float),
        np.array(DEGENERATE["rank two in space"], dtype=float),
        np.array(DEGENERATE["duplicate rows"], dtype=float),
    ],
    ids=["gaussian 3", "gaussian 4", "gaussian 6", "grid", "rank two", "duplicates"],
)
def test_facets_alone_describe_the_same_cone_and_none_of_them_can_be_dropped(X):
    patterns = enumerate_patterns(X)
    d = X.shape[1]
    # Cells and their mirror images have the same facets: a stride keeps the number of programs small.
    for i in range(0, len(patterns), max(1, len(patterns) // 12)):
        rows = patterns.rows_of(i)
        s = signs(X, patterns)[i]
        facets = s[rows, None] * X[rows]
        for k in range(len(X)):
            others = facets if k not in rows else facets[rows != k]
            least = linprog(s[k] * X[k], A_ub=-others, b_ub=np.zeros(len(others)), bounds=[(-1, 1)] * d)
            if k not in rows:
                assert least.fun >= -1e-9
            else:  # without its facet the cone is larger
                assert least.fun < -1e-9


@pytest.mark.parametrize("name", DEGENERATE)
def test_count_patterns_bounds_the_number_of_patterns_of_any_data(name):
    X = np.array(DEGENERATE[name], dtype=float)
    assert len(lp_patterns(X)) <= count_patterns(len(X), np.linalg.matrix_rank(X))


def test_count_patterns_knows_the_easy_cases():
    assert count_patterns(0, 0) == 1
    assert count_patterns(5, 0) == 1
    assert count_patterns(5, 1) == 2
    assert count_patterns(3, 10) == 8  # all sign vectors
    assert count_patterns(4, 2) == 8
    with pytest.raises(ValueError, match="negative"):
        count_patterns(-1, 2)


def test_a_huge_enumeration_is_refused_with_its_numbers_before_it_starts():
    X = np.random.default_rng(0).standard_normal((200, 12))
    bound = f"{count_patterns(200, 12):,}"
    with pytest.raises(ValueError, match="200 distinct rows of rank 12") as refusal:
        enumerate_patterns(X)
    assert bound in str(refusal.value)
    assert "2,000,000" in str(refusal.value)
    with pytest.raises(ValueError, match="sampled"):
        ReLURegressor(method="exact").fit(X, X[:, 0])
    with pytest.raises(ValueError, match="max_patterns=7"):
        enumerate_patterns(X[:4, :2], max_patterns=7)
    assert len(enumerate_patterns(X[:4, :2], max_patterns=8)) == 8


def test_the_refusal_counts_distinct_hyperplanes_not_rows():
    X = np.tile(np.random.default_rng(0).standard_normal((4, 3)), (50, 1))
    assert len(enumerate_patterns(X, max_patterns=count_patterns(4, 3))) == count_patterns(4, 3)


@pytest.mark.parametrize("bad", [np.array([[1.0, np.nan]]), np.array([[np.inf, 1.0]])])
def test_enumeration_refuses_what_is_not_finite(bad):
    with pytest.raises(ValueError, match="NaN or infinity"):
        enumerate_patterns(bad)


def test_enumeration_refuses_what_is_not_a_matrix():
    with pytest.raises(ValueError, match="matrix"):
        enumerate_patterns(np.zeros(3))


@pytest.mark.parametrize("spread", [1e3, 1e6, 1e9, 1e11, 1e13])
def test_columns_of_very_different_scale_do_not_break_the_enumeration(spread):
    X = np.random.default_rng(0).standard_normal((6, 3)) * [spread, 1.0, 1.0]
    patterns = enumerate_patterns(X)
    assert len(patterns) <= count_patterns(6, 3)
    if spread <= 1e6:
        assert len(patterns) == count_patterns(6, 3)


# ---- symmetries --------------------------------------------------------------------------------------------------


@few
@given(seed=st.integers(0, 2**31), integer=st.booleans())
def test_number_of_patterns_does_not_change_under_scaling_flips_and_rotation(seed, integer):
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (7, 3)).astype(float) if integer else rng.standard_normal((7, 3))
    patterns = enumerate_patterns(X)
    P = as_set(patterns.active)
    assert as_set(enumerate_patterns(X * rng.uniform(1e-3, 1e3, (7, 1))).active) == P
    flips = rng.choice([-1.0, 1.0], 7)
    nonzero = np.linalg.norm(X, axis=1) > 0
    flipped = patterns.active ^ ((flips < 0) & nonzero)
    assert as_set(enumerate_patterns(X * flips[:, None]).active) == as_set(flipped)
    Q, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    assert as_set(enumerate_patterns(X @ Q).active) == P
    order = rng.permutation(7)
    assert as_set(enumerate_patterns(X[order]).active) == as_set(patterns.active[:, order])


@few
@given(seed=st.integers(0, 2**31))
def test_every_cell_has_its_mirror_image_when_no_row_is_zero(seed):
    X = np.random.default_rng(seed).standard_normal((6, 3))
    active = enumerate_patterns(X).active
    assert as_set(active) == as_set(~active)


def test_row_space_is_an_orthonormal_basis_that_loses_nothing():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 2)) @ rng.standard_normal((2, 5))
    B = row_space(X)
    assert B.shape == (5, 2)
    np.testing.assert_allclose(B.T @ B, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(X @ B @ B.T, X, atol=1e-12)
    assert row_space(np.zeros((3, 2))).shape == (2, 0)


# ---- samples -----------------------------------------------------------------------------------------------------


def test_sampled_patterns_are_distinct_realisable_and_as_many_as_asked_for():
    X = np.random.default_rng(0).standard_normal((40, 8))
    patterns = sample_patterns(X, 60, random_state=3)
    assert len(patterns) == 60 == len(as_set(patterns.active))
    assert not patterns.complete
    np.testing.assert_array_equal(patterns.active, (X @ patterns.witnesses.T >= 0).T)
    again = sample_patterns(X, 60, random_state=3)
    np.testing.assert_array_equal(patterns.active, again.active)
    np.testing.assert_array_equal(patterns.witnesses, again.witnesses)
    assert as_set(sample_patterns(X, 60, random_state=4).active) != as_set(patterns.active)


def test_sampling_more_than_there_are_finds_all_of_a_small_arrangement_and_stops():
    X = np.random.default_rng(1).standard_normal((5, 2))
    assert as_set(sample_patterns(X, 500, random_state=0).active) == as_set(lp_patterns(X))


@pytest.mark.parametrize("n_patterns", [0, -3])
def test_sampling_nothing_is_refused(n_patterns):
    with pytest.raises(ValueError, match="n_patterns"):
        sample_patterns(np.eye(2), n_patterns)


def test_flips_add_realisable_neighbours_across_the_nearest_rows():
    X = np.random.default_rng(2).standard_normal((12, 3))
    base = sample_patterns(X, 10, random_state=0)
    more = sample_patterns(X, 10, random_state=0, flips=2)
    assert as_set(base.active) <= as_set(more.active)
    assert len(base) < len(more) <= 30
    assert as_set(more.active) <= as_set(enumerate_patterns(X).active)
    np.testing.assert_array_equal(more.active, (X @ more.witnesses.T >= 0).T)


def test_flip_nearest_changes_the_sign_of_the_nearest_row():
    X = np.random.default_rng(3).standard_normal((10, 3))
    base = sample_patterns(X, 1, random_state=0)
    margins = np.abs(X @ base.witnesses[0]) / np.linalg.norm(X, axis=1)
    nearest = int(margins.argmin())
    both = flip_nearest(X, base, 1)
    assert len(both) == 2
    assert both.active[0, nearest] != both.active[1, nearest]
    assert as_set(flip_nearest(np.zeros((2, 3)), patterns_of(np.zeros((2, 3)), np.eye(3))).active) == {(True, True)}


def test_patterns_of_directions_are_their_signs_once_each_without_zero_directions():
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    found = patterns_of(X, [[1.0, 2.0], [3.0, 1.0], [-1.0, 1.0], [0.0, 0.0]])
    assert as_set(found.active) == {(True, True), (False, True)}
    assert len(found) == 2
    np.testing.assert_allclose(np.linalg.norm(found.witnesses, axis=1), 1.0)
    with pytest.raises(ValueError, match="directions"):
        patterns_of(X, [[1.0, 2.0, 3.0]])


def test_patterns_say_what_they_are():
    assert repr(enumerate_patterns(np.eye(2))) == "Patterns(all 4 of 2 rows)"
    some = Patterns(np.ones((1, 3), bool), np.ones((1, 2)))
    assert repr(some) == "Patterns(some 1 of 3 rows)"
    np.testing.assert_array_equal(some.rows_of(0), [0, 1, 2])
