"""Progress: silent by default, lines in a file, a display on a terminal."""

from __future__ import annotations

import io
import re
import sys
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import numpy as np
import pytest

from bidual import ReLUClassifier, ReLURegressor, ReLURegressorCV, SplineRegressor, certify, solution_path
from bidual._util import progress
from bidual._util.progress import closed, note, task
from bidual._util.tuning import tuned
from bidual.cli import main

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


class Notebook:
    """What stands for IPython: a kernel, and an output that is drawn again and again."""

    def __init__(self, monkeypatch):
        self.seen = []
        shell = SimpleNamespace(kernel=object())
        ipython = SimpleNamespace(get_ipython=lambda: shell)
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=self.display))

    def display(self, shown, display_id):
        assert display_id is True
        self.update(shown)
        return self

    def update(self, shown):
        self.seen.append(ET.fromstring(shown._repr_html_()))


@tuned(redraw_seconds=0.0)
def test_bars_in_a_notebook(monkeypatch, capsys):
    notebook = Notebook(monkeypatch)
    ReLURegressorCV(n_betas=2, cv=2, tol=1e-2, prove=False, random_state=0, verbose=1).fit(X, Y)
    bars = [[float(bar.get("value")) for bar in root.iter("progress")] for root in notebook.seen]
    words = ["".join(root.itertext()) for root in notebook.seen]
    assert max(map(len, bars)) >= 1
    assert {0.0, 0.5, 1.0} <= {row[0] for row in bars if row}
    assert any("cross-validation" in text and "fold 2 of 2: best score" in text for text in words)
    assert bars[-1] == []  # what stays is the result
    out = capsys.readouterr().out
    assert out.count("Certificate") == 1
    assert "bidual:" not in out


@tuned(redraw_seconds=0.0)
def test_bars_in_a_notebook_escape_and_close(monkeypatch, capsys):
    notebook = Notebook(monkeypatch)

    def fail():
        with task("<outer>", 2), task("inner", 2) as inner:
            inner.note("a < b & c", 0.25)
            assert [bar.get("value") for bar in notebook.seen[-1].iter("progress")] == ["0.000", "0.250"]
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not list(notebook.seen[-1].iter("progress"))
    assert capsys.readouterr().out == "bidual: a < b & c\n"  # verbose=2 keeps the lines


def test_a_shell_without_a_kernel_is_no_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not progress.in_notebook()


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


def told(capsys):
    """The objectives that progress has told of, and how many certificates were printed."""
    out = capsys.readouterr().out
    return [float(value) for value in re.findall(r"objective (\S+)  gap", out)], out.count("Certificate")


def test_progress_of_splines_counts_in_the_units_of_the_user(capsys):
    est = SplineRegressor(beta=1e3, verbose=1).fit(X[:, :1], 1000 * Y + 300)
    objectives, certificates = told(capsys)
    assert objectives[-1] == pytest.approx(est.objective_, rel=1e-2)
    assert certificates == 1


@pytest.mark.parametrize(
    "estimator",
    [
        ReLURegressor(beta=1e2, tol=1e-3, scale=False, random_state=0, verbose=1),
        ReLURegressor(beta=1e2, method="exact", scale=False, verbose=1),
        ReLURegressorCV(n_betas=2, cv=2, tol=1e-2, prove=False, random_state=0, verbose=1),
    ],
    ids=["adaptive", "exact", "cv"],
)
def test_progress_counts_in_the_units_of_the_user(estimator, capsys):
    estimator.fit(X, 1000 * Y + 300)
    objectives, certificates = told(capsys)
    assert objectives[-1] == pytest.approx(estimator.objective_, rel=1e-2)
    assert certificates == 1


def test_the_command_line_tells_the_certificate_once(capsys, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b\n" + "".join(f"{k},{k * k}\n" for k in range(12)))
    for command in (["fit", "--beta", "0.1"], ["cv", "--n-betas", "2", "--folds", "2"]):
        assert not main(
            [*command, str(table), "--target", "b", "--tol", "1e-2", "--out", str(tmp_path / "m.json"), "-v"]
        )
        said = capsys.readouterr()
        assert (said.out + said.err).count("Certificate") == 1
