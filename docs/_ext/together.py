"""What goes with what, from what architectures, activations and methods declare: a table for the page and README."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from bidual import BatchNorm, Convolutional, LeakyReLU, Parallel, TwoLayer
from bidual.losses import get_loss
from bidual.solvers import METHODS
from bidual.training.objective import Objective

ARCHITECTURES = (
    TwoLayer(),
    LeakyReLU(0.1),
    BatchNorm(),
    BatchNorm(position="after"),
    Convolutional(3),
    Convolutional(3, pooling="flatten"),
    Parallel(2),
    Parallel(2, deeper=(2,)),
)
#: Outputs that are tried, and the words for those that go.
_WORDS = {(True, True): "yes", (True, False): "one output", (False, False): "no", (False, True): "several outputs"}


def table() -> list[str]:
    """Lines of a Markdown table: every architecture with every method, and with gates."""
    lines = ["| architecture | " + " | ".join([*map(str, METHODS), "gated"]) + " |", "|---" * (len(METHODS) + 2) + "|"]
    for architecture in ARCHITECTURES:
        cells = [_goes(architecture, "relu", method) for method in METHODS] + [_goes(architecture, "gated", None)]
        lines.append(f"| `{_short(architecture)}` | " + " | ".join(cells) + " |")
    return lines


def free() -> str:
    """The line of networks with free biases, which have an intercept."""
    cells = [_goes(TwoLayer(), "relu", method, "free") for method in METHODS] + [
        _goes(TwoLayer(), "gated", None, "free")
    ]
    return f'| `TwoLayer()`, `bias="free"` | {" | ".join(cells)} |'


def _short(architecture: Any) -> str:
    """Without the options that are left at their defaults."""
    kind = type(architecture)
    told = {
        "TwoLayer": "TwoLayer()",
        "LeakyReLU": f"LeakyReLU({getattr(architecture, 'slope', '')})",
        "BatchNorm": f"BatchNorm({getattr(architecture, 'position', '')!r})",
        "Convolutional": f"Convolutional(3, pooling={getattr(architecture, 'pooling', '')!r})",
        "Parallel": f"Parallel(2, deeper={getattr(architecture, 'deeper', ())})",
    }
    return told[kind.__name__].replace(", deeper=()", "")


def _goes(architecture: Any, activation: str, method: str | None, bias: bool | str = True) -> str:
    """With one output, with three, with both or with none; the squared loss without intercept, which all could take.

    (Free biases are one.)
    """

    def fine(n_outputs: int) -> bool:
        try:
            Objective(get_loss("squared"), 0.1, architecture, bias, bias == "free").check(n_outputs, activation, method)
        except ValueError:
            return False
        return True

    return _WORDS[fine(1), fine(3)]


class GoesTogether(Directive):
    """The table on a page."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        node = nodes.container()
        self.state.nested_parse(StringList([*table(), free()]), 0, node)
        return list(node.children)


def setup(app: Any) -> dict[str, bool]:
    """For Sphinx."""
    app.add_directive("goes-together", GoesTogether)
    return {"parallel_read_safe": True}
