"""Files as tables: CSV text of any look, NPZ, Parquet, Excel.

CSV is read by the same code whether or not pandas is installed, so that a file means the same everywhere; pandas (the
extra ``tables``) is there for Parquet and Excel.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from bidual._util.extras import require
from bidual.tables.cells import COMMA, POINT, is_missing, marks, number
from bidual.tables.frames import table_of
from bidual.tables.table import Cells, Table

#: What may stand between cells.
_SEPARATORS = (",", ";", "\t", "|", " ")
#: Rows that are looked at to find the separator.
_SAMPLE = 200
_STDIN = "-"
_MARKS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_PARQUET, _EXCEL = (".parquet", ".pq"), (".xlsx", ".xlsm")
_OLD = (".xls", ".ods", ".xlsb")


def read_table(
    path: str | PathLike[str],
    *,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> Table:
    """Read a table.

    Parameters
    ----------
    path : path
        A CSV file (perhaps compressed, ``.gz``), NPZ with arrays X, y and perhaps feature_names, Parquet or Excel; "-"
        is CSV text from standard input.
    separator : str or None
        What stands between the cells of CSV; None finds out.
    decimal : {".", ","} or None
        Decimal mark of numbers that are text; None: each column tells.
    encoding : str or None
        Of CSV; None: what a byte order mark says, else UTF-8, else Windows-1252.
    sheet : str or None
        Of an Excel file; None: the first.

    Raises
    ------
    ValueError
        If it is not such a table; the sentence says why, and names row and column where it can.
    ImportError
        If it takes an extra to read it.
    """
    name = fspath(path)
    suffixes = Path(name).suffixes
    suffix = suffixes[-1].lower() if suffixes else ""
    if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
        raise ValueError(f"the separator must be one character, no quote and no line end, got {separator!r}")
    if suffix == ".npz":
        table = _read_npz(Path(name))
    elif suffix in _PARQUET + _EXCEL:
        table = _read_frame(name, suffix, sheet, decimal)
    elif suffix in _OLD:
        raise ValueError(f"{name} is of a kind that is not read here: save it as CSV or .xlsx")
    else:
        table = _read_csv("stdin" if name == _STDIN else name, _bytes(name), separator, decimal, encoding)
    if len(table) == 0:
        raise ValueError(f"{table.source} has no rows of data")
    return table


# ---- CSV ---------------------------------------------------------------------------------------


def _bytes(name: str) -> bytes:
    data = sys.stdin.buffer.read() if name == _STDIN else Path(name).read_bytes()
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{name} is not a readable gzip file: {error}") from error


def _text(source: str, data: bytes, encoding: str | None) -> tuple[str, list[str]]:
    """The characters, and what was assumed to get them."""
    known = encoding or next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    if known is None and data[1:2] == b"\0":
        known = "utf-16-le"
    remarks: list[str] = []
    try:
        text = data.decode(known or "utf-8")
    except LookupError as error:
        raise ValueError(f"there is no encoding {encoding!r}: try utf-8, cp1252, latin-1 or utf-16") from error
    except UnicodeDecodeError as error:
        if known is not None:
            raise ValueError(f"{source} is not {known.upper()} text: {error}") from error
        text = data.decode("cp1252", errors="replace")
        remarks = [f"{source} is not UTF-8 text: read as Windows-1252 (--encoding says otherwise)"]
    if "\0" in text:
        raise ValueError(f"{source} is not a CSV file: it holds NUL characters")
    return text, remarks


def _read_csv(source: str, data: bytes, separator: str | None, decimal: str | None, encoding: str | None) -> Table:
    text, remarks = _text(source, data, encoding)
    if not text.strip():
        raise ValueError(f"{source} is empty")
    first, _, rest = text.partition("\n")
    if first.strip().lower().startswith("sep=") and len(first.strip()) == 5:  # a line that Excel writes for itself
        separator, text = separator or first.strip()[4], rest
    separator = separator or _separator(text)
    try:
        rows = list(_rows(text, separator, strict=True))
    except csv.Error as error:
        raise ValueError(f"{source} is not a CSV file: {error}") from error
    header = [name.strip() for name in rows[0]]
    read = ((number(name), number(name, COMMA)) for name in header)
    numbers = [value for one, other in read if (value := one if other is None else other) is not None]
    if len(numbers) == len(header) or any(value != round(value) for value in numbers if math.isfinite(value)):
        raise ValueError(f"{source} needs a header: its first row holds no names, but {', '.join(header[:4])}, ...")
    while not rows[-1]:  # blank lines at the end; elsewhere they are ragged rows
        rows.pop()
    for k, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise ValueError(
                f"{source}: row {k} has {len(row)} cells, the header has {len(header)} (cells are separated by "
                f"{separator!r}; --separator says otherwise)"
            )
    cells = zip(*rows[1:], strict=True) if len(rows) > 1 else [()] * len(header)
    columns = [[cell.strip() for cell in column] for column in cells]
    header, columns = _named(source, header, columns)
    found = dict(zip(header, columns, strict=True))
    grouped = separator == ","
    return Table(source, found, False, None, decimal or _decimal(found), grouped, remarks=tuple(remarks))


def _separator(text: str) -> str:
    """The character that cuts the first rows alike, into the most cells, the most of them numbers; else the comma."""
    best, most = ",", (False, 1, 0)
    for separator in _SEPARATORS:
        try:
            rows = [row for row in islice(_rows(text, separator), _SAMPLE) if row]
        except csv.Error:
            continue
        alike = len({len(row) for row in rows}) == 1
        if separator == " " and (not alike or most[1] > 1):  # names and labels have blanks
            continue
        numbers = sum(number(cell) is not None or number(cell, COMMA) is not None for row in rows for cell in row)
        found = (alike, len(rows[0]), numbers)
        if len(rows[0]) > 1 and found > most:
            best, most = separator, found
    return best


def _rows(text: str, separator: str, *, strict: bool = False) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=strict)


def _named(source: str, header: list[str], columns: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Columns with names: a first one without is the index of the rows, others must be empty."""
    kept, names = [], []
    for k, (name, column) in enumerate(zip(header, columns, strict=True)):
        if name == "":
            empty = all(map(is_missing, column))
            if not empty and (k > 0 or len(set(column)) < len(column)):
                raise ValueError(f"{source}: column {k + 1} of the header has no name")
            if empty and k > 0:
                continue
            name = INDEX
        names.append(name)
        kept.append(column)
    check_names(source, names)
    return names, kept


