r"""The spike-free relaxation of the dual constraint (004 eq. 15, 50 and A.3).

:math:`\{Xu : \|u\| \le 1, Xu \ge 0\}` is a convex part of :math:`\{(Xu)_+ : \|u\| \le 1\}`, so that asking for
:math:`\|V^T z\| \le \beta` on it alone relaxes the dual constraint. Its most violating neuron is a projection: for one
output, :math:`\max \{v^T X u : Xu \ge 0, \|u\| \le 1\}` is the length of the projection of :math:`c = X^T v` on the
cone :math:`\{u : Xu \ge 0\}`, that is, of

.. math:: c + X^T \lambda, \qquad \lambda \ge 0 \text{ of smallest } \|c + X^T \lambda\| ,

and for *every* :math:`\lambda \ge 0` this length bounds the maximum from above.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidual._util.typing import FloatArray
from bidual.geometry.simplex import project_on_cone

#: Rounds of the alternating search with several outputs.
_ROUNDS = 50
#: Its random starts.
_STARTS = 8


@dataclass(frozen=True)
class RelaxedNeurons:
    r"""Neurons :math:`u \ge 0` on all rows, best first.

    Attributes
    ----------
    U : ndarray, shape (k, d)
        Unit vectors (zero where there is no neuron but zero) with :math:`Xu \ge 0`.
    outputs : ndarray, shape (k, C)
        Unit vectors a.
    values : ndarray, shape (k,)
        :math:`a^T V^T X u`.
    """

    U: FloatArray
    outputs: FloatArray
    values: FloatArray

    @property
    def best(self) -> float:
        """The largest value."""
        return float(self.values[0]) if len(self.values) else 0.0


def relaxed_neurons(X: FloatArray, V: FloatArray) -> RelaxedNeurons:
    r"""Maximise :math:`\pm v_k^T X u` over :math:`Xu \ge 0, \|u\| \le 1` for every output k (004 eq. 15, A.7.3).

    The values are upper bounds as well, whatever the accuracy of the projections: there are 2C neurons, one for each
    output and sign.

    Parameters
    ----------
    X : ndarray, shape (n, d)
    V : ndarray, shape (n, C)

    Examples
    --------
    >>> import numpy as np
    >>> from bidual.geometry import relaxed_neurons
    >>> found = relaxed_neurons(np.eye(2), np.array([[3.0], [-4.0]]))  # (v)_+ and (-v)_+
    >>> found.values.tolist(), found.U.round(6).tolist()
    ([4.0, 3.0], [[0.0, 1.0], [1.0, 0.0]])
    """
    heads = np.vstack([np.eye(V.shape[1]), -np.eye(V.shape[1])])
    return _sorted(*_project(X, heads @ V.T @ X), heads)


def relaxed_neurons_joint(X: FloatArray, V: FloatArray, random_state: int = 0) -> RelaxedNeurons:
    r"""Local maxima of :math:`\|V^T X u\|_2` subject to :math:`Xu \ge 0`, :math:`\|u\| \le 1` (004 eq. 50).

    This is not a convex problem. Given the output direction a it is one, the projection above; given u the best a is
    along :math:`V^T X u`. The two alternate from the neurons of :func:`relaxed_neurons`, the singular vectors of
    :math:`V^T X` and random directions; values never fall on the way.
    """
    gradient = V.T @ X  # (C, d)
    C = len(gradient)
    rng = np.random.default_rng(random_state)
    singular = np.linalg.svd(gradient, full_matrices=False)[0].T
    random = rng.standard_normal((_STARTS, C))
    heads = np.vstack([np.eye(C), -np.eye(C), singular, -singular, random / np.linalg.norm(random, axis=1)[:, None]])
    values = np.zeros(len(heads))
    for _ in range(_ROUNDS):
        U, _ = _project(X, heads @ gradient)
        image = U @ gradient.T
        now = np.linalg.norm(image, axis=1)
        heads = np.where(now[:, None] > 0, image / np.where(now > 0, now, 1.0)[:, None], heads)
        if (now <= values * (1.0 + 1e-10)).all():
            break
        values = now
    return _sorted(U, now, heads)


def relaxed_neuron_free_bias(X: FloatArray, v: FloatArray) -> tuple[FloatArray, float, float]:
    r"""The relaxed pricing problem of 004 Algorithm 3, where the bias is free and :math:`1^T v = 0`.

    .. math:: \max_{u, b} \; v^T X u + b \, v^T 1 \quad \text{s.t. } Xu + b 1 \ge 0, \; \|u\| \le 1 .

    Any u is feasible with a large enough b, which costs nothing: the maximum is :math:`\|X^T v\|`, at
    :math:`u \propto X^T v`. All neurons of Algorithm 3 are therefore linear on the data, and so is the network that it
    trains, :math:`\min_{w, b} L(Xw + b) + \beta \|w\|`: with a free bias the spike-free relaxation relaxes everything.

    Returns
    -------
    u, b, value
        b is the smallest possible one.
    """
    v = np.asarray(v, dtype=np.float64).ravel()
    if abs(v.sum()) > 1e-9 * np.abs(v).sum():
        raise ValueError("with a free bias the problem is bounded only if v sums to zero: use an output intercept")
    c = X.T @ v
    value = float(np.linalg.norm(c))
    u = c / value if value > 0 else c
    return u, float(np.max(-X @ u)), value


def _project(X: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Unit vectors along the projections on the cone Xu >= 0, and their lengths."""
    found = project_on_cone(-X, targets)
    lengths = found.distances
    # what is left of a target in the polar cone is rounding
    alive = lengths > 1e-12 * np.linalg.norm(targets, axis=1)
    return np.where(alive[:, None], found.residuals, 0.0) / np.where(alive, lengths, 1.0)[:, None], lengths


def _sorted(U: FloatArray, values: FloatArray, heads: FloatArray) -> RelaxedNeurons:
    order = np.argsort(-values, kind="stable")
    return RelaxedNeurons(U[order], heads[order], values[order])
