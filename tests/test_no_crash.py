"""Runs that used to be lost: singular steps, forks after a fit, nowhere to keep compiled code."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bidual
from bidual import ReLUClassifier, ReLURegressor
from bidual.atoms import Neurons, Relu
from bidual.losses import get_loss
from bidual.problem import Problem
from bidual.solvers.engine.newton import SmoothedNewton

# ---- singular steps --------------------------------------------------------------------------------


def test_newton_survives_blocks_in_which_rounding_loses_the_norm() -> None:
    # two columns that differ by 1e-9 are one in float32, and a penalty of 1e-14 is nothing beside their squares: as in
    # tables whose raw columns range from 1 to 64,000
    first = np.ones(8)
    X = np.column_stack([first, first + 1e-9 * (-1.0) ** np.arange(8)])
    problem = Problem(Relu(X), 3 * first[:, None], np.full(8, 1 / 8), get_loss("squared"), 1e-14, False)
    neurons = Neurons(np.array([[1.0, 0.0]]), np.ones((1, 1)), np.zeros(1))
    found, *_ = SmoothedNewton(problem, problem.loss).run(neurons, 1e-3, 5, 0.0)
    assert np.isfinite(found.U).all()
    assert problem.objective(found) < 1e-6 * problem.objective(neurons)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_tied_rows_with_the_hinge_loss_train() -> None:
    rng = np.random.default_rng(4)
    X = rng.integers(0, 3, (40, 2)).astype(float)
    rng.integers(0, 3, 40)
    y = rng.integers(0, 2, 40)
    fitted = ReLUClassifier(loss="hinge", random_state=0, prove=False).fit(X, y)
    assert fitted.likely_gap_ <= fitted.tol_


# ---- forks -------------------------------------------------------------------------------------------


#: Seconds after which a child hangs, however busy the machine.
HANGING = 300.0


def _gap() -> float:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 3))
    return float(ReLURegressor(beta=0.05, prove=30.0, random_state=0).fit(X, np.abs(X[:, 0])).gap_)


def _send_gap(queue: Any) -> None:
    queue.put(_gap())


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_after_a_fit_can_train_and_prove() -> None:
    gap = _gap()  # the threads of the parent have started; a child has none of them
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_send_gap, args=(queue,), daemon=True)
    child.start()
    try:
        assert queue.get(timeout=HANGING) == pytest.approx(gap, abs=1e-3)
    finally:
        child.kill()
        child.join()


# ---- nowhere to keep compiled code ------------------------------------------------------------------


def test_kernels_compile_where_nothing_can_be_written() -> None:
    # as in a read-only installation with a read-only home: numba finds out by opening a file in each place
    code = """
        import tempfile

        def refused(*args, **options):
            raise PermissionError("read-only file system")

        tempfile.TemporaryFile = refused
        from bidual._util.jit import JIT
        from bidual.bounds import _kernels
        from bidual.splines import _kernels as splines
        assert not JIT["cache"]
        print("compiled")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.stdout == "compiled\n", done.stderr


def test_every_compiled_function_takes_the_common_options() -> None:
    # a literal cache=True elsewhere would bring the crash back
    package = Path(bidual.__file__).parent
    literal = [
        path.name for path in package.rglob("*.py") if "cache=True" in path.read_text() and path.name != "jit.py"
    ]
    assert not literal
