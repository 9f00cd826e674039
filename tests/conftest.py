"""Settings of the tests: the same threads, random numbers and examples on every machine."""

# ruff: noqa: E402

import os

# One thread for each library, as `make test` has two workers. This is before NumPy is loaded, and for all children.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["MPLBACKEND"] = "Agg"

import itertools
import time
import timeit  # noqa: F401 - keeps the true clock, which the compiler looks at: a cold cache must not count as work

#: Seconds between two looks at the clock of the tests: a power of two, so that differences of times are exact.
TICK = 2.0**-10

# A clock that goes on whenever it is looked at, in place before the library is loaded: limits of time are limits of
# work, the same on every machine, however busy it is.
_looks = itertools.count()
time.perf_counter = lambda: TICK * next(_looks)

import numpy as np
import pytest
import threadpoolctl
from hypothesis import settings
from numba.core import event

from bidual._util import jit
from bidual._util.tuning import tuned

# Compiling does not look at that clock: nothing is to be taken off.
event.unregister(jit.COMPILING, jit.LISTENER)

threadpoolctl.threadpool_limits(1)  # where a plugin has loaded NumPy already

# The same examples on every run, so that a change lands or not by its own merits; `make fuzz` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", max_examples=200, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def _same_random_numbers(request):
    """Generators that tests share start at the same place in every test, whichever tests ran before.

    These are the global one, which ``random_state=None`` stands for, and the ``RNG`` of a module.
    """
    np.random.seed(0)
    if (generator := getattr(request.module, "RNG", None)) is not None:
        generator.bit_generator.state = np.random.default_rng(0).bit_generator.state


@pytest.fixture(autouse=True)
def _short_proofs():
    """Where nothing is said about proofs they take the least time that they may, however long the training was."""
    with tuned(proof_share=0.0):
        yield
