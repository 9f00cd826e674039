"""Which cells a program of branches is posed on."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from bidual._typing import FloatArray
from bidual.arrangements.enumerate import TooManyPatternsError
from bidual.arrangements.layered import LayeredPatterns, enumerate_layered, layered_patterns_of
from bidual.closed_form import ClosedForm, ConditionError
from bidual.problem import ParallelProblem, SubNetworks
from bidual.solvers.base import Options
from bidual.solvers.finite import DEFAULT_PATTERNS


def all_cells(problem: ParallelProblem) -> LayeredPatterns:
    """All cells of three-layer branches."""
    return enumerate_layered(problem.reduced, problem.tree.leaves)


def few_cells(problem: ParallelProblem, limit: int) -> LayeredPatterns | None:
    """All cells if they are at most so many, else None."""
    if len(problem.tree.widths) > 1:
        return None
    try:
        return enumerate_layered(problem.reduced, problem.tree.leaves, max_cells=limit)
    except TooManyPatternsError:
        return None


def some_cells(problem: ParallelProblem, options: Options) -> LayeredPatterns:
    """Cells of random branches (003 Remark 3.2 for both layers), and those of a network to start from."""
    count = DEFAULT_PATTERNS if options.n_patterns is None else options.n_patterns
    rng = np.random.default_rng(check_random_state(options.random_state).randint(2**31))
    branches = random_branches(problem, count, rng)
    if isinstance(options.start, SubNetworks):
        branches = options.start.joined(branches)
    return cells_of(problem, branches)


def cells_of(problem: ParallelProblem, branches: SubNetworks) -> LayeredPatterns:
    """The distinct cells of these branches."""
    return layered_patterns_of(problem.tree, problem.leaves(branches.U), branches.signs)


def random_branches(problem: ParallelProblem, count: int, rng: np.random.Generator) -> SubNetworks:
    """Branches with Gaussian leaves of all lengths and random signs, of unit cost.

    Half of them have leaves whose kink passes through a random row, as far as the data allow: kinks outside of the
    data are of no use. A quarter have equal leaves, which is the cheapest way to be a single neuron.
    """
    tree, p = problem.tree, problem.M.shape[1]
    W = rng.standard_normal((count, tree.leaves, p)) @ (problem.basis @ problem.basis.T)
    W *= rng.exponential(size=(count, tree.leaves, 1))
    ones, half = _constant(problem), slice(count // 2)
    if ones is not None:
        row = problem.M[rng.integers(len(problem.M), size=(count // 2, tree.leaves))]
        W[half] -= np.einsum("ktp,ktp->kt", W[half], row)[:, :, None] * ones
    equal = np.arange(count) % 4 == 0
    W[equal] = W[equal, :1]
    W /= np.maximum(np.linalg.norm(W, axis=(1, 2), keepdims=True), 1e-300)
    signs = np.where(equal[:, None], 1.0, random_signs(problem, count, rng))
    alpha = rng.standard_normal((count, problem.n_outputs))
    alpha /= np.maximum(np.linalg.norm(alpha, axis=1, keepdims=True), 1e-300)
    return SubNetworks(W.reshape(count, tree.leaves * p), alpha, np.zeros(problem.n_outputs), signs)


def random_signs(problem: ParallelProblem, count: int, rng: np.random.Generator) -> FloatArray:
    """Signs of ``count`` branches. The child that comes first has a plus: with minus signs only a node is dead."""
    tree = problem.tree
    signs = rng.choice([-1.0, 1.0], size=(count, tree.edges))
    start = 0
    for m, size in zip(tree.widths, tree.sizes, strict=False):
        signs[:, start : start + size : m] = 1.0
        start += size
    return signs


def no_formula(problem: ParallelProblem) -> ClosedForm:
    """There is none."""
    raise ConditionError("parallel networks have no closed form: use another method")


def _constant(problem: ParallelProblem) -> FloatArray | None:
    """Weights that add a constant one, if there are any."""
    one = np.asarray(np.linalg.lstsq(problem.M, np.ones(len(problem.M)), rcond=None)[0], dtype=np.float64)
    return one if np.allclose(problem.M @ one, 1.0, rtol=0, atol=1e-9) else None
