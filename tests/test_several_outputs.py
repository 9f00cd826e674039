"""Several outputs on tiny data: proven optima, exact fits, and the programs of sampled patterns."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

from bidual import ReLUClassifier, ReLURegressor, sample_patterns
from bidual.arrangements import enumerate_patterns
from bidual.arrangements.faces import count_faces, few_faces
from bidual.atoms import Relu
from bidual.bounds.oracle import SharedProof, SharedSearch
from bidual.bounds.proof import proof_from_dict, proof_to_dict
from bidual.certification.check_certificate import check
from bidual.losses import get_loss
from bidual.problem import Problem
from bidual.programs.conic import InfeasibleError

LOSSES = ["squared", "softmax", "hinge", "absolute"]


def problem(seed, loss, n=8, d=2, C=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if get_loss(loss).classification:
        return X, rng.permutation(np.arange(n) % C)
    return X, rng.standard_normal((n, C))


def trained(X, y, beta, loss="squared", **settings):
    kind = ReLUClassifier if get_loss(loss).classification else ReLURegressor
    settings = {"method": "exact", "random_state": 0, "tol": 1e-4} | settings
    return kind(beta, loss=loss, **settings).fit(X, y)


def directions_around(X, count):
    """Unit vectors of the plane: a fine grid, and those orthogonal to the rows."""
    angles = np.linspace(0, 2 * np.pi, count, endpoint=False)
    normals = X[:, ::-1] * [1.0, -1.0]
    kinks = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    return np.vstack([np.column_stack([np.cos(angles), np.sin(angles)]), kinks, -kinks])


def group_lasso(X, Y, beta, U, fit_intercept, loss="squared"):
    """By CVXPY: the best output weights of neurons in all these directions."""
    n, C = Y.shape
    alpha = cp.Variable((len(U), C))
    b = cp.Variable((1, C)) if fit_intercept else np.zeros((1, C))
    F = np.maximum(X @ U.T, 0.0) @ alpha + np.ones((n, 1)) @ b
    penalty = cp.sum(cp.norm(alpha, 2, axis=1))
    if beta == 0:
        return cp.Problem(cp.Minimize(penalty), [F == Y]).solve(solver="CLARABEL")
    fit = cp.sum_squares(F - Y) / 2 if loss == "squared" else cp.sum(cp.abs(F - Y))
    return cp.Problem(cp.Minimize(fit / n + beta * penalty)).solve(solver="CLARABEL")


def descents(X, Y, beta, starts, width=12):
    """The best of many descents of the squared objective from random networks, with biases and an intercept."""
    X1 = np.column_stack([X, np.ones(len(X))])
    (n, p), C = X1.shape, Y.shape[1]
    sizes = np.cumsum([p * width, width * C])

    def objective(theta):
        U, a, b = theta[: sizes[0]].reshape(p, width), theta[sizes[0] : sizes[1]].reshape(width, C), theta[sizes[1] :]
        H = np.maximum(X1 @ U, 0.0)
        E = (H @ a + b - Y) / n
        dU = X1.T @ ((E @ a.T) * (H > 0)) + beta * U
        value = n * (E**2).sum() / 2 + beta / 2 * ((U**2).sum() + (a**2).sum())
        return value, np.concatenate([dU.ravel(), (H.T @ E + beta * a).ravel(), E.sum(axis=0)])

    rng = np.random.default_rng(0)
    runs = (rng.standard_normal(sizes[1] + C) for _ in range(starts))
    return min(minimize(objective, x, jac=True, method="L-BFGS-B", options={"maxiter": 2000}).fun for x in runs)


# ---- faces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_faces_of_rows_in_general_position_are_as_many_as_their_formula_says(rank):
    faces = few_faces(np.random.default_rng(rank).standard_normal((7, rank)), 10_000)
    assert sum(map(len, faces)) == count_faces(7, rank)
    assert few_faces(np.random.default_rng(rank).standard_normal((7, rank)), count_faces(7, rank) - 1) is None


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("degenerate", [False, True])
def test_no_direction_violates_the_dual_constraint_more_than_the_best_of_all_faces(rank, degenerate):
    rng = np.random.default_rng(rank)
    X, G = rng.standard_normal((9, rank)), rng.standard_normal((9, 3))
    if degenerate:  # parallel rows, opposite ones, one that is zero, and one between two others
        X[1], X[2], X[3], X[4] = 2 * X[0], -X[0], 0.0, X[5] + X[6]
    U = np.vstack([level.maximisers(X, G) for level in few_faces(X, 10_000)])
    tried = rng.standard_normal((200_000, rank))
    tried /= np.linalg.norm(tried, axis=1, keepdims=True)
    best, seen = (np.linalg.norm(np.maximum(V @ X.T, 0.0) @ G, axis=1).max() for V in (U, tried))
    np.testing.assert_allclose(np.linalg.norm(U, axis=1), 1.0)
    assert seen <= best * (1 + 1e-12)
    assert best <= seen * 1.001


# ---- exact -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(3))
def test_exact_proves_the_tolerance_on_tiny_data_of_rank_three(loss, seed):
    X, y = problem(seed, loss, n=12 - 2 * seed, C=4 - seed % 2)
    est = trained(X, y, 0.02, loss)
    assert est.gap_ <= 1e-4
    assert est.certificate_.scope == "global"
    assert est.certificate_.verify(X, y, model=est.network_)
    proven, reason = check(est.certificate_.to_dict(), X, y, None, est.network_.to_dict())
    assert proven, reason


@pytest.mark.parametrize("method", ["exact", "adaptive"])
@pytest.mark.parametrize("seed", range(3))
def test_no_descent_from_many_starts_ends_below_the_proven_optimum(method, seed):
    X, Y = problem(seed, "squared", n=6, C=2)
    est = trained(X, Y, 0.03, method=method)
    best = descents(X, Y, 0.03, starts=20)
    assert est.lower_bound_ <= best
    assert est.objective_ <= best * (1 + 1e-4)
    assert est.gap_ <= 1e-4


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_exact_finds_the_optimum_of_a_fine_grid_of_shared_directions(loss, fit_intercept):
    X, Y = problem(5, loss, n=7, C=2)
    est = trained(X, Y, 0.03, loss, bias=False, fit_intercept=fit_intercept, tol=1e-6)
    value = group_lasso(X, Y, 0.03, directions_around(X, 720), fit_intercept, loss)
    assert est.gap_ <= 1e-6
    assert est.objective_ <= value * (1 + 1e-6)  # neurons anywhere are no worse than on a grid
    assert est.objective_ == pytest.approx(value, rel=1e-4)  # of which the best is half a degree away


def test_a_maximum_at_a_kink_is_proven_as_sharply_as_it_is():
    rng = np.random.default_rng(1023)  # cones of hidden directions around it end at a gap of 1.4e-6
    n, d, C = (int(rng.integers(*between)) for between in ((4, 10), (1, 3), (2, 4)))
    X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, C))
    est = trained(X, Y, float(10 ** rng.uniform(-2.5, -1)), tol=1e-6)
    assert est.gap_ <= 1e-6
    assert est.certificate_.verify(X, Y, model=est.network_)
    proven, reason = check(est.certificate_.to_dict(), X, Y, None, est.network_.to_dict())
    assert proven, reason


def test_a_target_given_twice_costs_as_much_as_once_with_a_smaller_beta():
    X, Y = problem(7, "squared", C=2)
    single = ReLURegressor(0.02 / np.sqrt(2), method="exact").fit(X, Y[:, 0]).objective_
    twice = trained(X, Y[:, [0, 0]], 0.02)
    assert twice.objective_ == pytest.approx(2 * single, rel=1e-4)
    assert twice.lower_bound_ <= 2 * single * (1 + 1e-9)


def test_rotating_the_outputs_of_the_squared_loss_rotates_nothing_else():
    X, Y = problem(8, "squared", C=3)
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    assert trained(X, Y @ Q, 0.02).objective_ == pytest.approx(trained(X, Y, 0.02).objective_, rel=2e-4)


def test_repeated_rows_and_rows_of_zeros_are_no_obstacle():
    X, Y = problem(9, "squared", n=6, C=2)
    X[1], X[2], X[3] = X[0], -X[0], 0.0
    for bias in (False, True):
        assert trained(X, Y, 0.02, bias=bias).gap_ <= 1e-4


def test_targets_of_zero_need_no_neurons():
    X, Y = problem(9, "squared", n=6, C=2)
    est = trained(X, 0 * Y, 0.02)
    assert est.objective_ == 0
    assert est.n_neurons_ == 0


def test_margins_beyond_one_leave_the_conic_solver_its_digits():
    X = np.array([[1.0], [2.0], [2.0], [0.0], [-1.0], [-1.0], [1.0], [-2.0]])
    for seed in range(20):  # of whole numbers, with several rows beyond the margin
        rng = np.random.default_rng(seed)
        y, weight = rng.permutation(np.arange(8) % 4), rng.integers(1, 4, 8)
        est = ReLUClassifier(0.004, loss="squared_hinge", method="exact", fit_intercept=False)
        assert est.fit(X, y, sample_weight=weight).gap_ <= 1e-4


def test_kinks_as_close_as_a_large_column_makes_them_are_told_apart():
    x = [-2389.0, -1990.0, 6532.0, -6525.0, 6750.0, -9431.0, -6580.0, -11023.0, 18373.0, -25239.0, 6643.0]
    y = [1, 3, 2, 4, 1, 0, 4, 0, 2, 0, 3]
    est = trained(np.array(x)[:, None], y, 0.043, "hinge", fit_intercept=False, prove=False)
    assert est.likely_gap_ <= 1e-4


def accepted(est, X, y, weight=None):
    """What the independent checker says of the certificate and the network."""
    return check(est.certificate_.to_dict(), X, y, weight, est.network_.to_dict())


def test_equal_rows_of_all_classes_leave_a_constraint_of_rounding_that_is_checked():
    X, y = np.ones((6, 2)), np.arange(6) % 3
    est = trained(X, y, 0.02, "softmax", bias=False)
    proven, reason = accepted(est, X, y)
    assert proven, reason


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_loss_far_below_rounding_is_computed_again():
    X, y = problem(1, "softmax")
    weight = (y == 1).astype(float)
    est = ReLUClassifier(0.02, loss="softmax", method="exact").fit(X, y, sample_weight=weight)
    assert 0 < est.objective_ < 1e-12
    proven, reason = accepted(est, X, y, weight)
    assert proven, reason


# ---- exact fits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_an_exact_fit_of_several_outputs_is_the_smallest_with_shared_neurons(seed, fit_intercept):
    X, Y = problem(seed, "squared", n=5, C=2)
    est = trained(X, Y, 0, bias=False, fit_intercept=fit_intercept)
    value = group_lasso(X, Y, 0, directions_around(X, 720), fit_intercept)
    assert np.abs(est.predict(X) - Y).max() < 1e-6
    assert est.gap_ <= 1e-4
    assert est.objective_ <= value * (1 + 1e-4)
    assert est.objective_ == pytest.approx(value, rel=3e-4)


def test_an_exact_fit_shares_neurons_between_outputs_where_that_is_cheaper():
    X, Y = problem(4, "squared", n=6, C=1)
    once = trained(X, Y[:, 0], 0).objective_
    twice = trained(X, np.hstack([Y, Y]), 0)
    assert twice.objective_ == pytest.approx(np.sqrt(2) * once, rel=1e-4)
    assert twice.gap_ <= 1e-4


def test_directions_that_leave_an_exact_fit_do_not_come_back_for_ever():
    X = np.array([[0, -2, -1], [-2, 1, 1], [-1, -1, 1], [-2, 1, 0], [1, 0, 1]], dtype=float)
    Y = np.array([[0, 1], [-1, -2], [0, 0], [0, 0], [-1, 2]], dtype=float)
    weight = np.array([1.0, 1.0, 3.0, 2.0, 2.0])
    est = ReLURegressor(0, method="exact", bias=False, fit_intercept=False).fit(X, Y, sample_weight=weight)
    assert est.gap_ <= 1e-4
    assert est.n_iter_ <= 50


@pytest.mark.parametrize("loss", ["squared", "absolute", "hinge"])
def test_what_no_network_fits_is_said_to_be_so_whatever_the_conic_solver_makes_of_it(loss):
    for seed in range(10):
        X, y = problem(seed, loss, n=9, d=1)
        with pytest.raises(InfeasibleError, match="exactly"):
            trained(X, y, 0, loss, bias=False, fit_intercept=False)


@pytest.mark.parametrize("method", ["exact", "sampled"])
def test_rows_of_zeros_fit_no_targets_that_differ(method):
    for seed in range(5):
        _, Y = problem(seed, "squared")
        with pytest.raises(InfeasibleError, match="exactly"):
            trained(np.zeros((8, 2)), Y, 0, method=method, bias=False)


def test_the_smallest_network_of_zero_hinge_loss_is_proven_for_three_classes():
    X, y = problem(4, "hinge", n=7)
    est = trained(X, y, 0, "hinge")
    margins = (2 * np.eye(3)[y] - 1) * est.decision_function(X)
    assert margins.min() > 1 - 1e-6
    assert est.gap_ <= 1e-4


# ---- sampled patterns --------------------------------------------------------------------------------------------


def in_cones(X, U, active):
    """Those of the directions that lie in the closed cone of one of the patterns."""
    signs = np.where(active, 1.0, -1.0)
    return U[((signs[None] * (U @ X.T)[:, None]) >= -1e-12).all(axis=2).any(axis=1)]


@pytest.mark.parametrize(("loss", "beta"), [("squared", 0.03), ("absolute", 0.03), ("squared", 0)])
def test_sampled_patterns_are_trained_with_neurons_that_all_outputs_share(loss, beta):
    X, Y = problem(3, loss, n=5, C=2)
    active = sample_patterns(X, 7, random_state=0).active
    est = trained(X, Y, beta, loss, method="sampled", n_patterns=7, bias=False, fit_intercept=False)
    value = group_lasso(X, Y, beta, in_cones(X, directions_around(X, 1440), active), False, loss)
    assert est.certificate_.scope == "patterns"
    assert est.gap_ <= 1e-4
    assert est.objective_ == pytest.approx(value, rel=3e-4)
    assert est.certificate_.verify(X, Y, model=est.network_)
    proven, reason = check(est.certificate_.to_dict(), X, Y, None, est.network_.to_dict())
    assert proven, reason


@pytest.mark.parametrize("loss", LOSSES)
def test_neurons_of_sampled_patterns_are_no_better_than_those_of_all(loss):
    X, y = problem(6, loss, C=3)
    some, every = trained(X, y, 0.02, loss, method="sampled", n_patterns=12), trained(X, y, 0.02, loss)
    assert some.lower_bound_ >= every.lower_bound_ * (1 - 1e-4)
    assert some.objective_ >= every.lower_bound_
    assert some.gap_ <= 1e-4


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_direction_beside_a_thin_cone_is_no_value_attained_in_it():
    X = np.array([[1450.0, 3.31e-7], [-1420.0, -5.74e-6], [483.0, 4.15e-5], [-601.0, -2.06e-4], [2090.0, -2.76e-7]])
    Y = np.array([[-0.824, 0.644], [0.952, -0.943], [-0.562, -0.702], [-1.09, -0.832], [-0.12, -1.75]])
    est = trained(X, Y, 0, "epsilon_insensitive", method="sampled", n_patterns=6)
    assert est.certificate_.attained <= est.certificate_.limit
    assert est.certificate_.verify(X, Y, model=est.network_)


def test_all_patterns_as_a_sample_are_as_good_as_exact():
    X, Y = problem(6, "squared", n=6, C=2)
    gates = enumerate_patterns(np.column_stack([X, np.ones(6)])).witnesses
    some = trained(X, Y, 0.02, method="sampled", gates=gates)
    assert some.objective_ == pytest.approx(trained(X, Y, 0.02).objective_, rel=2e-4)


def test_ascents_in_the_cones_of_many_rows_end_at_a_proven_optimum():
    X, Y = problem(1, "squared", n=30, d=6, C=2)
    est = trained(X, Y, 0.05, method="sampled", n_patterns=8)
    assert est.certificate_.scope == "patterns"
    assert est.gap_ <= 1e-4


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("C", [6, 9])
def test_bounds_along_the_axes_of_many_outputs_are_checked_to_their_last_digits(C):
    X, Y = problem(3, "squared", n=5, C=C)
    est = trained(X, Y, 0.02, method="sampled", n_patterns=8)
    proven, reason = accepted(est, X, Y)
    assert proven, reason


# ---- proofs over the directions of outputs -----------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [2, 3, 7])
@pytest.mark.parametrize("complete", [False, True])
def test_no_neuron_of_the_patterns_violates_what_is_proven_over_output_directions(outputs, complete):
    rng = np.random.default_rng(outputs)
    X, V = rng.standard_normal((7, 3)), rng.standard_normal((7, outputs))
    posed = Problem(Relu(X), V, np.full(7, 1 / 7), get_loss("squared"), 1.0, False)
    patterns = enumerate_patterns(X)
    if not complete:
        patterns = patterns.take(np.arange(0, len(patterns), 3))
    U = np.vstack([level.maximisers(X, V) for level in few_faces(X, 10_000)])
    U = in_cones(X, U, patterns.active)
    largest = np.linalg.norm(np.maximum(U @ X.T, 0.0) @ V, axis=1).max()
    search = SharedSearch(posed, patterns, V)
    first = search.bound
    search.run(largest * (1 + 1e-4), np.inf)
    assert largest <= search.bound <= first
    assert search.value <= largest * (1 + 1e-9)
    if outputs <= 5:  # beyond, cones of outputs are not halved
        assert search.bound <= largest * (1 + 1e-4)
    proof = proof_from_dict(proof_to_dict(search.proof()))
    assert proof.bound(posed, V) == pytest.approx(search.bound, rel=1e-8)  # hyperplanes taken for one are not stored
    assert proof.scope(posed) == ("" if complete else "patterns")


def test_a_cover_that_claims_too_much_proves_only_what_holds():
    X, Y = problem(2, "squared", n=6, C=2)
    est = trained(X, Y, 0.03, method="sampled", n_patterns=6)
    data = est.certificate_.to_dict()
    data["evidence"]["proof"]["edges"] = []  # the directions of the orthants alone: a weaker bound
    assert not type(est.certificate_).from_dict(data).verify(X, Y)
    assert not check(data, X, Y)[0]
    posed = Problem(Relu(X), Y, np.full(6, 1 / 6), get_loss("squared"), 1.0, False)
    with pytest.raises(ValueError, match="rows"):
        SharedProof(np.eye(2), [], enumerate_patterns(X[:4])).bound(posed, Y)
    with pytest.raises(ValueError, match="outputs"):
        SharedProof(np.eye(3), [], None).bound(posed, Y)
    with pytest.raises(ValueError, match="edge"):
        SharedProof(np.eye(2), [(0, 2)], None).bound(posed, Y)
