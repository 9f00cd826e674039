"""The command line on tables as people have them: from fit to predict, certify, verify, report and info."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bidual import load
from bidual.cli import main
from bidual.models import as_network
from bidual.networks import TwoLayerNetwork

RNG = np.random.default_rng(3)
N = 60
AREA = RNG.uniform(30, 200, N).round(1)
CITY = RNG.choice(["Bern", "Zürich", "Chur"], N)
GARDEN = RNG.random(N) < 0.5
PRICE = (AREA * 4000 * np.where(CITY == "Zürich", 1.4, 1.0) + 60_000 * GARDEN + RNG.normal(0, 10_000, N)).round()
ROWS = list(zip(AREA, CITY, GARDEN, PRICE, strict=True))


def plain(separator=",", area="{:.1f}", garden=("no", "yes"), price="{:.0f}", rows=ROWS):
    lines = [separator.join(["area", "city", "garden", "price"])]
    for a, c, g, p in rows:
        lines.append(separator.join([area.format(a), c, garden[int(g)], price.format(p)]))
    return "\n".join(lines) + "\n"


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ok(*argv, code=0):
    assert main([str(a) for a in argv]) == code


FIT = ("--target", "price", "--out", "m.json", "--beta", 0.1, "--tol", 0.1, "--prove", "no", "--seed", 0)
COMMA = plain(";").replace(".", ",")
#: The same table, as twelve programs write it.
WRITTEN = {
    "comma": ("d.csv", plain().encode()),
    "semicolon, decimal comma": ("d.csv", COMMA.encode()),
    "tab": ("d.tsv", plain("\t").encode()),
    "pipe": ("d.txt", plain("|").encode()),
    "quoted": ("d.csv", plain(area='"{:.1f}"').replace("Bern", '"Bern"').encode()),
    "gz": ("d.csv.gz", gzip.compress(plain().encode())),
    "latin-1": ("d.csv", plain().encode("latin-1")),
    "utf-8-sig": ("d.csv", plain().encode("utf-8-sig")),
    "utf-16": ("d.csv", plain(";").encode("utf-16")),
    "booleans": ("d.csv", plain(garden=("False", "TRUE")).encode()),
    "index": (
        "d.csv",
        "\n".join(f"{k - 1 if k else ''},{line}" for k, line in enumerate(plain().splitlines())).encode(),
    ),
    "currency": ("d.csv", plain("\t", price="${:,.0f}").encode()),
}


@pytest.mark.parametrize("way", WRITTEN)
def test_the_same_table_makes_the_same_model_however_it_is_written(way, capsys):
    Path("plain.csv").write_text(plain(), encoding="utf-8")
    ok("fit", "plain.csv", *FIT, "--quiet")
    expected = load("m.json")
    name, content = WRITTEN[way]
    Path(name).write_bytes(content)
    ok("fit", name, *FIT, "--quiet")
    model = load("m.json")
    assert model.feature_names == expected.feature_names == ("area", "city=Bern", "city=Chur", "city=Zürich", "garden")
    assert model.certificate.objective == expected.certificate.objective
    capsys.readouterr()
    ok("predict", "m.json", name)
    predicted = capsys.readouterr()
    ok("predict", "m.json", "plain.csv")
    assert predicted.out == capsys.readouterr().out
    assert "60 rows: R2 0.9" in predicted.err


def test_stdin_is_read(monkeypatch, capsys):
    def pipe():
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(plain().encode())))

    pipe()
    ok("fit", "-", *FIT, "--report", "r.html")
    pipe()
    ok("predict", "m.json", "-", "--out", "p.csv")
    assert "60 rows: R2 0.9" in capsys.readouterr().err
    assert "of stdin" in Path("r.html").read_text(encoding="utf-8")


def test_a_price_table_generalises(capsys):
    Path("d.csv").write_text(plain(rows=ROWS[:40]), encoding="utf-8")
    Path("new.csv").write_text(plain(rows=ROWS[40:]), encoding="utf-8")
    ok("fit", "d.csv", "--target", "price", "--beta", 0.01, "--out", "m.json", "--prove", "no", "--seed", 0)
    assert "the target is standardised, (price - " in capsys.readouterr().out
    model = load("m.json")
    assert model.target.scale == pytest.approx(PRICE[:40].std())
    ok("predict", "m.json", "new.csv", "--out", "p.csv", "--json")
    assert json.loads(capsys.readouterr().out)["score"]["value"] > 0.9


def test_an_encoded_model_is_certified_verified_reported_and_shown_from_its_table(capsys):
    cells = plain(rows=ROWS[:20]).replace(",Bern,", ",,", 1)
    Path("d.csv").write_text(cells.replace(f"\n{AREA[3]:.1f},", "\nNA,"), encoding="utf-8")
    ok("fit", "d.csv", "--target", "price", "--beta", 0.2, "--out", "m.json", "--prove", "no", "--seed", 0)
    said = capsys.readouterr().err
    assert "column 'area' lacks 1 of 20 values: filled in with the median" in said
    assert "column 'city': missing cells are a category of their own" in said
    objective = load("m.json").certificate.objective
    ok("certify", "m.json", "d.csv", "--json", "--time-limit", 5, "--method", "local")
    assert json.loads(capsys.readouterr().out)["objective"] == pytest.approx(objective, rel=1e-9)
    ok("verify", "m.json", "d.csv")
    assert "PROVEN" in capsys.readouterr().out
    ok("report", "m.json", "d.csv", "--out", "r.html", "--no-compare")
    page = Path("r.html").read_text(encoding="utf-8")
    assert "area (numbers, some missing), city (4 categories), garden (booleans)" in page
    assert "Column &#x27;area&#x27; lacks 1 of 20 values" in page
    capsys.readouterr()
    ok("info", "m.json")
    assert "area (numbers, some missing)" in capsys.readouterr().out
    ok("info", "m.json", "--json")
    kinds = [column["kind"] for column in json.loads(capsys.readouterr().out)["encoder"]["columns"]]
    assert kinds == ["numbers", "categories", "booleans"]


def test_path_scores_a_table_that_is_encoded_as_in_training(capsys):
    Path("d.csv").write_text(plain(), encoding="utf-8")
    ok("path", "d.csv", "--target", "price", "--betas", "0.3,0.1", "--test", "d.csv", "--out", "p.csv", "--tol", 0.1)
    lines = [line.split(",") for line in Path("p.csv").read_text().splitlines()]
    assert [line[-1] for line in lines[1:]] == [line[-2] for line in lines[1:]]


def test_what_the_target_asks_for_is_said(capsys):
    grade = "a,y\n" + "".join(f"{k * k % 17},{k % 3}\n" for k in range(30))
    Path("d.csv").write_text(grade)
    fit = ("fit", "d.csv", "--target", "y", "--out", "m.json", "--beta", 0.5, "--tol", 0.5)
    ok(*fit)
    assert "whole numbers of 3 distinct values; if they are amounts, not classes: --task regression" in (
        capsys.readouterr().err
    )
    assert load("m.json").target.classes == (0, 1, 2)
    ok(*fit, "--task", "regression")
    assert load("m.json").task == "regression"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,y\n1,$5\n2,$6\n3,x\n4,$7\n", "d.csv: row 4, column 'y': 'x' is not a number, as other cells of the target"),
        ("a,y\n1,1.5\n2,NA\n3,2.5\n", "row 3, column 'y': nothing is known ('NA'): leave this row out"),
        ("a,y\n1,2020-01-01\n2,2020-01-02\n", "the target 'y' holds dates ('2020-01-01')"),
        ("a,y\n" + "".join(f"{k},id {k}\n" for k in range(30)), "30 different texts in 30 rows"),
        ("day,y\n2020-01-01,1.5\n2020-01-02,2.5\n", "column 'day' holds dates or times"),
        ("a,y\n1,1.5\n2,2.5\nx,3\n", "row 4, column 'a': 'x' is not a number, as other cells"),
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", "d.csv needs a header"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_a_sentence(text, message, capsys):
    Path("d.csv").write_text(text)
    ok("fit", "d.csv", "--target", "y", "--out", "m.json", code=1)
    assert message in capsys.readouterr().err
    assert not Path("m.json").exists()


@pytest.mark.parametrize("name", ["", "id", "PassengerId", "index", "Unnamed: 0"])
def test_columns_that_number_the_rows_are_left_out_and_that_is_said(name, capsys):
    rows = [f"{k},{k * k % 7},{k * k % 7 + 0.5}" for k in range(1, 15)]
    Path("d.csv").write_text("\n".join([f"{name},a,y", *rows]))
    ok("fit", "d.csv", "--target", "y", "--out", "m.json", "--beta", 0.1)
    assert load("m.json").feature_names == ("a",)
    assert f"column {name or '(index)'!r} numbers the rows: left out" in capsys.readouterr().err


def test_columns_can_be_declared_categories(capsys):
    Path("d.csv").write_text("floor,y\n" + "".join(f"{k % 3},{k % 3 * 1.5 + k / 100}\n" for k in range(12)))
    ok("fit", "d.csv", "--target", "y", "--out", "m.json", "--categorical", "floor", "--beta", 0.1, "--quiet")
    assert load("m.json").feature_names == ("floor=0", "floor=1", "floor=2")
    ok("fit", "d.csv", "--target", "y", "--out", "m.json", "--categorical", "flour", code=1)
    assert "lacks the column 'flour'" in capsys.readouterr().err


def test_foreign_networks_of_standardised_columns_are_certified_from_raw_ones(capsys):
    X = np.column_stack([AREA, PRICE / 1e5])
    y = AREA * 3 + PRICE / 1e5
    Path("d.csv").write_text(
        "a,b,y\n" + "".join(f"{a!r},{b!r},{t!r}\n" for (a, b), t in zip(X.tolist(), y.tolist(), strict=True))
    )
    net = TwoLayerNetwork(RNG.normal(size=(3, 2)), RNG.normal(size=(3, 1)))
    net.save("n.json")
    more = ("--target", "y", "--beta", 0.1, "--method", "local", "--time-limit", 5, "--json")
    ok("certify", "n.json", "d.csv", *more, "--scale", "standard", "--scale-target")
    found = json.loads(capsys.readouterr().out)["objective"]
    Z, t = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    assert found == pytest.approx(net.objective(Z, t, beta=0.1), rel=1e-9)
    ok("fit", "d.csv", "--target", "y", "--out", "m.json", "--quiet")
    ok("certify", "m.json", "d.csv", "--scale", "standard", code=1)
    assert "this model knows" in capsys.readouterr().err


def test_a_pipeline_of_columns_of_any_kind_is_certified_from_its_table(capsys):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    Path("d.csv").write_text(plain(), encoding="utf-8")
    frame = pandas.DataFrame({"area": AREA, "city": CITY})
    columns = ColumnTransformer([("n", StandardScaler(), ["area"]), ("c", OneHotEncoder(), ["city"])])
    mlp = MLPRegressor(hidden_layer_sizes=(4,), max_iter=5, random_state=0)
    with pytest.warns(ConvergenceWarning):
        pipe = make_pipeline(columns, mlp).fit(frame, PRICE)
    joblib.dump(pipe, "pipe.joblib")
    options = ("--beta", 0.1, "--method", "local", "--time-limit", 5, "--json")
    ok("certify", "pipe.joblib", "d.csv", "--trust", "--target", "price", *options)
    found = json.loads(capsys.readouterr().out)["objective"]
    assert found == pytest.approx(as_network(mlp).objective(columns.transform(frame), PRICE, beta=0.1), rel=1e-9)


@pytest.mark.parametrize(
    ("line", "module"),
    [
        (["fit", "d.csv", "--target", "price", "--out", "m.json", "--report", "r.html"], "matplotlib"),
        (["cv", "d.csv", "--target", "price", "--out", "m.json", "--plot", "c.png"], "matplotlib"),
        (["path", "d.csv", "--target", "price", "--out", "p.csv", "--plot", "c.png"], "matplotlib"),
        (["playground", "--no-browser"], "anyio"),
        (["completion", "bash"], "shtab"),
        (["predict", "m.json", "d.parquet"], "pyarrow"),
    ],
)
def test_extras_are_missed_before_any_work_and_named(line, module, capsys, monkeypatch):
    Path("d.csv").write_text(plain(), encoding="utf-8")
    if line[0] == "predict":
        ok("fit", "d.csv", *FIT, "--quiet")
        Path("d.parquet").write_bytes(b"")
    before = sorted(Path().iterdir())
    monkeypatch.setitem(sys.modules, module, None)

    def work(*_, **__):
        raise AssertionError("the training has begun")

    monkeypatch.setattr("bidual.estimators.base.BaseReLU.fit", work)
    capsys.readouterr()
    ok(*line, code=1)
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"needs {module}: pip install {module}, or in a clone of bidual pip install '.[" in error
    assert sorted(Path().iterdir()) == before
