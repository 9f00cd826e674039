"""Compiled loops over the trees of :mod:`bidual.atoms.tree`, all branches and rows at once; rows are last in memory."""

from __future__ import annotations

import numpy as np
from numba import njit

from bidual._util.jit import JIT
from bidual._util.typing import Array


@njit(**JIT)
def _pre_activations(leaves: Array, signs: Array, parents: Array, node: Array) -> None:
    """Of all nodes ``(nodes, n)``: children come before their parents."""
    node[: len(leaves)] = leaves
    node[len(leaves) :] = 0.0
    for j in range(len(parents)):
        here, above, sign = node[j], node[parents[j]], signs[j]
        for i in range(len(here)):
            above[i] += sign * max(here[i], 0.0)


@njit(**JIT)
def _switch(node: Array, sign: float, slope: Array) -> None:
    """The sign where a node is active, zero elsewhere."""
    for i in range(len(node)):
        slope[i] = sign if node[i] >= 0.0 else 0.0


@njit(**JIT)
def climb(pre: Array, signs: Array, parents: Array, value: Array, gates: Array) -> None:
    """Fill ``value (K, n)`` and, unless they are empty, ``gates (K, T, n)``."""
    K, T, n = pre.shape
    edges = len(parents)
    node, slope = np.empty((edges + 1, n)), np.empty((edges + 1, n))
    for k in range(K):
        _pre_activations(pre[k], signs[k], parents, node)
        root, out = node[edges], value[k]
        for i in range(n):
            out[i] = max(root[i], 0.0)
        if gates.size:
            _switch(root, 1.0, slope[edges])
            for j in range(edges - 1, -1, -1):
                _switch(node[j], signs[k, j], slope[j])
                above, here = slope[parents[j]], slope[j]
                for i in range(n):
                    here[i] *= above[i]
            gates[k] = slope[:T]


@njit(**JIT)
def activities(pre: Array, signs: Array, parents: Array, masks: Array) -> None:
    """Fill ``masks (K, nodes, n)``."""
    node = np.empty((len(parents) + 1, pre.shape[2]))
    for k in range(len(pre)):
        _pre_activations(pre[k], signs[k], parents, node)
        masks[k] = node >= 0.0
