"""Defaults beside defaults: scores on unseen rows and time, raw columns, three splits, on one machine.

python benchmarks/defaults.py --data FOLDER [--sets a,b] [--splits 3] [--only ours]

The sets: the sixteen of regression in the folder, every fourth of its classification sets of 100 to 30,000 rows (by
name, so that nobody chose them), and those of scikit-learn. Split k: a quarter of the rows, drawn with seed k, is
unseen (in the proportions of the classes). Score: R^2, or accuracy. All on one thread, as make does it; times are
processor seconds.

Peers, at scikit-learn's defaults: MLP and SVM (RBF kernel) on standardised columns, and on standardised targets,
without which they would be far worse; ridge regression and logistic regression on standardised columns, their penalty
chosen by cross-validation (17 and 8 values); histogram gradient boosting. Ours: ``ReLURegressor()`` and
``ReLUClassifier()``, raw.

Every fit is a line of the journal; one that is there is not run again. What the rules of the defaults are was settled
after runs on the first split of some of these sets had been seen.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from report import machine, table, write_section
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from bidual import ReLUClassifier, ReLURegressor

JOURNAL = Path(__file__).parent / "results" / "defaults.jsonl"

BUNDLED = {
    "iris": (load_iris, True),
    "wine": (load_wine, True),
    "breast_cancer": (load_breast_cancer, True),
    "digits": (load_digits, True),
    "diabetes": (load_diabetes, False),
}
#: Rows of the classification sets that are taken, and which of those.
ROWS, EVERY = (100, 30_000), 4
PEERS = ("MLP", "linear", "SVM", "boosting")
#: What counts as close to the best, and columns times rows up to which a default fit should take ten seconds.
CLOSE, SMALL, SECONDS = 0.02, 200_000, 10.0


def names(folder: Path) -> list[str]:
    """The sets."""
    sizes = {}
    for path in sorted(folder.glob("uci_*.npz")):
        with np.load(path) as file:
            sizes[path.stem] = len(file["y"])
    fit = [name for name, n in sizes.items() if ROWS[0] <= n <= ROWS[1] and name[4:] not in BUNDLED]
    chosen = fit[::EVERY]
    return [*BUNDLED, *(path.stem for path in sorted(folder.glob("reg_*.npz"))), *chosen]


def read(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, bool]:
    """Rows, targets, and whether they are classes."""
    if name in BUNDLED:
        load, classes = BUNDLED[name]
        return *load(return_X_y=True), classes
    with np.load(folder / f"{name}.npz") as file:
        X, y = file["X"].astype(float), file["y"]
    classes = name.startswith("uci_")
    if classes:  # a class of one row cannot be on both sides
        codes, counts = np.unique(y, return_counts=True)
        kept = np.isin(y, codes[counts > 1])
        X, y = X[kept], y[kept]
    return X, y if classes else y.astype(float), classes


def model(kind: str, classes: bool) -> Any:
    """An estimator."""
    if kind == "ours":
        return ReLUClassifier() if classes else ReLURegressor()
    if kind == "boosting":
        return (
            HistGradientBoostingClassifier(random_state=0) if classes else HistGradientBoostingRegressor(random_state=0)
        )
    if kind == "linear":
        if classes:
            return make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=8, cv=3, max_iter=1000))
        return make_pipeline(StandardScaler(), RidgeCV(np.geomspace(1e-4, 1e4, 17)))
    if classes:
        return make_pipeline(StandardScaler(), MLPClassifier(random_state=0) if kind == "MLP" else SVC())
    plain = make_pipeline(StandardScaler(), MLPRegressor(random_state=0) if kind == "MLP" else SVR())
    return TransformedTargetRegressor(plain, transformer=StandardScaler())


def run(name: str, kind: str, split: int, folder: Path) -> dict[str, Any]:
    """One fit and its score."""
    X, y, classes = read(name, folder)
    parts = train_test_split(X, y, test_size=0.25, random_state=split, stratify=y if classes else None)
    X_train, X_test, y_train, y_test = parts
    estimator = model(kind, classes)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        began, used = time.perf_counter(), time.process_time()
        estimator.fit(X_train, y_train)
        seconds, used = time.perf_counter() - began, time.process_time() - used
    line = {"set": name, "n": len(X_train), "d": X.shape[1], "classes": len(np.unique(y)) if classes else 0}
    line |= {
        "model": kind,
        "split": split,
        "score": float(estimator.score(X_test, y_test)),
        "seconds": seconds,
        "cpu": used,
    }
    if kind == "ours":
        line |= {"gap": estimator.gap_, "likely_gap": estimator.likely_gap_, "beta": estimator.beta_}
        line |= {"neurons": estimator.n_neurons_, "status": str(estimator.status_)}
        line["warnings"] = sorted({w.category.__name__ for w in said})
    return line


def seconds(line: dict[str, Any]) -> float:
    """Processor seconds of a fit: what it takes on a machine that does nothing else, on one thread."""
    return float(line["cpu"])


def report(lines: list[dict[str, Any]]) -> str:
    """The table of all sets of which every model has all its splits, and what follows from it."""
    kinds = (*PEERS, "ours")
    by: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for line in lines:
        by.setdefault(line["set"], {}).setdefault(line["model"], []).append(line)
    whole = {name: row for name, row in by.items() if len({len(row.get(kind, ())) for kind in kinds}) == 1}
    if not whole:
        return "No set has been run with every model."
    S = np.array([[np.mean([line["score"] for line in row[kind]]) for kind in kinds] for row in whole.values()])
    T = np.array([[np.mean([seconds(line) for line in row[kind]]) for kind in kinds] for row in whole.values()])
    rows = []
    for name, scores, times in zip(whole, S, T, strict=True):
        ours = whole[name]["ours"]
        first = ours[0]
        rows.append(
            [
                name.removeprefix("uci_").removeprefix("reg_"),
                f"{first['n']} x {first['d']}" + (f", {first['classes']} classes" if first["classes"] else ""),
                *(f"**{s:.3f}**" if s == scores.max() else f"{s:.3f}" for s in scores),
                *(f"{t:.1f}" for t in (times[0], times[-1])),
                f"{np.max([line['likely_gap'] for line in ours]):.2g}",
                f"{np.max([line['gap'] for line in ours]):.2g}",
                f"{np.mean([line['neurons'] for line in ours]):.0f}",
            ]
        )
    columns = ["set", "training rows", *PEERS, "ours", "MLP, s", "ours, s", "likely gap", "proven gap", "neurons"]
    ranks = np.array([[1 + np.sum(s > v) + (np.sum(s == v) - 1) / 2 for v in s] for s in S])
    best = S[:, :-1].max(axis=1)
    close = np.mean(best - CLOSE <= S.T, axis=1)
    small = np.array([row["ours"][0]["n"] * row["ours"][0]["d"] <= SMALL for row in whole.values()])
    summary = table(
        ["", *kinds],
        [
            ["mean score", *(f"{v:.3f}" for v in S.mean(axis=0))],
            ["mean rank among the five", *(f"{v:.2f}" for v in ranks.mean(axis=0))],
            [f"within {CLOSE} of the best of the four peers", *(f"{100 * v:.0f} %" for v in close)],
            ["seconds, median", *(f"{v:.2g}" for v in np.median(T, axis=0))],
            ["seconds, largest", *(f"{v:.3g}" for v in T.max(axis=0))],
        ],
    )
    within = np.mean(T[small, -1] <= SECONDS)
    text = f"Of the {small.sum()} sets with rows x columns up to {SMALL:,}, {100 * within:.0f} % took at most "
    text += f"{SECONDS:.0f} s (the longest {T[small, -1].max():.1f} s); "
    text += f"at most ten times MLP's on {100 * np.mean(T[:, -1] <= 10 * T[:, 0]):.0f} % of all {len(S)}."
    return f"{__doc__.strip()}\n\n{machine()}.\n\n{summary}\n{text}\n\n{table(columns, rows)}"


def main() -> None:
    """Run what the journal lacks, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", help="names, with commas")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--only", help="models, with commas")
    parser.add_argument("--journal", type=Path, default=JOURNAL)
    args = parser.parse_args()
    args.journal.touch()
    lines = [json.loads(text) for text in args.journal.read_text().splitlines()]
    done = {(line["set"], line["model"], line["split"]) for line in lines}
    kinds = args.only.split(",") if args.only else [*PEERS, "ours"]
    for kind in dict.fromkeys(kinds):  # the first fit of a process compiles
        model(kind, False).fit(*load_diabetes(return_X_y=True))
        model(kind, True).fit(*load_iris(return_X_y=True))
    for name in args.sets.split(",") if args.sets else names(args.data):
        for split in range(args.splits):
            for kind in kinds:
                if (name, kind, split) in done:
                    continue
                line = run(name, kind, split, args.data)
                print(f"{name:32s} {kind:9s} {split} {line['score']:.4f} {seconds(line):6.2f} s", flush=True)
                lines.append(line)
                with args.journal.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    if args.journal == JOURNAL:
        write_section("defaults", f"## Defaults\n\n{report(lines)}")
    else:
        print(report(lines))


if __name__ == "__main__":
    main()
