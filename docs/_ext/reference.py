"""Lists that keep themselves up to date: the public names of the library, and the commands with their help."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.ext import autosummary

#: Modules whose ``__all__`` is public, with the titles of their sections.
MODULES = {
    "bidual": "Everything you import from `bidual`",
    "bidual.plots": "Pictures",
    "bidual.tables": "Tables",
    "bidual.report": "Report",
    "bidual.study.descent": "Gradient descent, for comparison",
    "bidual.losses": "Losses",
    "bidual.architectures": "Architectures",
    "bidual.networks": "Networks and conversions",
    "bidual.playground": "Playground",
}


def names_of(module: str) -> list[str]:
    """Public classes and functions of a module, by full name."""
    loaded = importlib.import_module(module)
    own = getattr(loaded, "__all__", None)
    if own is None:
        own = [n for n, v in vars(loaded).items() if getattr(v, "__module__", "") == module and not n.startswith("_")]
    things = {name: getattr(loaded, name) for name in own}
    return [f"{module}.{n}" for n, v in sorted(things.items()) if inspect.isclass(v) or inspect.isfunction(v)]


def write_names(folder: Path) -> None:
    """The page of the API reference: one table for each module; a name is listed where it is met first."""
    lines, seen = ["API reference", "=============", ""], set()
    for module, title in MODULES.items():
        fresh = [name for name in names_of(module) if name.rpartition(".")[2] not in seen]
        seen |= {name.rpartition(".")[2] for name in fresh}
        if fresh:
            title = title.replace("`", "``")
            lines += [
                title,
                "-" * len(title),
                "",
                ".. autosummary::",
                "   :toctree: generated",
                "   :nosignatures:",
                "",
            ]
            lines += [f"   ~{name}" for name in fresh] + [""]
    page, text = folder / "index.rst", "\n".join(lines) + "\n"
    page.parent.mkdir(exist_ok=True)
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")


class Commands(Directive):
    """The help of every command."""

    def run(self) -> list[nodes.Node]:
        """One section for each."""
        from bidual.cli import make_parser

        parser = make_parser()
        parser.formatter_class = type("Wide", (parser.formatter_class,), {})
        actions = next(a for a in parser._actions if hasattr(a, "choices") and isinstance(a.choices, dict))
        lines: list[str] = []
        for name, sub in actions.choices.items():
            lines += [f"bidual {name}", "-" * (7 + len(name)), "", ".. code-block:: none", ""]
            lines += [f"   {line}" for line in sub.format_help().splitlines()] + [""]
        section = nodes.section()
        section.document = self.state.document
        self.state.nested_parse(StringList(lines, "commands"), 0, section, match_titles=True)
        return section.children


def setup(app: Any) -> dict[str, bool]:
    """Register the commands; the names are written before the build begins."""
    # a summary is the first sentence, and these end none
    autosummary.WELL_KNOWN_ABBREVIATIONS += (
        "eq.",
        "eqs.",
        "Fig.",
        "sec.",
        "Thm.",
        "Prop.",
        "Cor.",
        "resp.",
        "cf.",
        "etc.",
    )
    app.add_directive("bidual-commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
