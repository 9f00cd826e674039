"""Proofs at points between the best dual point and the one that is easiest to prove."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bidual import Certificate, ReLURegressor, certify
from bidual._util.clock import clock
from bidual.atoms import Relu
from bidual.bounds.oracle import SignSearch
from bidual.losses import get_loss
from bidual.problem import Problem
from bidual.solvers.blending import Blend

from .helpers import gaussian_problem


@pytest.fixture(scope="module")
def hard():
    """A problem whose gap is out of reach at both ends."""
    X, y, _ = gaussian_problem(0, 60, 8)
    est = ReLURegressor(0.005, bias=False, fit_intercept=False, tol=1e-3, prove=False, random_state=0).fit(X, y)
    problem = Problem(Relu(X), y[:, None], np.full(60, 1 / 60), get_loss("squared"), 0.005, False)
    return problem, est, ((y - est.predict(X)) / 60)[:, None]


def test_points_between_prove_more_than_the_easy_one(hard):
    problem, est, best = hard
    easy = problem.Y / len(problem.Y)  # of the network without neurons: proven at once, and worth little

    values = []

    def offer(bound, how):
        values.append(bound.value)
        return False

    blend = Blend(problem, lambda until: easy, best, est.objective_, 1e-4, np.zeros((1, 8)))
    blend.run(clock() + 0.3, offer)
    between = [arm.value for arm in blend.arms if 0.0 < arm.share < 1.0]
    assert between
    assert min(between) > next(arm.value for arm in blend.arms if arm.share == 0.0)
    assert max(values) <= est.objective_


def test_the_certificate_of_a_blended_point_can_be_verified(hard):
    _, est, _ = hard
    X, y, _ = gaussian_problem(0, 60, 8)
    found = certify(est, X, y, beta=0.005, time_limit=1.0, random_state=0)
    assert Certificate.from_dict(json.loads(json.dumps(found.to_dict()))).verify(X, y)
    assert found.lower_bound <= found.likely_bound * (1 + 1e-9)


def test_a_search_goes_on_where_it_was(hard):
    problem, _, best = hard
    search = SignSearch(problem, best, None, 1e-4, None)
    bounds = [search.told().bound]
    for _ in range(3):
        search.run(clock() + 0.03)
        bounds.append(search.told().bound)
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < bounds[0]
    assert not search.exhausted
    told = search.told()
    assert told.value <= told.bound


def test_no_weight_and_no_time(hard):
    problem, est, best = hard
    search = SignSearch(problem, np.zeros_like(best), None, 1e-4, None)
    search.run(clock() + 1.0)
    assert search.exhausted
    assert search.told().bound == 0.0
    X, y, _ = gaussian_problem(0, 60, 8)
    found = certify(est, X, y, beta=0.005, time_limit=0.0, random_state=0)
    assert found.lower_bound <= est.objective_
