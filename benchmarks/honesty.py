"""How often a likely bound is refuted by other seeds.

python benchmarks/honesty.py [--problems N] [--architectures a,b] [--others K]

Random problems, planted and with noise, of moderate size, a quarter each of squared, logistic, hinge and absolute loss
(of three outputs half of them with softmax). Each is trained from one seed, from K others and once longer (a tenth of
``tol``, ``method="adaptive"``). A claim is ``likely_bound_`` of one of the K + 1 runs; it is false if the lowest
objective of all other runs is below it by more than 1e-4, relatively. A likely gap above ``tol`` claims little, and one
that stays unknown nothing. Problems are kept in a journal: a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from report import machine, table, write_section

from bidual import BatchNorm, Convolutional, Parallel, ReLUClassifier, ReLURegressor
from bidual._util.typing import FloatArray

JOURNAL = Path(__file__).parent / "results" / "honesty.jsonl"
#: By how much a claim may be above the best objective known, relatively; and the share of claims that may be.
ALLOWED, SHARE = 1e-4, 0.02
TOL, LONGER = 1e-4, 1e-5
LOSSES = ("squared", "logistic", "hinge", "absolute")
#: Losses of the classifier; the others are those of the regressor.
OF_LABELS = ("logistic", "hinge")
#: Betas; where a fit would take many seconds otherwise, larger ones.
BETAS, MIDDLE, LARGER = (0.01, 0.02, 0.05), (0.02, 0.05, 0.1), (0.05, 0.1)
#: Smallest and largest numbers of rows and inputs: a table is to take an hour or two, of twelve fits for each problem.
MODERATE, SMALL, SMALLER = ((25, 60), (2, 5)), ((25, 40), (2, 3)), ((20, 30), (2, 3))

#: Name -> parameters of the estimator, outputs, range of sizes and betas. Rows of a convolution are sequences.
ARCHITECTURES: dict[str, tuple[dict[str, Any], int, Any, tuple[float, ...]]] = {
    "two-layer, one output": ({}, 1, MODERATE, BETAS),
    "two-layer, three outputs": ({}, 3, SMALLER, LARGER),
    "batch norm before": ({"architecture": BatchNorm()}, 1, MODERATE, BETAS),
    "batch norm after": ({"architecture": BatchNorm(position="after")}, 1, SMALL, BETAS),
    "convolutional, sum": ({"architecture": Convolutional(3)}, 1, MODERATE, BETAS),
    "convolutional, average": ({"architecture": Convolutional(3, pooling="average")}, 1, MODERATE, BETAS),
    "convolutional, flatten": ({"architecture": Convolutional(3, pooling="flatten")}, 1, SMALL, LARGER),
    "parallel, m1 = 2": ({"architecture": Parallel(2)}, 1, SMALL, MIDDLE),
    "parallel, m1 = 3": ({"architecture": Parallel(3)}, 1, SMALL, MIDDLE),
    "parallel, deeper": ({"architecture": Parallel(2, 2, [1])}, 1, SMALLER, MIDDLE),
    "cutting planes": ({"method": "cutting_plane"}, 1, MODERATE, BETAS),
}


def problem(name: str, index: int) -> tuple[Callable[..., Any], str]:
    """What trains problem ``index`` from a seed to a tolerance, and the problem in words."""
    parameters, outputs, (rows, inputs), betas = ARCHITECTURES[name]
    rng = np.random.default_rng([index, *name.encode()])
    n, d = int(rng.integers(*rows, endpoint=True)), int(rng.integers(*inputs, endpoint=True))
    loss, beta = LOSSES[index % len(LOSSES)], float(rng.choice(betas))
    X, Y = planted(rng, n, d + 2 if name.startswith("conv") else d, outputs)
    options = {**parameters, "beta": beta, "prove": False}
    kind = ReLURegressor
    y = Y[:, 0] if outputs == 1 else Y
    if loss in OF_LABELS:
        above = Y - np.median(Y, axis=0)
        kind, y = ReLUClassifier, (above[:, 0] > 0).astype(int) if outputs == 1 else above.argmax(axis=1)
        loss = loss if outputs == 1 else "softmax"
    X = X[:, :, None] if name.startswith("conv") else X

    def train(seed: int, tol: float, **changed: str) -> Any:
        return kind(loss=loss, random_state=seed, tol=tol, **{**options, **changed}).fit(X, y)

    return train, f"{n} x {d}, {loss}, beta {beta:g}"


def planted(rng: np.random.Generator, n: int, d: int, outputs: int) -> tuple[FloatArray, FloatArray]:
    """Gaussian rows, targets of a few neurons with noise, scaled to deviation one."""
    X = rng.standard_normal((n, d))
    hidden, heads = rng.standard_normal((d + 1, 5)), rng.standard_normal((5, outputs))
    clean = np.maximum(np.column_stack([X, np.ones(n)]) @ hidden, 0.0) @ heads
    Y = clean / clean.std(axis=0) + rng.choice([0.1, 0.5, 1.0]) * rng.standard_normal((n, outputs))
    return X, Y / Y.std(axis=0)


def measure(name: str, index: int, others: int) -> dict[str, Any]:
    """The claims on one problem, and by how much the other runs are below each of them."""
    train, words = problem(name, index)
    began = time.process_time()
    runs = [train(seed, TOL) for seed in range(others + 1)]
    took = (time.process_time() - began) / len(runs)
    objectives = np.array([run.objective_ for run in [*runs, train(others + 1, LONGER, method="adaptive")]])
    below = [
        (run.likely_bound_ - np.delete(objectives, k).min()) / max(run.objective_, 1e-300) for k, run in enumerate(runs)
    ]
    return {
        "architecture": name,
        "index": index,
        "problem": words,
        "below": [float(f"{b:.2e}") for b in below],
        "gaps": [float(f"{run.likely_gap_:.2e}") for run in runs],
        "objective": float(objectives.min()),
        "seconds": round(took, 3),
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """The table."""
    cells = []
    for name in ARCHITECTURES:
        mine = [row for row in rows if row["architecture"] == name]
        if not mine:
            continue
        first = np.array([row["below"][0] for row in mine])
        below = np.concatenate([row["below"] for row in mine])
        gaps = np.concatenate([row["gaps"] for row in mine])
        false = int((below > ALLOWED).sum())
        _, _, ((fewest, most), (low, high)), betas = ARCHITECTURES[name]
        runs = sorted({len(row["below"]) for row in mine})
        cells.append(
            [
                name,
                f"{fewest}-{most} x {low}-{high}, {betas[0]:g}-{betas[-1]:g}",
                len(mine),
                " or ".join(str(count) for count in runs),
                f"{int((first > ALLOWED).sum())} of {len(first)}",
                f"{false} of {len(below)} ({100 * false / len(below):.1f} %)",
                f"{100 * max(float(below.max()), 0.0):.3f} %",
                f"{np.median(gaps):.0e}, {100 * np.mean(gaps <= TOL):.0f} %",
                f"{np.mean([row['seconds'] for row in mine]):.2f}",
            ]
        )
    columns = [
        "architecture",
        "rows x inputs, beta",
        "problems",
        "seeds, K + 1",
        "false, first seed",
        "false, all seeds",
        "worst",
        "likely gap: median, <= tol",
    ]
    return table([*columns, "CPU s"], cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", type=int, default=100, help="of each architecture")
    parser.add_argument("--architectures", default="", help="only those whose name has one of these, comma-separated")
    parser.add_argument("--others", type=int, default=10, help="other seeds")
    parser.add_argument("--journal", type=Path, default=JOURNAL, help="problems measured before, kept when run again")
    parser.add_argument("--print", action="store_true", help="print only")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    args.journal.parent.mkdir(parents=True, exist_ok=True)
    lines = args.journal.read_text(encoding="utf-8").splitlines() if args.journal.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["architecture"], row["index"]) for row in rows}
    wanted = [part.strip() for part in args.architectures.split(",")]
    for index in range(args.problems):
        for name in ARCHITECTURES:
            if (name, index) in done or not any(part in name for part in wanted):
                continue
            rows.append(measure(name, index, args.others))
            with args.journal.open("a", encoding="utf-8") as journal:
                print(json.dumps(rows[-1]), file=journal)
            worst = max(rows[-1]["below"])
            print(f"{name}, {rows[-1]['problem']}: worst {worst:+.1e}, {rows[-1]['seconds']} s", flush=True)
    heading = f"## Honesty of likely bounds (`benchmarks/honesty.py`; {machine()})"
    text = "\n\n".join([heading, (__doc__ or "").split("\n\n")[2], summary(rows)])
    print(text)
    if not args.print:
        write_section("honesty", text)


if __name__ == "__main__":
    main()
