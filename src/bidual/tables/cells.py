"""What a cell of a table means: a number, nothing, a truth value, a date, or text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date, time, timedelta
from math import isnan
from numbers import Real
from typing import Any

import numpy as np

from bidual._util.typing import FloatArray

#: Cells that say that nothing is known, in lower case.
MISSING = frozenset(
    ("", "na", "n/a", "nan", "-nan", "null", "nil", "none", "<na>", "#n/a", "#na", "nat", "?", "-", "--", "missing")
)
#: Spellings of false and true; a column of truth values keeps to one pair.
BOOLEANS = (("false", "true"), ("no", "yes"), ("f", "t"), ("n", "y"), ("off", "on"))
#: What numbers are written with: "." or "," before the decimals.
POINT, COMMA = ".", ","

_CURRENCY = r"(?:[$€£¥₹₩]|US\$|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN)"
#: Currencies whose amounts have a decimal point wherever they are written.
_POINT_UNITS = frozenset(("$", "US$", "USD", "£", "GBP", "¥", "JPY", "CNY", "₹", "INR", "₩", "AUD"))
_SPACES = " \u00a0\u202f"
_TAIL = r"(?:[eE][+-]?\d+)?"


def _pattern(decimal: str) -> re.Pattern[str]:
    """A number with this decimal mark: groups of thousands, a currency or a percent sign, (parentheses) for minus."""
    other = "," if decimal == POINT else r"\."
    groups = rf"(?:\d{{1,3}}(?:(?:[{other}'’{_SPACES}])\d{{3}})+|\d+)"
    body = rf"(?:{groups}(?:{re.escape(decimal)}\d*)?|{re.escape(decimal)}\d+){_TAIL}"
    unit = rf"(?P<before>{_CURRENCY})?[{_SPACES}]*"
    after = rf"[{_SPACES}]*(?P<after>{_CURRENCY}|%)?"
    return re.compile(rf"(?P<open>\()?(?P<sign>[+-]?){unit}(?P<sign2>[+-]?)(?P<body>{body}){after}(?(open)\))")


_PATTERN = {decimal: _pattern(decimal) for decimal in (POINT, COMMA)}
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.I)
#: What is in no plain number, or makes it a code; a point that does not stand before three digits.
_UNUSUAL = re.compile(r"[^0-9eE+.\n-]|^0\d+$", re.M)
_DECIMALS = re.compile(r"\.(?!\d{3}(?!\d))")
_CODE = re.compile(r"0\d+")
_DATE = re.compile(
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})"
    r"|(?:\d{1,2}\.? )?[A-Z][a-z]{2,8}\.? (?:\d{1,2},? )?\d{4})"
    r"(?:[ T]\d{1,2}:\d{2}(?::\d{2}(?:\.\d*)?)?(?: ?[AaPp][Mm])?(?:Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{1,2}:\d{2}(?::\d{2}(?:\.\d*)?)?(?: ?[AaPp][Mm])?"
)


def is_missing(cell: Any) -> bool:
    """Whether a cell holds nothing: empty, NA, NaN, null, a question mark, ..."""
    if isinstance(cell, str):
        return len(cell) < 8 and cell.strip().lower() in MISSING
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float | np.floating) and isnan(cell)


def number(cell: Any, decimal: str = POINT) -> float | None:
    """The number in a cell, perhaps an infinite one; None if it holds something else."""
    if not isinstance(cell, str):
        return float(cell) if isinstance(cell, Real | np.bool_) else None
    text = cell.strip()
    if decimal == POINT and _PLAIN.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text)
    match = _PATTERN[decimal].fullmatch(text)
    if match is None or (match["before"] and match["after"]) or (match["sign"] and match["sign2"]):
        return None
    other = "," if decimal == POINT else "."
    body = re.sub(rf"[{re.escape(other)}'’{_SPACES}]", "", match["body"]).replace(decimal, ".")
    return -float(body) if match["open"] or "-" in match["sign"] + match["sign2"] else float(body)


def unit(text: str) -> str:
    """The currency or percent sign that a number is written with; empty if there is none."""
    if _PLAIN.fullmatch(text):
        return ""
    for pattern in _PATTERN.values():
        if match := pattern.fullmatch(text.strip()):
            return match["before"] or match["after"] or ""
    return ""


def is_plain(text: str) -> bool:
    """Whether a number is written as programs do."""
    return _PLAIN.fullmatch(text.strip()) is not None


def points(text: str) -> bool:
    """Whether the unit of a number tells that its decimal mark is a point."""
    return unit(text.strip()) in _POINT_UNITS


def is_code(cell: Any) -> bool:
    """Whether a cell is a code with leading zeros: 007 is not the number seven."""
    return isinstance(cell, str) and _CODE.fullmatch(cell.strip()) is not None


def is_date(cell: Any) -> bool:
    """Whether a cell is a date or a time of day."""
    if isinstance(cell, str):
        return len(cell) < 40 and _DATE.fullmatch(cell.strip()) is not None
    return isinstance(cell, date | time | timedelta | np.datetime64 | np.timedelta64)


def spelling(cells: Iterable[Any]) -> tuple[str, str] | None:
    """The pair of spellings of false and true that all cells keep to; None if there is none."""
    words = {word(cell) for cell in cells}
    return next((pair for pair in BOOLEANS if words and words <= set(pair)), None)


def word(cell: Any) -> str:
    """A cell as a word of a truth value: no spaces around it, lower case."""
    return str(cell).strip().lower()


def truth(cell: Any) -> float | None:
    """0 or 1 for any spelling of false or true; None for anything else."""
    text = word(cell)
    for k, spellings in enumerate(zip(*BOOLEANS, strict=True)):
        if text in spellings or text in (str(k), f"{k}.0"):
            return float(k)
    return None


def plain(cells: Sequence[Any]) -> FloatArray | None:
    """All cells at once, if they are numbers written as programs do or empty (NaN); None if one of them is not."""
    if not all(isinstance(cell, str) for cell in cells) or _UNUSUAL.search("\n".join(cells)):
        return None
    try:
        values = np.array([cell or "nan" for cell in cells], dtype=np.float64)
    except ValueError:
        return None
    return None if np.isinf(values).any() else values


def marks(cells: Sequence[Any]) -> frozenset[str]:
    """Decimal marks with which all cells are numbers; both if the cells do not tell."""
    if plain(cells) is not None and _DECIMALS.search("\n".join(cells)):
        return frozenset({POINT})
    fitting = {POINT, COMMA}
    for cell in cells:
        if isinstance(cell, str):
            fitting = {mark for mark in fitting if number(cell, mark) is not None}
            if not fitting:
                break
    return frozenset(fitting)
