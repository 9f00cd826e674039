r"""A proof for features that are nearly white: neurons as any non-negative vectors of bounded length."""

from __future__ import annotations

import numpy as np

from bidual._util.rounding import gamma
from bidual._util.typing import FloatArray
from bidual.bounds.proof import Proof
from bidual.problem import Problem


class PositiveProof(Proof):
    r"""A neuron :math:`h = (M u)_+` of unit cost is not negative, and of the norm :math:`\|h\|_w \le \kappa`.

    Here :math:`\|h\|_w^2 = \sum_i w_i h_i^2` and :math:`\kappa = \|\mathrm{diag}(\sqrt w) M\|_2`, so that

    .. math:: \|V^T h\| \le \kappa \max_{c, \pm} \Big( \sum_i \frac{(\pm v_{ic})_+^2}{w_i} \Big)^{1/2}

    if no row of V has two entries: with a unit vector a of outputs :math:`a^T V^T h` is a sum over rows of
    :math:`a_c v_{ic} h_i`, and :math:`\sum_i (a_c v_{ic})_+^2 / w_i` a mean, with the weights :math:`a_c^2`, of the
    sums above. With features that are white and square every such h is a neuron, and the bound is the maximum (000
    Theorems 2.1 and 2.4). The square of :math:`\kappa` is at most the largest row sum of the Gram matrix.
    """

    kind = "positive"
    settled = True

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The largest of the sums, times the norm, with rounding."""
        if problem.atoms.A is not None or "plain oracle" not in problem.atoms.can:
            raise ValueError("a proof of the kind 'positive' is about neurons that compute (M u)_+ on the rows")
        if np.count_nonzero(V, axis=1).max(initial=0) > 1:
            raise ValueError("a proof of the kind 'positive' is about rows with one entry each")
        rooted = np.sqrt(problem.w)[:, None] * problem.atoms.M
        rooted = rooted if rooted.shape[0] <= rooted.shape[1] else rooted.T
        sizes = np.linalg.norm(rooted, axis=1)
        square = float(np.abs(rooted @ rooted.T).sum(axis=1).max(initial=0.0))
        square += gamma(rooted.shape[1] + 8) * float(sizes.max(initial=0.0) * sizes.sum())
        sums = [(np.maximum(sign * V, 0.0) ** 2 / problem.w[:, None]).sum(axis=0) for sign in (1.0, -1.0)]
        limit = np.sqrt(square * float(np.max(sums, initial=0.0)))
        return float(limit * (1.0 + gamma(len(rooted) + len(V) + 16)) + problem.atoms.vanished(V))
