"""Named columns of equal length. Every complaint names the table, and where it can the row and the column."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from bidual._util.checks import shown
from bidual._util.typing import Array, FloatArray
from bidual.tables.cells import COMMA, POINT, is_code, is_missing, marks, number, plain, points

Label: TypeAlias = str | int | float | bool
#: The cells of a column.
Cells: TypeAlias = Sequence[Any] | Array

# "007" is a code, not the number seven
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_LABELS = {"True": True, "False": False}


@dataclass(frozen=True)
class Table:
    """Named columns of equal length.

    Attributes
    ----------
    source : str
        Where it comes from, for messages: a path, "stdin", "X".
    columns : mapping of str to sequences
        Cells are text (of a CSV file), or numbers, truth values, text, dates.
    typed : bool
        Whether labels are what they look like; False: text that may stand for a number (CSV).
    shape : tuple of int or None
        That of one sample where X is a tensor (NPZ): its entries, in this order, are the columns.
    decimal : {".", ","} or None
        The decimal mark of numbers that are text; None: each column tells, or is refused if it may be read two ways.
    grouped : bool
        Whether commas of a column that may be read two ways separate thousands: in a file whose cells are separated by
        commas nobody writes them before decimals.
    categorical : frozenset of str
        Columns that are categories whatever they look like.
    remarks : tuple of str
        What reading it assumed.
    """

    source: str
    columns: Mapping[str, Cells]
    typed: bool
    shape: tuple[int, ...] | None = None
    decimal: str | None = None
    grouped: bool = False
    categorical: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()

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
                f"{self.source} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}; "
                f"it has {', '.join(map(repr, self.columns))}"
            )

    def only(self, names: Sequence[str]) -> Table:
        """These columns, in this order."""
        self.require(names)
        return replace(self, columns={name: self.columns[name] for name in names})

    def decimal_of(self, name: str, known: str | None = None) -> str:
        """The decimal mark of a column; ``known`` is that of the column of this name the model was trained on."""
        if self.quick(name, known) is not None:
            return POINT
        texts = [cell for cell in self.columns[name] if isinstance(cell, str) and not is_missing(cell)]
        fitting = marks(texts)
        if self.decimal is not None and self.decimal in fitting:
            return self.decimal
        if len(fitting) == 1:
            return next(iter(fitting))
        if not fitting or known is not None:
            return known or self.decimal or POINT
        either = [text for text in texts if "," in text]
        if either and not self.grouped and not all(map(points, either)):
            other = number(cell := either[0], COMMA)
            raise ValueError(
                f"{self.source}: column {name!r}: {shown(cell)} may be {number(cell):g} or {other:g}: say which with "
                "--decimal point or --decimal comma (in Python decimal='.' or ',')"
            )
        return POINT

    def numbers(self, name: str) -> FloatArray:
        """A column of finite numbers."""
        bad = self.first_not_number(name)
        if bad is not None:
            raise ValueError(bad)
        if (values := self.quick(name)) is not None:
            return values
        decimal = self.decimal_of(name)
        return np.array([number(cell, decimal) for cell in self.columns[name]], dtype=np.float64)

    def first_not_number(self, name: str) -> str | None:
        """Where and what the first cell is that is not a finite number, or None."""
        cells, values = self.columns[name], self.quick(name)
        if values is not None and np.isfinite(values).all():
            return None
        decimal = self.decimal_of(name)
        for i, cell in enumerate(cells):
            value = number(cell, decimal)
            if value is None or not math.isfinite(value):
                return f"{self.where(name, i)}: {no_number(cell, value)}"
        return None

    def quick(self, name: str, known: str | None = None) -> FloatArray | None:
        """A column of numbers, or of text written as programs write them, NaN where cells are empty; else None."""
        cells = self.columns[name]
        if isinstance(cells, np.ndarray):
            return cells.astype(np.float64) if cells.dtype.kind in "biuf" else None
        return None if COMMA in (self.decimal, known) else plain(cells)

    def matrix(self, names: Sequence[str]) -> FloatArray:
        """Several columns of numbers, ``(n, len(names))``."""
        self.require(names)
        return np.column_stack([self.numbers(name) for name in names])

    def labels(self, name: str) -> list[Label]:
        """A column of labels. Text becomes integers, booleans or numbers if all its cells are such."""
        cells = self.filled(name)
        if self.typed:
            return [cell.item() if isinstance(cell, np.generic) else cell for cell in cells]
        if all(_INTEGER.fullmatch(cell) for cell in cells):
            return [int(cell) for cell in cells]
        if all(cell in _LABELS for cell in cells):
            return [_LABELS[cell] for cell in cells]
        values = [number(cell, self.decimal or POINT) for cell in cells]
        numbers = [value for value in values if value is not None and math.isfinite(value)]
        return list(cells) if any(map(is_code, cells)) or len(numbers) < len(cells) else list(numbers)

    def labels_like(self, name: str, classes: Sequence[Label]) -> list[Any]:
        """A column of labels read as the type of ``classes``, whatever else this file's cells look like."""
        texts = {str(label): label for label in classes}
        numeric = type(classes[0]) in (int, float)
        decimal = self.decimal or POINT
        return [texts.get(str(cell), number(cell, decimal) if numeric else cell) for cell in self.filled(name)]

    def where(self, name: str, i: int) -> str:
        """Row and column of a cell; in a CSV file the header is row 1, as in a spreadsheet."""
        return f"{self.source}: row {i + (1 if self.typed else 2)}, column {name!r}"

    def filled(self, name: str) -> Cells:
        """A column of labels or targets, none of which is missing; a label may be called "none"."""
        for i, cell in enumerate(self.columns[name]):
            if str(cell).strip().lower() in ("", "nan") or (is_missing(cell) and not isinstance(cell, str)):
                raise ValueError(f"{self.where(name, i)}: the cell is empty or NaN ({shown(cell)}): leave this row out")
        return self.columns[name]


def no_number(cell: Any, value: float | None) -> str:
    """Why a cell whose ``value`` is this is no finite number."""
    cell = cell.item() if isinstance(cell, np.generic) else cell
    if is_missing(cell):
        return "the cell is empty" if cell == "" or cell is None else f"{shown(cell)} is not a number"
    return f"{shown(cell)} is not a {'finite ' if value is not None else ''}number"
