"""Parallel networks with the path regulariser (paper 002).

1. The exact optimum of a small three-layer problem, proven, against gradient descent on the same objective.
2. Low rank: what training on an approximation of the data may cost, and what it does cost (Theorem 2).
3. Four layers: trees of neurons, searched instead of enumerated.
4. A standard deep network and a residual block as parallel networks (appendix A.2).
5. The penalty form of the convex program, which torch can train on batches (eq. 11), beside our solver.
6. Stages on top of each other, each of them a convex problem (Figure 6).

    python examples/parallel.py
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import torch
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from bidual import (
    LayerwiseClassifier,
    Parallel,
    ParallelNetwork,
    ReLUClassifier,
    ReLURegressor,
    low_rank,
    low_rank_guarantee,
)
from bidual.losses import get_loss
from bidual.networks.parallel_torch import ParallelModule
from bidual.solvers import Options
from bidual.solvers.parallel.penalty import PenaltyForm
from bidual.training.objective import Objective

PAPER = {"bias": False, "fit_intercept": False}


def gradient_descent(X: np.ndarray, y: np.ndarray, beta: float, K: int, seed: int) -> float:
    """Adam on ``loss + beta * path norm`` with K branches of three neurons; the objective of what it found."""
    module = ParallelModule([X.shape[1], 3, 1, 1], K, seed=seed)
    inputs, targets = torch.as_tensor(X), torch.as_tensor(y)[:, None]
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-2)
    for _ in range(1500):
        optimiser.zero_grad()
        (0.5 * ((module(inputs) - targets) ** 2).mean() + beta * module.path_norm()).backward()
        optimiser.step()
    return module.network().objective(X, y, beta=beta)


def exact_optimum(rng: np.random.Generator) -> None:
    """Five points in the plane, three neurons in the first layer of a branch."""
    X = rng.standard_normal((5, 2))
    y = ParallelNetwork([rng.standard_normal(shape) for shape in [(5, 2, 3), (5, 3, 1), (5, 1, 1)]]).predict(X)
    began = time.perf_counter()
    est = ReLURegressor(1e-3, architecture=Parallel(3), method="exact", **PAPER).fit(X, y)
    print(f"1. {est.network_}: objective {est.objective_:.7f}, likely gap {est.likely_gap_:.1e}")
    print(f"   {est.certificate_.likely_method}, {time.perf_counter() - began:.1f} s; {est.certificate_.sentence}")
    for K in (5, 40):
        ends = [gradient_descent(X, y, 1e-3, K, seed) for seed in range(2)]
        print(f"   Adam with {K} branches ends at {', '.join(f'{end:.7f}' for end in ends)}")


def low_rank_training(rng: np.random.Generator) -> None:
    """Data close to a plane in six dimensions."""
    X = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 6)) + 1e-4 * rng.standard_normal((12, 6))
    y = np.abs(X[:, 0])
    table = low_rank(X, y, beta=0.05, architecture=Parallel(2))
    print("\n2. rank    may cost at most   (as the paper prints it)")
    for r, factor, printed in zip(table.ranks[:3], table.factors, table.paper_factors, strict=False):
        print(f"   {r:4d}    {factor:16.4f}   {printed:.4f}")
    est = ReLURegressor(0.05, architecture=Parallel(2, rank="auto", factor=1.1), tol=1e-3, random_state=0).fit(X, y)
    known = low_rank_guarantee(est, X, y, time_limit=20)
    print(f"   rank {known.rank}: at most {known.factor:.4f} times the optimum, promised before training")
    print(f"   afterwards: {known.certificate.sentence}")


def four_layers(rng: np.random.Generator) -> None:
    """A target with two levels of kinks."""
    X = rng.uniform(-1, 1, size=(40, 1))
    y = np.abs(np.abs(X[:, 0]) - 0.5)
    print("\n3. layers   objective     likely gap")
    for depth, kind in ((2, "two_layer"), (3, Parallel(2)), (4, Parallel(2, 2, deeper=(1,)))):
        est = ReLURegressor(1e-2, architecture=kind, tol=1e-2, max_iter=20, random_state=0).fit(X, y)
        print(f"   {depth:6d}   {est.objective_:.7f}   {est.likely_gap_:.1e}  ({est.certificate_.likely_method})")


def special_cases(rng: np.random.Generator) -> None:
    """Appendix A.2."""
    X = np.abs(rng.standard_normal((6, 3)))  # what comes out of a ReLU
    W1, W2, W3, w4 = (rng.standard_normal(shape) for shape in [(3, 3), (3, 3), (3, 2), (2, 1)])
    plain = np.maximum(np.maximum(np.maximum(X @ W1, 0) @ W2, 0) @ W3, 0) @ w4
    # two equal branches add up to twice the network (the paper leaves the factor out): halve the last layer
    standard = ParallelNetwork([np.stack([W, W]) for W in (W1, W2, W3, w4 / 2)])
    eye = np.eye(3)
    block = ParallelNetwork([np.stack(pair) for pair in ((W1, eye), (W2, eye), (W3, W3), (w4, w4))])
    residual = plain + np.maximum(X @ W3, 0) @ w4
    print(f"\n4. a standard network is a parallel one up to {np.abs(standard.forward(X) - plain).max():.0e},")
    print(f"   a residual block up to {np.abs(block.forward(X) - residual).max():.0e}")


def penalty_form(rng: np.random.Generator) -> None:
    """Sampled patterns, constraints as a price, torch's Adam on batches."""
    X = rng.standard_normal((200, 5))
    y = np.sin(2 * X[:, 0]) + np.abs(X[:, 1])
    data = Objective(get_loss("squared"), 0.02, Parallel(2)).pose(X, y[:, None])
    began = time.perf_counter()
    form = data.train(PenaltyForm(epochs=100, batch_size=50), Options(random_state=0, time_limit=60))
    seconds, began = time.perf_counter() - began, time.perf_counter()
    est = ReLURegressor(0.02, architecture=Parallel(2), tol=5e-2, max_iter=5, random_state=0).fit(X, y)
    print(f"\n5. penalty form: objective {form.certificate.objective:.5f} in {seconds:.1f} s")
    took = time.perf_counter() - began
    print(f"   our solver:   objective {est.objective_:.5f}, likely gap {est.likely_gap_:.1e} in {took:.1f} s")


def stages() -> None:
    """Half moons with noise."""
    X, y = make_moons(300, noise=0.25, random_state=0)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
    stage = ReLUClassifier(5e-3, architecture=Parallel(2), tol=5e-2, max_iter=5, audit=False)
    model = LayerwiseClassifier(stage, n_stages=3, random_state=0).fit(X, y)
    scores = ", ".join(f"{score:.3f}" for score in model.validation_scores_)
    print(f"\n6. validation scores of the stages {scores}: {model.n_stages_} kept,")
    print(f"   test accuracy {model.score(X_test, y_test):.3f}; the last stage alone: {model.certificate_.sentence}")


def main() -> None:
    """All of it, in about a minute."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    rng = np.random.default_rng(0)
    exact_optimum(rng)
    low_rank_training(rng)
    four_layers(rng)
    special_cases(rng)
    penalty_form(rng)
    stages()


if __name__ == "__main__":
    main()
