"""What a certificate keeps so that anybody can check it again without searching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual._util.typing import FloatArray
from bidual.bounds import chains, free_bias, oracle, parsing, positive, stored  # noqa: F401 - they make their kinds of proof known
from bidual.bounds.dual import Bound, DirectProof, lower_bound
from bidual.bounds.proof import Proof, proof_from_dict, proof_to_dict
from bidual.losses import Loss, loss_from_dict
from bidual.problem import Problem

#: A dual point that is in the domain of the conjugate moves by less than this, relatively, when it is moved there.
_STILL = 64 * float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class Evidence:
    """A dual point, a proof that bounds its constraint, and how the problem was posed.

    Attributes
    ----------
    V : ndarray, shape (n, C)
        On the distinct rows in canonical order, in natural units (:mod:`bidual.training.units`); moved into the domain
        of the conjugate it is the dual point.
    scale : float
        The multiple of V whose dual objective is the lower bound.
    proof : Proof
        Bounds the dual constraint at V, from multipliers alone.
    loss : Loss
        As it acts on the encoded targets.
    classes : tuple or None
        Labels in the order of their codes; None for numbers.
    architecture : str
        Its name.
    options : dict
        Parameters of the architecture.
    bias : bool or "free"
        Whether neurons have biases; "free" ones cost nothing.
    fit_intercept : bool
    """

    V: FloatArray
    scale: float
    proof: Proof
    loss: Loss
    classes: tuple[Any, ...] | None
    architecture: str
    options: dict[str, Any]
    bias: bool | str
    fit_intercept: bool

    def __post_init__(self) -> None:
        if self.V.ndim != 2 or not np.isfinite(self.V).all():
            raise ValueError("the dual point V of the evidence must be a matrix of finite numbers")

    def bound(self, problem: Problem) -> Bound:
        """What the dual point proves for ``problem``, which is in natural units."""
        if self.V.shape != problem.Y.shape:
            raise ValueError(
                f"the certificate is about {len(self.V)} distinct rows with {self.V.shape[1]} output(s), these data "
                f"have {len(problem.Y)} with {problem.n_outputs}: give the data it was made for"
            )
        # never trust the file: a point moved into the domain is a dual point whatever it was
        V = problem.loss.dual_point(self.V, problem.Y, problem.w, centred=problem.fit_intercept)
        if (np.abs(V - self.V) <= _STILL * (np.abs(self.V) + problem.w[:, None])).all():
            V = self.V  # it was there already: the digits stay those of the first proof
        if isinstance(self.proof, DirectProof):
            return self.proof.lower_bound(problem, V)
        limit = self.proof.bound(problem, V)
        return lower_bound(problem, V, 0.0, limit if np.isfinite(limit) else np.inf, self.proof)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings."""
        return {
            "V": self.V.tolist(),
            "scale": self.scale,
            "proof": proof_to_dict(self.proof),
            "loss": self.loss.to_dict(),
            "classes": None if self.classes is None else np.array(self.classes, dtype=object).tolist(),
            "architecture": self.architecture,
            "options": self.options,
            "bias": self.bias,
            "fit_intercept": self.fit_intercept,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Evidence:
        """Inverse of :meth:`to_dict`; anything that is not such an object gets a ValueError that says why."""
        classes, options, bias = (parsing.field(data, name) for name in ("classes", "options", "bias"))
        if not (classes is None or (isinstance(classes, list) and all(map(_is_label, classes)))):
            raise ValueError("the certificate is damaged: 'classes' must be null or a list of labels")
        if not isinstance(options, dict) or not isinstance(parsing.field(data, "loss"), dict):
            raise ValueError("the certificate is damaged: 'options' and 'loss' must be objects")
        if bias != "free":
            bias = parsing.flag(data, "bias")
        return cls(
            V=parsing.array(data, "V", 2),
            scale=parsing.number(data, "scale"),
            proof=proof_from_dict(parsing.field(data, "proof")),
            loss=loss_from_dict(data["loss"]),
            classes=None if classes is None else tuple(classes),
            architecture=parsing.text(data, "architecture"),
            options=options,
            bias=bias,
            fit_intercept=parsing.flag(data, "fit_intercept"),
        )


def _is_label(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)
