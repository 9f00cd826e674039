"""What can be proven about networks, ours and those of others, in how many seconds.

python benchmarks/certify.py [--data DIR] [--full] [--problems TEXT ...]
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import torch
from problems import Problem, planted, problems, standardise
from report import machine, table, write_section
from sklearn.neural_network import MLPRegressor

from bidual import Certificate, ReLURegressor, beta_max, certify
from bidual.models import as_network

JOURNAL = Path(__file__).parent / "results" / "certify.jsonl"

KAPPAS = (0.3, 0.1, 0.02)
PLANTED = [(50, 2), (500, 5), (200, 6), (200, 10), (500, 10)]
PLANTED_FULL = [*PLANTED, (50, 10), (50, 50), (2000, 3), (2000, 5), (2000, 10), (500, 25), (1000, 20), (2000, 50)]
REAL = ("diabetes", "breast_cancer")
#: Two-class sets of the UCI collection, those of the table of paper 002; all have fewer than 1,000 rows.
UCI = (
    "acute-inflammation", "acute-nephritis", "balloons", "breast-cancer", "breast-cancer-wisc-prog",
    "congressional-voting", "conn-bench-sonar-mines-rocks", "echocardiogram", "fertility", "haberman-survival",
    "heart-hungarian", "hepatitis", "ionosphere", "molec-biol-promoter", "musk-1", "parkinsons",
    "pittsburg-bridges-T-OR-D", "planning", "statlog-heart", "trains", "vertebral-column-2clases",
)  # fmt: skip
LIMITS, LIMITS_UCI = (1.0, 10.0, 60.0), (1.0, 10.0)

INTRODUCTION = """\
What is proven about three networks for each problem: ours (`ReLURegressor`, adaptive, `tol=1e-3`, at most 10 s), torch
Adam (200 neurons, full batch, 2000 steps, cosine rate) and scikit-learn's `MLPRegressor` (200 neurons, full batch, at
most 2000 steps, alpha = n beta: the same weight decay; it has hidden biases and an intercept, neither penalised, so
that it is compared with the best network that has a free intercept and penalised hidden biases). Squared loss; kappa =
beta / beta_max. A gap is `(objective - proven lower bound) / objective` after so many seconds of `certify`; "likely"
is the same with local search instead of a proof. A bound holds for every network of the problem: Adam's gaps are
against the bounds proven for ours. The MLP gets 10 s. Compiling is not counted."""


def gap(objective: float, bound: float) -> str:
    """In percent."""
    return f"{100 * (objective - bound) / objective:.2g} %"


def proven(model: object, problem: Problem, beta: float, limit: float, **options: object) -> Certificate:
    """The certificate after so many seconds."""
    result = certify(model, problem.X, problem.y, beta=beta, time_limit=limit, random_state=0, **options)  # type: ignore[arg-type]
    assert isinstance(result, Certificate)
    return result


def adam(problem: Problem, beta: float, width: int = 200, steps: int = 2000) -> torch.nn.Sequential:
    torch.manual_seed(0)
    X, y = (torch.as_tensor(a, dtype=torch.float32) for a in (problem.X, problem.y[:, None]))
    net = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], width, bias=False), torch.nn.ReLU(), torch.nn.Linear(width, 1, bias=False)
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        penalty = sum((p**2).sum() for p in net.parameters())
        (0.5 * ((net(X) - y) ** 2).mean() + 0.5 * beta * penalty).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        rate.step()
    return net


def mlp(problem: Problem, beta: float) -> MLPRegressor:
    n = len(problem.y)
    options = {"batch_size": n, "max_iter": 2000, "learning_rate_init": 1e-2, "tol": 0.0, "n_iter_no_change": 100}
    model = MLPRegressor(hidden_layer_sizes=(200,), alpha=beta * n, random_state=0, **options)
    return model.fit(problem.X, problem.y)


def measure(problem: Problem, kappa: float, limits: tuple[float, ...]) -> dict[str, str]:
    """One row: cells by column."""
    beta = kappa * beta_max(problem.X, problem.y, bias=False, fit_intercept=False, random_state=0)
    ours = ReLURegressor(beta=beta, bias=False, fit_intercept=False, tol=1e-3, time_limit=10, random_state=0)
    ours.fit(problem.X, problem.y)
    theirs = as_network(adam(problem, beta)).objective(problem.X, problem.y, beta=beta)
    n, d = problem.shape
    row = {"problem": problem.name, "size": f"{n} x {d}", "kappa": f"{kappa:g}"}
    best = 0.0
    for limit in limits:
        last = proven(ours, problem, beta, limit)
        best = max(best, last.lower_bound)
        row |= {f"ours, {limit:g} s": gap(last.objective, best), f"Adam, {limit:g} s": gap(theirs, best)}
        row |= {"took, s": f"{last.elapsed:.1f}", "proof": last.method}
        row |= {"likely": gap(last.objective, last.likely_bound or 0.0)}
        if last.gap <= 1e-3:  # the tolerance of certify: more time changes nothing
            break
    by_mlp = proven(mlp(problem, beta), problem, beta, 10.0)
    return row | {"MLP, 10 s": gap(by_mlp.objective, by_mlp.lower_bound)}


def uci(folder: Path) -> list[Problem]:
    """The two-class sets that are there."""
    found = []
    for name in UCI:
        if (path := folder / f"uci_{name}.npz").exists():
            with np.load(path) as stored:
                X, y = stored["X"], stored["y"]
            found.append(Problem(name, standardise(X), np.where(y == y.max(), 1.0, -1.0), 0.0))
    return found


def write(rows: list[dict[str, str]], limits: tuple[float, ...]) -> None:
    """The section of the results."""
    columns = ["problem", "size", "kappa", *(f"ours, {limit:g} s" for limit in limits), "took, s", "likely", "proof"]
    columns += [*(f"Adam, {limit:g} s" for limit in limits), "MLP, 10 s"]
    cells = [[row.get(column, "") for column in columns] for row in rows]
    note = "An empty cell: a gap of .1 % was proven before, or the set was not given that long."
    heading = f"## Certify (`benchmarks/certify.py`; {machine()})"
    write_section("certify", "\n\n".join([heading, INTRODUCTION, table(columns, cells), note]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the real data sets")
    parser.add_argument("--full", action="store_true", help="more problems, and 60 s; about two hours")
    parser.add_argument("--problems", nargs="*", default=[], help="only problems whose name has one of these")
    parser.add_argument("--journal", type=Path, default=JOURNAL, help="rows measured before, kept when run again")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    limits = LIMITS if args.full else LIMITS_UCI
    sizes = PLANTED_FULL if args.full else PLANTED
    work = [(Problem(f"planted {n}x{d}", *planted(n, d), 0.0), limits) for n, d in sizes]
    seen = {p.name: p for p in problems(args.data)[0]}
    work += [(seen[name], limits) for name in REAL]
    if args.full:
        work += [(problem, LIMITS_UCI) for problem in uci(args.data)]
    work = [(p, seconds) for p, seconds in work if not args.problems or any(t in p.name for t in args.problems)]
    args.journal.parent.mkdir(parents=True, exist_ok=True)
    lines = args.journal.read_text(encoding="utf-8").splitlines() if args.journal.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["problem"], row["kappa"]) for row in rows}
    for size in ((60, 3), (60, 5), (60, 9)):  # compile
        measure(Problem("warm up", *planted(*size), 0.0), 0.3, (1.0,))
    for problem, seconds in work:
        for kappa in KAPPAS:
            if (problem.name, f"{kappa:g}") in done:
                continue
            rows.append(measure(problem, kappa, seconds))
            with args.journal.open("a", encoding="utf-8") as journal:
                print(json.dumps(rows[-1]), file=journal)
            print(" | ".join(rows[-1].values()), flush=True)
            write(rows, limits)


if __name__ == "__main__":
    main()
