r"""Gates that a short training puts where they serve.

Gates drawn at random know nothing of the targets. A few passes of Adam over batches of rows with a ReLU network of P
neurons, :math:`f(x) = \sum_i (u_i^T x)_+ \alpha_i + b`, move them to where the targets bend; their directions
:math:`u_i` are then fixed, and the convex program over gated networks is solved as with any other gates. The network
itself is thrown away: the certificate does not depend on how the gates were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from bidual._util.typing import FloatArray
from bidual.programs.gated.block import Block
from bidual.programs.gated.shards import Shards
from bidual.solvers.adam import adam_step, relu_gradients
from bidual.solvers.blocks.minibatch import BATCH
from bidual.solvers.run import Log

#: The value of ``gates`` that asks for these.
TRAINED = "trained"
#: Passes over the rows, and at most where rows are few; steps aimed at; the first rate of Adam.
EPOCHS, MOST_EPOCHS, STEPS, RATE = 8, 100, 1000, 1e-2
#: Share of the time limit.
SHARE = 0.3
#: Size of the first hidden weights; rows have mean square norm one.
SIZE = 0.1

#: Hidden weights (P, p), output weights (P, C), intercept (C,), their means and mean squares, number of steps.
State = tuple[Any, ...]


def trained_gates(
    shards: Shards, shape: tuple[int, int, int], n_rows: int, log: Log, *, beta: float, free: bool
) -> FloatArray:
    """Directions ``(P, p)`` on the rows as the solver sees them.

    ``shape`` is (P, p, C); ``free`` says whether there is an intercept. When the share of the time of ``log`` is over,
    or when interrupted, the directions are what they are then.
    """
    P, p, C = shape
    seed = log.seed
    rng = np.random.default_rng(seed)
    U = (SIZE * rng.standard_normal((P, p))).astype(np.float32)
    A = (rng.standard_normal((P, C)) / np.sqrt(P)).astype(np.float32)
    x = (U, A, np.zeros(C, dtype=np.float32))
    state: State = (*x, *map(np.zeros_like, x), *map(np.zeros_like, x), 0)
    n_epochs = int(np.clip(np.ceil(STEPS * BATCH / n_rows), EPOCHS, MOST_EPOCHS))
    with threadpool_limits(1, user_api="blas"):  # training is chaotic: rounding must not depend on the threads
        done, k = 0.0, 0
        while done < 1.0 and not log.late():
            k += 1
            following = max(k / n_epochs, log.share_of_time(SHARE))
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
    rng = np.random.default_rng([seed, turn])
    batches = np.array_split(rng.permutation(len(block)), max(1, round(len(block) / BATCH)))
    for k, index in enumerate(batches):
        step += 1
        rate = rates[0] + (turn + k / len(batches)) / n_turns * (rates[1] - rates[0])
        rows, w = block.rows(np.float32, index), block.w[index] / block.w[index].sum()
        gradients = relu_gradients(x, block.setting.loss, rows, block.Y[index], w, beta, free)
        adam_step(x, gradients, first, second, rate, step)
    return (*x, *first, *second, step)
