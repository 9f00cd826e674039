"""From the scripts in ``examples/`` to pages: a title for each, its arguments, and the pictures it saves.

The scripts are ordinary programs that know nothing of this site. The first sentence of a docstring becomes the title.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

HEADER = """Gallery
=======

One page for each thing the library can do, made by running the scripts in ``examples/``.
"""
_PICTURES = (".png",)
#: A paper in brackets, which a title can do without.
_CITED = re.compile(r"\s*\((?:paper )?00[0-4][^)]*\)")


def prepare(source: Path, target: Path) -> None:
    """Copy the scripts to ``target``, with titles; those that are gone are removed, unchanged ones left alone."""
    target.mkdir(exist_ok=True)
    wanted = {path.name: titled(path.read_text(encoding="utf-8")) for path in sorted(source.glob("*.py"))}
    wanted = {name: text for name, text in wanted.items() if not name.startswith("_")}
    wanted["GALLERY_HEADER.rst"] = HEADER
    for path in target.glob("*.py"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        path = target / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def titled(script: str) -> str:
    """The script with a heading at the beginning of its docstring, if it has none."""
    tree = ast.parse(script)
    words = ast.get_docstring(tree) or "An example."
    if re.match(r".+\n[=\-~^]{3,}\n", words):
        return script
    title, _, rest = re.sub(r"\s+", " ", _CITED.sub("", words.split("\n\n")[0])).partition(". ")
    title = title.rstrip(".")
    body = "\n\n".join(filter(None, [rest, *words.split("\n\n")[1:]]))
    first = tree.body[0]
    lines = script.splitlines()
    end = first.end_lineno if ast.get_docstring(tree) and first.end_lineno else 0
    heading = f'r"""\n{title}\n{"=" * len(title)}\n\n{_literal_blocks(body)}\n"""'
    return "\n".join([heading, *lines[end:]]) + "\n"


def _literal_blocks(text: str) -> str:
    """Indented lines of a plain docstring are commands or code."""
    parts = []
    for part in text.split("\n\n"):
        indented = part.strip() and all(line.startswith("    ") for line in part.splitlines() if line)
        parts.append(".. code-block:: none\n\n" + part if indented else part)
    return "\n\n".join(parts)


class ShortOnesFirst:
    """The order of the gallery: plot_* by name, then the longer programs."""

    def __init__(self, src_dir: str) -> None:
        self.src_dir = src_dir

    def __call__(self, filename: str) -> tuple[bool, str]:
        """What to sort by."""
        return (not filename.startswith("plot_"), filename)


_seen: dict[Path, float] = {}


def reset(gallery_conf: dict[str, Any], name: str) -> None:
    """Before each example: note the pictures that are already there."""
    _seen.clear()
    _seen.update(_pictures(Path(gallery_conf["src_dir"]) / "_examples"))


def saved_pictures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """The pictures that a script has written to files since the last block."""
    from sphinx_gallery.scrapers import figure_rst

    folder = Path(block_vars["src_file"]).parent
    names = []
    for path, written in sorted(_pictures(folder).items()):
        if _seen.get(path) == written:
            continue
        _seen[path] = written
        image = Path(next(block_vars["image_path_iterator"]))
        image.write_bytes(path.read_bytes())
        names.append(str(image))
    return str(figure_rst(names, gallery_conf["src_dir"]))


def _pictures(folder: Path) -> dict[Path, float]:
    return {
        Path(root) / name: os.stat(Path(root) / name).st_mtime
        for root, _, names in os.walk(folder)
        for name in names
        if name.endswith(_PICTURES)
    }
