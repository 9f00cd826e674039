"""Formulas as MathML, which every browser draws by itself: pages need no JavaScript and no network for them."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.errors import ExtensionError


def _mathml(latex: str, display: str) -> str:
    # environments that the converter does not know, and spacing it does not need
    latex = re.sub(r"\\begin\{split\}|\\end\{split\}", "", latex).strip()
    try:
        return convert(latex, display=display)
    except Exception as error:
        raise ExtensionError(f"a formula cannot be shown: {latex!r} ({type(error).__name__}: {error})") from error


def inline(self: Any, node: nodes.math) -> None:
    """A formula in the text."""
    self.body.append(f'<span class="math">{_mathml(node.astext(), "inline")}</span>')
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    """A formula on its own line."""
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    self.body.append(f'<div class="math" tabindex="0">{number}{_mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
