"""What can be proven about networks, ours and those of others, in how many seconds.

python benchmarks/certify.py [--data DIR] [--full] [--problems TEXT ...]
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from problems import Problem, planted, problems
from report import machine, table, write_section
from sklearn.neural_network import MLPRegressor

from bidual import Certificate, ReLURegressor, beta_max, certify

KAPPAS = (0.3, 0.1, 0.02)
PLANTED = [(50, 2), (500, 5), (200, 6), (200, 10), (500, 10)]
PLANTED_FULL = [*PLANTED, (2000, 3), (2000, 4), (500, 25), (2000, 10), (2000, 50)]
REAL = ("diabetes", "breast_cancer", "sonar", "parkinsons", "ionosphere")

INTRODUCTION = """\
`certify` on three networks for each problem: ours (`ReLURegressor`, adaptive, `tol=1e-3`), torch Adam (200 neurons,
full batch, 2000 steps) and scikit-learn's `MLPRegressor` (200 neurons; it has hidden biases and an intercept, so that
it is compared with the best network that has both; its biases are not penalised and its alpha = n beta is divided by
the batch size of 200, so that it minimises something else). Squared loss; kappa = beta / beta_max. A gap is
`(objective - proven lower bound) / objective`; "likely" is the same with local search instead of a proof.
Compiling is not counted."""


def gap(certificate: Certificate) -> str:
    """In percent, with what proved it."""
    return f"{100 * certificate.gap:.2g} %"


def proven(model: object, problem: Problem, beta: float, limit: float, **options: object) -> Certificate:
    """The certificate after so many seconds."""
    result = certify(model, problem.X, problem.y, beta=beta, time_limit=limit, random_state=0, **options)  # type: ignore[arg-type]
    assert isinstance(result, Certificate)
    assert result.rigorous
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
    model = MLPRegressor(hidden_layer_sizes=(200,), alpha=beta * n, max_iter=500, random_state=0)
    return model.fit(problem.X, problem.y)


def measure(problem: Problem, kappa: float, limits: tuple[float, ...]) -> list[str]:
    """One row."""
    beta = kappa * beta_max(problem.X, problem.y, bias=False, fit_intercept=False, random_state=0)
    ours = ReLURegressor(beta=beta, bias=False, fit_intercept=False, tol=1e-3, time_limit=10, random_state=0)
    ours.fit(problem.X, problem.y)
    certificates = [proven(ours, problem, beta, limit) for limit in limits]
    last = certificates[-1]
    likely = 1.0 - (last.likely_bound or 0.0) / last.objective
    by_adam = proven(adam(problem, beta), problem, beta, limits[-1], bias=False, fit_intercept=False)
    by_mlp = proven(mlp(problem, beta), problem, beta, limits[-1])
    n, d = problem.shape
    return [
        problem.name,
        f"{n} x {d}",
        f"{kappa:g}",
        *(gap(c) for c in certificates),
        f"{last.elapsed:.1f}",
        f"{100 * likely:.2g} %",
        last.method,
        gap(by_adam),
        gap(by_mlp),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the real data sets")
    parser.add_argument("--full", action="store_true", help="more problems, and 60 s; about two hours")
    parser.add_argument("--problems", nargs="*", default=[], help="only problems whose name has one of these")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    limits = (1.0, 10.0, 60.0) if args.full else (1.0, 10.0)
    chosen = [Problem(f"planted {n}x{d}", *planted(n, d), 0.0) for n, d in (PLANTED_FULL if args.full else PLANTED)]
    seen = {p.name: p for p in problems(args.data)[0]}
    chosen += [seen[name] for name in REAL if name in seen]
    chosen = [p for p in chosen if not args.problems or any(text in p.name for text in args.problems)]
    began = time.perf_counter()
    for rows, columns in ((60, 3), (60, 5), (60, 9)):  # compile
        X, y = planted(rows, columns)
        measure(Problem("warm up", X, y, 0.0), 0.3, (1.0,))
    rows_of_table = []
    for problem in chosen:
        for kappa in KAPPAS:
            rows_of_table.append(measure(problem, kappa, limits))
            print(" | ".join(rows_of_table[-1]), flush=True)
    columns_of_table = [
        "problem", "size", "kappa", *(f"ours, {limit:g} s" for limit in limits), "took, s", "likely", "proof",
        f"Adam, {limits[-1]:g} s", f"MLP, {limits[-1]:g} s",
    ]  # fmt: skip
    text = "\n\n".join(
        [
            f"## Certify (`benchmarks/certify.py`; {machine()})",
            INTRODUCTION,
            table(columns_of_table, rows_of_table),
            f"The whole run took {(time.perf_counter() - began) / 60:.1f} minutes.",
        ]
    )
    write_section("certify", text)
    print(np.round((time.perf_counter() - began) / 60, 1), "minutes")


if __name__ == "__main__":
    main()
