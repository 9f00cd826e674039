"""Commands around training: path, cv, report, export, certify of foreign files, completion, exit codes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual import ReLURegressorCV, load, solution_path
from bidual.cli import main
from bidual.cli.commands import NOT_REACHED
from bidual.models import as_network
from bidual.networks import TwoLayerNetwork

RNG = np.random.default_rng(1)
X = np.column_stack([RNG.normal(3.0, 2.0, 24), RNG.normal(-7.0, 50.0, 24)])
Y = np.abs(X[:, 0]) + X[:, 1] / 50.0
KIND = np.where(X[:, 0] + X[:, 1] / 50 > 3.0, "yes", "no")
STANDARD = (X - X.mean(axis=0)) / X.std(axis=0)


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("d.csv", "w", newline="") as file:
        csv.writer(file).writerows([("a", "b", "y", "kind"), *zip(*X.T.tolist(), Y.tolist(), KIND, strict=True)])


def ok(*argv, code=0):
    assert main([str(a) for a in argv]) == code


def read(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


VALUES = ("d.csv", "--target", "y", "--drop", "kind", "--seed", 0)
LABELS = ("d.csv", "--target", "kind", "--drop", "y", "--seed", 0)


def test_path_is_the_solution_path(capsys):
    ok("path", *VALUES, "--no-scale-target", "--n-betas", 4, "--out", "p.csv", "--test", "d.csv", "--json")
    summary = json.loads(capsys.readouterr().out)
    assert summary["betas"] == summary["converged"] == 4
    table, truth = read("p.csv"), solution_path(STANDARD, Y, n_betas=4, random_state=0)
    np.testing.assert_allclose(table["beta"], truth.betas, rtol=1e-9)
    np.testing.assert_allclose(table["objective"], truth.objectives, rtol=2e-3)
    np.testing.assert_array_equal(table["train_score"], table["test_score"])
    assert table["neurons"][0] == 0
    assert (table["likely_gap"] <= 1e-3).all()
    assert (table["likely_gap"] <= table["gap"]).all()


def test_path_of_classes_writes_models_and_a_picture(capsys):
    Path("models").mkdir()
    ok("path", *LABELS, "--betas", "0.1,0.01", "--models", "models", "--plot", "path.png")
    assert (
        capsys.readouterr().out.splitlines()[0]
        == "beta,neurons,objective,lower_bound,gap,likely_bound,likely_gap,train_score"
    )
    assert Path("path.png").read_bytes().startswith(b"\x89PNG")
    model = load("models/model-001.json")
    assert model.training.beta == 0.01
    assert model.objective(X, KIND) == pytest.approx(model.certificate.objective, rel=1e-9)
    assert set(model.predict(X)) <= {"yes", "no"}


def test_cv_chooses_as_the_estimator_does(capsys):
    ok(
        "cv",
        *VALUES,
        "--no-scale-target",
        "--n-betas",
        4,
        "--folds",
        3,
        "--out",
        "m.json",
        "--json",
        "--plot",
        "cv.svg",
    )
    result = json.loads(capsys.readouterr().out)
    estimator = ReLURegressorCV(n_betas=4, cv=3, scale=False, random_state=0).fit(STANDARD, Y)
    assert result["beta"] == pytest.approx(estimator.beta_)
    assert [row["mean_score"] for row in result["scores"]] == pytest.approx(estimator.mean_score_.tolist(), abs=1e-2)
    assert load("m.json").training.beta == pytest.approx(estimator.beta_)
    assert "<svg" in Path("cv.svg").read_text()


def test_cv_prints_a_table(capsys):
    ok("cv", *LABELS, "--betas", "0.3,0.02", "--folds", 3, "--out", "m.json", "--tol", 0.01)
    out = capsys.readouterr().out
    assert out.count("<- chosen") == 1
    assert "model written to m.json" in out


def test_fit_writes_a_report_and_report_writes_it_again(capsys):
    ok("fit", *VALUES, "--out", "m.json", "--report", "r.html")
    assert "report written to r.html" in capsys.readouterr().out
    ok("report", "m.json", "d.csv", "--out", "s.html", "--no-compare")
    for name in ("r.html", "s.html"):
        page = Path(name).read_text(encoding="utf-8")
        assert "best possible network" in page
        assert "m.json" in page
    assert "scikit-learn, seed 4" in Path("r.html").read_text(encoding="utf-8")
    assert "scikit-learn, seed" not in Path("s.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", [".pt", ".npz", ".json", ".onnx"])
def test_exports_compute_the_same(capsys, suffix):
    ok("fit", *VALUES, "--out", "m.json", "--quiet")
    model, out = load("m.json"), f"e{suffix}"
    if suffix == ".onnx":
        runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
        ok("export", "m.json", "--out", out)
        session = runtime.InferenceSession(out, providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(["prediction"], {"x": X})[0], model.predict(X), rtol=1e-9)
        return
    ok("export", "m.json", "--out", out)
    assert "scaled columns" in capsys.readouterr().err
    net = TwoLayerNetwork(**np.load(out)) if suffix == ".npz" else as_network(out)
    np.testing.assert_allclose(net.predict(model.transform(X)), model.scores(X), rtol=1e-12)


def test_exports_that_cannot_be(capsys):
    ok("fit", *VALUES, "--out", "m.json", "--quiet")
    ok("export", "m.json", "--out", "m.h5", code=1)
    assert "use one of .onnx, .pt, .npz, .json" in capsys.readouterr().err
    ok("export", "m.json", "--out", "m.json", code=1)
    assert "would overwrite" in capsys.readouterr().err


def test_pickles_are_loaded_only_if_trusted(capsys):
    class Bomb:
        def __reduce__(self):
            return (Path("exploded").touch, ())

    joblib.dump(Bomb(), "m.joblib")
    ok("certify", "m.joblib", *VALUES[:5], "--beta", 0.1, code=1)
    assert "add --trust" in capsys.readouterr().err
    assert not Path("exploded").exists()


def test_certify_of_joblib_onnx_and_pipelines(capsys):
    pytest.importorskip("onnx", reason="ONNX is not installed")
    mlp = MLPRegressor(hidden_layer_sizes=(5,), alpha=1.0, max_iter=20, random_state=0)
    with pytest.warns(UserWarning, match="Maximum iterations"):
        pipe = make_pipeline(StandardScaler(), mlp).fit(X, Y)
    with pytest.warns(UserWarning, match="Maximum iterations"):
        raw = MLPRegressor(hidden_layer_sizes=(5,), max_iter=20, random_state=0).fit(X, Y)
    joblib.dump(pipe, "pipe.joblib")
    joblib.dump(raw, "raw.joblib")
    as_network(raw).to_onnx("raw.onnx")
    results = {}
    for name in ("raw.joblib", "raw.onnx", "pipe.joblib"):
        ok("certify", name, *VALUES, "--beta", 0.1, "--trust", "--json", "--time-limit", 10)
        results[name] = json.loads(capsys.readouterr().out)
    assert results["raw.onnx"]["objective"] == pytest.approx(results["raw.joblib"]["objective"], rel=1e-9)
    expected = as_network(mlp).objective(STANDARD, Y, beta=0.1)
    assert results["pipe.joblib"]["objective"] == pytest.approx(expected, rel=1e-9)


def test_certify_of_a_pickled_classifier_knows_its_labels(capsys):
    with pytest.warns(UserWarning, match="Maximum iterations"):
        joblib.dump(
            MLPClassifier(hidden_layer_sizes=(5,), max_iter=5, random_state=0).fit(STANDARD * 1.0, KIND), "c.joblib"
        )
    ok("certify", "c.joblib", *LABELS, "--beta", 0.1, "--trust", "--json", "--time-limit", 10)
    assert json.loads(capsys.readouterr().out)["loss"] == "logistic"


def test_strict_turns_a_missed_gap_into_an_exit_code(capsys):
    ok("fit", *VALUES, "--out", "m.json", "--strict", "--quiet")
    ok("fit", *VALUES, "--out", "m.json", "--strict", "--quiet", "--tol", 0, "--max-iter", 1, code=NOT_REACHED)
    assert "warning" in capsys.readouterr().err
    assert load("m.json").network.n_inputs == 2  # written all the same
    TwoLayerNetwork(np.ones((1, 2)), np.ones((1, 1))).save("bad.json")
    ok("certify", "bad.json", *VALUES, "--beta", 0.1, "--strict", "--time-limit", 5, code=NOT_REACHED)


def test_architectures_with_options():
    ok("fit", *VALUES, "--out", "m.json", "--quiet", "--architecture", "batch_norm:rank=1", "--tol", 0.01)
    assert load("m.json").network.kind == "batch_norm"
    with pytest.raises(SystemExit) as stop:
        main(["fit", "d.csv", "--out", "m.json", "--architecture", "round"])
    assert stop.value.code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_every_command(capsys, shell):
    pytest.importorskip("shtab", reason="shtab is not installed")
    ok("completion", shell)
    script = capsys.readouterr().out
    assert all(name in script for name in ("certify", "playground", "--one-standard-error"))


def test_info_of_foreign_files(capsys):
    pytest.importorskip("onnx", reason="ONNX is not installed")
    TwoLayerNetwork(np.ones((3, 2)), np.ones((3, 1))).to_onnx("n.onnx")
    ok("info", "n.onnx")
    assert "3 neurons" in capsys.readouterr().out
    ok("info", "n.onnx", "--json")
    assert json.loads(capsys.readouterr().out)["n_neurons"] == 3
