"""What a certificate keeps so that anybody can check it again without searching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual._typing import FloatArray
from bidual.certificates.dual import lower_bound
from bidual.certificates.oracle import Proof, proof_from_dict, proof_to_dict
from bidual.losses import Loss, loss_from_dict
from bidual.problem import Problem


@dataclass(frozen=True, eq=False)
class Evidence:
    """A dual point, a proof that bounds its constraint, and how the problem was posed.

    Attributes
    ----------
    V : ndarray, shape (n, C)
        On the distinct rows in canonical order, in natural units (:mod:`bidual.units`); moved into the domain of the
        conjugate it is the dual point.
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
    bias, fit_intercept : bool
    """

    V: FloatArray
    proof: Proof
    loss: Loss
    classes: tuple[Any, ...] | None
    architecture: str
    options: dict[str, Any]
    bias: bool
    fit_intercept: bool

    def lower_bound(self, problem: Problem) -> float:
        """The bound that the dual point proves for ``problem``, which is in natural units."""
        if self.V.shape != problem.Y.shape:
            raise ValueError(
                f"the certificate is about {len(self.V)} distinct rows, these data have {len(problem.Y)}: "
                "give the data it was made for"
            )
        # never trust the file: a point moved into the domain is a dual point whatever it was
        V = problem.loss.dual_point(self.V, problem.Y, problem.w, centred=problem.fit_intercept)
        bound = self.proof.bound(problem, V)
        return lower_bound(problem, V, bound, bound).value

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings."""
        return {
            "V": self.V.tolist(),
            "proof": proof_to_dict(self.proof),
            "loss": self.loss.to_dict(),
            "classes": None if self.classes is None else np.array(self.classes, dtype=object).tolist(),
            "architecture": self.architecture,
            "options": self.options,
            "bias": self.bias,
            "fit_intercept": self.fit_intercept,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Evidence:
        """Inverse of :meth:`to_dict`."""
        try:
            return cls(
                V=np.array(data["V"], dtype=np.float64),
                proof=proof_from_dict(data["proof"]),
                loss=loss_from_dict(data["loss"]),
                classes=None if data["classes"] is None else tuple(data["classes"]),
                architecture=str(data["architecture"]),
                options=dict(data["options"]),
                bias=bool(data["bias"]),
                fit_intercept=bool(data["fit_intercept"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"the evidence of the certificate is incomplete: {error!r}") from error
