"""Plots and tables of the recorded benchmarks, drawn from ``benchmarks/results`` when the site is built."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean, median
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
#: Where the plots go, below the folder of the pages.
FOLDER = "_results"
#: Colours that can be read on white and on black.
OURS, THEIRS, GREY = "#3b82d6", "#d9772f", "#808080"
NAMES = {"MLP": "MLP", "linear": "ridge / logistic", "SVM": "SVM (RBF)", "boosting": "boosting", "ours": "bidual"}


def journal(name: str) -> list[dict[str, Any]]:
    """The lines of a recorded benchmark."""
    with (RESULTS / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


# ---- defaults beside defaults -----------------------------------------------------------------------------------


def scores() -> dict[str, dict[str, float]]:
    """Mean score over the splits, of every set and model."""
    kept: dict[str, dict[str, list[float]]] = {}
    for line in journal("defaults"):
        kept.setdefault(line["set"], {}).setdefault(line["model"], []).append(line["score"])
    return {name: {model: mean(values) for model, values in of.items()} for name, of in kept.items()}


def ranks(of: dict[str, float]) -> dict[str, float]:
    """Ranks from 1, the best; equal scores share theirs."""
    ordered = sorted(of.values(), reverse=True)
    return {model: ordered.index(score) + 1 + (ordered.count(score) - 1) / 2 for model, score in of.items()}


def defaults_table() -> list[str]:
    """Lines of a Markdown table."""
    sets, lines = scores(), ["| trained by, with its defaults | mean score | mean rank of five | median time |"]
    lines += ["|---|---|---|---|"]
    ranked = {model: mean(ranks(of)[model] for of in sets.values()) for model in NAMES}
    seconds = {model: median(line["cpu"] for line in journal("defaults") if line["model"] == model) for model in NAMES}
    for model in sorted(NAMES, key=ranked.__getitem__):
        score = mean(of[model] for of in sets.values())
        lines.append(f"| {NAMES[model]} | {score:.3f} | {ranked[model]:.1f} | {seconds[model]:.2g} s |")
    return lines


def defaults(plt: Any) -> Any:
    """Every set: our score less that of the best of the four peers."""
    sets = scores()
    lead = sorted(of["ours"] - max(v for model, v in of.items() if model != "ours") for of in sets.values())
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    axes.bar(range(len(lead)), lead, color=[OURS if value >= -0.02 else THEIRS for value in lead], width=0.8)
    axes.axhline(0, color=GREY, lw=0.8)
    axes.axhline(-0.02, color=GREY, lw=0.8, ls=":")
    close = sum(value >= -0.02 for value in lead)
    axes.set(
        ylabel="score less the best peer's", xticks=[], xlabel=f"{len(lead)} sets; blue: within .02 ({close} sets)"
    )
    return figure


# ---- the engine, proofs, many rows ------------------------------------------------------------------------------


def engine(plt: Any) -> Any:
    """Objective above the best known against time, ours and the Adam that ends lowest, on six problems."""
    results = json.loads((RESULTS / "engine.json").read_text(encoding="utf-8"))["results"]
    kept: dict[tuple[str, float], dict[str, Any]] = {}
    for one in results:
        if one["method"] in ("ours", "Adam m=200, 4000 steps"):
            kept.setdefault((one["problem"], one["beta"]), {})[one["method"]] = one["runs"]
    chosen = [key for key in kept if key[1] == 0.01][:6]
    figure, grid = plt.subplots(2, 3, figsize=(8, 4.4), layout="constrained", sharey=True)
    for axes, key in zip(grid.flat, chosen, strict=True):
        floor = min(min(run["objectives"]) for runs in kept[key].values() for run in runs)
        for method, colour, label in (("Adam m=200, 4000 steps", THEIRS, "Adam"), ("ours", OURS, "bidual")):
            for k, run in enumerate(kept[key][method]):
                above = [max(value / floor - 1, 1e-5) for value in run["objectives"]]
                axes.plot(run["times"], above, color=colour, lw=1.3, label=None if k else label)
        axes.set(xscale="log", yscale="log", ylim=(8e-6, 3), title=key[0])
    figure.supxlabel("seconds")
    figure.supylabel("objective above the best, relative")
    grid.flat[0].legend(frameon=False)
    return figure


def certify(plt: Any) -> Any:
    """How many of the problems are proven to a gap after 60 seconds."""
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    for kappa, colour in (("0.3", OURS), ("0.1", GREY), ("0.02", THEIRS)):
        cells = [line.get("ours, 60 s") or line.get("ours, 10 s") or line["ours, 1 s"] for line in journal("certify")
                 if line["kappa"] == kappa]  # fmt: skip
        gaps = sorted(max(float(cell.split()[0]) / 100, 1e-4) for cell in cells)
        shares = [(k + 1) / len(gaps) for k in range(len(gaps))]
        axes.step(gaps, shares, color=colour, where="post", label=f"beta = {kappa} beta_max")
    axes.set(xscale="log", xlabel="proven gap after at most 60 s on one core", ylabel="share of problems", ylim=(0, 1))
    axes.legend(frameon=False)
    return figure


def scale(plt: Any) -> Any:
    """MNIST: accuracy on test images against time."""
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    lines, trained = journal("scale"), ", trained gates"
    kinds = (
        ("gated P ", "", OURS, "o:", "gated, gates drawn"),
        ("gated P ", trained, OURS, "o-", "gated, gates trained"),
        ("MLP ", "", THEIRS, "s-", "scikit-learn's MLP"),
    )
    for begin, end, colour, style, label in kinds:
        rows = [line for line in lines if line["row"].startswith(begin) and line["row"].endswith(trained) == bool(end)]
        points = sorted((row["seconds"], 100 * row["accuracy"], row.get("P", row.get("width"))) for row in rows)
        axes.plot([x for x, _, _ in points], [y for _, y, _ in points], style, color=colour, label=label)
        for x, y, size in points:
            axes.annotate(f"{size}", (x, y), (4, -10), textcoords="offset points", fontsize=8, color=colour)
    axes.set(xlabel="seconds, two cores (beside the marks: neurons)", ylabel="test accuracy, %")
    axes.legend(frameon=False)
    return figure


FIGURES: dict[str, Callable[[Any], Any]] = {"defaults": defaults, "engine": engine, "certify": certify, "scale": scale}


def draw(folder: Path, names: Iterable[str] = FIGURES) -> None:
    """Write the plots that are older than their numbers, or than this file."""
    sources = [path for path in RESULTS.iterdir() if path.is_file()]
    newest = max(path.stat().st_mtime for path in [*sources, Path(__file__)])
    todo = [n for n in names if not (f := folder / f"{n}.svg").exists() or f.stat().st_mtime < newest]
    if not todo:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(exist_ok=True)
    ink = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY)
    with plt.rc_context({**ink, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "bidual"}):
        for name in todo:
            figure = FIGURES[name](plt)
            figure.savefig(folder / f"{name}.svg", transparent=True, metadata={"Date": None})
            plt.close(figure)


class DefaultsTable(Directive):
    """The table of the defaults."""

    def run(self) -> list[nodes.Node]:
        """As a node."""
        node = nodes.container()
        self.state.nested_parse(StringList(defaults_table()), 0, node)
        return list(node.children)


def setup(app: Any) -> dict[str, bool]:
    """Plots are drawn before the pages are read."""
    app.connect("builder-inited", lambda app: draw(Path(app.srcdir) / FOLDER))
    app.add_directive("defaults-table", DefaultsTable)
    return {"parallel_read_safe": True}
