"""Settings of the tests: the same threads, random numbers and examples on every machine."""

# ruff: noqa: E402

import os

# One thread for each library, as `make test` has two workers. This is before NumPy is loaded, and for all children.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["MPLBACKEND"] = "Agg"

import itertools
import time

import numpy as np
import pytest
import threadpoolctl
from hypothesis import settings

threadpoolctl.threadpool_limits(1)  # where a plugin has loaded NumPy already

# The same examples on every run, so that a change lands or not by its own merits; `make fuzz` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", max_examples=200, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def _same_random_numbers():
    """``random_state=None`` stands for the global generator: it starts at the same place in every test."""
    np.random.seed(0)


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by a millisecond whenever it is looked at: limits of time are limits of work."""
    looks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: 1e-3 * next(looks))
