"""Whether an installation works: the first lines of README, the command line, and the note for type checkers."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import bidual

README = Path(__file__).parents[1] / "README.md"


def main() -> None:
    """Raise if anything is missing."""
    where = Path(bidual.__file__).resolve()
    if README.parent in where.parents and "site-packages" not in where.parts:
        raise SystemExit(f"this is about what is installed, but bidual is imported from {where}")
    if not files("bidual").joinpath("py.typed").is_file():
        raise SystemExit("py.typed is missing: type checkers would not look at the annotations")
    if version("bidual") != bidual.__version__:
        raise SystemExit(f"the package says {version('bidual')}, the module {bidual.__version__}")
    code = re.search(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert code is not None
    exec(compile(code.group(1), "README.md", "exec"), {})

    with tempfile.TemporaryDirectory() as folder:
        table, model = Path(folder, "table.csv"), Path(folder, "model.json")
        table.write_text("x,y\n" + "\n".join(f"{k / 4},{abs(k - 10) / 4}" for k in range(24)), encoding="utf-8")
        command = Path(sysconfig.get_path("scripts"), "bidual")
        for arguments in (
            ["fit", table, "--target", "y", "--task", "regression", "--beta", "0.01", "--out", model],
            ["predict", model, table, "--out", Path(folder, "predictions.csv")],
            ["verify", model, table],
        ):
            print("$ bidual", *(Path(a).name if isinstance(a, Path) else a for a in arguments), flush=True)
            subprocess.run([command, *arguments], check=True)
    print(f"bidual {bidual.__version__} works on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
