"""Likely bounds are what they say: other seeds do not find networks far below them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from bidual import BatchNorm, Convolutional, Parallel, ReLUClassifier, ReLURegressor
from bidual._util.watch import watching
from bidual.atoms import Branches, SubNetworks
from bidual.atoms.branches import random_branches
from bidual.atoms.tree import Tree
from bidual.losses import Absolute, Squared
from bidual.problem import Problem
from bidual.solvers.base import Options
from bidual.solvers.parallel import generation
from bidual.solvers.parallel.generation import believed
from bidual.solvers.parallel.pricing import CAREFUL, Search, found_again, unit_cost, unlike

#: By how much the objective of another seed may be below a likely bound, relatively.
ALLOWED = 1e-4


def data(seed: int, n: int, d: int, outputs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Planted neurons with noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    Y = np.maximum(X @ rng.standard_normal((d, 4)), 0.0) @ rng.standard_normal((4, outputs)) / 2
    Y += 0.3 * rng.standard_normal((n, outputs))
    return X, Y[:, 0] if outputs == 1 else Y


def undercut(kind: type, X: np.ndarray, y: np.ndarray, seeds: int, **options: Any) -> float:
    """By how much the best objective of some seeds is below the largest likely bound of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an open gap is honest
        runs = [kind(random_state=seed, prove=False, **options).fit(X, y) for seed in range(seeds)]
    best = min(run.objective_ for run in runs)
    return (max(run.likely_bound_ for run in runs) - best) / best


