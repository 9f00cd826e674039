"""Neural collapse: how far the last hidden layer is from a simplex of class means (001 Cor. 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bidual._util.typing import Array, FloatArray

#: Activations of the last hidden layer as a function of rows, and the output weights (m, C) if there are any.
Head: TypeAlias = tuple[Callable[[FloatArray], Any], FloatArray | None]


@dataclass(frozen=True)
class NeuralCollapse:
    r"""Four numbers that vanish at neural collapse (Papyan, Han and Donoho 2020); all are free of units.

    Attributes
    ----------
    within_class : float
        :math:`\mathrm{tr}(\Sigma_W \Sigma_B^+) / K`: variability within classes, relative to that between them (NC1).
    simplex : float
        :math:`\big\| \frac{\bar M^T \bar M}{\|\bar M^T \bar M\|_F} - \frac{S^T S}{\|S^T S\|_F} \big\|_F` for the
        centred class means :math:`\bar M` and the simplex equiangular tight frame S of 001 Def. 2 (NC2).
    alignment : float or None
        :math:`\big\| \frac{\bar W}{\|\bar W\|_F} - \frac{\bar M}{\|\bar M\|_F} \big\|_F` for the output weights,
        centred over the classes, which changes all scores of a row alike (NC3); None without one output for each class.
    disagreement : float
        Fraction of the rows whose nearest class mean is not that of their own class (NC4, against the labels).
    class_means : ndarray, shape (K, m)
        The centred means :math:`\bar M^T`.
    """

    within_class: float
    simplex: float
    alignment: float | None
    disagreement: float
    class_means: FloatArray

    def __str__(self) -> str:
        aligned = "-" if self.alignment is None else f"{self.alignment:.3g}"
        return (
            f"neural collapse: within classes {self.within_class:.3g}, simplex {self.simplex:.3g}, "
            f"alignment {aligned}, disagreement {self.disagreement:.3g}"
        )


def neural_collapse(model: Any, X: Array, y: Array) -> NeuralCollapse:
    r"""Measure neural collapse of the last hidden layer of a model (001 sec. 4.2, Cor. 4.3).

    The closed form of :class:`bidual.DeepReLUClassifier` has collapsed completely on balanced classes: the centred
    activations are :math:`\sqrt{K/n} \, (I_K \otimes 1 - \tfrac1K 1 1^T)` up to scale, a simplex.

    Parameters
    ----------
    model : network or estimator of bidual, torch.nn.Sequential, or callable
        A ``Sequential`` must end in a ``Linear`` layer; what comes before it is the feature map. A callable maps rows
        to features itself, and has no weights to align.
    X : array of shape (n, d)
    y : array of shape (n,)
        Labels, at least two different ones; output k of the model stands for the k-th of them in sorted order.
    """
    features, W = _head(getattr(model, "network_", model))
    H = np.asarray(features(np.asarray(X, dtype=np.float64)), dtype=np.float64)
    classes, codes = np.unique(y, return_inverse=True)
    K = len(classes)
    if K < 2:
        raise ValueError("neural collapse is about the means of several classes; y has one class only")
    if H.ndim != 2 or len(H) != len(codes):
        raise ValueError(f"features must have shape ({len(codes)}, m), got {H.shape}")
    raw = np.stack([H[codes == k].mean(axis=0) for k in range(K)])
    means = raw - raw.mean(axis=0)
    size = float(np.linalg.norm(means))
    if size == 0.0:
        raise ValueError("all class means are equal: the features do not tell the classes apart at all")
    within = H - raw[codes]
    between = np.linalg.pinv(means / np.sqrt(K), rcond=1e-12)  # Sigma_B^+ = between between^T
    simplex, gram = np.eye(K) - 1.0 / K, means @ means.T
    nearest = ((raw**2).sum(axis=1) - 2.0 * H @ raw.T).argmin(axis=1)
    alignment = None
    if W is not None and W.shape[1] == K:
        centred = W.T - W.T.mean(axis=0)
        alignment = float(np.linalg.norm(centred / np.linalg.norm(centred) - means / size))
    return NeuralCollapse(
        within_class=float(((within @ between) ** 2).sum() / len(H) / K),
        simplex=float(np.linalg.norm(gram / np.linalg.norm(gram) - simplex / np.linalg.norm(simplex))),
        alignment=alignment,
        disagreement=float(np.mean(nearest != codes)),
        class_means=means,
    )


def _head(model: Any) -> Head:
    """The feature map of a model and its output weights."""
    if hasattr(model, "hidden") and hasattr(model, "output_weights"):
        return model.hidden, model.output_weights
    if hasattr(model, "named_parameters"):  # a torch module, without importing torch to find out
        from bidual.networks.torch_bridge import last_layer

        return last_layer(model)
    if callable(model):
        return model, None
    raise ValueError(
        f"expected a network or estimator of bidual, a torch Sequential or a function of X, not {type(model).__name__}"
    )
