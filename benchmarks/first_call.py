"""What the first call in a fresh environment costs: importing, compiling, and the second call beside the first.

python benchmarks/first_call.py [--cases TEXT ...] [--functions] [--no-write]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

#: A fit is told apart from noise by the smallest of so many processes, an import by the median.
FITS, IMPORTS = 1, 5
#: What is imported in a fresh interpreter, whose own start is taken off.
MODULES = ("sklearn.linear_model", "sklearn.neural_network", "sklearn.ensemble", "bidual")
#: Seconds that the first call may take beyond the second.
WANTED = 3.0

INTRODUCTION = f"""\
Seconds of processor time with one thread: those of the clock on a machine that does nothing else. Every call is made
in processes of its own, best of {FITS}. "first" is the first call with an empty
`NUMBA_CACHE_DIR`, "second" the same call again, "more" the difference (wanted: at most {WANTED:g} s), and "compiling"
the part of it that numba needs for so many functions. "stored" is what the first call in a second process takes beyond
its second, when compiled code is found on disk. Imports: median of {IMPORTS}, without the start of the interpreter."""


def planted(n: int, d: int) -> tuple[Any, Any]:
    """Gaussian rows, and targets of ten neurons with noise."""
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    hidden, output = rng.standard_normal((d, 10)), rng.standard_normal(10)
    return X, np.maximum(X @ hidden, 0.0) @ output / np.sqrt(10.0) + 0.1 * rng.standard_normal(n)


def bundled(name: str) -> tuple[Any, Any]:
    """A set of scikit-learn."""
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(return_X_y=True)


def fits(estimator: str, data: Callable[[], tuple[Any, Any]], *args: Any, **options: Any) -> Callable[[], Any]:
    """What makes a call: an estimator of bidual fitted to data."""

    def prepare() -> Callable[[], Any]:
        import bidual

        X, y = data()
        seed = {} if estimator == "SplineRegressor" else {"random_state": 0}
        return lambda: getattr(bidual, estimator)(*args, **seed, **options).fit(X, y)

    return prepare


def certifies() -> Callable[[], Any]:
    """The certificate of a network of scikit-learn."""
    from sklearn.neural_network import MLPRegressor

    import bidual

    X, y = planted(200, 3)
    mlp = MLPRegressor(hidden_layer_sizes=(50,), alpha=1.0, max_iter=500, random_state=0).fit(X, y)
    return lambda: bidual.certify(mlp, X, y, beta=1.0 / len(y), random_state=0)


CASES: dict[str, Callable[[], Callable[[], Any]]] = {
    "ReLURegressor(), diabetes": fits("ReLURegressor", lambda: bundled("diabetes")),
    "ReLURegressor(1e-3), 500 x 10": fits("ReLURegressor", lambda: planted(500, 10), 1e-3),
    "absolute loss, 500 x 10": fits("ReLURegressor", lambda: planted(500, 10), 1e-2, loss="absolute"),
    "exact, 30 x 2": fits("ReLURegressor", lambda: planted(30, 2), 1e-2, method="exact"),
    "ReLUClassifier(), iris": fits("ReLUClassifier", lambda: bundled("iris")),
    "ReLUClassifier(), breast_cancer": fits("ReLUClassifier", lambda: bundled("breast_cancer")),
    "hinge, breast_cancer": fits("ReLUClassifier", lambda: bundled("breast_cancer"), loss="hinge"),
    "ReLUClassifier(), digits": fits("ReLUClassifier", lambda: bundled("digits")),
    "certify an MLP, 200 x 3": certifies,
    "SplineRegressor(1e-3), 300 x 1": fits("SplineRegressor", lambda: planted(300, 1), 1e-3),
    "gated, 500 x 10": fits("ReLURegressor", lambda: planted(500, 10), 1e-3, activation="gated"),
    "BatchNorm, 300 x 5": fits("ReLURegressor", lambda: planted(300, 5), 1e-2, architecture="batch_norm"),
    "ReLURegressor(), 20,000 x 8": fits("ReLURegressor", lambda: planted(20_000, 8)),
}


def called(case: str) -> dict[str, Any]:
    """Seconds of the call, twice."""
    warnings.simplefilter("ignore")
    call = CASES[case]()
    seconds = []
    for _ in range(2):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return {"seconds": seconds}


def compiled(case: str) -> dict[str, Any]:
    """Seconds that numba spends on each function, without those it compiles on the way."""
    from numba.core import event

    own: dict[str, float] = {}
    open_: list[list[Any]] = []

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            open_.append([time.process_time(), 0.0])

        def on_end(self, event: Any) -> None:
            started, inside = open_.pop()
            took = time.process_time() - started
            function = event.data["dispatcher"].py_func
            key = f"{function.__module__}.{function.__name__}{event.data['args']}"
            own[key] = own.get(key, 0.0) + took - inside
            if open_:
                open_[-1][1] += took

    with event.install_listener("numba:compile", Listener()):
        called(case)
    return {"functions": own}


def process(what: str, case: str, cache: str) -> dict[str, Any]:
    """``called`` or ``compiled`` in a process of its own."""
    command = [sys.executable, __file__, f"--{what}", case]
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def fresh(what: str, case: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same in an environment where nothing is compiled yet, and again where it is."""
    with tempfile.TemporaryDirectory() as cache:
        return process(what, case, cache), process(what, case, cache)


