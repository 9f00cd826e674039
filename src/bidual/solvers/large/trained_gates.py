r"""Gates that a short training puts where they serve.

Gates drawn at random know nothing of the targets. A few passes of Adam over batches of rows with a ReLU network of P
neurons, :math:`f(x) = \sum_i (u_i^T x)_+ \alpha_i + b`, move them to where the targets bend; their directions
:math:`u_i` are then fixed, and the convex program over gated networks is solved as with any other gates. The network
itself is thrown away: the certificate does not depend on how the gates were found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from bidual._typing import Array, FloatArray
from bidual.operators.block import Block
from bidual.operators.shards import Shards
from bidual.solvers.large.minibatch import BATCH

#: The value of ``gates`` that asks for these.
TRAINED = "trained"
#: Passes over the rows, and at most where rows are few; steps aimed at; the first rate of Adam.
EPOCHS, MOST_EPOCHS, STEPS, RATE = 8, 100, 1000, 1e-2
#: Size of the first hidden weights; rows have mean square norm one.
SIZE = 0.1
_FIRST, _SECOND, _EPSILON = 0.9, 0.999, 1e-8

#: Hidden weights (P, p), output weights (P, C), intercept (C,), their means and mean squares, number of steps.
State = tuple[Any, ...]


def trained_gates(
    shards: Shards,
    shape: tuple[int, int, int],
    n_rows: int,
    *,
    beta: float,
    free: bool,
    seed: int,
    seconds: float = np.inf,
    interrupted: Callable[[], bool] = lambda: False,
) -> FloatArray:
    """Directions ``(P, p)`` on the rows as the solver sees them.

    ``shape`` is (P, p, C); ``free`` says whether there is an intercept. After so many seconds, or when interrupted,
    the directions are what they are then.
    """
    began = time.perf_counter()
    P, p, C = shape
    rng = np.random.default_rng(seed)
    U = (SIZE * rng.standard_normal((P, p))).astype(np.float32)
    A = (rng.standard_normal((P, C)) / np.sqrt(P)).astype(np.float32)
    x = (U, A, np.zeros(C, dtype=np.float32))
    state: State = (*x, *map(np.zeros_like, x), *map(np.zeros_like, x), 0)
    n_epochs = int(np.clip(np.ceil(STEPS * BATCH / n_rows), EPOCHS, MOST_EPOCHS))
    with threadpool_limits(1, user_api="blas"):  # training is chaotic: rounding must not depend on the threads
        done, k = 0.0, 0
        while done < 1.0 and not interrupted():
            k += 1
            following = max(k / n_epochs, (time.perf_counter() - began) / max(seconds, 1e-9))
            rates = tuple(0.5 * RATE * (1.0 + np.cos(np.pi * min(x, 1.0))) for x in (done, following))
            state = shards.chain(relu_epoch, state, beta=beta, rates=rates, free=free, seed=(seed + k) % 2**31)
            done = following
    return np.asarray(state[0], dtype=np.float64)


def relu_epoch(
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
    """One pass of Adam over the rows of a block, in random order; ``rates`` are those of its beginning and end."""
    x, first, second = ([v.copy() for v in state[i : i + 3]] for i in (0, 3, 6))
    step = int(state[9])
    loss, decay = block.setting.loss, np.float32(beta)
    rng = np.random.default_rng([seed, turn])
    batches = np.array_split(rng.permutation(len(block)), max(1, round(len(block) / BATCH)))
    for k, index in enumerate(batches):
        step += 1
        rate = rates[0] + (turn + k / len(batches)) / n_turns * (rates[1] - rates[0])
        U, A, b = x
        rows, w = block.rows(np.float32, index), block.w[index] / block.w[index].sum()
        H = np.maximum(rows @ U.T, 0)
        V = loss.gradient((H @ A + b).astype(np.float64), block.Y[index], w).astype(np.float32)
        back: Array = (V @ A.T) * (H > 0)
        gradients = (back.T @ rows + decay * U, H.T @ V + decay * A, V.sum(axis=0) * np.float32(free))
        eta = np.float32(rate * np.sqrt(1 - _SECOND**step) / (1 - _FIRST**step))
        for v, g, m, s in zip(x, gradients, first, second, strict=True):
            m += np.float32(1 - _FIRST) * (g - m)
            s += np.float32(1 - _SECOND) * (g * g - s)
            v -= eta * m / (np.sqrt(s) + np.float32(_EPSILON))
    return (*x, *first, *second, step)
