"""Time limits asked and taken, Ctrl-C at several moments, and peak memory, for all architectures and methods.

python benchmarks/limits.py [--cases TEXT ...] [--busy] [--no-write]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from report import machine, table, write_section
from sklearn.model_selection import GridSearchCV

from bidual import (
    BatchNorm,
    Convolutional,
    LinearNetRegressor,
    Parallel,
    ReLUClassifier,
    ReLURegressor,
    ReLURegressorCV,
    SplineRegressor,
    certify,
    solution_path,
)

#: Seconds after which Ctrl-C is pressed.
MOMENTS = (0.1, 1.0, 3.0)
#: Seconds after which a case is given up.
PATIENCE = 240.0
#: How many times longer things take on a busy machine, at most.
BUSY = 6.0
#: Seconds that a run may take beyond its limit, and as a share of it; and after Ctrl-C.
ALLOWED, SHARE, AFTER_INTERRUPT = 1.0, 0.1, 2.0
#: Rows of the run before, on which everything is compiled.
SMALL = 24

INTRODUCTION = """\
Every case runs in a process of its own, after a small one of the same kind (compiling is not counted). "taken" is wall
clock, with the seconds of processor time behind it (a busy machine makes a difference), for the time limit "asked".
Ctrl-C is pressed after so many seconds of a run without limit: how long it took to end, and the likely and the proven
gap it ended with ("done": it had ended before; "raised": KeyboardInterrupt, where there is nothing to return). Wanted:
at most the limit and 1 s and 10 %, and 2 s after Ctrl-C. The peak is that of the whole process, which begins with about
.3 GiB of libraries."""


@dataclass(frozen=True)
class Case:
    """A way to train, at the size of interest and at a small one."""

    run: Callable[[int, float | None], Any]
    rows: int
    limit: float | None = None
    interrupts: bool = True


@cache
def data(n: int, d: int, outputs: int = 1) -> tuple[Any, Any]:
    """Rows, and targets that no small network fits."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    U = rng.standard_normal((d, 20)) / np.sqrt(d)
    Y = np.maximum(X @ U, 0.0) @ rng.standard_normal((20, outputs)) + 0.3 * rng.standard_normal((n, outputs))
    return X, Y[:, 0] if outputs == 1 else Y


def regressor(d: int, outputs: int = 1, beta: float = 1e-3, **options: Any) -> Callable[[int, float | None], Any]:
    """ReLURegressor with these options on so many columns."""

    def run(n: int, limit: float | None) -> Any:
        return ReLURegressor(beta, time_limit=limit, random_state=0, **options).fit(*data(n, d, outputs))

    return run


@cache
def pictures(n: int) -> tuple[Any, Any]:
    """Ten classes of 784 pixels, as many of them zero as in pictures of clothes."""
    rng = np.random.default_rng(0)
    means = rng.standard_normal((10, 784))
    y = np.arange(n) % 10
    return np.maximum(means[y] + 2.0 * rng.standard_normal((n, 784)), 0.0), y


def classifier(n: int, limit: float | None) -> Any:
    return ReLUClassifier(1e-4, time_limit=limit, random_state=0).fit(*pictures(n))


def images(pooling: str) -> Callable[[int, float | None], Any]:
    """Small pictures."""

    def run(n: int, limit: float | None) -> Any:
        X, y = data(n, 144)
        architecture = Convolutional(3, pooling=pooling)
        return ReLURegressor(1e-3, architecture=architecture, time_limit=limit, random_state=0).fit(
            X.reshape(n, 12, 12, 1), y
        )

    return run


def certified(d: int) -> Callable[[int, float | None], Any]:
    """A random network of others."""

    def run(n: int, limit: float | None) -> Any:
        X, y = data(n, d)
        rng = np.random.default_rng(1)
        net = (rng.standard_normal((20, d)) / np.sqrt(d), 0.1 * rng.standard_normal((20, 1)))
        return certify(net, X, y, beta=1e-3, time_limit=limit, random_state=0)

    return run


def spline(n: int, limit: float | None) -> Any:
    x = np.random.default_rng(0).uniform(size=n)
    return SplineRegressor(1e-7, loss="absolute", time_limit=limit).fit(x[:, None], np.sin(200 * x) + x)


def path(n: int, limit: float | None) -> Any:
    return solution_path(*data(n, 5), n_betas=30, time_limit=limit, random_state=0)


