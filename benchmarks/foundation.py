"""Enumeration, the exact convex program beside CVXPY, and SGD beside the optimum.

python benchmarks/foundation.py [--quick]
"""

from __future__ import annotations

import argparse
import time

import cvxpy as cp
import numpy as np
import torch
from report import machine, table, write_section

from bidual import ReLURegressor, count_patterns, enumerate_patterns, sample_patterns
from bidual.arrangements import Patterns
from bidual.atoms import Relu
from bidual.losses import Squared
from bidual.networks import from_torch
from bidual.problem import Problem
from bidual.solvers import Options, solve_finite


def enumeration(quick: bool) -> str:
    cases = [(1000, 2), (100, 3), (300, 3), (40, 4), (25, 5), (12, 6), (15, 8), (15, 12)]
    rows = []
    for n, r in cases[:2] if quick else cases:
        X = np.random.default_rng(0).standard_normal((n, r))
        began = time.perf_counter()
        patterns = enumerate_patterns(X)
        rows.append([n, r, f"{len(patterns):,}", f"{count_patterns(n, r):,}", f"{time.perf_counter() - began:.2f}"])
    return table(["n", "rank", "patterns found", "2 sum C(n-1, k)", "seconds"], rows)


def cvxpy_program(X: np.ndarray, y: np.ndarray, beta: float, patterns: Patterns) -> float:
    """003 eq. 8 as printed (with the mean instead of the sum)."""
    P, d = len(patterns), X.shape[1]
    D = patterns.active.T.astype(float)
    v, w = cp.Variable((P, d)), cp.Variable((P, d))
    fit = cp.sum(cp.multiply(D, X @ (v - w).T), axis=1)
    penalty = cp.sum(cp.norm(v, 2, axis=1)) + cp.sum(cp.norm(w, 2, axis=1))
    cones = [cp.multiply(2 * D - 1, X @ v.T) >= 0, cp.multiply(2 * D - 1, X @ w.T) >= 0]
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(fit - y) / len(y) + beta * penalty), cones)
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


def exact_program(quick: bool) -> str:
    rows = []
    cases = [(20, 2, None), (50, 2, None), (40, 3, 500), (60, 3, 1000), (50, 3, 2000)]
    rng = np.random.default_rng(0)
    for n, d, P in cases[:2] if quick else cases:
        X = rng.standard_normal((n, d))
        y = np.maximum(X[:, 0], 0) - np.maximum(X[:, -1] - 0.3, 0) + 0.1 * rng.standard_normal(n)
        beta = 1e-3
        patterns = enumerate_patterns(X) if P is None else sample_patterns(X, P, random_state=0)
        problem = Problem(Relu(X), y[:, None], np.full(n, 1 / n), Squared(), beta, False)
        began = time.perf_counter()
        solution = solve_finite(problem, patterns, Options())
        ours = time.perf_counter() - began
        value = problem.objective(solution.neurons)
        began = time.perf_counter()
        reference = cvxpy_program(X, y, beta, patterns)
        theirs = time.perf_counter() - began
        rows.append(
            [
                f"{n} x {d}",
                len(patterns),
                f"{value:.9f}",
                f"{reference:.9f}",
                f"{ours:.2f}",
                f"{theirs:.2f}",
                f"{theirs / ours:.0f} x",
            ]
        )
    return table(["n x d", "patterns", "ours", "CVXPY+Clarabel", "seconds", "seconds, CVXPY", "ratio"], rows)


def sgd(X: np.ndarray, y: np.ndarray, beta: float, width: int, seed: int, steps: int) -> float:
    """Plain SGD (batch of one, decaying step) on the same objective; the best value it passes."""
    torch.manual_seed(seed)
    inputs, targets = torch.as_tensor(X), torch.as_tensor(y)[:, None]
    net = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], width, bias=False), torch.nn.ReLU(), torch.nn.Linear(width, 1, bias=False)
    ).double()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.03)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.01, steps)
    best = np.inf
    for step in range(steps):
        i = step % len(y)
        optimiser.zero_grad()
        decay = sum((p**2).sum() for p in net.parameters())
        (0.5 * ((net(inputs[i : i + 1]) - targets[i : i + 1]) ** 2).mean() + 0.5 * beta * decay).backward()
        optimiser.step()
        schedule.step()
        if step % 50 == 49:
            best = min(best, from_torch(net).objective(X, y, beta=beta))
    return best


def first_example(quick: bool) -> str:
    """003 sec. 6: X = -2..2 with a ones column, so that the network is not zero at zero."""
    x = np.arange(-2.0, 3.0)
    X, y = np.column_stack([x, np.ones(5)]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    rows = []
    for beta in (1e-2,) if quick else (1e-3, 1e-2, 1e-1):
        est = ReLURegressor(beta=beta, method="exact", bias=False, fit_intercept=False).fit(X, y)
        reference = cvxpy_program(X, y, beta, enumerate_patterns(X))
        row = [beta, f"{est.objective_:.8f}", f"{est.lower_bound_:.8f}", f"{reference:.8f}"]
        for width in (8,) if quick else (8, 15, 50):
            values = [sgd(X, y, beta, width, seed, 200 if quick else 10_000) for seed in range(10)]
            assert min(values) >= est.lower_bound_
            hits = sum(v <= 1.001 * est.objective_ for v in values)
            row.append(f"{min(values):.6f} .. {max(values):.6f} ({hits} of 10 within .1 %)")
        rows.append(row)
    widths = ["SGD m=8"] if quick else ["SGD m=8", "SGD m=15", "SGD m=50"]
    return table(["beta", "ours", "lower bound", "CVXPY", *widths], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, print only")
    quick = parser.parse_args().quick
    ReLURegressor(method="exact").fit(np.random.default_rng(0).standard_normal((20, 2)), np.arange(20.0))  # compile
    text = "\n\n".join(
        [
            f"## Foundation (`benchmarks/foundation.py`; {machine()})",
            "### Activation patterns of Gaussian data",
            enumeration(quick),
            "### The convex program of 003 eq. 8 on the same patterns",
            exact_program(quick),
            "### 003's first example: ten SGD runs beside the optimum",
            first_example(quick),
        ]
    )
    print(text)
    if not quick:
        write_section("foundation", text)


if __name__ == "__main__":
    main()
