"""Ctrl-C and time limits: the best network so far, with an honest gap, whenever they come."""

import signal
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from bidual import (
    BatchNorm,
    Convolutional,
    LinearConvRegressor,
    LinearNetRegressor,
    Parallel,
    ReLUClassifier,
    ReLURegressor,
    ReLURegressorCV,
    SplineRegressor,
    certify,
    solution_path,
)
from bidual._util import watch as _watch
from bidual._util.memory import require_memory
from bidual._util.tuning import tuned
from bidual._util.watch import INTERRUPTED, TIME_LIMIT, Stopped, Watch, checkpoint, current, last_look, watching
from bidual.cli import main

from .helpers import gaussian_problem

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((40, 3)), RNG.standard_normal((40, 2))
y = np.abs(X[:, 0]) - X[:, 1] ** 2 + 0.1 * RNG.standard_normal(40)
IMAGES = X.repeat(4, axis=1).reshape(40, 12)[:, :, None]
HARD = {"beta": 1e-4, "tol": 0.0, "random_state": 0}

ESTIMATORS = {
    "adaptive": (ReLURegressor(**HARD), X, y),
    "several outputs": (ReLURegressor(**HARD), X, Y),
    "kinks": (ReLURegressor(loss="absolute", **HARD), X, y),
    "exact": (ReLURegressor(method="exact", **HARD), X, y),
    "exact, several outputs": (ReLURegressor(method="exact", **HARD), X, Y),
    "sampled": (ReLURegressor(method="sampled", n_patterns=200, **HARD | {"tol": 1e-7}), X, y),
    "cutting planes": (ReLURegressor(method="cutting_plane", **HARD), X, y),
    "gated": (ReLURegressor(activation="gated", n_patterns=50, **HARD), X, y),
    "gated, in blocks": (ReLURegressor(activation="gated", n_patterns=20, backend="numpy", **HARD), X, y),
    "classes": (ReLUClassifier(**HARD), X, np.arange(40) % 3),
    "batch norm before": (ReLURegressor(architecture=BatchNorm(), **HARD), X, y),
    "batch norm after": (ReLURegressor(architecture=BatchNorm(position="after"), **HARD), X, y),
    "batch norm after, sampled": (
        ReLURegressor(architecture=BatchNorm(position="after"), method="sampled", n_patterns=20, **HARD), X, y,
    ),
    "convolution": (ReLURegressor(architecture=Convolutional(3), **HARD), IMAGES, y),
    "convolution, flattened": (ReLURegressor(architecture=Convolutional(3, pooling="flatten"), **HARD), IMAGES, y),
    "parallel": (ReLURegressor(architecture=Parallel(2), **HARD), X, y),
    "spline": (SplineRegressor(1e-6, loss="absolute", tol=0.0), X[:, :1], y),
    "linear": (LinearNetRegressor(3, 1e-4, tol=0.0), X * [1.0, 0.1, 0.01], Y),
    "linear convolution": (LinearConvRegressor(2, beta=1e-4, tol=0.0), IMAGES, y),
}  # fmt: skip


@pytest.fixture
def press(monkeypatch):
    """Presses Ctrl-C when the watch has been asked so many times; says whether that has happened."""

    def after(polls):
        asked, late, pressed = iter(range(polls)), Watch.late, []

        def counting(self):
            if not pressed and self._root is not _watch._NEVER and next(asked, None) is None:
                pressed.append(True)
                signal.raise_signal(signal.SIGINT)
            return late(self)

        monkeypatch.setattr(Watch, "late", counting)
        return pressed

    return after


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def check_honest(est, rows):
    certificate = est.certificate_
    assert np.isfinite([certificate.objective, certificate.lower_bound, certificate.gap, certificate.likely_gap]).all()
    assert certificate.lower_bound <= certificate.objective
    assert np.isfinite(est.predict(rows)).all() or isinstance(est, ReLUClassifier)


