"""Tables in and out: CSV and NPZ files as named columns.

Every complaint names the file, and where it can the row and the column. Rows count from 1; in a CSV file the header
is row 1, as in a spreadsheet.
"""

from __future__ import annotations

import csv
import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bidual._util.checks import shown
from bidual._util.files import write_atomically
from bidual._util.typing import FloatArray
from bidual.models import Label

_DELIMITERS = ",;\t"
# "007" is a code, not the number seven
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_BOOLEANS = {"True": True, "False": False}


@dataclass(frozen=True)
class Table:
    """Named columns of equal length.

    ``typed`` says whether a cell is what it looks like (NPZ), or text that may stand for a number (CSV). ``shape`` is
    that of one sample where X is a tensor (NPZ): its entries, in this order, are the columns.
    """

    path: Path
    columns: dict[str, Sequence[Any]]
    typed: bool
    shape: tuple[int, ...] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns, in the order of the file."""
        return list(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def require(self, names: Iterable[str]) -> None:
        """Raise ValueError naming the columns that are not there."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise ValueError(
                f"{self.path} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}; "
                f"it has {', '.join(map(repr, self.columns))}"
            )

    def numbers(self, name: str) -> FloatArray:
        """A column of finite numbers."""
        bad = self.first_not_number(name)
        if bad is not None:
            raise ValueError(bad)
        return np.array(self.columns[name], dtype=np.float64)

    def first_not_number(self, name: str) -> str | None:
        """Where and what the first cell is that is not a finite number, or None."""
        for i, cell in enumerate(self.columns[name]):
            value = None if self.typed and isinstance(cell, str) else _number(cell)
            if value is None or not math.isfinite(value):
                kind = (
                    "the cell is empty" if cell == "" else f"{shown(cell)} is not a {'finite ' if value else ''}number"
                )
                return f"{self._where(name, i)}: {kind}"
        return None

    def matrix(self, names: Sequence[str]) -> FloatArray:
        """Several columns of numbers, ``(n, len(names))``."""
        self.require(names)
        return np.column_stack([self.numbers(name) for name in names])

    def labels(self, name: str) -> list[Label]:
        """A column of labels. Text becomes integers, booleans or numbers if all its cells are such."""
        cells = self._filled(name)
        if self.typed:
            return list(cells)
        if all(_INTEGER.fullmatch(cell) for cell in cells):
            return [int(cell) for cell in cells]
        if all(cell in _BOOLEANS for cell in cells):
            return [_BOOLEANS[cell] for cell in cells]
        values = [_number(cell) for cell in cells]
        numbers = [value for value in values if value is not None and math.isfinite(value)]
        coded = any(re.match(r"[+-]?0[0-9]", cell) for cell in cells)
        return list(cells) if coded or len(numbers) < len(cells) else list(numbers)

    def labels_like(self, name: str, classes: Sequence[Label]) -> list[Any]:
        """A column of labels read as the type of ``classes``, whatever else this file's cells look like."""
        texts = {str(label): label for label in classes}
        numeric = type(classes[0]) in (int, float)
        return [texts.get(str(cell), _number(cell) if numeric else cell) for cell in self._filled(name)]

    def _where(self, name: str, i: int) -> str:
        return f"{self.path}: row {i + (1 if self.typed else 2)}, column {name!r}"

    def _filled(self, name: str) -> Sequence[Any]:
        for i, cell in enumerate(self.columns[name]):
            if str(cell).lower() in ("", "nan"):
                raise ValueError(f"{self._where(name, i)}: the cell is empty or NaN")
        return self.columns[name]


def _number(cell: Any) -> float | None:
    if isinstance(cell, str) and "_" in cell:  # Python reads 1_2 as twelve
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def read_table(path: str | Path) -> Table:
    """Read an NPZ file (by its suffix) or a CSV file."""
    path = Path(path)
    table = _read_npz(path) if path.suffix.lower() == ".npz" else _read_csv(path)
    if len(table) == 0:
        raise ValueError(f"{path} has no rows of data")
    return table


def _read_csv(path: Path) -> Table:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    if not text.strip():
        raise ValueError(f"{path} is empty")
    try:
        # the delimiter that cuts the header into most cells; the comma wins ties
        delimiter = max(_DELIMITERS, key=lambda d: len(next(csv.reader(io.StringIO(text, newline=""), delimiter=d))))
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise ValueError(f"{path} is not a CSV file: {error}") from error
    header = [name.strip() for name in rows[0]]
    if all(_number(name) is not None for name in header):
        raise ValueError(f"{path} needs a header: its first row holds no names")
    _check_names(path, header)
    while not rows[-1]:  # blank lines at the end; elsewhere they are ragged rows
        rows.pop()
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise ValueError(f"{path}: row {number} has {len(row)} cells, the header has {len(header)}")
    cells = zip(*rows[1:], strict=True) if len(rows) > 1 else [()] * len(header)
    stripped = ([cell.strip() for cell in column] for column in cells)
    return Table(path, dict(zip(header, stripped, strict=True)), typed=False)


def _read_npz(path: Path) -> Table:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is not a readable NPZ file: {error}") from error
    X = arrays.get("X")
    if X is None or X.ndim < 2 or 0 in X.shape[1:] or X.dtype.kind not in "biuf":
        raise ValueError(
            f"{path} needs a two-dimensional array X of numbers (or one of images or sequences); it holds "
            f"{_shapes(arrays)}"
        )
    shape, X = X.shape[1:] if X.ndim > 2 else None, X.reshape(len(X), math.prod(X.shape[1:]))
    names = [str(name) for name in arrays.get("feature_names", [f"x{j}" for j in range(X.shape[1])])]
    if len(names) != X.shape[1]:
        raise ValueError(f"{path}: X has {X.shape[1]} columns, feature_names has {len(names)}")
    columns = {name: column.tolist() for name, column in zip(names, X.T, strict=True)}
    y = arrays.get("y")
    if y is not None:
        if y.shape not in ((len(X),), (len(X), 1)):
            raise ValueError(f"{path}: y must have one value for each of the {len(X)} rows of X, got shape {y.shape}")
        names.append("y")
        columns["y"] = y.ravel().tolist()
    _check_names(path, names)
    return Table(path, columns, typed=True, shape=shape)


def _shapes(arrays: dict[str, Any]) -> str:
    return ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items()) or "nothing"


def _check_names(path: Path, names: Sequence[str]) -> None:
    if "" in names:
        raise ValueError(f"{path}: column {names.index('') + 1} of the header has no name")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path} has more than one column called {', '.join(map(repr, twice))}")


def csv_text(columns: dict[str, Sequence[Any]]) -> str:
    """Columns as the text of a CSV file; floats keep all their digits."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return buffer.getvalue()


def write_csv(path: str | Path, columns: dict[str, Sequence[Any]]) -> Path:
    """Write columns to a CSV file, atomically."""
    data = csv_text(columns).encode("utf-8")  # bytes, so that no platform rewrites the line ends
    return write_atomically(path, lambda temporary: temporary.write_bytes(data))
