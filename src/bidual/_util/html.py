"""What objects show in a notebook: one sentence, one bar, and details to unfold.

Well-formed and self-contained: inline styles only, nothing loaded, no scripts, everything escaped. Text has the colour
of the page around it, and the bar has colours that read on light and on dark paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

#: What is certain, what is believed, what is open.
PROVEN, LIKELY, OPEN = "#2e9e6b", "#2f7ed8", "#e0813a"
#: The bar and its labels, in the units of the picture.
_WIDTH, _TOP, _HEIGHT, _MARK = 480.0, 6.0, 14.0, 5.0
_LABELS = _TOP + _HEIGHT + 22.0


class Part(NamedTuple):
    """A piece of the bar, up to ``end`` of its length (between 0 and 1); with a label its end is marked."""

    name: str
    end: float
    colour: str
    label: str = ""
    opacity: float = 1.0


def bar(parts: Sequence[Part], description: str) -> str:
    """An SVG element: the parts side by side, in this order, and what their ends stand for."""
    shapes: list[str] = []
    labels: list[str] = []
    at = 0.0
    above, below, words = _TOP - _MARK, _TOP + _HEIGHT + _MARK, 'font-size="11" fill="currentColor"'
    labelled = [part for part in parts if part.label]
    for part in parts:
        end = min(max(part.end, at), 1.0)
        shapes.append(
            f'<rect class="{part.name}" x="{_WIDTH * at:.2f}" y="{_TOP}" width="{_WIDTH * (end - at):.2f}" '
            f'height="{_HEIGHT}" fill="{part.colour}" fill-opacity="{part.opacity:.2f}"/>'
        )
        at = end
        if part.label:
            x, left = min(max(_WIDTH * end, 1.0), _WIDTH - 1.0), _WIDTH / len(labelled) * len(labels)
            labels.append(
                f'<line class="{part.name}" x1="{x:.2f}" x2="{x:.2f}" y1="{above}" y2="{below}" '
                f'stroke="{part.colour}" stroke-width="2"/>'
                f'<rect x="{left:.2f}" y="{_LABELS - 9}" width="9" height="9" fill="{part.colour}"/>'
                f'<text x="{left + 14:.2f}" y="{_LABELS}" {words}>{escape(part.label)}</text>'
            )
    height = _LABELS + 6 if labels else below
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(description, quote=True)}" '
        f'viewBox="0 0 {_WIDTH:g} {height:g}" style="width:100%;max-width:{_WIDTH:g}px;height:auto;display:block">'
        + "".join(shapes)
        + "".join(labels)
        + "</svg>"
    )


def shown(sentence: str, picture: str, details: Iterable[tuple[str, str]], summary: str) -> str:
    """The whole element; ``picture`` is HTML, all the rest is text."""
    cell = "border:0;background:none;text-align:left;padding:1px 14px 1px 0;white-space:normal"
    rows = "".join(
        f'<tr style="background:none"><td style="{cell};opacity:.75">{escape(name)}</td>'
        f'<td style="{cell}">{escape(value)}</td></tr>'
        for name, value in details
    )
    return (
        '<div class="bidual" style="max-width:44em;margin:.4em 0;font-family:system-ui,sans-serif;font-size:13px">'
        f'<p style="margin:0 0 .4em">{escape(sentence)}</p>{picture}'
        f'<details><summary style="cursor:pointer;opacity:.75">{escape(summary)}</summary>'
        f'<table style="border:0;border-collapse:collapse;font-size:12px">{rows}</table></details></div>'
    )