@pytest.mark.parametrize("polls", [0, 4, 25])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_control_c_at_any_moment_leaves_a_network_with_its_gap(press, name, polls):
    est, rows, targets = ESTIMATORS[name]
    before, pressed = signal.getsignal(signal.SIGINT), press(polls)
    est.fit(rows, targets)
    check_honest(est, rows)
    assert signal.getsignal(signal.SIGINT) is before
    assert (est.status_ == INTERRUPTED) == bool(pressed)
    assert pressed or polls == 25


@pytest.mark.parametrize("name", [n for n, (est, _, _) in ESTIMATORS.items() if "time_limit" in est.get_params()])
def test_no_time_at_all_leaves_a_network_with_its_gap(name):
    est, rows, targets = ESTIMATORS[name]
    est.set_params(time_limit=0.0).fit(rows, targets)
    est.set_params(time_limit=None)
    check_honest(est, rows)
    assert est.status_ == TIME_LIMIT or est.likely_gap_ < 1e-6


@pytest.mark.parametrize("polls", [0, 3, 30])
def test_certify_says_what_is_known_by_the_time_of_control_c(press, polls):
    network = RNG.standard_normal((5, 3)), RNG.standard_normal((5, 1))
    press(polls)
    certificate = certify(network, X, y, beta=1e-4, tol=0.0, time_limit=None, random_state=0)
    assert 0.0 <= certificate.lower_bound <= certificate.objective
    assert np.isfinite(certificate.gap)


def test_a_second_control_c_interrupts_at_once():
    before = signal.getsignal(signal.SIGINT)
    with watching() as watch:
        signal.raise_signal(signal.SIGINT)
        assert watch.interrupted
        assert current().late()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert current() is _watch._NEVER


def test_watches_within_watches_share_control_c_and_the_nearest_deadline():
    with watching(1000.0) as outer, watching(2000.0) as inner:
        assert inner.deadline == outer.deadline
        with watching(0.0) as over, pytest.raises(Stopped, match=TIME_LIMIT):
            over.check()
        checkpoint()
        signal.raise_signal(signal.SIGINT)
        assert outer.interrupted
        assert outer.left == 0.0
        with pytest.raises(Stopped, match=INTERRUPTED):
            checkpoint()
        with last_look(1000.0):
            checkpoint()


def test_threads_that_hear_no_signals_have_deadlines_of_their_own():
    seen = []

    def work():
        with watching(0.0) as watch:
            seen.append(watch.late())

    with watching() as watch:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert not watch.late()
    assert seen == [True]


def test_a_path_keeps_the_points_that_are_finished(monkeypatch, press):
    whole = solution_path(X, y, n_betas=4, random_state=0)
    assert not whole.interrupted
    from bidual.training.train import TrainingSet

    train, count = TrainingSet.train, []

    def third(self, *args, **options):
        count.append(self.objective.beta)
        if len(set(count)) == 3 and not current().interrupted:
            signal.raise_signal(signal.SIGINT)
        return train(self, *args, **options)

    monkeypatch.setattr(TrainingSet, "train", third)
    path = solution_path(X, y, n_betas=4, random_state=0)
    assert path.interrupted
    np.testing.assert_array_equal(path.betas, whole.betas[:2])
    np.testing.assert_array_equal(path.objectives, whole.objectives[:2])


def test_a_path_without_a_finished_point_is_a_keyboard_interrupt(press):
    press(0)
    with pytest.raises(KeyboardInterrupt):
        solution_path(X, y, n_betas=4, random_state=0)


@pytest.mark.parametrize(
    "search",
    [ReLURegressorCV(n_betas=3, cv=2), GridSearchCV(ReLURegressor(tol=0.0), {"beta": [1e-2, 1e-3]}, cv=2)],
)
def test_control_c_ends_a_search_for_beta(press, search):
    press(10)
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, y)


def test_control_c_in_the_last_training_of_a_cross_validation_returns_the_best_network(monkeypatch):
    from bidual.training.train import TrainingSet

    train = TrainingSet.train

    def last(self, method, options, *args, **more):
        if options.prove is not False:  # nothing is proven in the folds
            with watching():
                signal.raise_signal(signal.SIGINT)
                return train(self, method, options, *args, **more)
        return train(self, method, options, *args, **more)

    monkeypatch.setattr(TrainingSet, "train", last)
    est = ReLURegressorCV(n_betas=3, cv=2, tol=0.0, max_iter=2, random_state=0).fit(X, y)
    assert est.status_ == INTERRUPTED
    check_honest(est, X)


