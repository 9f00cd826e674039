"""Columns as CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bidual._util.files import write_atomically


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
