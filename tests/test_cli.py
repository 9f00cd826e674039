"""The command line, in process and once as a process of its own."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bidual
import bidual.cli.training as commands
from bidual import ReLUClassifier, ReLURegressor
from bidual._util.scaling import standardisation
from bidual.cli import main
from bidual.cli.commands import COMMANDS
from bidual.models import load

SOURCE = Path(bidual.__file__).parents[1]
RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(3.0, 2.0, 14), RNG.normal(-7.0, 50.0, 14)])
Y = np.abs(X[:, 0]) + X[:, 1] / 50.0
KIND = np.where(X[:, 0] + X[:, 1] / 50 > 3.0, "yes", "no")
THREE = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [2.0, 4.0])]
WEIGHT = np.arange(14.0)
CENTRE, SCALE = standardisation(X, np.full(14, 1 / 14))
STANDARD = (X - CENTRE) / SCALE  # to the last bit, which the solver's path depends on


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(path="d.csv", delimiter=",", encoding="utf-8", **columns):
    columns = columns or {"a": X[:, 0], "b": X[:, 1], "y": Y}
    with open(path, "w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(zip(*(np.asarray(c).tolist() for c in columns.values()), strict=True))
    return path


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def ok(*argv):
    assert main([str(a) for a in argv]) == 0


def error(capsys, *argv):
    """The message of a command that fails, which leaves nothing behind."""
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    assert main([str(a) for a in argv]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    last = captured.err.splitlines()[-1]
    assert last.startswith("bidual: error: ")
    assert {path: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before
    return last


def usage(capsys, *argv):
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in argv])
    assert stop.value.code == 2
    return capsys.readouterr().err


FIT = ("fit", "d.csv", "--target", "y", "--out", "m.json", "--seed", 0)


# ---- round trips -------------------------------------------------------------------------------


def test_regression_round_trip(capsys):
    write()
    ok(*FIT, "--beta", 0.01, "--method", "exact", "--no-scale-target")
    out, err = capsys.readouterr()
    assert "proven" in out
    assert "neurons" in out
    assert "R2" in out
    assert "model written to m.json" in out
    assert "task: regression (the target 'y' is numeric with 14 distinct values" in err
    ok("predict", "m.json", "d.csv", "--out", "p.csv")
    out, err = capsys.readouterr()
    assert out == ""
    assert "14 rows: R2 0.99" in err
    estimator = ReLURegressor(beta=0.01, method="exact").fit(STANDARD, Y)
    written = np.array(read("p.csv")["prediction"], dtype=float)
    np.testing.assert_allclose(written, estimator.predict(STANDARD), rtol=1e-12)
    model = load("m.json")
    np.testing.assert_array_equal(written, model.predict(X))
    assert model.objective(X, Y) == pytest.approx(model.certificate.objective, rel=1e-9)
    assert model.certificate.objective == pytest.approx(estimator.objective_, rel=1e-9)
    assert sorted(os.listdir()) == ["d.csv", "m.json", "p.csv"]


@pytest.mark.parametrize("labels", [KIND, THREE, KIND == "yes", np.where(KIND == "yes", 7, -1)])
def test_classification_round_trip(capsys, labels):
    write(a=X[:, 0], b=X[:, 1], y=labels)
    ok(*FIT, "--beta", 0.01, "--task", "classification", "--tol", 1)
    ok("predict", "m.json", "d.csv", "--out", "p.csv", "--proba")
    assert "accuracy" in capsys.readouterr().err
    classes = np.unique(labels)
    estimator = ReLUClassifier(beta=0.01, random_state=0, tol=1.0).fit(STANDARD, labels)
    written = read("p.csv")
    assert written["prediction"] == [str(label) for label in estimator.predict(STANDARD)]
    assert list(written) == ["prediction", *(f"probability_{label}" for label in classes)]
    P = np.array([written[f"probability_{label}"] for label in classes], dtype=float).T
    np.testing.assert_allclose(P, estimator.predict_proba(STANDARD), rtol=1e-9)
    model = load("m.json")
    assert model.target.classes == tuple(classes.tolist())
    assert model.objective(X, labels) == pytest.approx(model.certificate.objective, rel=1e-9)


def test_other_columns_and_another_order(capsys):
    write()
    ok(*FIT, "--quiet")
    ok("predict", "m.json", "d.csv")
    plain = capsys.readouterr().out
    write("e.csv", delimiter=";", encoding="utf-8-sig", über=["text"] * 14, b=X[:, 1], a=X[:, 0])
    ok("predict", "m.json", "e.csv")
    out, err = capsys.readouterr()
    assert out == plain
    assert err == ""


@pytest.mark.parametrize(("delimiter", "encoding"), [(";", "utf-8"), ("\t", "utf-8-sig"), (",", "utf-8-sig")])
def test_delimiters_and_encodings(delimiter, encoding):
    write(delimiter=delimiter, encoding=encoding)
    ok(*FIT, "--quiet")
    assert load("m.json").feature_names == ("a", "b")


def test_npz(capsys):
    np.savez("d.npz", X=X, y=THREE, feature_names=["a", "b"])
    np.savez("new.npz", X=X[:, ::-1], feature_names=["b", "a"])
    ok("fit", "d.npz", "--out", "m.json", "--seed", 0, "--tol", 1)
    assert "not numeric" in capsys.readouterr().err
    ok("predict", "m.json", "d.npz", "--out", "p.csv")
    ok("predict", "m.json", "new.npz", "--out", "q.csv")
    assert Path("p.csv").read_bytes() == Path("q.csv").read_bytes()
    assert read("p.csv")["prediction"] == load("m.json").predict(X).tolist()


def test_npz_labels_keep_their_type():
    np.savez("d.npz", X=X, y=np.where(KIND == "yes", "1", "0"))
    ok("fit", "d.npz", "--out", "m.json", "--seed", 0)
    assert load("m.json").target.classes == ("0", "1")
    assert load("m.json").feature_names == ("x0", "x1")


def test_codes_with_leading_zeros_stay_text():
    write(a=X[:, 0], y=np.where(KIND == "yes", "007", "042"))
    ok(*FIT)
    assert load("m.json").target.classes == ("007", "042")


def test_labels_of_another_look_are_understood(capsys):
    write(a=X[:, 0], b=X[:, 1], y=np.where(KIND == "yes", 1, 0))
    ok(*FIT, "--beta", 1e-3, "--quiet")
    write("e.csv", a=X[:, 0], b=X[:, 1], y=np.where(KIND == "yes", "1.0", "0.0"))
    capsys.readouterr()
    ok("predict", "m.json", "e.csv", "--out", "p.csv")
    assert "accuracy 1\n" in capsys.readouterr().err


# ---- options -----------------------------------------------------------------------------------


def test_options_reach_the_estimator(monkeypatch):
    write(a=X[:, 0], b=X[:, 1], c=KIND, w=WEIGHT, y=Y)
    seen = {}

    class Spy(ReLURegressor):
        def fit(self, X, y, sample_weight=None):
            seen.update(self.get_params(), X=X, y=y, sample_weight=sample_weight)
            return super().fit(X, y, sample_weight)

    Spy.__init__ = ReLURegressor.__init__
    monkeypatch.setattr(commands, "ReLURegressor", Spy)
    ok(
        *(*FIT, "--drop", "c, b", "--weights", "w", "--beta", 0.1, "--loss", "quantile:tau=0.8", "--method", "sampled"),
        *("--patterns", 30, "--no-bias", "--no-intercept", "--tol", 1e-3, "--max-iter", 50, "--time-limit", 60),
        *("--scale", "none", "--scale-target"),
    )
    assert repr(seen["loss"]) == "Quantile(tau=0.8)"
    expected = {"beta": 0.1, "method": "sampled", "n_patterns": 30, "bias": False, "fit_intercept": False, "tol": 1e-3}
    expected |= {"max_iter": 50, "time_limit": 60.0, "random_state": 0}
    assert {key: seen[key] for key in expected} == expected
    np.testing.assert_array_equal(seen["X"], X[:, :1])
    np.testing.assert_array_equal(seen["sample_weight"], WEIGHT)
    assert np.average(seen["y"], weights=WEIGHT) == pytest.approx(0.0, abs=1e-12)
    assert np.average(seen["y"] ** 2, weights=WEIGHT) == pytest.approx(1.0)
    model = load("m.json")
    assert model.scale is None
    assert model.objective(X[:, :1], Y, WEIGHT) == pytest.approx(model.certificate.objective, rel=1e-9)


def test_standardisation_is_that_of_repeated_rows():
    times = np.array([0, 1, 2, 3] * 3 + [1, 1])
    data = np.column_stack([X, np.full(14, 0.1)])
    centre, scale = standardisation(data, times / times.sum())
    repeated = np.repeat(X, times, axis=0)
    np.testing.assert_allclose(centre[:2], repeated.mean(axis=0))
    np.testing.assert_allclose(scale[:2], repeated.std(axis=0))
    assert (centre[2], scale[2]) == (0.1, 1.0)


def test_task_by_two_values_and_by_order(capsys):
    write(a=X[:, 0], b=X[:, 1], y=(Y > 3).astype(int))
    ok(*FIT)
    assert "task: classification (the target 'y' has two distinct values" in capsys.readouterr().err
    ok(*FIT, "--task", "regression")
    assert "task" not in capsys.readouterr().err
    assert load("m.json").task == "regression"


def test_json_of_fit(capsys):
    write()
    ok(*FIT, "--json", "-v", "-v")
    report = json.loads(capsys.readouterr().out)
    model = load("m.json")
    assert report["certificate"] == model.certificate.without_evidence().to_dict()
    assert report["n_neurons"] == model.network.n_neurons
    assert report["path"] == "m.json"
    assert (report["status"], report["converged"], report["task"]) == ("converged", True, "regression")
    assert report["train_score"] == {"name": "R2", "value": model.score(X, Y)}


@pytest.mark.parametrize("beta", [0.01, 0])
def test_unfinished_training_is_said_and_saved(capsys, beta):
    write()
    ok(*FIT, "--json", "--max-iter", 1, "--beta", beta, "--method", "sampled")
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert (report["status"], report["converged"]) == ("not converged", False)
    assert err.splitlines()[-1].startswith("bidual: warning: the likely gap")
    assert load("m.json").objective(X, Y) == pytest.approx(load("m.json").certificate.objective, rel=1e-9)


def test_quiet(capsys):
    write()
    ok(*FIT, "--quiet", "--task", "regression")
    ok("predict", "m.json", "d.csv", "--quiet", "--out", "p.csv")
    assert capsys.readouterr() == ("", "")


def test_json_of_predict(capsys):
    write()
    ok(*FIT, "--quiet")
    capsys.readouterr()
    ok("predict", "m.json", "d.csv", "--out", "p.csv", "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == 14
    assert report["score"]["name"] == "R2"
    assert report["path"] == "p.csv"
    assert "--json needs --out" in usage(capsys, "predict", "m.json", "d.csv", "--json")


def test_predictions_do_not_need_a_whole_target(capsys):
    write()
    ok(*FIT, "--quiet")
    write(a=X[:, 0], b=X[:, 1], y=["", *Y[1:]])
    capsys.readouterr()
    ok("predict", "m.json", "d.csv", "--out", "p.csv")
    assert "no score: d.csv: row 2, column 'y': the cell is empty" in capsys.readouterr().err
    write(a=X[:1, 0], b=X[:1, 1], y=Y[:1])
    ok("predict", "m.json", "d.csv", "--out", "p.csv")
    assert "R2 undefined" in capsys.readouterr().err


def test_info(capsys):
    write()
    ok(*FIT, "--quiet")
    capsys.readouterr()
    ok("info", "m.json")
    assert capsys.readouterr().out == load("m.json").summary() + "\n"
    ok("info", "m.json", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["n_neurons"] == load("m.json").network.n_neurons
    assert "weights" not in document["network"]
    assert document["certificate"] == load("m.json").certificate.to_dict()
    load("m.json").network.save("n.json")
    ok("info", "n.json")
    assert "TwoLayerNetwork(2 inputs" in capsys.readouterr().out
    ok("info", "n.json", "--json")
    assert json.loads(capsys.readouterr().out)["format"] == "bidual.network"
    assert "bare network" in error(capsys, "predict", "n.json", "d.csv")


# ---- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "d.csv is empty"),
        ("\n\n", "d.csv is empty"),
        ("a,y\n", "d.csv has no rows of data"),
        ("1,2\n3,4\n", "d.csv needs a header"),
        ("\na,y\n3,4\n", "d.csv needs a header"),
        ("a,b\n1,2\n", "d.csv lacks the column 'y'; it has 'a', 'b'"),
        ("a,a,y\n1,2,3\n", "d.csv has more than one column called 'a'"),
        (",a,y\n0,1,2\n0,3,4\n", "d.csv: column 1 of the header has no name"),
        ("a,,y\n0,1,2\n1,3,4\n", "d.csv: column 2 of the header has no name"),
        ("a,y\n1,2\n3\n", "d.csv: row 3 has 1 cells, the header has 2"),
        ("a,y\n1,2\n\n3,4\n", "d.csv: row 3 has 0 cells, the header has 2"),
        ("a,b,y\n1,2,3\n4,x,6\n", "d.csv: row 3, column 'b': 'x' is not a number"),
        ("a,b,y\n1,2,3\n4,1_0,6\n", "d.csv: row 3, column 'b': '1_0' is not a number"),
        ("a,y\n,3\nNaN,6\n", "d.csv has no columns to learn from: 'a' has no values"),
        ("a,y\n1,3\n1,6\n", "d.csv has no columns to learn from: 'a' is 1 in every row"),
        ("a,b,y\n1,-inf,3\n4,5,6\n", "d.csv: row 2, column 'b': '-inf' is not a finite number"),
        ("a,y\n1,3\n4,\n5,6\n", "d.csv: row 3, column 'y': the cell is empty"),
        ("a,y\n1,x\n4,nan\n", "d.csv: row 3, column 'y': the cell is empty or NaN"),
        ("a,y\n1,3\n4,3\n", "d.csv: the target 'y' is constant, 3 in every row"),
        ("a,y\n1,x\n4,x\n", "d.csv: the target 'y' holds one class only, 'x'"),
        ("y\n1\n2\n", "d.csv has no columns to learn from besides 'y'"),
        ('a,y\n"1,2\n', "d.csv is not a CSV file"),
        ("a,y\n1e200,1\n-1e200,2\n0,5\n", "too large to standardise"),
    ],
)
def test_bad_csv(capsys, text, message):
    Path("d.csv").write_text(text)
    assert message in error(capsys, *FIT)


def test_bad_files(capsys):
    assert "d.csv: No such file" in error(capsys, *FIT)
    Path("d.csv").write_bytes(b"\xef\xbb\xbfa,y\n1,\xe9\n")
    assert "d.csv is not UTF-8-SIG text" in error(capsys, *FIT)
    Path("d.csv").write_bytes(b"\x1f\x8bbroken")
    assert "d.csv is not a readable gzip file" in error(capsys, *FIT)
    Path("d.csv").unlink()
    Path("d.csv").mkdir()
    assert "d.csv: Is a directory" in error(capsys, *FIT)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": Y}, "needs a two-dimensional array X"),
        ({"X": Y, "y": Y}, "needs a two-dimensional array X"),
        ({"X": X.astype(str), "y": Y}, "needs a two-dimensional array X of numbers"),
        ({"X": X.astype(object), "y": Y}, "not a readable NPZ file"),
        ({"X": X, "y": Y[:3]}, "y must have one value for each of the 14 rows of X"),
        ({"X": X}, "lacks the column 'y'"),
        ({"X": X, "y": Y, "feature_names": ["a"]}, "X has 2 columns, feature_names has 1"),
        ({"X": X, "y": Y, "feature_names": ["a", "y"]}, "more than one column called 'y'"),
        ({"X": np.where(X[2, 1] == X, np.inf, X), "y": Y}, "row 3, column 'x1': inf is not a finite number"),
        ({"X": X[:0], "y": Y[:0]}, "no rows of data"),
    ],
)
def test_bad_npz(capsys, arrays, message):
    np.savez("d.npz", **arrays)
    assert message in error(capsys, "fit", "d.npz", "--out", "m.json")


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 broken"])
def test_broken_npz(capsys, content):
    Path("d.npz").write_bytes(content)
    assert "d.npz is not a readable NPZ file" in error(capsys, "fit", "d.npz", "--out", "m.json")
    with open("d.npz", "wb") as file:
        np.save(file, X)
    assert "d.npz is not a readable NPZ file" in error(capsys, "fit", "d.npz", "--out", "m.json")


def test_bad_choices(capsys):
    write()
    assert "lacks the columns 'c', 'd'" in error(capsys, *FIT, "--drop", "c,d")
    assert "lacks the column 'w'" in error(capsys, *FIT, "--weights", "w")
    assert "beta must be a number >= 0" in error(capsys, *FIT, "--beta", -1)
    assert "is for classes" in error(capsys, *FIT, "--loss", "hinge")
    assert "sample_weight must be finite and not negative" in error(capsys, *FIT, "--weights", "b")
    assert "--scale-target is for regression" in error(capsys, *FIT, "--task", "classification", "--scale-target")
    assert "the folder no does not exist" in error(capsys, *FIT, "--out", "no/m.json")
    assert "would overwrite an input file" in error(capsys, *FIT, "--out", "./d.csv")
    assert "not an ordinary file" in error(capsys, *FIT, "--out", os.devnull)


def test_usage_errors(capsys):
    write()
    assert "--target is required; d.csv has a, b, y" in usage(capsys, "fit", "d.csv", "--out", "m.json")
    assert "unknown loss 'mystery': use one of 'absolute'" in usage(capsys, *FIT, "--loss", "mystery")
    assert "must lie strictly between" in usage(capsys, *FIT, "--loss", "quantile:tau=2")
    assert "--loss" in usage(capsys, *FIT, "--loss", "huber:gamma=2")
    assert "invalid choice: 'magic'" in usage(capsys, *FIT, "--method", "magic")
    assert "--out" in usage(capsys, "fit", "d.csv")
    assert "COMMAND" in usage(capsys)


def test_bad_predictions(capsys):
    write(a=X[:, 0], b=X[:, 1], c=X[:, 0], y=Y)
    assert "m.json: No such file" in error(capsys, "predict", "m.json", "d.csv")
    ok(*FIT)
    capsys.readouterr()
    write("e.csv", b=X[:, 1], other=Y)
    assert "e.csv lacks the columns 'a', 'c'" in error(capsys, "predict", "m.json", "e.csv", "--out", "p.csv")
    assert "has no probabilities" in error(capsys, "predict", "m.json", "d.csv", "--proba")
    assert "overwrite an input" in error(capsys, "predict", "m.json", "d.csv", "--out", "m.json")
    assert "d.csv is not a bidual model file" in error(capsys, "predict", "d.csv", "d.csv")
    assert "d.csv is not a bidual model file" in error(capsys, "info", "d.csv")


def test_nothing_half_written(capsys, monkeypatch):
    write()
    ok(*FIT)
    capsys.readouterr()

    def full(*_):
        raise OSError(28, "No space left on device", "m.json")

    monkeypatch.setattr("bidual._util.files.os.replace", full)
    assert "m.json: No space left on device" in error(capsys, *FIT)
    assert "No space left" in error(capsys, "predict", "m.json", "d.csv", "--out", "p.csv")


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "bidual: interrupted: nothing was written"),
        (MemoryError(), 1, "bidual: error: out of memory"),
        (RuntimeError("two\nlines"), 1, "bidual: error: two lines"),
        (TypeError(), 1, "bidual: error: TypeError"),
    ],
)
def test_whatever_happens_in_training(capsys, monkeypatch, raised, code, message):
    write()

    def fail(*_, **__):
        raise raised

    monkeypatch.setattr(commands.ReLURegressor, "fit", fail)
    assert main([str(a) for a in FIT]) == code
    assert capsys.readouterr().err.splitlines()[-1] == message
    assert os.listdir() == ["d.csv"]


def test_traceback_on_demand():
    with pytest.raises(FileNotFoundError):
        main(["info", "m.json", "-vv"])


# ---- as a process ------------------------------------------------------------------------------


def run(*argv, **options):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "bidual", *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False, **options)


def test_as_a_process():
    write()
    done = run(*FIT, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["path"] == "m.json"
    failed = run("predict", "m.json", "e.csv")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == "bidual: error: e.csv: No such file or directory\n"


def test_closed_pipe():
    write()
    ok(*FIT)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "bidual", "predict", "m.json", "d.csv"]
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment, timeout=300, check=False)
    finally:
        os.close(writer)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert b"Broken" not in done.stderr


def test_version_and_help(capsys):
    for argv, words in [
        (["--version"], bidual.__version__),
        (["--help"], "predict"),
        *(([name, "--help"], f"examples:\n  bidual {name}") for name in COMMANDS),
    ]:
        with pytest.raises(SystemExit) as stop:
            main(argv)
        assert stop.value.code == 0
        assert words in capsys.readouterr().out


def test_a_gated_model_says_so(capsys):
    ok("fit", write(), "--target", "y", "--out", "g.json", "--activation", "gated", "--patterns", 20, "--seed", 0)
    assert load("g.json").training.activation == "gated"
    capsys.readouterr()
    ok("info", "g.json")
    assert "gated" in capsys.readouterr().out
