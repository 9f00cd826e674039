"""What the pictures share: one palette that reads on light and dark paper, and axes when none are given."""

from __future__ import annotations

from typing import Any

from bidual._util.extras import advice

#: Ours, the others, what marks a proof, what marks a warning.
OURS, OTHERS, BOUND, MARK, QUIET = "#2f7ed8", "#e0813a", "#2e9e6b", "#d64550", "#8a929c"
#: Classes, distinguishable to colour-blind readers; markers say the same again.
CLASSES = ("#2f7ed8", "#e0813a", "#2e9e6b", "#b05cc6", "#8c6d31", "#d64550", "#17a2b8", "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
#: Points beyond this are drawn as a picture inside a vector file.
MANY = 2000


def pyplot() -> Any:
    """matplotlib's pyplot, or a sentence that says how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:  # pragma: no cover - depends on the installation
        raise ImportError(advice("a picture", "plot", "matplotlib")) from error
    return plt


def axes(ax: Any, count: int = 1, size: tuple[float, float] = (6.4, 4.0)) -> Any:
    """The axes given, or new ones: ``count`` of them, one above the other."""
    if ax is None:
        _, ax = pyplot().subplots(count, 1, figsize=size, layout="constrained", sharex=count > 1)
    if count == 1:
        return ax
    try:
        given = list(ax)
    except TypeError:
        given = [ax]
    if len(given) != count:
        raise ValueError(f"this picture needs {count} axes, got {len(given)}")
    return given


def claim(certificate: Any) -> str:
    """Objective and gaps in one line."""
    return f"objective {certificate.objective:.6g}, {gaps(certificate)}"


def gaps(certificate: Any) -> str:
    """What is proven, and what is likely if that is more."""
    likely = f", likely gap {certificate.likely_gap:.1e}" if certificate.tells_more else ""
    return f"proven gap {certificate.gap:.1e}{likely}"
