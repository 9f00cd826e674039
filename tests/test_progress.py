"""Progress: silent by default, lines in a file, a display on a terminal."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from bidual import ReLUClassifier, ReLURegressor, ReLURegressorCV, certify, solution_path
from bidual._util.progress import closed, note, task

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))
Y = np.abs(X[:, 0])


class Terminal(io.StringIO):
    def isatty(self):
        return True


def everything(verbose):
    est = ReLURegressor(beta=0.01, tol=1e-2, random_state=0, verbose=verbose).fit(X, Y)
    for method, activation in (("exact", "relu"), ("adaptive", "gated")):
        options = {"method": method, "activation": activation, "verbose": verbose, "random_state": 0}
        ReLUClassifier(beta=0.05, tol=1e-2, **options).fit(X[:9], Y[:9] > 0.5)
    solution_path(X, Y, n_betas=3, tol=1e-2, random_state=0, verbose=verbose)
    ReLURegressorCV(n_betas=2, cv=2, tol=1e-2, prove=False, random_state=0, verbose=verbose).fit(X, Y)
    certify(est, X, Y, time_limit=5, verbose=verbose, random_state=0)


def test_nothing_is_printed_by_default(capfd):
    everything(0)
    assert capfd.readouterr() == ("", "")


def test_lines_where_there_is_no_terminal(capsys):
    everything(1)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    for words in ("neurons  objective", "patterns  objective", "gates  objective", "beta ", "fold 2 of 2"):
        assert f"{words}" in out
    assert all(line.startswith(("bidual: ", "Certificate", "  ")) for line in out.splitlines())


def test_a_display_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())
    ReLURegressorCV(n_betas=2, cv=2, tol=1e-2, prove=False, random_state=0, verbose=3).fit(X, Y)
    out = sys.stdout.getvalue()
    assert "\x1b[" in out
    assert "bidual: fold 1 of 2" in out
    assert "cross-validation" in out


def test_tasks_close_after_errors(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())

    def fail():
        with task("outer", 1), task("inner", 1):
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    before = sys.stdout.getvalue()
    note("after")
    assert sys.stdout.getvalue() == before + "bidual: after\n"  # no display is left open


def test_the_bar_closes_as_the_gap_does():
    assert closed(1.0, 1e-4) == 0.0
    assert closed(1e-2, 1e-4) == pytest.approx(0.5)
    assert closed(1e-4, 1e-4) == closed(0.0, 1e-4) == closed(1e-9, 0.0 + 1e-4) == 1.0
    assert 0.0 <= closed(np.inf, 1e-4) <= 1.0
    assert 0.0 < closed(1e-3, 0.0) < 1.0
