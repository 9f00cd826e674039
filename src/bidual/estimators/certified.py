"""What every trained estimator has: a network and its certificate."""

from __future__ import annotations

from sklearn.base import BaseEstimator

from bidual.certificates import Certificate
from bidual.networks import Network


class Certified(BaseEstimator):
    """Objective, lower bound and gap, read from ``certificate_``."""

    network_: Network
    certificate_: Certificate

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

    def _certificate(self) -> Certificate:
        # Properties must look absent, not broken, before fit (hasattr is how scikit-learn asks).
        if not hasattr(self, "certificate_"):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self.certificate_
