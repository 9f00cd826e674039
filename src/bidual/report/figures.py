"""The pictures of a report: displays in the units of the table, as SVG inside the page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from itertools import count
from typing import Any

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual.models import Model
from bidual.networks import Network
from bidual.plots import DecisionDisplay, FitDisplay, HistoryDisplay, NeuronsDisplay, PathDisplay, plot_filters
from bidual.plots._style import MANY, OURS, QUIET, claim, pyplot
from bidual.plots.neurons import frame
from bidual.solvers import HistoryEntry

#: Stands for the colour of the page's text, which depends on light or dark.
_INK = "#010203"
_numbers = count(1)


@contextmanager
def _page_style() -> Iterator[None]:
    ink = dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "legend.labelcolor"), _INK
    )
    plain = {
        "svg.fonttype": "none",  # text stays text
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
    }
    with pyplot().rc_context({**plain, **ink}):
        yield


def svg(draw: Callable[[], Any], description: str) -> str:
    """What ``draw`` draws (it returns a figure), as an SVG element with a description for those who cannot see it."""
    with _page_style():
        figure = draw()
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        pyplot().close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    prefix = f"g{next(_numbers)}-"  # names must not repeat within a page
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r"url\(#", f"url(#{prefix}", text)
    text = re.sub(r'href="#', f'href="#{prefix}', text)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{escape(description, quote=True)}" ', 1)
    return f'<div class="picture">{text}</div>'


def pictures(model: Model, X: FloatArray, y: Any) -> Iterator[tuple[str, str]]:
    """The fit as (SVG, caption), as the number of inputs and the task allow."""
    d, classes = len(model.feature_names), model.target.classes
    if classes is None and d == 1 and model.network.n_outputs == 1 and model.input_shape is None:
        yield (
            svg(lambda: _fit(model, X, y), f"{model.target.name} against {model.feature_names[0]}, with the fit"),
            ("The fitted function is piecewise linear; every kink is a neuron that switches on or off."),
        )
    elif classes is None:
        yield (
            svg(lambda: _predictions(model, X, y), f"predicted against observed {model.target.name}"),
            ("Predicted against observed. On the diagonal the prediction is exact."),
        )
    if d == 2 and classes is not None and model.input_shape is None:
        yield (
            svg(lambda: _regions(model, X, y), f"regions of predicted {model.target.name}"),
            ("Predicted class by colour; dashed lines are the neurons."),
        )
    elif d == 2 and model.input_shape is None:
        yield (
            svg(lambda: _neurons(model, X, y), "neurons as lines over the data"),
            ("Each line is where a neuron switches on; a tick points to its active side, its width tells its cost."),
        )
    if drawable(model.network):
        yield (
            svg(lambda: plot_filters(model.network, 64).figure, "filters of the network"),
            ("Filters, those of the largest cost first, each stretched to its own range."),
        )


def drawable(network: Network) -> bool:
    """Whether a network has filters that are pictures."""
    shape: tuple[int, ...] = np.shape(getattr(network, "filters", ()))
    return network.n_neurons > 0 and (len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3)))


def history(entries: Sequence[HistoryEntry], tol: float | None) -> str:
    """Objective, bound and gap of the training."""
    text = "objective, lower bound and gap during training"
    return svg(lambda: HistoryDisplay.from_history(entries, tol=tol).figure_, text)


def path(display: PathDisplay) -> str:
    """Neurons, objective and score against beta."""
    return svg(lambda: display.plot().figure_, "neurons, objective and score against beta")


def histogram(values: FloatArray, name: str) -> str:
    """How a numeric target is distributed."""

    def draw() -> Any:
        figure, ax = pyplot().subplots(figsize=(4.4, 1.9), layout="constrained")
        ax.hist(values, bins=min(30, max(5, int(np.sqrt(len(values))))), color=OURS, alpha=0.85)
        ax.set(xlabel=_plain(name), ylabel="rows")
        return figure

    return svg(draw, f"histogram of {name}")


def _fit(model: Model, X: FloatArray, y: Array) -> Any:
    display = FitDisplay.from_network(model.network, model.transform(X), y, plot=False)
    centre = 0.0 if model.centre is None else model.centre[0]
    scale = 1.0 if model.scale is None else model.scale[0]
    back = model.target
    raw = FitDisplay(
        X[:, 0],
        y,
        display.grid * scale + centre,
        display.values * back.scale + back.centre,
        display.kinks * scale + centre,
        display.kink_values * back.scale + back.centre,
        claim(model.certificate),
    ).plot()
    raw.ax_.set(xlabel=_plain(model.feature_names[0]), ylabel=_plain(back.name))
    return raw.figure_


def _predictions(model: Model, X: FloatArray, y: Array) -> Any:
    figure, ax = pyplot().subplots(figsize=(5.2, 4.2), layout="constrained")
    predicted, y = model.predict(X), np.asarray(y)
    ax.scatter(y, predicted, s=14, color=OURS, alpha=0.7, linewidths=0, rasterized=len(y) > MANY)
    ends = [min(y.min(), predicted.min()), max(y.max(), predicted.max())]
    ax.plot(ends, ends, color=QUIET, lw=1)
    ax.set(xlabel=f"observed {_plain(model.target.name)}", ylabel="predicted")
    return figure


def _raw_lines(model: Model, X: FloatArray) -> NeuronsDisplay:
    """Neurons as lines in the units of the table."""
    display = NeuronsDisplay.from_network(model.network, model.transform(X), plot=False)
    centre = np.zeros(2) if model.centre is None else model.centre
    scale = np.ones(2) if model.scale is None else model.scale
    slopes = display.lines[:, :2] / scale
    display.lines = np.column_stack([slopes, display.lines[:, 2] - slopes @ centre])
    display.X = X
    return display


def _neurons(model: Model, X: FloatArray, y: Array) -> Any:
    display = _raw_lines(model, X)
    display.y, display.names, display.title = y, (_plain(model.feature_names[0]), _plain(model.feature_names[1])), None
    return display.plot().figure_


def _regions(model: Model, X: FloatArray, y: Any) -> Any:
    low, high = frame(X)
    grid = tuple(np.linspace(a, b, 160) for a, b in zip(low, high, strict=True))
    scores = model.scores(np.stack(np.meshgrid(*grid), axis=-1).reshape(-1, 2))
    scores = np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
    classes, labels = (np.array([_plain(c) for c in values]) for values in (model.target.classes or (), y))
    display = DecisionDisplay(
        X, labels, classes, (grid[0], grid[1]), scores.reshape(160, 160, -1), _raw_lines(model, X)
    ).plot()
    display.ax_.set(xlabel=_plain(model.feature_names[0]), ylabel=_plain(model.feature_names[1]))
    return display.figure_


def _plain(name: object) -> str:
    """A name as matplotlib shows it: a column may be called $."""
    return str(name).replace("$", r"\$")
