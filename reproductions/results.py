"""Outcomes as JSON files, and the page made from them."""

from __future__ import annotations

import datetime
import os
import platform
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bidual._util.files import read_json, write_atomically, write_json
from reproductions.framework import RECORD, Context, Experiment, Outcome, Verdict, natural

HEADER = """\
# The five papers, reproduced

Written by `bidual reproduce`; one row for each experiment, with the last run of it. 000 is the paper on batch
normalisation, 001 on deep networks, 002 on parallel networks, 003 on two layers and convolutions, 004 on convex
geometry. Objectives are in our normalisation where nothing else is said: mean loss, so that `beta` is the papers' beta
divided by n. Many of the papers' settings (beta, points, rates) are not published: what we chose is said with each
experiment. Times are CPU seconds of all threads. `--quick` for all of them takes eleven minutes on two cores.
"""


def store(folder: Path, experiment: Experiment, context: Context, outcome: Outcome, seconds: float) -> None:
    """Write what an experiment found to ``<folder>/<name>.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    record = {
        "name": experiment.name,
        "title": experiment.title,
        "claim": experiment.claim,
        "paper": experiment.paper,
        "verdict": str(outcome.verdict),
        "ours": outcome.ours,
        "size": str(context.size),
        "sizes": outcome.sizes,
        "details": outcome.details,
        "figures": context.figures,
        "numbers": outcome.numbers,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(context.cpu_seconds, 2),
        "machine": f"{today}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    write_json(folder / f"{experiment.name}.json", record)


def write_page(folder: Path, page: Path) -> None:
    """The table of all stored outcomes, then each of them with its details and figures."""
    paths = sorted(folder.glob("*.json"), key=lambda path: natural(path.stem))
    records = [read_json(path, RECORD) for path in paths]
    counts = Counter(record["verdict"] for record in records)
    tally = ", ".join(f"{verdict} ({counts[verdict]})" for verdict in Verdict if counts[verdict])
    lines = [
        HEADER,
        f"{len(records)} experiments, claim: {tally}.",
        "",
        "| experiment | claim | paper | ours | CPU s | size | verdict |",
        "|" + "---|" * 7,
    ]
    for record in records:
        spent = f"{record.get('cpu_seconds', record['seconds']):.0f}"
        verdict = f"**{record['verdict']}**"
        cells = (_link(record), *(record[key] for key in ("claim", "paper", "ours")), spent, record["size"], verdict)
        lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    for record in records:
        lines += ["", *_section(record, os.path.relpath(folder, page.parent))]
    text = "\n".join(lines) + "\n"
    write_atomically(page, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _link(record: Mapping[str, Any]) -> str:
    return f"[{record['name']}](#{record['name']})"


def _section(record: Mapping[str, Any], folder: str) -> list[str]:
    lines = [f"## {record['name']}", "", f"{record['title']}. {record['machine']}."]
    if record["sizes"]:
        lines.append(f"Sizes: {record['sizes']}.")
    lines += [f"![{record['title']}]({folder}/{name})" for name in record["figures"]]
    return [*lines, "", record["details"].strip()] if record["details"] else lines
