"""What is learned from a column of a table, and how its cells become numbers."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np

from bidual._util.checks import check_number, shown
from bidual._util.typing import FloatArray
from bidual.tables.cells import is_code, is_date, is_missing, is_plain, number, spelling, truth, unit
from bidual.tables.table import Table, no_number

#: A column of so many different texts, one in half of the rows or more, is a name or an identifier.
_IDENTIFIERS = 10
#: From which share of numbers on a column is one of numbers, in which text is a mistake.
_MOSTLY = 0.5


@dataclass(frozen=True)
class Column(ABC):
    """A column as the training data had it."""

    name: str
    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[Column]]] = {}

    def __init_subclass__(cls) -> None:
        cls.kinds[cls.kind] = cls

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Names of the columns of numbers it becomes."""

    @abstractmethod
    def encode(self, table: Table) -> FloatArray:
        """Its numbers ``(n, len(names))``; ValueError where a cell has none."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """What it is, in a few words."""

    def to_dict(self) -> dict[str, Any]:
        """As plain lists, numbers and strings."""
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Column:
        """Inverse of :meth:`to_dict`."""
        fields = {key: tuple(v) if isinstance(v, list) else v for key, v in data.items() if key != "kind"}
        return cls.kinds[data["kind"]](**fields)  # type: ignore[arg-type]  # they check their fields


@dataclass(frozen=True)
class Numbers(Column):
    """Numbers; where one is missing stands ``fill``, the median, and another column says so if ``indicator``."""

    kind = "numbers"
    fill: float
    indicator: bool = False
    decimal: str = "."
    unit: str = ""

    def __post_init__(self) -> None:
        check_number(f"the value that fills column {self.name!r}", self.fill, at_least=-math.inf)

    @classmethod
    def learn(cls, name: str, values: FloatArray, weights: FloatArray, **more: Any) -> Self:
        """From values with NaN where they are missing."""
        missing = np.isnan(values)
        return cls(name, median(values[~missing], weights[~missing]), bool(missing.any()), **more)

    @property
    def names(self) -> list[str]:
        """Its own, and that of the indicator."""
        return [self.name, f"{self.name} is missing"] if self.indicator else [self.name]

    @property
    def summary(self) -> str:
        """Name and kind."""
        return f"{self.name} ({self.kind}{', some missing' if self.indicator else ''})"

    def encode(self, table: Table) -> FloatArray:
        """Values, filled in where they are missing, and the indicator."""
        values = self.values(table)
        missing = np.isnan(values)
        if missing.any() and not self.indicator:
            warnings.warn(
                f"{table.source}: column {self.name!r} lacks {missing.sum()} of {len(missing)} values, but none in the "
                f"training data: filled in with {self.fill:g}",
                UserWarning,
                stacklevel=2,
            )
        filled = np.where(missing, self.fill, values)
        return np.column_stack([filled, missing]) if self.indicator else filled[:, None]

    def values(self, table: Table) -> FloatArray:
        """The numbers of a table, NaN where they are missing."""
        return parsed(table, self.name, table.decimal_of(self.name, self.decimal), self.unit)


@dataclass(frozen=True)
class Booleans(Numbers):
    """Truth values, in any spelling: 0 and 1."""

    kind = "booleans"

    def values(self, table: Table) -> FloatArray:
        """Zeros and ones, NaN where they are missing."""
        found = np.empty(len(table))
        for i, cell in enumerate(table.columns[self.name]):
            value = math.nan if is_missing(cell) else truth(cell)
            if value is None:
                raise ValueError(f"{table.where(self.name, i)}: {shown(cell)} is neither true nor false")
            found[i] = value
        return found


@dataclass(frozen=True)
class Categories(Column):
    """Categories, one column for each; two categories make one column.

    ``shares`` are those of the training rows: a category that was not there stands for a row that nothing is known
    about, unless ``other`` gathers the rare ones.
    """

    kind = "categories"
    values: tuple[str, ...]
    shares: tuple[float, ...]
    missing: bool = False
    other: bool = False

    def __post_init__(self) -> None:
        if len(self.shares) != len(self.values) + self.missing + self.other or len(self.shares) < 2:
            raise ValueError(f"column {self.name!r} needs a share for each of two or more categories")

    @property
    def names(self) -> list[str]:
        """Column and category."""
        names = [f"{self.name}={value}" for value in self.values]
        names += [f"{self.name} is other"] * self.other + [f"{self.name} is missing"] * self.missing
        return names[1:] if len(names) == 2 else names

    @property
    def summary(self) -> str:
        """Name and number of categories."""
        return f"{self.name} ({len(self.shares)} categories)"

    def encode(self, table: Table) -> FloatArray:
        """A one for the category of each row."""
        code = {value: k for k, value in enumerate(self.values)}
        rest, size = len(self.values), len(self.shares)
        codes, unknown = np.empty(len(table), dtype=np.int64), Counter[str]()
        for i, cell in enumerate(table.columns[self.name]):
            if is_missing(cell):
                codes[i] = size - 1 if self.missing else size
            else:
                codes[i] = code.get(text(cell), rest if self.other else size)
            if codes[i] == size:
                unknown[shown(cell)] += 1
        if unknown:
            cells = ", ".join(list(unknown)[:3]) + (", ..." if len(unknown) > 3 else "")
            warnings.warn(
                f"{table.source}: column {self.name!r} holds {cells} in {unknown.total()} of {len(codes)} rows, which "
                "the training data did not: taken as an average row of these",
                UserWarning,
                stacklevel=2,
            )
        rows = np.vstack([np.eye(size), self.shares])[codes]
        return rows[:, 1:] if size == 2 else rows


def learn(table: Table, name: str, weights: FloatArray, most: int, remarks: list[str]) -> Column | str:
    """What a column is, by the rows whose weight is positive; text says why there is nothing to learn from it."""
    cells = table.columns[name]
    used: list[int] = np.flatnonzero(weights > 0).tolist()
    if name not in table.categorical and table.quick(name) is not None:
        values = parsed(table, name, ".", "")[used]
        if np.isnan(values).all():
            return "has no values"
        kind = Booleans if isinstance(cells, np.ndarray) and cells.dtype.kind == "b" else Numbers
        return _constant(values) or _filled(kind.learn(name, values, weights[used]), values, remarks)
    known = [i for i in used if not is_missing(cells[i])]
    if not known:
        return "has no values"
    filled = [cells[i] for i in known]
    if name in table.categorical or any(map(is_code, filled)):
        if name not in table.categorical:
            remarks.append(f"column {name!r} holds codes with leading zeros: taken as categories")
        return _categories(table, name, used, weights, most, remarks)
    if all(isinstance(cell, bool | np.bool_) for cell in filled) or spelling(filled) is not None:
        values = np.array([math.nan if is_missing(cells[i]) else float(truth(cells[i]) or 0) for i in used])
        return _constant(values) or _filled(Booleans.learn(name, values, weights[used]), values, remarks)
    if all(isinstance(cell, Real) for cell in filled):
        decimal, count = ".", len(filled)
    else:
        decimal = table.decimal_of(name)
        count = sum(number(cell, decimal) is not None for cell in filled)
    if count < len(filled) and sum(map(is_date, filled)) >= _MOSTLY * len(filled):
        day = next(cell for cell in filled if is_date(cell))
        raise ValueError(
            f"{table.source}: column {name!r} holds dates or times ({shown(str(day))}), which are not numbers: leave "
            "it out (--drop, in Python drop=), or replace it by columns such as the year, the month or the days "
            "since the first"
        )
    if count >= _MOSTLY * len(filled):
        written = _unit(table, name, filled)
        values = parsed(table, name, decimal, written)[used]
        column = Numbers.learn(name, values, weights[used], decimal=decimal, unit=written)
        remarks += reading(name, filled, decimal)
        return _constant(values) or _filled(column, values, remarks)
    return _categories(table, name, used, weights, most, remarks)


def parsed(table: Table, name: str, decimal: str, written: str) -> FloatArray:
    """Numbers of a column, NaN where they are missing; ValueError names the first cell that has none."""
    cells = table.columns[name]
    quick = table.quick(name, decimal) if written != "%" else None
    if quick is not None:
        values = quick
        bad = np.flatnonzero(np.isinf(values))
    else:
        found = [math.nan if is_missing(cell) else number(cell, decimal) for cell in cells]
        bad = np.array([i for i, value in enumerate(found) if value is None or math.isinf(value)], dtype=np.int64)
        values = np.array([math.nan if value is None else value for value in found])
    if len(bad):
        cell = cells[bad[0]]
        hint = (
            ", as other cells of this column are: correct it, leave it empty, or declare the column as categories "
            "(--categorical, in Python categorical=)"
        )
        why = no_number(cell, number(cell, decimal))
        raise ValueError(f"{table.where(name, int(bad[0]))}: {why}{hint}")
    for i, cell in enumerate(cells if quick is None else ()):
        if isinstance(cell, str) and (sign := unit(cell.strip())) != written and (sign or written == "%"):
            if is_missing(cell):
                continue
            raise ValueError(
                f"{table.where(name, i)}: {shown(cell)} is not in the unit of the column, {written or 'none'}"
            )
    return values


def median(values: FloatArray, weights: FloatArray) -> float:
    """The weighted median: of equal weights that of numpy."""
    order = np.argsort(values, kind="stable")
    heaps = np.cumsum(weights[order])
    k = int(np.searchsorted(heaps, heaps[-1] / 2 * (1 - 1e-12)))
    after = min(k + 1, len(order) - 1)
    half = math.isclose(heaps[k], heaps[-1] / 2, rel_tol=1e-12)
    return float((values[order[k]] + values[order[after]]) / 2 if half else values[order[k]])


def text(cell: Any) -> str:
    """A cell as a category: whole numbers without decimals, whatever their type."""
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    return str(cell).strip()


def _categories(
    table: Table, name: str, used: list[int], weights: FloatArray, most: int, remarks: list[str]
) -> Categories | str:
    cells = table.columns[name]
    missing, counts = 0.0, dict[str, float]()
    for i in used:
        if is_missing(cells[i]):
            missing += float(weights[i])
        else:
            counts[text(cells[i])] = counts.get(text(cells[i]), 0.0) + float(weights[i])
    if len(counts) > max(_IDENTIFIERS, len(used) / 2) and name not in table.categorical:
        raise ValueError(
            f"{table.source}: column {name!r} holds {len(counts)} different texts in {len(used)} rows, such as "
            f"{shown(next(iter(counts)))}: names or identifiers, nothing to learn from; leave it out (--drop, in "
            "Python drop=), or declare it as categories (--categorical, in Python categorical=)"
        )
    if len(counts) + (missing > 0) < 2:
        return f"is {shown(next(iter(counts)))} in every row"
    frequent = [value for value, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    rare = frequent[most - 1 :] if len(frequent) > most else []
    values = tuple(sorted(frequent[: len(frequent) - len(rare)]))
    shares = [counts[value] for value in values]
    if rare:
        shares.append(sum(counts[value] for value in rare))
        remarks.append(f"column {name!r}: {len(rare)} rare categories of {len(counts)} are taken as one, other")
    if missing > 0:
        shares.append(missing)
        remarks.append(f"column {name!r}: missing cells are a category of their own")
    total = sum(shares)
    return Categories(name, values, tuple(share / total for share in shares), missing > 0, bool(rare))


def _constant(values: FloatArray) -> str | None:
    """Why values without missing ones teach nothing."""
    return f"is {values[0]:g} in every row" if np.ptp(values) == 0 else None


def _filled(column: Numbers, values: FloatArray, remarks: list[str]) -> Numbers | str:
    """Say what stands for missing values."""
    if column.indicator:
        missing = int(np.isnan(values).sum())
        remarks.append(
            f"column {column.name!r} lacks {missing} of {len(values)} values: filled in with the median, "
            f"{column.fill:g}, and a column {column.names[-1]!r} tells"
        )
    return column


def _unit(table: Table, name: str, filled: Sequence[Any]) -> str:
    """The unit that the numbers are written with."""
    units = Counter(unit(cell.strip()) for cell in filled if isinstance(cell, str))
    signs = sorted(set(units) - {""})
    if len(signs) > 1:
        raise ValueError(f"{table.source}: column {name!r} mixes the units {' and '.join(signs)}: convert them to one")
    if signs == ["%"] and "" in units:
        i = next(i for i, cell in enumerate(table.columns[name]) if str(cell).strip().endswith("%"))
        raise ValueError(
            f"{table.where(name, i)}: {shown(table.columns[name][i])} is a percentage, other cells are plain numbers: "
            "write all of them in one way"
        )
    return signs[0] if signs else ""


def reading(name: str, cells: Iterable[Any], decimal: str) -> list[str]:
    """How a number is read that is not written as programs write numbers, if there is one."""
    for cell in cells:
        value = number(cell, decimal) if isinstance(cell, str) else None
        if value is not None and not (is_plain(cell) and float(cell) == value):
            return [f"column {name!r}: {shown(cell)} is read as {value:.15g}"]
    return []
