"""The certificate: how far a network is from the best possible one, and what exactly is proven."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bidual._files import read_json, write_json
from bidual._typing import Array

if TYPE_CHECKING:
    from bidual.certificates.evidence import Evidence

#: How JSON holds numbers that are none.
_NOT_FINITE = ("inf", "-inf", "nan")
#: Fields that a file may lack.
_OPTIONAL = ("n_patterns", "elapsed", "witness", "likely_bound", "rescaled_objective", "evidence")
#: Networks that a lower bound may speak of, whatever was trained.
_SCOPES = {"global": "any network", "parallel": "any branches"}


@dataclass(frozen=True)
class Certificate:
    r"""A pair of bounds around the optimal training objective.

    Attributes
    ----------
    objective : float
        Regularised objective of the network, evaluated on the network itself: an upper bound on the optimum.
    lower_bound : float
        Value of a feasible point of the dual problem.
    rigorous : bool
        True only if the lower bound holds for every network of the architecture and any width (of scope ``"gates"``:
        every gated network with these gates), proven with floating-point slack accounted for.
    scope : str
        What the lower bound bounds: ``"global"`` (the best network of any width), ``"parallel"`` (the best deep network
        made of any number of branches that share nothing but inputs and outputs), ``"patterns"`` (the best network
        whose neurons use the activation patterns in use) or ``"gates"`` (the best gated network with the fixed gates
        in use; nothing is said about other gates, or about ReLU networks).
    method : str
        How the dual constraint was checked.
    oracle_value : float
        The largest value of the dual constraint that was found at the dual point, before scaling.
    oracle_bound : float
        The upper bound on it that the lower bound rests on.
    beta : float
        Weight decay; 0 stands for minimum-norm interpolation, where the objective is the penalty itself.
    loss : str
    n_patterns : int or None
    elapsed : float
        Seconds of training and certification.
    witness : tuple of float or None
        The hidden weights (with the bias last, if there is one) that violate the dual constraint most: the neuron
        whose addition helps most.
    likely_bound : float or None
        The lower bound if local search has found the largest value of the dual constraint. Not proven.
    rescaled_objective : float or None
        The objective after what costs nothing: balancing the two layers and merging parallel neurons.
    evidence : Evidence or None
        What :meth:`verify` needs.
    """

    objective: float
    lower_bound: float
    rigorous: bool
    scope: str
    method: str
    oracle_value: float
    oracle_bound: float
    beta: float
    loss: str
    n_patterns: int | None = None
    elapsed: float = 0.0
    witness: tuple[float, ...] | None = None
    likely_bound: float | None = None
    rescaled_objective: float | None = None
    evidence: Evidence | None = field(default=None, compare=False, repr=False)

    @property
    def gap(self) -> float:
        """``(objective - lower_bound) / max(objective, tiny)``."""
        return relative_gap(self.objective, self.lower_bound)

    def __str__(self) -> str:
        best = f"lower bound, {_SCOPES.get(self.scope, f'these {self.scope}')}"
        proof = "proven" if self.rigorous else "not a global proof"
        what = "smallest penalty of an exact fit" if self.beta == 0 else f"{self.loss} loss, beta={self.beta:g}"
        lines = [
            f"Certificate ({what})",
            f"  objective of this network    {self.objective:.8g}",
            f"  {best:<28} {self.lower_bound:.8g}",
            f"  relative gap                 {self.gap:.2e}   ({proof}; {self.method})",
        ]
        if self.likely_bound is not None and self.rigorous:
            likely = relative_gap(self.objective, self.likely_bound)
            if likely < 0.9 * self.gap:
                lines.append(f"  gap by local search          {likely:.2e}   (likely, not proven)")
        if self.rescaled_objective is not None and self.rescaled_objective < (1 - 1e-6) * self.objective:
            lines.append(f"  after free rescaling         {self.rescaled_objective:.8g}")
        return "\n".join(lines)

    @property
    def sentence(self) -> str:
        """The certificate in plain words."""
        if not np.isfinite(self.objective):
            return "this network does not fit the data: its objective is infinite"
        among = "the best possible network of any width"
        if self.scope != "global":
            among = f"the best possible network ({_SCOPES.get(self.scope, f'these {self.scope}')})"
        if self.lower_bound <= 0:
            return f"nothing could be {'proven' if self.rigorous else 'found out'} about {among}"
        above = self.objective / self.lower_bound - 1.0
        how = "at most" if self.rigorous else "probably at most (local search, no proof)"
        return f"this network's objective is {how} {100 * above:.3g} % above that of {among}"

    def verify(self, X: Array, y: Array, sample_weight: Array | None = None, model: Any = None) -> bool:
        """Whether the claims hold, computed again from the stored multipliers, without any search.

        Parameters
        ----------
        X, y, sample_weight : array
            The data of the certificate.
        model : network or None
            Anything :func:`bidual.certify` takes; given, its objective is computed again too.
        """
        from bidual.certification import verify

        return verify(self, X, y, sample_weight, model)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, with the gap beside them; ``inf`` becomes a string, which JSON can hold."""
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.evidence is not None:
            data["evidence"] = self.evidence.to_dict()
        if self.witness is not None:
            data["witness"] = list(self.witness)
        data["gap"] = self.gap
        return {k: str(v) if isinstance(v, float) and str(v) in _NOT_FINITE else v for k, v in data.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Certificate:
        """Inverse of :meth:`to_dict`."""
        names = {f.name for f in fields(cls)}
        missing = {f.name for f in fields(cls) if f.name not in _OPTIONAL} - data.keys()
        if missing:
            raise ValueError(f"the certificate lacks {', '.join(sorted(missing))}")
        values: dict[str, Any] = {
            k: float(v) if isinstance(v, str) and v in _NOT_FINITE else v for k, v in data.items() if k in names
        }
        for name in ("objective", "lower_bound", "oracle_value", "oracle_bound", "beta", "elapsed"):
            if not isinstance(values.get(name, 0.0), int | float):
                raise ValueError(f"{name} of the certificate is {values[name]!r}, not a number")
        if values.get("witness") is not None:
            values["witness"] = tuple(map(float, values["witness"]))
        if values.get("evidence") is not None:
            from bidual.certificates.evidence import Evidence

            values["evidence"] = Evidence.from_dict(values["evidence"])
        return cls(**values)

    def labelled(self, classes: Array | None) -> Certificate:
        """The same, for targets that are labels: ``classes`` in the order of their codes."""
        if self.evidence is None or classes is None:
            return self
        return replace(self, evidence=replace(self.evidence, classes=tuple(np.asarray(classes).tolist())))

    def without_evidence(self) -> Certificate:
        """The same claims without what proves them: small, but it cannot be verified."""
        return replace(self, evidence=None)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the certificate to a JSON file."""
        return write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a certificate written by :meth:`save`."""
        return cls.from_dict(read_json(path, "certificate"))


def relative_gap(objective: float, lower_bound: float) -> float:
    """Gap relative to the objective; a bound above the objective by rounding counts as no gap."""
    if not np.isfinite(objective):
        return np.inf
    return max(0.0, objective - lower_bound) / max(objective, float(np.finfo(float).tiny))
