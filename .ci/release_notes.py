"""The section of a version in the changelog: ``release_notes.py 0.2.0``; an error if tag, code and changelog differ."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(version: str) -> str:
    """What has changed in ``version``."""
    for name, pattern in (
        ("src/bidual/_util/version.py", rf'^__version__ = "{re.escape(version)}"$'),
        ("CITATION.cff", rf"^version: {re.escape(version)}$"),
    ):
        if not re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE):
            raise SystemExit(f"{name} does not say version {version}")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"^## \[?{re.escape(version)}\]?.*?\n(.*?)(?=^## |\Z)", changes, re.MULTILINE | re.DOTALL)
    if section is None:
        raise SystemExit(f"CHANGELOG.md has no section {version}")
    return section.group(1).strip()


if __name__ == "__main__":
    print(notes(sys.argv[1]))
