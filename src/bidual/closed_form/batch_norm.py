r"""Optimal networks with batch normalisation as formulas (000 Theorems 2.1, 2.4, 5.1, 5.2 and 6.2).

Where the features M are square and white, :math:`M^T \mathrm{diag}(w) M = k^2 I`, every non-negative vector is a
neuron, and a neuron of unit cost has the weighted norm k at most. With :math:`\tau = \beta / k`, the norm
:math:`\|h\|_w^2 = \sum_i w_i h_i^2` and targets with at most one non-zero entry in each row, the dual constraint comes
apart into one ball for each output c and sign, and the optimal outputs are the soft-thresholded targets

.. math:: F = \sum_{c, \pm} \pm \Big(1 - \frac{\tau}{t_{c\pm}}\Big)_+ (\pm y_c)_+ e_c^T,
          \qquad t_{c\pm} = \|(\pm y_c)_+\|_w :

one neuron for each term. With one output this is 000 Theorem 2.1, with one-hot targets Theorem 2.4. Batch normalisation
makes the features of n rows white; they are square if these rows, centred, have rank n - 1 (which is a little more
than the full row-rank of the theorems). The inputs may be the features of earlier layers, which makes it Theorems 5.1
and 5.2 for the last two layers of a deep network.

With the normalisation after the ReLU, neurons of unit cost have norm k and any sign, and the dual constraint is the
spectral norm :math:`k \|\mathrm{diag}(w)^{-1/2} V\|_2`: the optimal outputs are the targets with their singular values
soft-thresholded by :math:`\tau`, one neuron for each of these that is left. With one output that is a single neuron
:math:`\propto y` (Theorem 6.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from bidual._util.typing import FloatArray
from bidual.arrangements.patterns import dear
from bidual.atoms import Neurons, Normalised
from bidual.bounds import Bound, lower_bound
from bidual.bounds.positive import PositiveProof
from bidual.bounds.proof import NormProof, Proof
from bidual.losses import ExactFit, Squared
from bidual.problem import Problem

#: Largest deviation of the Gram matrix from a multiple of the identity, relative.
WHITE = 1e-6
#: Largest residual of a linear fit that counts as exact, relative to the target.
EXACT = 1e-9
#: Singular values of the targets below this share of the largest one are rounding.
ZERO = 1e-12
#: What is said of features that are not white.
NOT_WHITE = (
    "the features must be white: X X^T (with the weights) a multiple of the identity, as whitening or batch "
    "normalisation (architecture='batch_norm') makes them"
)


class ConditionError(ValueError):
    """A closed form does not hold for these data; the message names the condition that fails."""


@dataclass(frozen=True)
class ClosedForm:
    """Optimal neurons with the dual point that proves it."""

    neurons: Neurons
    bound: Bound
    theorem: str


def white_features(problem: Problem) -> ClosedForm:
    """000 Theorems 2.1 and 2.4 (5.1 and 5.2): normalisation before the ReLU, features of the rank of the rows.

    Whitened rows without batch normalisation are as good (004 Lemma 3.2, regularised).

    With one output a free intercept b is allowed: the value at targets y - b is convex and smooth in b.

    Raises
    ------
    ConditionError
    """
    atoms, Y, w = problem.atoms, problem.Y, problem.w
    _check_loss(problem)
    n, most = atoms.M.shape
    if n <= most and dear((n, most)) and not _equally_long(w * atoms.row_norms**2):
        raise ConditionError(NOT_WHITE)  # before a long factorisation that would say so, too
    rank = most if n > most else atoms.basis.shape[1]  # of a tall matrix it does not matter
    if atoms.A is not None or n != rank:
        raise ConditionError(
            f"the rank of the features must be the number of distinct rows, {n}, not {rank} "
            "(batch normalisation: these rows, centred, must be of full rank, which takes n - 1 columns, and rank=None)"
        )
    if problem.fit_intercept and problem.n_outputs > 1:
        raise ConditionError("with several outputs there is no formula with a free intercept: use fit_intercept=False")
    if np.count_nonzero(Y, axis=1).max() > 1:
        raise ConditionError("each row of the targets may have one non-zero entry only: one output, or one-hot codes")
    M = atoms.reduced
    gram = M.T @ (w[:, None] * M)
    k = float(np.sqrt(np.trace(gram) / len(M)))
    excess = float(np.abs(gram / k**2 - np.eye(len(M))).sum(axis=1).max())
    if not excess <= WHITE:
        raise ConditionError(NOT_WHITE)
    tau = problem.beta / k
    b = np.array([_best_shift(Y[:, 0], w, tau)]) if problem.fit_intercept else np.zeros(problem.n_outputs)
    parts = np.concatenate([np.maximum(Y - b, 0.0).T, np.maximum(b - Y, 0.0).T])  # (2 C, n)
    heads = np.concatenate([np.eye(problem.n_outputs), -np.eye(problem.n_outputs)])
    t = np.sqrt(parts**2 @ w)
    size, dual = _shrink(problem, t, tau)
    U = (parts * w) @ M / (k * np.where(t > 0, t, 1.0))[:, None]
    V = w[:, None] * ((parts * dual[:, None]).T @ heads)
    V = problem.loss.dual_point(V, Y, w, centred=problem.fit_intercept)
    largest = max(float(np.sqrt((np.maximum(s * V, 0.0) ** 2 / w[:, None]).sum(axis=0).max())) for s in (1, -1))
    theorem = "000 Theorem 2.1" if problem.n_outputs == 1 else "000 Theorem 2.4"
    return ClosedForm(
        neurons=Neurons(U if M is problem.atoms.M else U @ problem.atoms.basis.T, heads * (size / k)[:, None], b).take(
            size > 0
        ),
        bound=_bound(problem, V, k * largest, PositiveProof()),
        theorem=theorem,
    )


def one_neuron(problem: Problem[Normalised]) -> ClosedForm:
    r"""000 Theorem 6.2: normalisation after the ReLU, inputs that can reproduce the targets; and of several outputs.

    With :math:`\mathrm{diag}(\sqrt w) Y = \sum_j t_j u_j a_j^T` (Y centred if the intercept is free) the optimum is
    :math:`F = \mathrm{diag}(\sqrt w)^{-1} \sum_j (t_j - \tau)_+ u_j a_j^T`, a neuron for each term.

    Raises
    ------
    ConditionError
    """
    _check_loss(problem)
    X, k, w = problem.atoms.M[:, :-1], float(problem.atoms.M[0, -1]), problem.w
    b = w @ problem.Y if problem.fit_intercept else np.zeros(problem.n_outputs)
    parts, t, heads = np.linalg.svd(np.sqrt(w)[:, None] * (problem.Y - b), full_matrices=False)
    parts = parts / np.sqrt(w)[:, None]  # of norm one
    size, dual = _shrink(problem, t, problem.beta / k)
    U, alpha = np.zeros((len(t), X.shape[1] + 1)), heads * (size / k)[:, None]
    for j in np.flatnonzero(size > ZERO * t.max(initial=0.0)):
        y = parts[:, j]
        sign, q = _reproduce(X, y)
        mean, length = float(w @ y), np.linalg.norm(q)
        gamma = np.sqrt(w @ (y - mean) ** 2)
        U[j] = np.append(gamma * q / (length if length > 0 else 1.0), sign * mean)
        alpha[j] *= sign
    V = w[:, None] * (parts * (t * dual)) @ heads
    V = problem.loss.dual_point(V, problem.Y, w, centred=problem.fit_intercept)
    value = k * float(np.linalg.norm(V / np.sqrt(w)[:, None], 2)) if V.size else 0.0
    theorem = "000 Theorem 6.2" if problem.n_outputs == 1 else "000 Theorem 6.2, of several outputs"
    return ClosedForm(
        neurons=Neurons(U, alpha, b).take(np.flatnonzero(U.any(axis=1))),
        bound=_bound(problem, V, value, NormProof()),
        theorem=theorem,
    )


def _reproduce(X: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
    r"""A sign s and weights q with :math:`X q = s y - \min s y + c \ge 0` for a constant :math:`c \ge 0`."""
    for sign in (1.0, -1.0):
        rise = sign * y - (sign * y).min()
        free = np.column_stack([X, -np.ones(len(X))])  # weights and c; first without c, which others may make up for
        for design in (X, free):
            q = np.linalg.lstsq(design, rise, rcond=None)[0]
            exact = np.linalg.norm(design @ q - rise) <= EXACT * np.linalg.norm(rise)
            if exact and (design is X or q[-1] >= 0):
                return sign, q[: X.shape[1]]
    raise ConditionError("the inputs of the ReLU must reproduce the targets: X must have full row-rank, n <= d columns")


def _equally_long(squares: FloatArray) -> bool:
    """Whether the diagonal of a Gram matrix may be that of a white one: it deviates no more than the spectrum does."""
    mean = float(squares.mean())
    return bool(np.abs(squares - mean).max() <= 2 * WHITE * mean)


def _check_loss(problem: Problem) -> None:
    if not isinstance(problem.loss, Squared | ExactFit):
        raise ConditionError(f"the formulas are for the squared loss, not for {problem.loss.name!r}")
    if problem.fit_intercept and isinstance(problem.loss, ExactFit):
        raise ConditionError("beta=0 has no formula with a free intercept: use fit_intercept=False")


def _shrink(problem: Problem, t: FloatArray, tau: float) -> tuple[FloatArray, FloatArray]:
    r"""Norms of the optimal outputs, :math:`(t - \tau)_+` (t itself for an exact fit), and V relative to w y."""
    size = t if isinstance(problem.loss, ExactFit) else np.maximum(t - tau, 0.0)
    return size, np.where(size > 0, tau / np.where(t > 0, t, 1.0), 1.0)


def _best_shift(y: FloatArray, w: FloatArray, tau: float) -> float:
    r"""The intercept: where the slopes :math:`\min(1, \tau / t_\pm) \, w^T (\pm (y - b))_+` balance."""

    def slope(b: float) -> float:
        up, down = np.maximum(y - b, 0.0), np.maximum(b - y, 0.0)
        pull = [min(1.0, tau / max(np.sqrt(w @ part**2), tau)) * (w @ part) for part in (up, down)]
        return float(pull[1] - pull[0])

    low, high = float(y.min()), float(y.max())
    if low == high:
        return low
    return float(brentq(slope, low, high, xtol=4 * np.finfo(float).eps * max(abs(low), abs(high), high - low)))


def _bound(problem: Problem, V: FloatArray, value: float, proof: Proof) -> Bound:
    """The lower bound from V, whose constraint has this value, up to rounding and features that are nearly white."""
    return lower_bound(problem, V, value, proof.bound(problem, V), proof)
