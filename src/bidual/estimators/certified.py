"""What every trained estimator has: a network and its certificate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags

from bidual._util.typing import Array, FloatArray
from bidual.bounds import Certificate
from bidual.networks import Network
from bidual.solvers.base import HistoryEntry
from bidual.training.train import Trained


class Certified(BaseEstimator):
    """Objective, lower bound and gap, read from ``certificate_``."""

    network_: Network
    certificate_: Certificate
    history_: list[HistoryEntry]
    n_iter_: int
    status_: str

    @property
    def objective_(self) -> float:
        """Regularised training objective of :attr:`network_`, evaluated on the network itself."""
        return self._certificate().objective

    @property
    def lower_bound_(self) -> float:
        """Proven lower bound on the optimum (see ``certificate_.scope`` for which)."""
        return self._certificate().lower_bound

    @property
    def gap_(self) -> float:
        """Proven: ``(objective_ - lower_bound_) / objective_``."""
        return self._certificate().gap

    @property
    def likely_bound_(self) -> float:
        """Lower bound on the optimum as audited search believes; at least the proven one."""
        return self._certificate().likely_bound

    @property
    def likely_gap_(self) -> float:
        """``(objective_ - likely_bound_) / objective_``: what ``tol`` refers to."""
        return self._certificate().likely_gap

    @property
    def n_neurons_(self) -> int:
        """Number of hidden neurons."""
        self._certificate()
        return self.network_.n_neurons

    def _adopt(self, trained: Trained) -> None:
        """Set the fitted attributes."""
        self.network_ = trained.network
        self.certificate_ = trained.certificate.labelled(getattr(self, "classes_", None))
        self.history_ = trained.history
        self.n_iter_ = trained.n_iter
        self.status_ = trained.status
        self._objective = trained.objective

    def _warn_unless(self, tol: float, status: str, advice: str) -> None:
        """Say so, with the numbers, when the proven gap is larger than asked for."""
        if self.gap_ > tol:
            warnings.warn(
                f"the relative gap {self.gap_:.2e} is above tol={tol:g} ({status}): objective {self.objective_:.6g}, "
                f"lower bound {self.lower_bound_:.6g}; {advice}",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _repr_html_inner(self) -> str:
        # scikit-learn's diagram, and below it what was proven
        proof = self.certificate_._repr_html_() if hasattr(self, "certificate_") else ""
        return f"{super()._repr_html_inner()}{proof}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return {kind: self._repr_html_inner() if kind == "text/html" else text for kind, text in bundle.items()}

    def _certificate(self) -> Certificate:
        # Properties must look absent, not broken, before fit (hasattr is how scikit-learn asks).
        if not hasattr(self, "certificate_"):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self.certificate_


class Numbers(RegressorMixin):
    """Targets that are numbers, one or several for each sample."""

    _single: bool
    #: Network outputs ``(n, ..., C)`` for new rows; the estimator has it.
    _outputs: Callable[[Array], FloatArray]

    def predict(self, X: Array) -> FloatArray:
        """Predicted targets, in the shape of the ``y`` of fit."""
        F = self._outputs(X)
        return F[..., 0] if self._single else F

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


def store(estimator: BaseEstimator, parameters: dict[str, Any]) -> None:
    """Keep the arguments of ``__init__``, its ``locals()``, as they are."""
    vars(estimator).update({k: v for k, v in parameters.items() if k not in ("self", "__class__")})
