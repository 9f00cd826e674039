"""Independent truths: the programs of the papers written out naively, patterns by linear programs, plain formulas."""

from __future__ import annotations

import signal
import warnings
from contextlib import contextmanager

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning

#: 003's example: five points on a line.
X_LINE = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]])
Y_LINE = np.array([1.0, -1.0, 1.0, 1.0, -1.0])


def gaussian_problem(seed, n=6, d=2):
    """Gaussian inputs with real targets and labels -1/+1 of both kinds."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    labels = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    labels[:2] = -1.0, 1.0
    return X, y, labels


@contextmanager
def gap_may_stay_open():
    """Where a ConvergenceWarning is legitimate but not guaranteed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


@contextmanager
def within(seconds):
    """Fail, rather than hang, if the block does not end."""

    def ring(number, frame):
        raise TimeoutError(f"still running after {seconds} s")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def white(X, weight=None):
    """U' = [U, 1/sqrt n] of 000 Theorem 2.2, rows repeated by their weights counted once."""
    c = np.ones(len(X)) if weight is None else np.asarray(weight, float)
    centred = X - c @ X / c.sum()
    _, s, Vt = np.linalg.svd(np.sqrt(c)[:, None] * centred, full_matrices=False)
    r = int((s > 1e-10 * s[0]).sum())
    return np.column_stack([centred @ Vt[:r].T / s[:r], np.full(len(X), c.sum() ** -0.5)])


def with_ones(X, bias):
    """X, with a column of ones if there are hidden biases."""
    return np.column_stack([X, np.ones(len(X))]) if bias else X


def open_cell_witness(signed_rows, slack=1e-9):
    """A direction with ``signed_rows @ u > 0``, by a linear program, or None."""
    k, d = signed_rows.shape
    unit = signed_rows / np.linalg.norm(signed_rows, axis=1, keepdims=True)
    A = np.column_stack([-unit, np.ones(k)])
    result = linprog(
        np.append(np.zeros(d), -1.0), A_ub=A, b_ub=np.zeros(k), bounds=[(-1, 1)] * d + [(None, 1)], method="highs"
    )
    assert result.status == 0
    return result.x[:d] if result.x[-1] > slack else None


def lp_patterns(X):
    """All patterns of open cells by feasibility programs, sign by sign; zero rows are active."""
    X = np.asarray(X, dtype=float)
    nonzero = np.flatnonzero(np.linalg.norm(X, axis=1) > 0)
    prefixes = [()]
    for k in range(len(nonzero)):
        rows = X[nonzero[: k + 1]]
        prefixes = [
            (*prefix, s)
            for prefix in prefixes
            for s in (1.0, -1.0)
            if open_cell_witness(np.array([*prefix, s])[:, None] * rows) is not None
        ]
    active = np.ones((len(prefixes), len(X)), dtype=bool)
    for i, prefix in enumerate(prefixes):
        active[i, nonzero] = np.array(prefix, dtype=float) > 0
    return active


def cvxpy_loss(name, F, y, w, **parameters):
    """The weighted mean loss as a CVXPY expression of the outputs F (n,)."""
    if name == "squared":
        rows = 0.5 * cp.square(F - y)
    elif name == "huber":
        rows = 0.5 * cp.huber(F - y, parameters["delta"])
    elif name == "absolute":
        rows = cp.abs(F - y)
    elif name == "epsilon_insensitive":
        rows = cp.pos(cp.abs(F - y) - parameters["epsilon"])
    elif name == "quantile":
        rows = parameters["tau"] * cp.pos(y - F) + (1 - parameters["tau"]) * cp.pos(F - y)
    elif name == "logistic":
        rows = cp.logistic(-cp.multiply(y, F))
    elif name == "hinge":
        rows = cp.pos(1 - cp.multiply(y, F))
    elif name == "squared_hinge":
        rows = 0.5 * cp.square(cp.pos(1 - cp.multiply(y, F)))
    elif name == "pseudo_huber":
        rows = cp.norm(cp.vstack([F - y, np.ones(len(y))]), 2, axis=0) - 1
    else:
        raise KeyError(name)
    return w @ rows


def printed_program(X, y, beta, loss="squared", *, weight=None, bias=False, fit_intercept=False, active=None, **kw):
    """Optimal value of 003 eq. 8 (39 for other losses) with all n cone rows; beta=0 is eq. 6's minimum-norm program."""
    M = with_ones(np.asarray(X, float), bias)
    n, d = M.shape
    w = np.full(n, 1.0 / n) if weight is None else np.asarray(weight, float) / np.sum(weight)
    D = (lp_patterns(M) if active is None else active).astype(float)
    P = len(D)
    v, u = cp.Variable(P * d), cp.Variable(P * d)
    b = cp.Variable() if fit_intercept else 0.0
    K = np.hstack([D_i[:, None] * M for D_i in D])
    cones = sp.block_diag([(2 * D_i - 1)[:, None] * M for D_i in D], format="csr")
    F = K @ (v - u) + b
    penalty = sum(cp.sum(cp.norm(cp.reshape(z, (P, d), order="C"), 2, axis=1)) for z in (v, u))
    constraints = [cones @ v >= 0, cones @ u >= 0]
    if beta == 0:
        inside = cp.abs(F - y) <= kw["epsilon"] if loss == "epsilon_insensitive" else y == F
        constraints.append(cp.multiply(y, F) >= 1 if loss in ("hinge", "squared_hinge") else inside)
        objective = penalty
    else:
        objective = cvxpy_loss(loss, F, y, w, **kw) + beta * penalty
    program = cp.Problem(cp.Minimize(objective), constraints)
    with warnings.catch_warnings():  # tolerances at the edge of floating point: "almost" is close enough
        warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
        program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert program.status in ("optimal", "optimal_inaccurate"), program.status
    return float(program.value)


def plain_loss(name, F, y, w, **kw):
    """The weighted mean loss of outputs F (n,), by its textbook formula."""
    e, m = F - y, y * F
    rows = {
        "squared": lambda: 0.5 * e**2,
        "huber": lambda: np.where(np.abs(e) <= kw["delta"], 0.5 * e**2, kw["delta"] * (np.abs(e) - 0.5 * kw["delta"])),
        "absolute": lambda: np.abs(e),
        "quantile": lambda: np.where(e > 0, (1 - kw["tau"]) * e, -kw["tau"] * e),
        "epsilon_insensitive": lambda: np.where(np.abs(e) <= kw["epsilon"], 0.0, np.abs(e) - kw["epsilon"]),
        "logistic": lambda: np.log1p(np.exp(-np.abs(m))) + np.maximum(-m, 0),
        "hinge": lambda: np.maximum(1 - m, 0),
        "squared_hinge": lambda: 0.5 * np.maximum(1 - m, 0) ** 2,
    }[name]()
    return float(np.sum(w * rows) / np.sum(w))


def plain_objective(network, X, y, beta, loss, weight=None, **kw):
    """Objective of a single-output two-layer network, neuron by neuron."""
    F = np.full(len(X), float(network.intercept[0]))
    penalty = 0.0
    for j in range(network.n_neurons):
        u, a = network.hidden_weights[j], float(network.output_weights[j, 0])
        bias = 0.0 if network.hidden_bias is None else float(network.hidden_bias[j])
        F += a * np.maximum(X @ u + bias, 0.0)
        penalty += 0.5 * (float(u @ u) + bias**2 + a**2)
    w = np.ones(len(X)) if weight is None else np.asarray(weight, float)
    return plain_loss(loss, F, y, w, **kw) + beta * penalty
