"""Results as sections of one markdown file, each replaced by the run that makes it."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from bidual._util.files import write_atomically

RESULTS = Path(__file__).parent / "RESULTS.md"
HEADER = "# Benchmark results\n\nEach section is written by the script it names. Times are wall clock.\n"


def machine() -> str:
    """What the numbers were measured on."""
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return f"{date}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def write_section(name: str, text: str, path: Path = RESULTS) -> None:
    """Replace the section ``name`` of the results, or add it at the end."""
    old = path.read_text(encoding="utf-8") if path.exists() else HEADER
    body = f"<!-- begin {name} -->\n{text.strip()}\n<!-- end {name} -->"
    pattern = re.compile(rf"<!-- begin {name} -->.*?<!-- end {name} -->", re.DOTALL)
    new = pattern.sub(lambda _: body, old) if pattern.search(old) else f"{old.rstrip()}\n\n{body}\n"
    write_atomically(path, lambda temporary: temporary.write_text(new, encoding="utf-8"))