def measure(case: str, functions: bool) -> dict[str, Any]:
    """A row of the table."""
    runs = [fresh("called", case) for _ in range(FITS)]
    first, second = (min(new["seconds"][k] for new, _ in runs) for k in (0, 1))
    stored = min(again["seconds"][0] for _, again in runs) - min(again["seconds"][1] for _, again in runs)
    with tempfile.TemporaryDirectory() as cache:
        own = process("compiled", case, cache)["functions"]
    if functions:
        for name, seconds in sorted(own.items(), key=lambda item: -item[1]):
            print(f"    {seconds:6.2f} s  {name}")
    return {"case": case, "first": first, "second": second, "stored": stored, "own": own}


def imports() -> list[list[str]]:
    """Seconds of ``import`` for each of the modules, whose bytecode is there."""
    seconds: dict[str, list[float]] = {module: [] for module in ("sys", *MODULES)}
    with tempfile.TemporaryDirectory() as bytecode:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
        for turn in range(1 + IMPORTS):
            for module, runs in seconds.items():
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([sys.executable, "-c", f"import {module}"], env=environment, check=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                if turn:  # the first one writes the bytecode
                    runs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    nothing = statistics.median(seconds["sys"])
    return [[f"`{module}`", f"{statistics.median(seconds[module]) - nothing:.2f}"] for module in MODULES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="*", default=[], help="only cases whose name has one of these")
    parser.add_argument("--functions", action="store_true", help="print what was compiled")
    parser.add_argument("--no-write", action="store_true", help="leave RESULTS.md as it is")
    parser.add_argument("--called", help=argparse.SUPPRESS)
    parser.add_argument("--compiled", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.called or args.compiled:
        print(json.dumps(called(args.called) if args.called else compiled(args.compiled)))
        return
    from report import machine, table, write_section

    rows = []
    for case in CASES:
        if args.cases and not any(text in case for text in args.cases):
            continue
        row = measure(case, args.functions)
        numbers = [row["first"], row["second"], row["first"] - row["second"], sum(row["own"].values())]
        rows.append([case, *(f"{x:.1f}" for x in numbers), len(row["own"]), f"{row['stored']:.1f}"])
        print(" | ".join(map(str, rows[-1])), flush=True)
    columns = ["call", "first, s", "second, s", "more, s", "compiling, s", "functions", "stored, s"]
    loading = table(["import", "s"], imports())
    print(loading)
    if not args.no_write:
        heading = f"## First call (`benchmarks/first_call.py`; {machine()})"
        write_section("first call", "\n\n".join([heading, INTRODUCTION, loading, table(columns, rows)]))


if __name__ == "__main__":
    main()
