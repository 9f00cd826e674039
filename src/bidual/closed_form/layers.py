"""From chains to the layers of a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bidual._util.typing import FloatArray


def aligned_layers(
    inputs: FloatArray,
    strengths: FloatArray,
    outputs: FloatArray,
    depth: int,
    widths: Sequence[int] | None = None,
) -> list[FloatArray]:
    r"""Balanced, aligned layers whose product is :math:`\sum_j s_j \, p_j q_j^T` (001 Thm 3.1, 3.4, 4.3).

    Every layer carries :math:`s_j^{1/L}` of chain j: the cheapest split, which costs :math:`\tfrac L2 s_j^{2/L}`
    (001 Prop. 3.1). Chain j passes through neuron j of every hidden layer, the :math:`\rho_{l,j} = e_j` of 001.

    Parameters
    ----------
    inputs : ndarray, shape (d, k)
        Unit columns :math:`p_j`.
    strengths : ndarray, shape (k,)
        The :math:`s_j \ge 0`; chains of strength zero are left out.
    outputs : ndarray, shape (k, C)
        Unit rows :math:`q_j^T`.
    depth : int
        L, at least 2.
    widths : sequence of L - 1 ints or None
        Widths of the hidden layers, each at least the number of chains; None is that number (and at least one).
    """
    alive = strengths > 0
    k = int(alive.sum())
    widths = [max(k, 1)] * (depth - 1) if widths is None else [int(m) for m in widths]
    if len(widths) != depth - 1 or min(widths) < max(k, 1):
        raise ValueError(
            f"widths must be {depth - 1} numbers for {depth} layers, each at least {max(k, 1)}: the optimal network "
            f"has that rank; got {widths}"
        )
    t = strengths[alive] ** (1.0 / depth)
    ends = [inputs[:, alive] * t, *(np.diag(t) for _ in range(depth - 2)), t[:, None] * outputs[alive]]
    shapes = zip([len(inputs), *widths], [*widths, outputs.shape[1]], strict=True)
    layers = [np.zeros(shape) for shape in shapes]
    for layer, block in zip(layers, ends, strict=True):
        layer[: block.shape[0], : block.shape[1]] = block
    return layers
