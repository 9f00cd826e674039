"""Training on fixed patterns by neurons inside their cones: against the program written down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bidual import Convolutional, ReLUClassifier, ReLURegressor, sample_patterns
from bidual._util.tuning import tuned
from bidual.atoms import Relu
from bidual.bounds import ConeBounds
from bidual.bounds.rowwise import RowwiseBounds
from bidual.losses import get_loss
from bidual.problem import Problem


@pytest.mark.parametrize("loss", ["squared", "absolute", "hinge", "logistic"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_neurons_generated_inside_the_cones_reach_the_optimum_of_the_program(loss, fit_intercept, monkeypatch):
    rng = np.random.default_rng(16)
    X, y = rng.standard_normal((20, 8)), rng.standard_normal(20)
    y = np.sign(y) if loss in ("hinge", "logistic") else y
    kind = ReLUClassifier if loss in ("hinge", "logistic") else ReLURegressor
    est = kind(
        0.02, loss=loss, architecture=Convolutional(3), method="sampled", n_patterns=12, bias=False, tol=1e-5,
        fit_intercept=fit_intercept, random_state=0,
    )  # fmt: skip
    written = clone(est).fit(X, y)  # all cone constraints, by the conic solver
    monkeypatch.setattr("bidual.solvers.cone_generation.suits", lambda *_: True)
    generated = clone(est).fit(X, y)
    assert generated.gap_ <= 1e-5
    assert generated.certificate_.scope == "patterns"
    assert generated.objective_ == pytest.approx(written.objective_, rel=3e-5)
    assert generated.lower_bound_ <= written.objective_ * (1 + 1e-9)
    assert len(generated.history_) > 1


def test_generated_neurons_of_several_outputs_reach_the_optimum_of_the_program(monkeypatch):
    rng = np.random.default_rng(17)
    X, Y = rng.standard_normal((12, 5)), rng.standard_normal((12, 2))
    est = ReLURegressor(0.05, architecture=Convolutional(2), method="sampled", n_patterns=6, bias=False, random_state=0)
    written = clone(est).fit(X, Y)
    monkeypatch.setattr("bidual.solvers.cone_generation.suits", lambda *_: True)
    generated = clone(est).fit(X, Y)
    assert generated.gap_ <= 1e-4
    assert generated.lower_bound_ <= written.objective_ * (1 + 1e-9)
    assert generated.objective_ <= written.objective_ * (1 + 2e-4)  # merging may lead out of the restriction


def test_where_generation_stalls_the_cones_are_written_down(monkeypatch):
    from bidual.solvers import cone_generation
    from bidual.solvers.run import Status

    rng = np.random.default_rng(19)
    X, y = rng.standard_normal((14, 6)), rng.standard_normal(14)
    est = ReLURegressor(1e-3, method="sampled", n_patterns=5, bias=False, random_state=0)
    written = clone(est).fit(X, y)
    generate = cone_generation.generate

    def stalls(run, patterns):
        whole, run.options = run.options, replace(run.options, max_iter=1)
        generate(run, patterns)
        run.options, run.status = whole, Status.STALLED

    monkeypatch.setattr(cone_generation, "suits", lambda *_: True)
    monkeypatch.setattr(cone_generation, "generate", stalls)
    rescued = clone(est).fit(X, y)
    assert rescued.objective_ == pytest.approx(written.objective_, rel=1e-6)
    assert rescued.gap_ <= rescued.tol_
    too_many = tuned(written_entries=0)
    with too_many, pytest.warns(ConvergenceWarning, match="no further progress"):
        left = clone(est).fit(X, y)
    assert left.objective_ > written.objective_


def test_generation_stops_at_the_time_limit_and_on_control_c(monkeypatch):
    from bidual._util.watch import Watch

    monkeypatch.setattr("bidual.solvers.cone_generation.suits", lambda *_: True)
    rng = np.random.default_rng(18)
    X, y = rng.standard_normal((20, 8)), np.sign(rng.standard_normal(20))
    est = ReLUClassifier(
        0.001, loss="hinge", architecture=Convolutional(3), method="sampled", n_patterns=12, tol=1e-9, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="stopped at time_limit"):
        stopped = clone(est).set_params(time_limit=0.0).fit(X, y)
    assert 0 <= stopped.lower_bound_ <= stopped.objective_
    asked = iter([False] * 100)
    monkeypatch.setattr(Watch, "interrupted", property(lambda self: next(asked, True)))
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        early = clone(est).fit(X, y)
    assert stopped.lower_bound_ <= early.lower_bound_ <= early.objective_ <= stopped.objective_


def test_rows_as_they_are_needed_give_the_bounds_of_all_rows():
    rng = np.random.default_rng(19)
    M, V = rng.standard_normal((200, 4)), rng.standard_normal((200, 1))
    problem = Problem(Relu(M), np.zeros_like(V), np.full(200, 1 / 200), get_loss("squared"), 1.0, False)
    patterns = sample_patterns(M, 15, random_state=0)
    every, needed = ConeBounds(problem, patterns), RowwiseBounds(problem, patterns)
    every.start(V)
    needed.start(V)
    assert needed.maximum() == pytest.approx(every.maximum(), rel=1e-9)
    for block in np.ndindex(every.values.shape):
        assert needed._solve(block) == pytest.approx(every._solve(block), rel=1e-8, abs=1e-7)
        if block in needed.directions:  # the maximiser is in the cone, and attains the value
            u = needed.directions[block]
            assert (np.where(patterns.active[block[-1]], 1, -1) * (M @ u) >= -1e-8 * np.linalg.norm(M, axis=1)).all()
            assert needed._gradients[block] @ u == pytest.approx(needed.values[block], rel=1e-8)
