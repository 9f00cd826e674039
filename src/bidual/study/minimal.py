r"""Networks with the fewest neurons, and when they are also the cheapest (004 sec. 3.4, A.7).

If the n rows of X are independent, every non-negative vector is a neuron, and a target needs one neuron for its
positive part and one for its negative part, whatever the data (Lemma 3.1):

.. math:: u_\pm = X^\dagger (\pm y)_+ , \qquad \mathrm{cost} = \|X^\dagger (y)_+\| + \|X^\dagger (-y)_+\| .

Is the network of smallest weight decay among all exact fits (004 eq. 4) as small? It is if a dual point proves it,
which is the condition of Lemma 3.2: some v with :math:`|v^T (Xu)_+| \le 1` for all :math:`\|u\| \le 1` and
:math:`v^T y` equal to that cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bidual._util.clock import clock
from bidual._util.typing import Array, FloatArray
from bidual.closed_form.batch_norm import ConditionError
from bidual.geometry.spike_free import is_spike_free
from bidual.networks import TwoLayerNetwork

#: Largest residual of a fit that counts as exact, relative to the target.
EXACT = 1e-9
#: Up to this many activation patterns all of them are looked at.
_FEW = 2000


def minimal_network(X: Array, y: Array) -> TwoLayerNetwork:
    r"""The exact fit with the fewest non-zero output weights (004 Lemma 3.1, and A.7 Lemma 2 for several outputs).

    One neuron for each output and sign that occurs in it; no bias. Fewer output weights cannot be: a column of targets
    with both signs needs a positive and a negative one.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows that are independent (or reproduce the positive and the negative parts of y, which is all it takes).
    y : array of shape (n,) or (n, C)

    Raises
    ------
    ConditionError
        If these neurons do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual.study.minimal import minimal_network
    >>> network = minimal_network(np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 1.0]]), np.array([3.0, -1.0]))
    >>> network.n_neurons, network.predict(np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 1.0]])).round(9).tolist()
    (2, [3.0, -1.0])
    """
    X, Y = _checked(X, y)
    C = Y.shape[1]
    parts = np.hstack([np.maximum(Y, 0.0), np.maximum(-Y, 0.0)])  # (n, 2C)
    heads = np.vstack([np.eye(C), -np.eye(C)])
    used = parts.any(axis=0)
    parts, heads = parts[:, used], heads[used]
    U = np.linalg.lstsq(X, parts, rcond=None)[0].T
    if np.abs(np.maximum(X @ U.T, 0.0) - parts).max(initial=0.0) > EXACT * np.abs(Y).max(initial=0.0):
        raise ConditionError(
            f"the rows must be independent: {len(X)} rows have rank {np.linalg.matrix_rank(X)}, and the positive and "
            "negative parts of the targets are not in their range"
        )
    root = np.sqrt(np.linalg.norm(U, axis=1))[:, None]
    return TwoLayerNetwork(U / np.where(root > 0, root, 1.0), heads * root)


@dataclass(frozen=True, eq=False)
class Equivalence:
    r"""Whether the smallest network is the cheapest one. As a bool it is True only if that is proven.

    Attributes
    ----------
    status : {"yes", "no", "unknown"}
    minimal : TwoLayerNetwork
        The network of :func:`minimal_network`.
    cost : float
        Its penalty.
    lower_bound : float
        On the penalty of all exact fits, :math:`v^T y`, proven.
    witness : ndarray, shape (n,)
        The dual point v, with :math:`|v^T (Xu)_+| \le 1` on the unit ball.
    cheaper : TwoLayerNetwork or None
        For "no": an exact fit that costs less.
    """

    status: str
    minimal: TwoLayerNetwork
    cost: float
    lower_bound: float
    witness: FloatArray
    cheaper: TwoLayerNetwork | None

    def __bool__(self) -> bool:
        return self.status == "yes"


def l0_l1_equivalence(
    X: Array, y: Array, *, tol: float = 1e-6, n_patterns: int = 200, time_limit: float = 10.0, random_state: int = 0
) -> Equivalence:
    r"""The condition of 004 Lemma 3.2, decided by its dual witness.

    The cheapest exact fit is found on all activation patterns if they are few, or on the one of the relaxation if X is
    spike-free; else on ``n_patterns`` random ones and those of the minimal network. A cheaper fit answers no; the dual
    point of the program answers yes once its constraint is bounded with proof. Whitened rows satisfy the condition
    always (Lemma 3.2).

    Parameters
    ----------
    X : array of shape (n, d)
        Independent rows.
    y : array of shape (n,)
    tol : float, default=1e-6
        Relative difference of costs that counts as none.
    n_patterns : int, default=200
    time_limit : float, default=10.0
        Seconds for the proof.
    random_state : int, default=0

    Examples
    --------
    >>> import numpy as np
    >>> from bidual.study.minimal import l0_l1_equivalence
    >>> l0_l1_equivalence(np.eye(2), np.array([1.0, -2.0])).status
    'yes'
    >>> answer = l0_l1_equivalence(np.array([[1.0, 0.0], [-1.0, 1.0]]), np.array([1.0, -2.0]))
    >>> answer.status, bool(answer.cheaper.penalty() < answer.cost)
    ('no', True)
    """
    from bidual.arrangements import few_patterns, patterns_of, sample_patterns
    from bidual.atoms import Neurons, Relu
    from bidual.losses import ExactFit
    from bidual.problem import Problem
    from bidual.solvers import Options, solve_cutting_plane, solve_finite
    from bidual.solvers.proving import proven
    from bidual.training.units import Units

    X, Y = _checked(X, y)
    if Y.shape[1] > 1:
        raise ValueError("the condition is about one output: look at the columns of y one by one")
    minimal = minimal_network(X, Y)
    n = len(X)
    problem = Problem(Relu(X), Y, np.full(n, 1.0 / n), ExactFit(), 1.0, fit_intercept=False)
    units = Units.of(problem)
    scaled = units.normalise(problem)
    options = Options(tol=0.1 * tol)
    patterns = few_patterns(scaled.atoms.M, _FEW)
    if patterns is None and is_spike_free(X):
        solution = solve_cutting_plane(scaled, options)
    else:
        if patterns is None:
            drawn = sample_patterns(scaled.atoms.M, n_patterns, random_state)
            patterns = patterns_of(scaled.atoms.M, np.vstack([minimal.hidden_weights, drawn.witnesses]))
        solution = solve_finite(scaled, patterns, options)
    assert isinstance(solution.neurons, Neurons)
    if solution.scope != "global":
        bound, how = proven(scaled, solution, 0.5 * tol, clock() + time_limit)
        solution = replace(solution, bound=bound, method=how)
    solution = units.restore(solution)
    assert isinstance(solution.neurons, Neurons)
    value, witness = solution.bound.value, solution.bound.feasible[:, 0]
    cost = minimal.penalty()
    other = TwoLayerNetwork(solution.neurons.U, solution.neurons.alpha)
    status = "unknown"
    if other.penalty() < (1.0 - tol) * cost:
        status = "no"
    elif value >= (1.0 - tol) * cost:
        status = "yes"
    return Equivalence(status, minimal, cost, value, witness, other if status == "no" else None)


def _checked(X: Array, y: Array) -> tuple[FloatArray, FloatArray]:
    X, Y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    Y = Y[:, None] if Y.ndim == 1 else Y
    if X.ndim != 2 or Y.ndim != 2 or len(X) != len(Y):
        raise ValueError(f"X (n, d) and y (n,) or (n, C) must have the same rows, got {X.shape} and {np.shape(y)}")
    if not (np.isfinite(X).all() and np.isfinite(Y).all()):
        raise ValueError("X and y must be finite: there are NaN or infinite entries")
    if not Y.any():
        raise ValueError("the targets are all zero: the network without neurons fits them")
    return X, Y