def crossed(n: int, limit: float | None) -> Any:
    return ReLURegressorCV(n_betas=8, cv=3, time_limit=limit, random_state=0).fit(*data(n, 5))


def searched(n: int, limit: float | None) -> Any:
    grid = {"beta": [1e-1, 1e-2, 1e-3, 1e-4]}
    return GridSearchCV(ReLURegressor(time_limit=limit, random_state=0), grid, cv=3).fit(*data(n, 5))


def linear(n: int, limit: float | None) -> Any:
    X, Y = data(n, 60, 30)
    rounds = 10**6 if n > SMALL else 100  # Ctrl-C is to end it
    return LinearNetRegressor(3, 1e-3, max_iter=rounds, tol=0.0).fit(X * np.geomspace(1.0, 1e-3, 60), Y)


AFTER = BatchNorm(position="after")
CASES = {
    "two layers, 1000 x 20": Case(regressor(20), 1000, 1.0),
    "two layers, 20000 x 30": Case(regressor(30), 20_000, 0.5),
    "two layers, 3 outputs, 1000 x 10": Case(regressor(10, 3), 1000, 1.0),
    "two layers, quantile loss, 1000 x 10": Case(regressor(10, loss="quantile"), 1000, 1.0),
    "ten classes, 20000 x 784": Case(classifier, 20_000, 2.0),
    "exact, 60 x 3": Case(regressor(3, method="exact"), 60, 0.5),
    "exact, 22 x 5": Case(regressor(5, method="exact"), 22, 0.5),
    "exact, 3 outputs, 100 x 3": Case(regressor(3, 3, method="exact"), 100, 1.0),
    "sampled, 2000 patterns, 300 x 10": Case(regressor(10, method="sampled", n_patterns=2000), 300, 0.5),
    "cutting planes, 3000 x 10": Case(regressor(10, method="cutting_plane"), 3000, 1.0),
    "gated, 3000 x 20": Case(regressor(20, activation="gated", n_patterns=500, beta=1e-5), 3000, 1.0),
    "gated, in blocks, 50000 x 30": Case(regressor(30, activation="gated", beta=1e-6), 50_000, 1.0),
    "batch norm before, 1000 x 20": Case(regressor(20, architecture=BatchNorm()), 1000, 1.0),
    "batch norm after, 1000 x 20": Case(regressor(20, architecture=AFTER), 1000, 2.0),
    "batch norm after, sampled, 300 x 10": Case(regressor(10, architecture=AFTER, method="sampled"), 300, 1.0),
    "convolution, summed, 200": Case(images("sum"), 200, 0.5),
    "convolution, flattened, 200": Case(images("flatten"), 200, 0.5),
    "parallel, 300 x 5": Case(regressor(5, architecture=Parallel(3)), 300, 1.0),
    "parallel, exact, 7 x 2": Case(regressor(2, architecture=Parallel(2), method="exact"), 7, 0.5),
    "spline, 300000": Case(spline, 300_000, 0.5),
    "linear, 3 layers, 2000 x 60": Case(linear, 2000),
    "certify, 300 x 300": Case(certified(300), 300, 0.5),
    "certify, 500 x 10": Case(certified(10), 500, 2.0),
    "path, 400 x 5": Case(path, 400),
    "cross-validation, 300 x 5": Case(crossed, 300),
    "grid search, 300 x 5": Case(searched, 300),
}


def gaps(found: Any) -> list[float]:
    """The largest likely and the largest proven gap of whatever was trained."""
    certificates = getattr(found, "certificates", None) or [getattr(found, "certificate_", found)]
    if not hasattr(certificates[0], "gap"):
        return []
    return [max(c.likely_gap for c in certificates), max(c.gap for c in certificates)]


def timed(run: Callable[[], Any]) -> dict[str, Any]:
    """Seconds, processor seconds, and the gaps."""
    began, used = time.perf_counter(), time.process_time()
    found = run()
    return {"wall": time.perf_counter() - began, "cpu": time.process_time() - used, "gaps": gaps(found)}


