r"""A good start: proximal steps on small batches of rows.

Every group :math:`W_i` has one step length, from a running mean of its squared gradients as in Adam, so that its prox
stays the closed form of the group norm:

.. math:: W_i \leftarrow \mathrm{prox}_{\eta_i \beta \|\cdot\|}(W_i - \eta_i \mu_i), \qquad
          \eta_i = \eta / \mathrm{rms}(g_i),

with a running mean :math:`\mu_i` of gradients and a rate :math:`\eta` that falls like a cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bidual._util.typing import Array, FloatArray
from bidual.programs.gated.block import Block

#: Rows of a batch.
BATCH = 256
#: Memory of the means of gradients and of their squares.
FIRST, SECOND = 0.9, 0.99

#: Weights (P, p, C), mean gradient, mean square (P,), and the same for the intercept; number of steps.
State = tuple[Array, Array, Array, FloatArray, FloatArray, FloatArray, int]


def first_state(W: Array, intercept: FloatArray) -> State:
    """The state before the first step."""
    C = len(intercept)
    W = W.astype(np.float32)
    zero = np.zeros(C)
    return W, np.zeros_like(W), np.zeros(len(W), dtype=np.float32), intercept.copy(), zero, np.zeros(C), 0


def epoch(
    block: Block,
    state: Sequence[Any],
    turn: int,
    n_turns: int,
    *,
    beta: float,
    rates: tuple[float, float],
    free: bool,
    seed: int,
) -> State:
    """One pass over the rows of a block, in random order.

    ``rates`` are those at the beginning and the end of the pass over all blocks; ``free`` says whether there is an
    intercept.
    """
    W, mean, square, b, b_mean, b_square, step = state
    W, mean, square = W.copy(), mean.copy(), square.copy()
    loss = block.setting.loss
    rng = np.random.default_rng([seed, turn])
    order = rng.permutation(len(block))
    batches = np.array_split(order, max(1, round(len(block) / BATCH)))
    for k, index in enumerate(batches):
        step += 1
        progress = (turn + k / len(batches)) / n_turns
        rate = rates[0] + progress * (rates[1] - rates[0])
        rows = block.batch(index)
        w = block.w[index] / block.w[index].sum()
        F = rows.outputs(W).astype(np.float64) + b
        V = loss.gradient(F, block.Y[index], w)
        G = rows.correlations(V.astype(np.float32))
        size = G[0].size
        mean += np.float32(1 - FIRST) * (G - mean)
        square += np.float32(1 - SECOND) * (np.einsum("ijk,ijk->i", G, G) / np.float32(size) - square)
        bias1, bias2 = 1 - FIRST**step, 1 - SECOND**step
        eta = (rate / (np.sqrt(square / bias2) + 1e-12)).astype(np.float32)
        W -= (eta / np.float32(bias1))[:, None, None] * mean
        norms = np.sqrt(np.einsum("ijk,ijk->i", W, W))
        W *= np.maximum(1 - eta * np.float32(beta) / np.maximum(norms, np.float32(1e-12)), 0)[:, None, None]
        if free:
            g = V.sum(axis=0)
            b_mean = FIRST * b_mean + (1 - FIRST) * g
            b_square = SECOND * b_square + (1 - SECOND) * (g @ g) / len(g)
            b = b - rate / bias1 * b_mean / (np.sqrt(b_square / bias2) + 1e-12)
    return W, mean, square, b, b_mean, b_square, step
