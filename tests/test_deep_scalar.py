"""The scalar problem of a chain: closed form, critical weight decay, branch and bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual.closed_form.scalar import along, chain_cost, critical_beta, minimise_chain, reach, shrink
from bidual.losses import Hinge, Logistic

DEPTHS = st.integers(2, 8)


def quadratic(y, s, beta, depth):
    return 0.5 * (y - s) ** 2 + 0.5 * beta * depth * s ** (2 / depth)


@given(st.floats(0, 5), st.floats(1e-4, 5), DEPTHS)
def test_shrink_is_below_every_point_of_a_grid(y, beta, depth):
    s = float(shrink(np.array([y]), beta, depth)[0])
    grid = np.linspace(0, 1.2 * y, 2001)
    assert 0 <= s <= y
    assert quadratic(y, s, beta, depth) <= quadratic(y, grid, beta, depth).min() + 1e-12


def test_two_layers_are_soft_thresholding():
    y = np.array([0.0, 0.3, 1.0, 4.0])
    np.testing.assert_array_equal(shrink(y, 0.5, 2), np.maximum(y - 0.5, 0))
    np.testing.assert_array_equal(critical_beta(y, 2), y)


@given(st.floats(0.1, 5), st.integers(3, 8))
def test_strength_jumps_to_zero_at_the_critical_beta(y, depth):
    beta = float(critical_beta(np.array([y]), depth)[0])
    jump = y * (depth - 2) / (depth - 1)
    assert shrink(np.array([y]), beta * (1 - 1e-9), depth)[0] == pytest.approx(jump, rel=1e-6)
    assert shrink(np.array([y]), beta * (1 + 1e-9), depth)[0] == 0


@given(st.floats(0.01, 5), st.floats(1e-4, 5), DEPTHS)
def test_branch_and_bound_finds_the_minimum_of_the_closed_form(y, beta, depth):
    found = minimise_chain(lambda s: (0.5 * max(y - s, 0) ** 2, -max(y - s, 0)), beta, depth, y)
    truth = quadratic(y, float(shrink(np.array([y]), beta, depth)[0]), beta, depth)
    assert found.lower_bound <= truth * (1 + 1e-14)
    assert found.value == pytest.approx(truth, rel=1e-12)
    rounding = 16 * np.finfo(float).eps * y * y  # the bound allows for sums as large as the loss at zero
    assert found.value - found.lower_bound <= 1e-10 * found.value + rounding


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=lambda loss: loss.name)
@settings(max_examples=30)
@given(st.floats(1e-4, 1), DEPTHS, st.floats(0.1, 10))
def test_branch_and_bound_encloses_the_minimum_of_other_losses(loss, beta, depth, scale):
    curve = along(loss, np.array([[scale], [0.5 * scale]]), np.ones((2, 1)), np.array([0.3, 0.7]))
    upper = reach(curve(0.0)[0], beta, depth)
    found = minimise_chain(curve, beta, depth, upper)
    grid = np.concatenate([[0.0], np.geomspace(1e-6, 1, 400) * upper, np.linspace(0, 4 / scale, 400)])
    values = [curve(s)[0] + beta * chain_cost(s, depth) for s in grid]
    assert found.lower_bound <= min(values) + 1e-14
    assert found.value <= min(values) + 1e-10
    rounding = 32 * np.finfo(float).eps * curve(0.0)[0]  # the bound allows for sums as large as the loss at zero
    assert found.value - found.lower_bound <= 1e-10 * found.value + rounding
