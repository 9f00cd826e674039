r"""Deep ReLU networks on whitened rows of classes (001 Thm 4.3 and A.1).

If :math:`X X^T = I`, a branch :math:`h a^T` with :math:`h = (\cdots (X W_1)_+ \cdots w_{L-1})_+` reaches every
:math:`h \ge 0`, at the smallest cost :math:`\tfrac L2 (\|h\| \|a\|)^{2/L}`. The formula gives every class c one branch
that is active on its own :math:`n_c` rows only and points to its own output :math:`q_c`:

.. math:: F_i = \tfrac{s_c}{\sqrt{n_c}} q_c \; (i \in c), \quad s_c = \arg\min_{s \ge 0} \;
          \tfrac{n_c}{n} \ell\big(\tfrac{s}{\sqrt{n_c}} q_c, c\big) + \tfrac{\beta L}2 s^{2/L}.

By symmetry :math:`q_c` is the direction of :math:`-\nabla \ell(0, c)`: :math:`e_c` for the squared loss of one-hot
targets, :math:`e_c - 1/K` for cross-entropy, the codes for margin losses.

What is proven, and where the papers say more than holds:

- L = 2: the dual constraint over :math:`h = \sum_c g_c 1_c / \sqrt{n_c}`, :math:`g \ge 0`, is a K x K problem, and the
  formula is optimal if the gradients of different classes have no positive inner product. They have none for the
  squared loss, cross-entropy, two classes, and margin losses of up to four classes; beyond, the gap tells.
- L > 2, squared loss: dropping :math:`h \ge 0` leaves a linear network, whose optimum (singular values on their own)
  has the same value. One output and a margin loss: positive and negative branches separate, then Jensen's inequality.
- L > 2, several outputs, other losses: not optimal in general. K classes need only two branches to be told apart,
  and branches cost nearly the same at any strength when L is large (ten classes, cross-entropy: from L = 8 on). The
  bound is then that of the chord of the penalty, and loose. 001 Remark A.1 claims the same extreme points for every
  loss, with :math:`t_j^*` held fixed.
- All this is for 001's parallel networks, whose branches share nothing but inputs and outputs (a certificate of scope
  "parallel"). A dense network of more than two layers can pass classes through fewer neurons than there are classes,
  and beat them: with 24 rows, 4 classes, L = 5 and :math:`n \beta = .5` the formula has .290416, as have the best
  parallel networks that Adam finds, and Adam's best dense one .285037; in the setting of 001 Fig. 4 (60 rows, 10
  classes, L = 5, :math:`n \beta = .1`) .059335 against .055091 of a dense network by gradient descent with
  momentum. (001's conclusion leaves dense networks open.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bidual._util.clock import clock
from bidual._util.ranges import check_range
from bidual._util.typing import FloatArray, IntArray
from bidual.atoms import Relu
from bidual.bounds import ByFormula, Certificate, joined_scope, lower_bound
from bidual.closed_form.layers import aligned_layers
from bidual.closed_form.scalar import ScalarMinimum, along, chain_cost, minimise_chain, reach, shrink
from bidual.closed_form.whitening import Whitening
from bidual.losses import Loss, MarginLoss, Squared
from bidual.networks import DeepNetwork
from bidual.problem import Problem


@dataclass(frozen=True)
class ClassProblem:
    """The training problem on whitened rows, reduced to one row for each class.

    Attributes
    ----------
    loss : Loss
    counts : ndarray, shape (K,)
        Rows of each class.
    targets : ndarray, shape (K, C)
        Encoded target of each class.
    beta : float
        Weight decay, positive.
    depth : int
        L.
    """

    loss: Loss
    counts: IntArray
    targets: FloatArray
    beta: float
    depth: int

    @property
    def directions(self) -> FloatArray:
        r"""The unit rows :math:`q_c`."""
        steepest = -self.loss.row_gradients(np.zeros_like(self.targets), self.targets)
        return steepest / np.linalg.norm(steepest, axis=1, keepdims=True)

    @property
    def reduced(self) -> Problem:
        r"""The two-layer problem with one row for each class: :math:`M = \mathrm{diag}(1 / \sqrt{n_c})`."""
        shares = self.counts / self.counts.sum()
        M = np.diag(1.0 / np.sqrt(self.counts))
        return Problem(Relu(M), self.targets, shares, self.loss, self.beta, fit_intercept=False)

    def solve(self) -> list[ScalarMinimum]:
        """Strength, value and lower bound of every class's own scalar problem."""
        if type(self.loss) is Squared:
            return self._squared()
        solved = []
        for c, (count, q) in enumerate(zip(self.counts, self.directions, strict=True)):
            share, ray = count / self.counts.sum(), q[None, :] / np.sqrt(count)
            curve = along(self.loss, ray, self.targets[c : c + 1], np.array([share]))
            solved.append(minimise_chain(curve, self.beta, self.depth, reach(curve(0.0)[0], self.beta, self.depth)))
        return solved

    def _squared(self) -> list[ScalarMinimum]:
        n, eps = self.counts.sum(), np.finfo(float).eps
        y = np.linalg.norm(self.targets, axis=1) * np.sqrt(self.counts)
        s = shrink(y, n * self.beta, self.depth)
        values = 0.5 * (y - s) ** 2 / n + 0.5 * self.depth * self.beta * s ** (2.0 / self.depth)
        slack = 16 * eps * (values + 0.5 * y**2 / n)
        return [ScalarMinimum(*point) for point in zip(s, values, values - slack, strict=True)]

    def _decouples(self) -> bool:
        """Whether the scalar problems are all there is, at any depth; see the list of what is proven."""
        gram = self.targets @ self.targets.T
        orthogonal = np.array_equal(gram, np.diag(gram.diagonal()))
        one_margin = isinstance(self.loss, MarginLoss) and self.targets.shape[1] == 1
        return one_margin or (type(self.loss) is Squared and orthogonal)

    def bound(self, solved: Sequence[ScalarMinimum]) -> tuple[ByFormula, str]:
        """Lower bound on the optimum, and the proof in words."""
        value = sum(point.value for point in solved)
        if self.depth > 2 and self._decouples():
            return ByFormula(sum(point.lower_bound for point in solved)), "every class on its own"
        if self.depth > 2:
            most = reach(value, self.beta, self.depth)
            chord = 0.5 * self.depth * most ** (2.0 / self.depth - 1.0)
            relaxed = replace(self, beta=chord * self.beta, depth=2)
            return ByFormula(relaxed.bound(relaxed.solve())[0].value), "chord of the penalty, which is not convex"
        problem = self.reduced
        # A class in use meets its own constraint exactly; the gradient itself may be any of many at a kink.
        V = -self.loss.gradient(np.zeros_like(self.targets), self.targets, problem.w)
        used = np.array([point.s > 0 for point in solved])
        V[used] = (self.beta * np.sqrt(self.counts)[:, None] * self.directions)[used]
        V = self.loss.dual_point(V, self.targets, problem.w, centred=False)
        found, most = _nonnegative_maximum(problem.atoms.M @ V)
        return ByFormula(lower_bound(problem, V, found, most).value, found, most), "dual constraint over classes"


