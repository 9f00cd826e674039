"""What the theme leaves out: levels of the headings of the sidebar, and keys for what scrolls."""

from __future__ import annotations

import re
from typing import Any

#: What may be wider than the page, and then scrolls.
_SCROLLS = re.compile(r'<(pre|div class="table-wrapper)(?=[ >])')


def reachable(html: str) -> str:
    """What scrolls can be reached, and scrolled, by keys."""
    return _SCROLLS.sub(
        lambda found: found[0].replace("<pre", '<pre tabindex="0"').replace("<div", '<div tabindex="0"'), html
    )


def levelled(html: str) -> str:
    """Captions of the sidebar are headings of the second level."""
    return html.replace('role="heading">', 'role="heading" aria-level="2">')


def page(app: Any, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Both, before a page is written."""
    if context.get("body"):
        context["body"] = reachable(context["body"])
    if context.get("furo_navigation_tree"):
        context["furo_navigation_tree"] = levelled(context["furo_navigation_tree"])


def setup(app: Any) -> dict[str, bool]:
    """After the theme has made its navigation."""
    app.connect("html-page-context", page, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