#: The name given to a first column without one.
INDEX = "(index)"


def _decimal(columns: dict[str, list[str]]) -> str | None:
    """The decimal mark, if all columns that tell agree."""
    told = [marks([cell for cell in column if not is_missing(cell)]) for column in columns.values()]
    one = {next(iter(found)) for found in told if len(found) == 1}
    return COMMA if one == {COMMA} else POINT if one == {POINT} else None


# ---- others ------------------------------------------------------------------------------------


def _read_frame(name: str, suffix: str, sheet: str | None, decimal: str | None) -> Table:
    """Parquet or Excel, by pandas."""
    engine, what = ("pyarrow", "Parquet") if suffix in _PARQUET else ("openpyxl", "Excel")
    require(f"reading {what}", "tables", "pandas", engine)
    import pandas

    try:
        if what == "Parquet":
            frame = pandas.read_parquet(name, engine=engine)
        else:
            frame = pandas.read_excel(name, sheet_name=0 if sheet is None else sheet, engine=engine, dtype=object)
    except (FileNotFoundError, IsADirectoryError, PermissionError, MemoryError):
        raise
    except Exception as error:  # damaged files raise anything
        said = " ".join(str(error).split())[:200]
        raise ValueError(f"{name} is not a readable {what} file: {said}") from error
    if frame.index.name is not None and frame.index.name not in frame.columns:
        frame = frame.reset_index()  # pandas keeps a named index beside the columns
    return table_of(frame, name, decimal=decimal)


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
    columns: dict[str, Cells] = dict(zip(names, X.T, strict=True))
    y = arrays.get("y")
    if y is not None:
        if y.shape not in ((len(X),), (len(X), 1)):
            raise ValueError(f"{path}: y must have one value for each of the {len(X)} rows of X, got shape {y.shape}")
        names.append("y")
        columns["y"] = y.ravel().tolist()
    check_names(str(path), names)
    return Table(str(path), columns, typed=True, shape=shape)


def _shapes(arrays: dict[str, Any]) -> str:
    return ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items()) or "nothing"


def check_names(source: str, names: Sequence[str]) -> None:
    """Raise ValueError unless all columns have names that differ."""
    if "" in names:
        raise ValueError(f"{source}: column {names.index('') + 1} of the header has no name")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{source} has more than one column called {', '.join(map(repr, twice))}")