def test_the_command_line_says_what_was_saved(press, tmp_path, capsys):
    table, out = tmp_path / "d.csv", tmp_path / "m.json"
    np.savetxt(table, np.column_stack([X, y]), delimiter=",", header="a,b,c,y", comments="")
    fit = ["fit", str(table), "--target", "y", "--beta", "1e-4", "--tol", "0", "--out", str(out)]
    press(10)
    assert main(fit) == 130
    said = capsys.readouterr().err
    assert f"interrupted: the best network so far was written to {out} (likely gap" in said
    assert out.exists()
    press(0)
    assert main(["certify", str(out), str(table)]) == 130
    assert "interrupted: what was known by then was printed" in capsys.readouterr().err
    press(10)
    assert main(["cv", *fit[1:4], "--out", str(tmp_path / "cv.json")]) == 130
    assert "interrupted: nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "cv.json").exists()


def test_a_signal_from_outside_ends_a_program_that_goes_on_with_what_there_is():
    program = """
import os, signal, warnings
import numpy as np
from bidual import ReLURegressor
from bidual._util import watch as _watch
warnings.simplefilter("ignore")
late, polls = _watch.Watch.late, iter(range(20))
def asked(self):
    if next(polls, None) == 19:
        os.kill(os.getpid(), signal.SIGINT)
    return late(self)
_watch.Watch.late = asked
X = np.random.default_rng(0).standard_normal((40, 3))
print(ReLURegressor(1e-4, tol=0.0).fit(X, X[:, 0] ** 2).status_)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == INTERRUPTED


def test_what_does_not_fit_is_refused_with_its_numbers():
    require_memory(1e9, "this", "Do that.", available=2**31)
    with pytest.raises(MemoryError, match=r"this needs about 4\.0 GiB, and 2\.0 GiB are free. Do that."):
        require_memory(2**32, "this", "Do that.", available=2**31)


def test_memory_of_training_on_many_patterns_is_refused_before_it_is_taken(monkeypatch):
    monkeypatch.setattr("bidual._util.memory.available_memory", lambda: 2**18)
    after = BatchNorm(position="after")
    with pytest.raises(MemoryError, match=r"on 100 activation patterns of 40 rows needs about"):
        ReLURegressor(1e-3, method="sampled", n_patterns=100, architecture=after).fit(X, y)
    with pytest.raises(MemoryError, match=r"the enumeration of up to .* activation patterns of 40 rows needs about"):
        ReLURegressor(1e-3, method="exact").fit(X, y)


def test_many_directions_are_priced_in_blocks():
    from bidual.atoms import Normalised
    from bidual.losses import get_loss
    from bidual.solvers.normalised import pricing
    from bidual.training.objective import Objective

    problem = Objective(get_loss("squared"), 0.1, BatchNorm("after")).pose(X, y[:, None]).problem
    assert isinstance(problem.atoms, Normalised)
    V = problem.loss.dual_point(problem.Y, problem.Y, problem.w, centred=True)
    none = np.zeros((0, problem.atoms.relu_inputs.shape[1]))
    found = []
    for entries in (10**9, 500):
        with tuned(priced_entries=entries):
            found.append(pricing.Search(problem, np.random.default_rng(0)).run(V, none, 16, 16, 2))
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-9)


def test_a_proof_that_is_not_evaluated_again_in_time_still_bounds_but_is_not_stored(monkeypatch):
    X, y, _ = gaussian_problem(0, 8, 2)

    def no_time(self, problem, V):
        raise Stopped("interrupted")

    monkeypatch.setattr("bidual.bounds.oracle.PatternProof.bound", no_time)
    est = ReLURegressor(0.02, method="exact").fit(X, y)
    assert est.gap_ < 1e-6
    assert est.certificate_.evidence is None