CASES = {
    "two-layer": (ReLURegressor, 40, 3, 1, {"beta": 0.01}),
    "two-layer, hinge": (ReLUClassifier, 40, 3, 1, {"beta": 0.01, "loss": "hinge"}),
    "two-layer, absolute": (ReLURegressor, 40, 3, 1, {"beta": 0.02, "loss": "absolute"}),
    "two outputs": (ReLURegressor, 30, 3, 2, {"beta": 0.02}),
    "batch norm before": (ReLURegressor, 40, 3, 1, {"beta": 0.01, "architecture": BatchNorm()}),
    "batch norm after": (ReLURegressor, 30, 3, 1, {"beta": 0.05, "architecture": BatchNorm(position="after")}),
    "convolution, sum": (ReLURegressor, 30, 5, 1, {"beta": 0.02, "architecture": Convolutional(3)}),
    "convolution, flatten": (
        ReLURegressor, 30, 5, 1, {"beta": 0.02, "architecture": Convolutional(3, pooling="flatten")},
    ),
    "branches": (ReLURegressor, 30, 2, 1, {"beta": 0.03, "architecture": Parallel(2)}),
    "deeper branches": (ReLURegressor, 20, 2, 1, {"beta": 0.1, "architecture": Parallel(2, 2, [1])}),
    "cutting planes": (ReLURegressor, 30, 3, 1, {"beta": 0.02, "method": "cutting_plane"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_other_seeds_do_not_undercut_a_likely_bound(name: str) -> None:
    kind, n, d, outputs, options = CASES[name]
    X, y = data(7, n, d, outputs)
    y = (y > np.median(y)).astype(int) if kind is ReLUClassifier else y
    X = X[:, :, None] if name.startswith("convolution") else X
    assert undercut(kind, X, y, 2, **options) <= ALLOWED


def test_branches_that_one_start_in_thousands_finds_are_not_missed() -> None:
    # seeds once ended at .058209, .058143, .058142 and .058196, each with a gap below 1e-4
    rng = np.random.default_rng(1000)
    n, d = int(rng.integers(30, 100)), int(rng.integers(2, 7))
    X, H = rng.standard_normal((n, d)), rng.standard_normal((d, 4))
    y = np.maximum(X @ H, 0) @ rng.standard_normal(4) / 2 + 0.3 * rng.standard_normal(n)
    assert undercut(ReLURegressor, X, y, 2, beta=0.03, architecture=Parallel(3)) <= ALLOWED


def test_pricing_leaves_the_branches_in_use_for_better_ones() -> None:
    rng = np.random.default_rng(3)
    X, y = data(3, 30, 3)
    problem = Problem(Branches(X, tree=Tree((3,))), y[:, None], np.full(30, 1 / 30), Squared(), 0.01, False)
    V = y[:, None] / 30
    search = Search(problem, rng)
    used, values = search.ascend(search.strangers(V, 16), V)
    found, tops = search.run(V, used, CAREFUL)
    assert tops[0] >= values.max()
    assert tops[0] == pytest.approx(float(search.values(found, V)[0][0]))
    np.testing.assert_allclose(np.linalg.norm(found.U, axis=1), 1.0)


#: Where seeds claimed .15446 and there is a network of .15437: the dual point of such a claim, and a branch that
#: violates it by 3.7 % (``benchmarks/honesty.py``, m1 = 3, problem 8).
CLAIMED = [
    -0.173, 0.145, 0.373, -0.127, 0.006, 0.406, 0.648, -1.0, -0.136, -0.268, 0.863, -0.074, -0.174, -0.357, 0.204,
    0.114, 0.024, 0.076, 0.217, -0.411, 0.899, -0.226, -0.043, 0.093, 0.057, -0.261, -0.097, 0.239, -0.062, 0.005,
    -0.757, -0.171, -0.146, 0.06, 0.05,
]  # fmt: skip
VIOLATES = [0.03, -0.01, -0.64, -0.03, 0.41, -0.16, 0.23, 0.43, -0.1, 0.38, 0.07, 0.0]


def test_ascents_from_beside_a_maximum_lead_back_to_it() -> None:
    # with longer steps one in a hundred did, and the searches of the audit missed the branch
    rng = np.random.default_rng([8, *b"parallel, m1 = 3"])
    n, d, _ = int(rng.integers(25, 41)), int(rng.integers(2, 4)), rng.choice(3)
    M, V = np.column_stack([rng.standard_normal((n, d)), np.ones(n)]), np.array(CLAIMED)[:, None]
    problem = Problem(Branches(M, tree=Tree((3,))), V, np.full(n, 1 / n), Squared(), 0.02, False)
    search = Search(problem, np.random.default_rng(0))
    given = SubNetworks(np.array([VIOLATES]), np.ones((1, 1)), np.zeros(1), np.array([[1.0, -1.0, 1.0]]))
    top, values = search.polish(unit_cost(given), V)
    beside = top.take(np.zeros(400, dtype=np.int64))
    noise = 0.1 * search.rng.standard_normal(beside.U.shape) / np.sqrt(beside.U.shape[1])
    reached, _ = search.ascend(unit_cost(replace(beside, U=beside.U + noise)), V)
    assert np.mean(search.settle(reached, V)[1] > values[0] * (1 - 1e-6)) > 0.05


def test_pricing_finds_nothing_at_the_dual_point_zero() -> None:
    X, y = data(3, 20, 3)
    problem = Problem(Branches(X, tree=Tree((2,))), y[:, None], np.full(20, 0.05), Squared(), 0.01, False)
    search = Search(problem, np.random.default_rng(0))
    _, tops = search.run(np.zeros((20, 1)), random_branches(problem.atoms, 4, problem.n_outputs, search.rng), CAREFUL)
    assert not tops.any()


def test_offspring_have_unit_cost_and_the_shape_of_their_parents() -> None:
    X, y = data(4, 20, 3)
    for widths in ((1,), (3,), (2, 2)):
        problem = Problem(Branches(X, tree=Tree(widths)), y[:, None], np.full(20, 0.05), Squared(), 0.01, False)
        search = Search(problem, np.random.default_rng(0))
        parents = unit_cost(random_branches(problem.atoms, 5, problem.n_outputs, search.rng))
        born = search.offspring(parents, y[:, None], 200)
        assert (born.U.shape[1], born.signs.shape[1]) == (parents.U.shape[1], parents.signs.shape[1])
        np.testing.assert_allclose(np.linalg.norm(born.U, axis=1), 1.0)
        assert set(np.unique(born.signs)) <= {-1.0, 1.0}


def test_a_top_value_that_only_one_search_found_is_not_believed_to_be_the_largest() -> None:
    assert believed([1.0, 1.0]) == 1.0
    assert believed([1.0, 1.5, 1.5]) == 1.5
    assert believed([1.0, 1.2, 1.5]) == pytest.approx(1.8)


def test_a_run_out_of_time_still_says_what_an_audit_believes() -> None:
    X, y = data(5, 25, 3)
    options: dict[str, Any] = {
        "beta": 0.01,
        "architecture": Parallel(2),
        "random_state": 0,
        "prove": False,
        "tol": 1e-4,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        early = ReLURegressor(**options, max_iter=1).fit(X, y)
        later = ReLURegressor(**options, max_iter=5).fit(X, y)
    assert early.likely_bound_ <= later.objective_ * (1 + ALLOWED)


def test_nothing_is_claimed_where_searches_miss_the_branches_they_are_not_told_of() -> None:
    # three seeds once ended at .08027, each with a gap below 1e-4; there is a network of .07923
    rng = np.random.default_rng([77, 5])
    n, d, _ = int(rng.integers(30, 61)), int(rng.integers(2, 5)), rng.choice(3)
    X, H = rng.standard_normal((n, d)), rng.standard_normal((d + 1, 5))
    clean = np.maximum(np.column_stack([X, np.ones(n)]) @ H, 0.0) @ rng.standard_normal(5)
    y = clean / clean.std() + rng.choice([0.1, 0.5, 1.0]) * rng.standard_normal(n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ReLUClassifier(0.003, architecture=Parallel(2, 2, [1]), tol=1e-4, random_state=2, prove=False)
        model.fit(X, (y > np.median(y)).astype(int))
    assert model.likely_bound_ <= 0.07924 * (1 + ALLOWED)


def test_a_search_that_finds_only_what_it_is_told_supports_no_likely_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(self: Search, V: np.ndarray, near: Any, *_: Any) -> Any:
        units = self._headed(unit_cost(near), V)
        return units, self.values(units, V)[0]

    monkeypatch.setattr(Search, "run", told)
    X, y = data(7, 30, 2)
    with pytest.warns(ConvergenceWarning):
        model = ReLURegressor(0.03, architecture=Parallel(2), tol=1e-4, random_state=0, prove=False).fit(X, y)
    assert model.likely_bound_ == model.lower_bound_


def test_an_audit_looks_on_while_it_finds_more_of_what_it_had_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def slowly(problem: Problem[Branches], known: SubNetworks, found: SubNetworks) -> np.ndarray:
        seen.append(1)
        return np.arange(len(known)) < len(seen) * len(known) / 8

    monkeypatch.setattr(generation, "found_again", slowly)
    X, y = data(7, 30, 2)
    model = ReLURegressor(0.03, architecture=Parallel(2), tol=1e-4, random_state=0, prove=False).fit(X, y)
    assert model.likely_gap_ <= model.tol_
    assert len(seen) > 4


@pytest.mark.parametrize(("opened", "searches"), [(0, 2), (1, 6), (4, 16)])
def test_an_audit_after_others_that_opened_the_gap_searches_more(
    opened: int, searches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 33 rows of absolute loss: the eighth audit once found nothing, and the likely bound was false by .024 %
    seen: list[int] = []

    def all_of_them(problem: Problem[Branches], known: SubNetworks, found: SubNetworks) -> np.ndarray:
        seen.append(1)
        return np.ones(len(known), dtype=bool)

    monkeypatch.setattr(generation, "found_again", all_of_them)
    X, y = data(4, 20, 2)
    problem = Problem(Branches(X, tree=Tree((2,))), y[:, None], np.full(20, 0.05), Squared(), 0.1, False)
    with watching():
        run = generation._Pool(problem, Options(random_state=0), 0.0)
        run.begin()
        run.opened = opened
        run.audit(to_the_end=True)
    assert len(seen) == searches


def test_branches_of_a_loss_with_kinks_leave_before_they_are_too_many_for_the_conic_solver() -> None:
    # with smoothed losses instead, 33 rows of a planted problem once ended 1.5 % above the optimum
    X, y = data(4, 30, 3)
    problem = Problem(Branches(X, tree=Tree((2,))), y[:, None], np.full(30, 1 / 30), Absolute(), 0.1, False)
    with watching():
        run = generation._Pool(problem, Options(random_state=0), 0.0)
        run.begin()
    run.gather(random_branches(problem.atoms, 300, 1, np.random.default_rng(0)))
    assert not run.conic
    run.correct()
    assert run.conic
    assert len(run.pool) >= 2 * len(X)


def test_branches_at_an_edge_of_their_cone_are_alike_in_all_cells_around() -> None:
    X, y = data(4, 20, 3)
    problem = Problem(Branches(X, tree=Tree((2,))), y[:, None], np.full(20, 0.05), Squared(), 0.01, False)
    rng = np.random.default_rng(0)
    some = unit_cost(random_branches(problem.atoms, 6, problem.n_outputs, rng))
    twice = some.joined(some.take(np.arange(6)))
    twice.U[6:] *= 1 + 1e-12
    np.testing.assert_array_equal(unlike(problem, twice), unlike(problem, some))
    assert found_again(problem, some, twice).all()
    other = unit_cost(random_branches(problem.atoms, 1, problem.n_outputs, rng))
    assert not found_again(problem, other, some.take(np.arange(0))).any()
