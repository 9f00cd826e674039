"""The oldest versions that pyproject.toml allows, as constraints for pip: ``lower_bounds.py [EXTRA ...]``."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

#: name, extras of it, and the version from which on it is allowed
BOUND = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(?:\[[^\]]*\])?>=(?P<version>[0-9.]+)")


def lower_bounds(project: Path, extras: list[str]) -> Iterator[str]:
    """Lines ``name==version`` for all dependencies, and for those of these extras."""
    table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    wanted = [*table["dependencies"], *(line for extra in extras for line in table["optional-dependencies"][extra])]
    for requirement in wanted:
        found = BOUND.fullmatch(requirement)
        if found is None:
            raise SystemExit(f"{requirement!r} says no lower bound")
        yield f"{found['name']}=={found['version']}"


if __name__ == "__main__":
    print("\n".join(lower_bounds(Path(__file__).parents[1] / "pyproject.toml", sys.argv[1:])))
