"""Training on many rows: the same optimum as the other solver, a true certificate, bounded memory, checkpoints."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from bidual import (
    Convolutional,
    PrincipalAxes,
    ReLUClassifier,
    ReLUClassifierCV,
    ReLURegressor,
    certify,
    quantile_gates,
    solution_path,
)
from bidual._util.tuning import tuned
from bidual.losses import Softmax
from bidual.solvers import Options
from bidual.training.objective import Objective
from bidual.training.row_blocks import RowBlocks

from .helpers import gap_may_stay_open

KW = {"activation": "gated", "n_patterns": 24, "random_state": 0, "tol": 1e-3}


def classes(n=400, d=6, k=4, seed=0):
    X, y = make_classification(n, d, n_informative=4, n_redundant=0, n_classes=k, random_state=seed)
    return X.astype(np.float32), y


def numbers(n=300, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.maximum(X[:, 0], 0) - np.abs(X[:, 1]) + 0.2 * rng.standard_normal(n)


# ---- the optimum ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [3e-1, 3e-2, 1e-3])
@pytest.mark.parametrize(("bias", "fit_intercept"), [(True, True), (False, False)])
def test_softmax_agrees_with_the_solver_for_few_rows(beta, bias, fit_intercept):
    X, y = classes(150)
    gates = quantile_gates(X, 12, 0, bias)
    kw = {"beta": beta, "gates": gates, "activation": "gated", "bias": bias, "fit_intercept": fit_intercept}
    few = ReLUClassifier(**kw, tol=1e-6).fit(X, y)
    many = ReLUClassifier(**kw, backend="numpy", tol=1e-5, random_state=0).fit(X, y)
    assert many.gap_ <= 1e-5
    assert many.objective_ == pytest.approx(few.objective_, rel=2e-5)
    assert many.lower_bound_ <= few.objective_ * (1 + 1e-12)
    assert few.lower_bound_ <= many.objective_ * (1 + 1e-12)


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("weighted", [False, True])
def test_regression_agrees_with_the_solver_for_few_rows(loss, weighted):
    X, y = numbers(150)
    weight = np.random.default_rng(1).integers(0, 3, len(y)) if weighted else None
    kw = {"beta": 0.02, "loss": loss, "gates": quantile_gates(X, 15, 0), "activation": "gated"}
    few = ReLURegressor(**kw, tol=1e-6).fit(X, y, weight)
    many = ReLURegressor(**kw, backend="numpy", tol=1e-5, random_state=0).fit(X, y, weight)
    assert many.gap_ <= 1e-5
    assert many.objective_ == pytest.approx(few.objective_, rel=2e-5)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "squared"])
def test_two_classes(loss):
    X, y = classes(150, k=2)
    kw = {"beta": 0.01, "loss": loss, "gates": quantile_gates(X, 15, 0), "activation": "gated"}
    few = ReLUClassifier(**kw, tol=1e-6).fit(X, y)
    many = ReLUClassifier(**kw, backend="numpy", tol=1e-5, random_state=0).fit(X, y)
    assert many.objective_ == pytest.approx(few.objective_, rel=2e-5)


def test_above_beta_max_nothing_is_trained():
    X, y = classes()
    est = ReLUClassifier(beta=100.0, backend="numpy", **KW).fit(X, y)
    assert est.n_neurons_ == 0
    assert est.gap_ <= 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_the_certificate_is_that_of_the_network_returned(seed):
    X, y = classes(seed=seed)
    with gap_may_stay_open():  # far from converged: the bounds must hold all the same
        est = ReLUClassifier(beta=1e-3, backend="numpy", max_iter=1, **{**KW, "tol": 1e-8}).fit(X, y)
    Y = np.eye(4)[y]
    assert est.objective_ == pytest.approx(
        est.network_.objective(X.astype(float), Y, beta=1e-3, loss="softmax"), rel=1e-12
    )
    best = ReLUClassifier(beta=1e-3, backend="numpy", gates=_all_gates(est, X), **{**KW, "tol": 1e-5}).fit(X, y)
    assert est.lower_bound_ <= best.objective_
    assert 0 < est.gap_ < 1


def _all_gates(est, X):
    return quantile_gates(X, est.n_patterns, np.random.RandomState(est.random_state))


# ---- data as they come ------------------------------------------------------------------------------------


@tuned(block_rows=200)
def test_a_memory_map_is_streamed_and_gives_the_same_network(tmp_path):
    X, y = classes(600)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    kept = ReLUClassifier(beta=1e-2, backend="numpy", **KW).fit(X, y)
    with tuned(kept_bytes=0):
        read = ReLUClassifier(beta=1e-2, backend="numpy", **KW).fit(mapped, y)
    assert read.objective_ == pytest.approx(kept.objective_, rel=1e-3)
    assert read.gap_ <= 1e-3


@tuned(kept_bytes=0, block_rows=500, double_rows=500, gate_rows=500, sample_rows=500, sample_terms=100)
@tuned(block_epochs=1, block_steps=1)
def test_memory_does_not_grow_with_the_rows_of_a_map(tmp_path, monkeypatch):
    monkeypatch.setattr("bidual.programs.gated.shards.cores", lambda: 1)  # every thread has a block of its own
    peaks, options = [], Options(tol=1e-3, n_patterns=8, max_iter=1, random_state=0)
    for n in (1500, 4500):
        X = np.lib.format.open_memmap(tmp_path / f"{n}.npy", mode="w+", dtype=np.float32, shape=(n, 200))
        rng = np.random.default_rng(0)
        X[:] = rng.standard_normal(X.shape)
        Y = np.eye(2)[(X[:, 0] > 0).astype(int)]
        data = RowBlocks.of(Objective(Softmax(), 0.1), X, Y)
        with gap_may_stay_open():
            data.train("adaptive", options, activation="gated")  # loads what is loaded once
            tracemalloc.start()
            data.train("adaptive", options, activation="gated")
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] - peaks[0] < 3000 * 40 * 8  # targets, dual points and the like; not 3000 x 200


@pytest.mark.parametrize("dtype", [np.uint8, np.float64, np.int32])
def test_any_numeric_type(dtype):
    X, y = classes()
    coded = np.clip(40 * X + 128, 0, 255).astype(dtype)
    est = ReLUClassifier(beta=1.0, backend="numpy", **KW).fit(coded, y)
    same = ReLUClassifier(beta=1.0, backend="numpy", **KW).fit(coded.astype(np.float64), y)
    assert est.objective_ == pytest.approx(same.objective_, rel=1e-9)


@tuned(row_blocks_from=4 * 130)
def test_many_rows_are_trained_in_blocks_by_themselves(monkeypatch):
    called = []
    train = RowBlocks.train
    monkeypatch.setattr(RowBlocks, "train", lambda *a, **k: called.append(1) or train(*a, **k))
    X, y = classes(130)
    ReLUClassifier(beta=1e-1, **KW).fit(X[:129], y[:129])
    assert not called
    ReLUClassifier(beta=1e-1, **KW).fit(X, y)
    assert called


@tuned(block_rows=100)
def test_the_result_does_not_depend_on_the_number_of_threads(monkeypatch):
    X, y = classes()
    found = []
    for count in (1, 4):
        monkeypatch.setattr("bidual.programs.gated.shards.cores", lambda count=count: count)
        found.append(ReLUClassifier(beta=1e-2, backend="numpy", **KW).fit(X, y).network_.linear_weights)
    np.testing.assert_array_equal(*found)


def test_torch_finds_the_same():
    pytest.importorskip("torch")
    X, y = classes()
    kw = {**KW, "beta": 1e-2, "tol": 1e-5}
    ours = ReLUClassifier(backend="numpy", **kw).fit(X, y)
    theirs = ReLUClassifier(backend="torch", device="cpu", **kw).fit(X, y)
    assert theirs.objective_ == pytest.approx(ours.objective_, rel=2e-5)
    np.testing.assert_allclose(theirs.predict_proba(X), ours.predict_proba(X), atol=2e-2)


# ---- long fits ------------------------------------------------------------------------------------------


@tuned(checkpoint_seconds=0.0)
def test_an_interrupted_fit_goes_on_where_it_was(tmp_path):
    X, y = classes()
    kw = {**KW, "beta": 1e-3, "tol": 1e-4, "backend": "numpy"}
    whole = ReLUClassifier(**kw).fit(X, y)
    path = tmp_path / "state.npz"
    with pytest.warns(ConvergenceWarning):
        ReLUClassifier(**kw, checkpoint=path, max_iter=2).fit(X, y)
    resumed = ReLUClassifier(**kw, checkpoint=path).fit(X, y)
    assert resumed.n_iter_ == whole.n_iter_
    np.testing.assert_allclose(resumed.network_.linear_weights, whole.network_.linear_weights, rtol=1e-5, atol=1e-7)
    assert [p.name for p in tmp_path.iterdir()] == ["state.npz"]


@tuned(checkpoint_seconds=0.0)
def test_a_fit_killed_between_two_passes_goes_on(tmp_path, monkeypatch):
    import bidual.solvers.blocks.solve as solve

    X, y = classes()
    kw = {**KW, "beta": 1e-3, "backend": "numpy"}
    whole = ReLUClassifier(**kw).fit(X, y)
    passes = []

    def dies(block, state, turn, n_turns, **common):
        passes.append(1)
        if len(passes) == 5:
            raise MemoryError("killed")
        return epoch(block, state, turn, n_turns, **common)

    epoch = solve.epoch
    monkeypatch.setattr(solve, "epoch", dies)
    path = tmp_path / "state.npz"
    with pytest.raises(MemoryError):
        ReLUClassifier(**kw, checkpoint=path).fit(X, y)
    resumed = ReLUClassifier(**kw, checkpoint=path).fit(X, y)
    np.testing.assert_allclose(resumed.network_.linear_weights, whole.network_.linear_weights, rtol=1e-5, atol=1e-7)


def test_the_checkpoint_of_another_problem_is_refused(tmp_path):
    X, y = classes()
    path = tmp_path / "state.npz"
    ReLUClassifier(beta=1e-2, checkpoint=path, **KW).fit(X, y)
    with pytest.raises(ValueError, match=r"another problem \(beta differs\)"):
        ReLUClassifier(beta=2e-2, checkpoint=path, **KW).fit(X, y)
    with pytest.raises(ValueError, match=r"\(X differs\)"):
        ReLUClassifier(beta=1e-2, checkpoint=path, **KW).fit(2 * X, y)
    path.write_text("nonsense")
    with pytest.raises(ValueError, match="not a checkpoint"):
        ReLUClassifier(beta=1e-2, checkpoint=path, **KW).fit(X, y)


def test_time_is_up():
    X, y = classes(2000, 20, k=8)
    kw = {**KW, "n_patterns": 200, "tol": 1e-9, "time_limit": 0.0}
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        est = ReLUClassifier(beta=1e-4, backend="numpy", **kw).fit(X, y)
    assert est.lower_bound_ <= est.objective_


def test_a_warm_start_keeps_the_network():
    X, y = classes()
    est = ReLUClassifier(beta=1e-2, backend="numpy", warm_start=True, **KW).fit(X, y)
    first = est.objective_
    est.fit(X, y)
    assert est.n_iter_ <= 2
    assert est.objective_ <= first * (1 + 1e-9)


# ---- trained gates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [120, 400])  # the ways for few and for many rows are one here
def test_trained_gates_fit_better_than_drawn_ones(n):
    X, y = classes(n, 12)
    drawn = ReLUClassifier(beta=1e-3, backend="numpy", **KW).fit(X, y)
    trained = ReLUClassifier(beta=1e-3, gates="trained", **KW).fit(X, y)
    assert trained.objective_ < drawn.objective_
    assert trained.certificate_.n_patterns == 24
    again = ReLUClassifier(beta=1e-3, gates=trained, activation="gated", tol=1e-3).fit(X, y)
    assert again.objective_ == pytest.approx(trained.objective_, rel=2e-3)


def test_trained_gates_of_other_losses_and_without_biases():
    X, y = numbers()
    kw = {**KW, "bias": False, "fit_intercept": False, "gates": "trained"}
    for loss in ("squared", "huber"):
        est = ReLURegressor(beta=1e-3, loss=loss, **kw).fit(X, y)
        assert est.gap_ <= 1e-3
        assert est.predict(np.zeros((1, 5))) == 0.0


def test_trained_gates_do_not_depend_on_units_or_threads(monkeypatch):
    X, y = numbers()
    kw = {**KW, "gates": "trained", "bias": False}
    est = ReLURegressor(beta=1e-2, **kw).fit(X, y)
    # f(x) of targets y is 8 f(x / 4) of targets 8 y, x / 4
    other = ReLURegressor(beta=1e-2 * 8 / 4, **kw).fit(X / 4, 8 * y)
    np.testing.assert_allclose(other.predict(X / 4), 8 * est.predict(X), rtol=1e-4, atol=1e-4)
    monkeypatch.setattr("bidual.programs.gated.shards.cores", lambda: 1)
    np.testing.assert_array_equal(ReLURegressor(beta=1e-2, **kw).fit(X, y).predict(X), est.predict(X))


def test_a_resumed_fit_has_the_gates_it_had(tmp_path, monkeypatch):
    X, y = classes()
    kw = {**KW, "beta": 1e-3, "gates": "trained", "checkpoint": tmp_path / "state.npz"}
    with pytest.warns(ConvergenceWarning):
        first = ReLUClassifier(**kw, max_iter=1).fit(X, y)

    def trained(*args, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr("bidual.training.row_blocks.trained_gates", trained)
    resumed = ReLUClassifier(**kw).fit(X, y)
    assert resumed.objective_ <= first.objective_
    gates = {row.tobytes() for row in first.network_.gate_vectors()}
    assert {row.tobytes() for row in resumed.network_.gate_vectors()} <= gates


def test_trained_gates_keep_the_time():
    X, y = classes(2000, 20, k=8)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        est = ReLUClassifier(beta=1e-4, gates="trained", **{**KW, "tol": 1e-9, "time_limit": 0.0}).fit(X, y)
    assert est.lower_bound_ <= est.objective_


# ---- every way to train takes the road for many rows ------------------------------------------------------


@pytest.fixture
def blocks(monkeypatch):
    """What was trained in blocks, all of which is many rows here."""
    trained, train = [], RowBlocks._trained
    monkeypatch.setattr(RowBlocks, "_trained", lambda self, *a: trained.append(self.objective.beta) or train(self, *a))
    with tuned(row_blocks_from=1):
        yield trained


def test_a_path_of_many_rows_keeps_its_gates(blocks):
    X, y = numbers(150)
    path = solution_path(X, y, n_betas=4, beta_min_ratio=0.03, activation="gated", n_patterns=12, random_state=0)
    assert blocks == path.betas.tolist()
    assert path.n_neurons[0] == 0  # the first beta is the smallest one that leaves nothing
    assert path.n_neurons[-1] > 0
    assert path.converged.all()
    gates = [{row.tobytes() for row in point.directions} for point in path]
    assert all(others == gates[0] for others in gates)
    vectors = path[0].directions
    few = ReLURegressor(path.betas[-1], activation="gated", gates=vectors, backend="numpy", tol=1e-6).fit(X, y)
    assert path.lower_bounds[-1] <= few.objective_ * (1 + 1e-12)
    assert path.objectives[-1] == pytest.approx(few.objective_, rel=2e-3)


def test_a_gated_network_on_many_rows_is_certified_in_blocks(blocks):
    X, y = classes(150)
    est = ReLUClassifier(beta=1e-2, **KW).fit(X, y)
    found = certify(est, X, y, tol=1e-4, time_limit=None, random_state=0)
    assert len(blocks) == 2
    assert found.objective == pytest.approx(est.objective_, rel=1e-12)
    assert found.gap <= est.gap_ + 1e-4
    with tuned(row_blocks_from=10**9):
        assert certify(est, X, y, tol=1e-4, time_limit=None).objective == pytest.approx(est.objective_, rel=1e-12)
    assert len(blocks) == 2


def test_folds_of_many_rows_are_trained_in_blocks(blocks):
    X, y = classes(150)
    kw = {"activation": "gated", "n_patterns": 8, "random_state": 0, "tol": 1e-2}
    est = ReLUClassifierCV(n_betas=3, cv=2, beta_min_ratio=0.1, **kw).fit(X, y)
    assert len(blocks) == 2 * 3 + 1
    assert est.gap_ <= 1e-2
    assert est.scores_.max() > 0.4


# ---- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"backend": "jax"}, "unknown backend"),
        ({"backend": "numpy", "device": "cuda"}, "is for backend='torch'"),
        ({"activation": "relu", "backend": "numpy"}, "for activation='gated'"),
        ({"backend": "numpy", "beta": 0.0}, "beta > 0"),
        ({"gates": "random"}, "the only name is 'trained'"),
        ({"backend": "numpy", "loss": "hinge"}, "a smooth loss"),
        ({"backend": "torch", "device": "nowhere"}, "torch cannot use"),
        ({"backend": "numpy", "gates": np.ones((3, 99))}, "gates must have shape"),
        ({"gates": "trained", "architecture": Convolutional(2)}, "gates='trained' are for architecture='two_layer'"),
        ({"backend": "numpy", "architecture": Convolutional(2)}, "backend, .* are for architecture='two_layer'"),
    ],
)
def test_what_cannot_be(parameters, message):
    X, y = classes(60)
    with pytest.raises(ValueError, match=message):
        ReLUClassifier(**{"beta": 1e-2, **KW, **parameters}).fit(X, y)


def test_huge_and_tiny_units_change_nothing():
    X, y = numbers()
    X = X.astype(np.float64)
    base = ReLURegressor(beta=0.02, backend="numpy", bias=False, **KW).fit(X, y)
    for s in (1e-8, 1e8):
        est = ReLURegressor(beta=0.02 * s, backend="numpy", bias=False, **KW).fit(s * X, y)
        assert est.objective_ == pytest.approx(base.objective_, rel=1e-3)


def test_nan_is_refused():
    X, y = classes()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        ReLUClassifier(beta=1e-2, backend="numpy", **KW).fit(X, y)


# ---- around it --------------------------------------------------------------------------------------------


def test_gates_are_open_for_the_share_of_rows_asked_for():
    rng = np.random.default_rng(0)
    X = 50.0 + rng.standard_normal((500, 3))
    gates = quantile_gates(X, 200, 0)
    shares = (X @ gates[:, :3].T + gates[:, 3] >= 0).mean(axis=0)
    assert shares.min() >= 0.1 - 1e-9
    assert shares.max() <= 0.9 + 1e-9
    assert shares.std() > 0.15


def test_principal_axes_are_a_rotation():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 6)) @ rng.standard_normal((6, 6)) + 1e4
    axes = PrincipalAxes(constant=0.3).fit(X)
    Z = axes.transform(X)
    centred = X - X.mean(axis=0)
    np.testing.assert_allclose(Z @ Z.T * axes.scale_**2, centred @ centred.T, atol=1e-6)
    assert (Z**2).sum(axis=1).mean() == pytest.approx(1 / 0.09, rel=1e-9)
    np.testing.assert_allclose(np.cov(Z.T) - np.diag(np.diag(np.cov(Z.T))), 0.0, atol=1e-6)
    few = PrincipalAxes(2).fit(X.astype(np.float32))
    assert few.transform(X.astype(np.float32)).shape == (300, 2)
    with pytest.raises(ValueError, match="n_components"):
        PrincipalAxes(7).fit(X)


ESTIMATORS = [
    ReLUClassifier(beta=1e-2, activation="gated", backend="numpy", n_patterns=10, random_state=0, tol=1e-3),
    ReLURegressor(beta=1e-2, activation="gated", backend="numpy", n_patterns=10, random_state=0, tol=1e-3),
    ReLUClassifier(beta=1e-2, activation="gated", gates="trained", n_patterns=10, random_state=0, tol=1e-3),
    PrincipalAxes(),
]


@parametrize_with_checks(
    ESTIMATORS,
    # rows are not sorted and merged here: results agree in value, not in every digit
    expected_failed_checks=lambda e: (
        {}
        if isinstance(e, PrincipalAxes)
        else {
            f"check_sample_weight_equivalence_on_{kind}_data": "batches are drawn from the rows as they are"
            for kind in ("dense", "sparse")
        }
    ),
)
def test_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


def test_the_checks_exist():
    assert len(list(estimator_checks_generator(clone(ESTIMATORS[0])))) > 40