def _nonnegative_maximum(G: FloatArray) -> tuple[float, float]:
    r"""A value and an upper bound of :math:`\max \|G^T g\|` over :math:`g \ge 0, \|g\| = 1`.

    Negative inner products of rows cannot help: without them the matrix is non-negative, its largest eigenvalue is a
    bound, and its eigenvector (Perron's) is a candidate.
    """
    gram = G @ G.T
    values, vectors = np.linalg.eigh(np.maximum(gram, 0.0))
    g = np.abs(vectors[:, -1])
    found = float(np.sqrt(max(g @ gram @ g, gram.diagonal().max())))
    return found, float(np.sqrt(max(values[-1], 0.0))) * (1.0 + 16 * len(G) * np.finfo(float).eps)


def train_classes(
    X: FloatArray,
    codes: IntArray,
    targets: FloatArray,
    *,
    beta: float,
    depth: int = 3,
    loss: Loss | None = None,
    widths: Sequence[int] | None = None,
) -> tuple[DeepNetwork, Certificate]:
    r"""A deep ReLU network for classes by the formula of 001 Thm 4.3.

    Rows are whitened first, unless they are white. Rows that are linearly dependent cannot be: the formula's network
    then does not reach its value, which is still a lower bound (of such rows, whitened as far as possible, a neuron
    sees less), and only the common strength of its branches is optimised.

    Parameters
    ----------
    X : ndarray, shape (n, d)
    codes : ndarray of int, shape (n,)
        Classes 0..K-1, all of them present.
    targets : ndarray, shape (K, C)
        Target of each class, encoded for the loss.
    beta : float
        Weight decay of the *mean* loss (the paper's is n times ours); 0 (squared loss only) asks for the smallest
        penalty of an exact fit.
    depth : int
        L, at least 2.
    loss : Loss or None
        None is the squared loss.
    widths : sequence of L - 1 ints or None
        See :func:`bidual.closed_form.layers.aligned_layers`.
    """
    began = clock()
    check_range(X=X)
    loss = Squared() if loss is None else loss
    whitening = Whitening.of(X)
    if beta == 0 and not (whitening.exact and type(loss) is Squared):
        raise ValueError(
            "beta=0 asks for the smallest network that fits exactly: in closed form only for loss='squared' and "
            "linearly independent rows; use beta > 0"
        )
    counts = np.bincount(codes, minlength=len(targets))
    problem = ClassProblem(loss, counts, targets, beta, depth)
    solved = problem.solve()
    s = np.array([point.s for point in solved])

    inputs = whitening.apply(X)
    w = np.full(len(X), 1.0 / len(X))
    P = inputs.T @ np.eye(len(targets))[codes]
    P = P / np.maximum(np.linalg.norm(P, axis=0), np.finfo(float).tiny)
    Q = problem.directions
    if not whitening.exact and s.any():
        ray = np.maximum(inputs @ P, 0.0) @ (s[:, None] * Q)
        curve = along(loss, ray, targets[codes], w)
        cost = beta * float((s ** (2.0 / depth)).sum())
        s = s * minimise_chain(curve, cost, depth, reach(curve(0.0)[0], cost, depth)).s
    layers = aligned_layers(P, s, Q, depth, widths)
    network = DeepNetwork(layers, whitening=whitening.matrix, whitening_bias=whitening.bias)

    # Rows white to rounding only: no neuron gains more than this over white ones.
    gain = max(1.0, float(np.linalg.norm(inputs, 2)) * (1.0 + 4 * np.finfo(float).eps * len(X)))
    if beta == 0:
        objective = network.penalty()
        bound, proof = ByFormula(chain_cost(s / gain, depth)), "exact fit, every class on its own"
    else:
        objective = loss.value(network.forward(X), targets[codes], w) + beta * network.penalty()
        stronger = replace(problem, beta=beta / gain ** (2.0 / depth))
        bound, proof = stronger.bound(stronger.solve())
    rows = "white rows" if whitening.exact else f"{len(X)} rows of rank {inputs.shape[1]}: cannot be white"
    certificate = Certificate.of(
        objective,
        bound,
        beta=beta,
        loss=loss.name,
        method=f"closed form, {rows}; {proof}",
        began=began,
        scope=joined_scope("whitened" if whitening.matrix is not None else "", "parallel" if depth > 2 else ""),
    )
    return network, certificate
