"""Bad command lines and huge sizes: one clear sentence, no traceback, nothing lost."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from bidual import BatchNorm, Convolutional, LinearConvRegressor, Parallel, ReLURegressor
from bidual.cli import main

from .command_lines import broken_promise, command_lines, prepare

HUGE = 10**400


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).standard_normal((6, 3)).round(3)
    path = tmp_path / "data.csv"
    path.write_text("a,b,y\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    "architecture",
    [
        f"convolutional:kernel_size=2,padding={HUGE}",
        f"convolutional:kernel_size={'9' * 5000}",
        "convolutional:kernel_size=2,padding=2000000000",
        "convolutional:kernel_size=1,stride=1000000000,padding=1000000000",
        f"batch_norm:rank={HUGE}",
        f"batch_norm:rank={'9' * 5000}",
        f"parallel:m1={HUGE}",
        "parallel:m1=2000000000",
        "parallel:m1=2,m2=2000000000",
    ],
)
def test_huge_sizes_on_the_command_line_are_refused_in_one_sentence(
    table: Path, capsys: pytest.CaptureFixture[str], architecture: str
) -> None:
    try:
        code = main(["fit", str(table), "--target", "y", "--out", "m.json", "--architecture", architecture])
    except SystemExit as stop:
        code = int(stop.code or 0)
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert code in (1, 2)
    assert len(errors) == 1
    assert len(errors[0]) < 500
    assert not Path("m.json").exists()


def test_a_long_cell_is_shown_by_its_beginning(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table.write_text(f"a,b,y\n{'9' * 5000},1,2\n3,4,5\n")
    assert main(["fit", str(table), "--target", "y", "--out", "m.json"]) == 1
    error = capsys.readouterr().err
    assert "row 2, column 'a'" in error
    assert len(error) < 500


def test_a_report_does_not_take_the_place_of_the_model(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(table), "--target", "y", "--out", "m.json", "--report", "m.json"]) == 1
    assert "the same file" in capsys.readouterr().err
    assert not Path("m.json").exists()


@pytest.mark.parametrize("size", [HUGE, 2**31, -HUGE])
def test_sizes_of_architectures_are_bounded(size: int) -> None:
    makers = (
        lambda: Convolutional(size),
        lambda: Convolutional(2, stride=size),
        lambda: Convolutional(2, padding=size),
        lambda: BatchNorm(rank=size),
        lambda: Parallel(size),
        lambda: Parallel(2, size),
        lambda: Parallel(2, 2, [size]),
        lambda: Parallel(2, rank=size),
    )
    for make in makers:
        with pytest.raises(ValueError, match="at most"):
            make()


def test_a_linear_convolution_with_huge_padding_is_refused() -> None:
    X = np.random.default_rng(0).standard_normal((6, 5))
    with pytest.raises(ValueError, match="padding must be an integer >= 0"):
        LinearConvRegressor(2, padding=HUGE).fit(X, X[:, 0])
    with pytest.raises(MemoryError, match="Use less padding"):
        LinearConvRegressor(2, padding=2 * 10**9).fit(X, X[:, 0])


@pytest.mark.parametrize("method", ["exact", "sampled"])
@pytest.mark.parametrize("bias", [True, False])
def test_zeros_are_fitted_exactly_by_nothing(method: str, bias: bool) -> None:
    X = np.random.default_rng(0).standard_normal((8, 2))
    est = ReLURegressor(0.0, architecture=BatchNorm("after"), bias=bias, method=method).fit(X, np.zeros(8))
    assert est.objective_ == est.lower_bound_ == 0.0
    assert est.gap_ == 0.0


def test_a_slice_of_the_bad_command_lines_keeps_its_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    broken = {
        " ".join(line)[:200]: promise for line in list(command_lines())[::97] if (promise := broken_promise(line))
    }
    assert not broken


@pytest.mark.parametrize("option", ["--drop=--", "--out=--", "--beta=--"])
def test_two_dashes_are_no_value(table: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["fit", str(table), "--target", "y", "--out", "m.json", option])
    assert "expected one argument" in capsys.readouterr().err


def test_more_jobs_than_any_machine_has_are_refused(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cv", str(table), "--target", "y", "--out", "m.json", "--folds", "2", f"--jobs={HUGE}"]) == 1
    assert "n_jobs must be at most" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [[1.0, 1e3, 1e6, 1e-3], None])
def test_branches_are_not_lost_when_the_conic_solver_fails(columns: list[float] | None) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4))
    y = np.abs(X[:, 0]) + 0.3 * rng.standard_normal(30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = ReLURegressor(architecture=Parallel(2), time_limit=3, random_state=0)
        est.fit(X + 1e6 if columns is None else X * columns, y)
    assert 0.0 <= est.lower_bound_ <= est.objective_ < np.inf
