r"""The usual way, for comparison: gradient descent on the non-convex objective, from several random starts.

.. math:: L\big(A (M U^T)_+ \alpha + 1 b^T\big) + \tfrac\beta2 \big(\|U\|_F^2 + \|\alpha\|_F^2\big)

is minimised in :math:`(U, \alpha, b)` as it stands. Nothing of the library depends on this module: it is the yardstick
of pictures, of the report and of the playground.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual.architectures import Architecture
from bidual.atoms import Neurons, Relu
from bidual.losses import Loss
from bidual.networks import Network
from bidual.problem import Problem
from bidual.solvers.adam import adam_step
from bidual.training.routing import pose_data
from bidual.training.train import TrainingSet

#: Ways to take a step.
OPTIMISERS = ("adam", "sgd")
_MOMENTUM = 0.9


@dataclass(frozen=True)
class Run:
    """One descent from one random start.

    Attributes
    ----------
    seed : int
    network : Network
        Where it ended, its layers balanced, which costs nothing: its objective is at most the last one noted.
    steps : ndarray, shape (k,)
        Steps at which the objective was noted.
    objectives : ndarray, shape (k,)
    """

    seed: int
    network: Network = field(repr=False)
    steps: FloatArray = field(repr=False)
    objectives: FloatArray = field(repr=False)

    @property
    def objective(self) -> float:
        """The objective where it ended."""
        return float(self.objectives[-1])


def descend(
    X: Array,
    y: Array,
    *,
    beta: float,
    loss: str | Loss = "squared",
    architecture: str | Architecture = "two_layer",
    bias: bool = True,
    fit_intercept: bool = True,
    sample_weight: Array | None = None,
    n_runs: int = 5,
    width: int = 20,
    steps: int = 2000,
    learning_rate: float = 0.01,
    optimiser: str = "adam",
    batch_size: int | None = None,
    random_state: int = 0,
) -> list[Run]:
    """Train networks by gradient descent from ``n_runs`` random starts.

    Parameters
    ----------
    X, y, beta, loss, architecture, bias, fit_intercept, sample_weight
        As in :class:`bidual.ReLURegressor`: the same objective.
    n_runs : int
        Random starts; their seeds are ``random_state``, ``random_state + 1``, ...
    width : int
        Neurons of each network.
    steps : int
        Gradient steps; the step size falls to zero along a cosine.
    learning_rate : float
    optimiser : {"adam", "sgd"}
        "sgd" has momentum 0.9.
    batch_size : int or None
        Rows of a step, drawn with their weights; None takes all rows.
    random_state : int

    Returns
    -------
    list of Run

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLURegressor
    >>> from bidual.study.descent import descend
    >>> X, y = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    >>> best = ReLURegressor(beta=0.01, method="exact").fit(X, y).objective_
    >>> all(run.objective >= best - 1e-9 for run in descend(X, y, beta=0.01, n_runs=3, steps=300))
    True
    """
    data = pose_data(
        X, y, sample_weight, loss=loss, beta=beta, architecture=architecture, bias=bias, fit_intercept=fit_intercept
    )
    assert isinstance(data, TrainingSet)
    seeds = [random_state + k for k in range(n_runs)]
    noted = list(
        iterate(
            data.problem,
            seeds,
            width=width,
            steps=steps,
            learning_rate=learning_rate,
            optimiser=optimiser,
            batch_size=batch_size,
            every=max(1, steps // 200),
        )
    )
    at = np.array([state.step for state in noted], dtype=np.float64)
    objectives = np.array([state.objectives for state in noted])
    ends = noted[-1].neurons
    return [Run(seed, data.lift.recover(ends[k]), at, objectives[:, k]) for k, seed in enumerate(seeds)]


@dataclass(frozen=True)
class State:
    """All runs at one moment."""

    step: int
    objectives: FloatArray
    neurons: list[Neurons] = field(repr=False)


def iterate(
    problem: Problem,
    seeds: list[int],
    *,
    width: int = 20,
    steps: int = 2000,
    learning_rate: float = 0.01,
    optimiser: str = "adam",
    batch_size: int | None = None,
    every: int = 10,
) -> Iterator[State]:
    """Descend from all ``seeds`` at once; yields the start, every ``every`` steps, and the end."""
    if optimiser not in OPTIMISERS:
        raise ValueError(f"unknown optimiser {optimiser!r}: use one of {', '.join(map(repr, OPTIMISERS))}")
    if type(problem.atoms) is not Relu:
        raise ValueError("gradient descent is here for neurons with one output vector, not normalised after the ReLU")
    rngs = [np.random.default_rng(seed) for seed in seeds]
    p, C = problem.atoms.M.shape[1], problem.n_outputs
    scale = 1.0 / np.sqrt(max(1.0, float(np.mean(problem.atoms.row_norms**2))))
    # He's variance for rows of their mean norm, and small outputs
    U = np.stack([rng.normal(size=(width, p)) * scale * np.sqrt(2.0) for rng in rngs])
    alpha = np.stack([rng.normal(size=(width, C)) / np.sqrt(width) for rng in rngs])
    b = np.zeros((len(seeds), 1, C))
    if problem.fit_intercept:
        b += problem.w @ problem.Y if not problem.loss.classification else 0.0
    parameters = [U, alpha, b]
    first, second = [[np.zeros_like(x) for x in parameters] for _ in range(2)]
    for step in range(steps + 1):
        if step % every == 0 or step == steps:
            neurons = [Neurons(u.copy(), a.copy(), c[0].copy()) for u, a, c in zip(*parameters, strict=True)]
            yield State(step, np.array([_objective(problem, n) for n in neurons]), neurons)
        if step == steps:
            return
        rate = learning_rate * 0.5 * (1.0 + np.cos(np.pi * step / steps))
        gradients = _gradients(problem, parameters, batch_size, rngs)
        if optimiser == "adam":
            adam_step(parameters, gradients, first, second, rate, step + 1)
            continue
        for x, g, m in zip(parameters, gradients, first, strict=True):
            m *= _MOMENTUM
            m += g
            x -= rate * m


def _objective(problem: Problem, neurons: Neurons) -> float:
    """With weight decay as it is charged: the layers of a descent are not balanced."""
    decay = 0.5 * float((neurons.U**2).sum() + (neurons.alpha**2).sum())
    return problem.loss_value(problem.outputs(neurons)) + problem.beta * decay


def _gradients(
    problem: Problem, parameters: list[FloatArray], batch_size: int | None, rngs: list[np.random.Generator]
) -> list[FloatArray]:
    """Gradients by U, alpha and b, for all runs at once."""
    U, alpha, b = parameters
    Z = problem.atoms.M @ U.transpose(0, 2, 1)  # (runs, N, width)
    active = Z > 0
    hidden = np.where(active, Z, 0.0)
    if problem.atoms.A is not None:
        hidden = np.stack([problem.atoms.pool(h) for h in hidden])
    F = hidden @ alpha + b
    G = np.stack([problem.loss.gradient(f, problem.Y, problem.w) for f in F])
    if batch_size is not None and batch_size < len(problem.w):
        for g, rng in zip(G, rngs, strict=True):
            rows = rng.choice(len(problem.w), size=batch_size, p=problem.w)
            drawn = np.bincount(rows, minlength=len(problem.w)) / (batch_size * problem.w)
            g *= drawn[:, None]
    spread = G if problem.atoms.A is None else np.stack([problem.atoms.spread(g) for g in G])
    dU = ((spread @ alpha.transpose(0, 2, 1)) * active).transpose(0, 2, 1) @ problem.atoms.M + problem.beta * U
    dalpha = hidden.transpose(0, 2, 1) @ G + problem.beta * alpha
    db = G.sum(axis=1, keepdims=True) if problem.fit_intercept else np.zeros_like(b)
    return [dU, dalpha, db]