def interrupted(run: Callable[[], Any], moment: float) -> dict[str, Any]:
    """What happens when Ctrl-C is pressed after so many seconds."""
    pressed: list[tuple[float, float]] = []

    def press() -> None:
        while time.perf_counter() < began + moment:
            if over.wait(0.005):
                return
        pressed.append((time.perf_counter(), time.process_time()))
        os.kill(os.getpid(), signal.SIGINT)

    began, over = time.perf_counter(), threading.Event()
    timer = threading.Thread(target=press)
    timer.start()
    found, raised = None, False
    try:
        found = run()
    except KeyboardInterrupt:
        raised = True
    ended = time.perf_counter(), time.process_time()
    over.set()
    timer.join()
    if not pressed or pressed[0][0] > ended[0]:
        return {"done": True}
    wall, cpu = (b - a for a, b in zip(pressed[0], ended, strict=True))
    return {"wall": wall, "cpu": cpu, "raised": raised, "gaps": [] if raised else gaps(found)}


def child(name: str, busy: bool) -> None:
    """All measurements of one case, as lines of JSON."""
    if busy:
        time.perf_counter = time.process_time  # type: ignore[assignment]
    warnings.simplefilter("ignore")
    case = CASES[name]
    case.run(min(case.rows, SMALL), None if case.limit is None else 60.0)
    if case.limit is not None:
        print(json.dumps({"limit": timed(lambda: case.run(case.rows, case.limit))}), flush=True)
    for moment in MOMENTS if case.interrupts else ():
        print(json.dumps({"moment": moment, **interrupted(lambda: case.run(case.rows, None), moment)}), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"peak": peak}), flush=True)


def measure(name: str, busy: bool) -> list[dict[str, Any]]:
    """The lines of a case; what is missing was not over in time."""
    command = [sys.executable, __file__, "--child", name, *(["--busy"] if busy else [])]
    patience = PATIENCE * (BUSY if busy else 1.0)
    try:
        text = subprocess.run(command, stdout=subprocess.PIPE, timeout=patience, check=False).stdout
    except subprocess.TimeoutExpired as late:
        text = late.stdout or b""
    return [json.loads(line) for line in text.decode().splitlines() if line.startswith("{")]


def row(name: str, lines: list[dict[str, Any]]) -> list[str]:
    """A row of the table."""
    case = CASES[name]
    known = {line.get("moment", next(iter(line))): line for line in lines}

    def seconds(line: dict[str, Any], allowed: float) -> str:
        mark = "" if min(line["wall"], line["cpu"]) <= allowed else " **late**"
        return f"{line['wall']:.1f} ({line['cpu']:.1f}){mark}"

    def shown(line: dict[str, Any]) -> str:
        return ", ".join(f"{gap:.1g}" for gap in line["gaps"])

    cells = [name, "-", "-", "-"]
    if case.limit is not None:
        line = known.get("limit", {}).get("limit")
        allowed = case.limit + ALLOWED + SHARE * case.limit
        taken = ["**lost**", ""] if line is None else [seconds(line, allowed), shown(line)]
        cells = [name, f"{case.limit:g}", *taken]
    for moment in MOMENTS:
        line = known.get(moment)
        if line is None:
            cells.append("**lost**" if case.interrupts else "-")
        elif line.get("done"):
            cells.append("done")
        else:
            cells.append(f"{seconds(line, AFTER_INTERRUPT)}; {'raised' if line['raised'] else shown(line)}")
    peak = known.get("peak")
    return [*cells, "**lost**" if peak is None else f"{peak['peak']:.2f}"]


def main() -> None:
    """Run the cases whose names hold one of the texts given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=[""], help="only those whose names hold one of these texts")
    parser.add_argument(
        "--busy", action="store_true", help="let all clocks count processor time: the machine does other things as well"
    )
    parser.add_argument("--no-write", action="store_true", help="print the table, and leave RESULTS.md as it is")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        child(args.child, args.busy)
        return
    columns = ["case", "asked", "taken (cpu)", "gaps", *(f"Ctrl-C at {m:g} s" for m in MOMENTS), "peak, GiB"]
    rows = []
    for name in CASES:
        if any(text in name for text in args.cases):
            rows.append(row(name, measure(name, args.busy)))
            print(" | ".join(rows[-1]), flush=True)
    clock = " All clocks, those of the library too, counted processor time: the machine was busy." if args.busy else ""
    text = f"## Limits (`benchmarks/limits.py`; {machine()})\n\n{INTRODUCTION}{clock}\n\n{table(columns, rows)}"
    if not args.no_write:
        write_section("limits", text)


if __name__ == "__main__":
    main()
