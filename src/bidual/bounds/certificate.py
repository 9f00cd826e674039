"""The certificate: how far a network is from the best possible one, and what exactly is proven."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from bidual._util import html
from bidual._util.clock import clock
from bidual._util.files import read_json, reading, write_json
from bidual._util.typing import Array
from bidual.bounds import parsing

if TYPE_CHECKING:
    from bidual.bounds.dual import Bound
    from bidual.bounds.evidence import Evidence

#: How JSON holds numbers that are none.
_NOT_FINITE = ("inf", "-inf", "nan")
#: Fields that a file may lack.
_OPTIONAL = (
    "n_patterns", "elapsed", "witness", "likely_bound", "likely_method", "rescaled_objective", "evidence", "stated",
)  # fmt: skip
#: Restrictions that a scope may name, in words.
_WORDS = {
    "parallel": "made of branches",
    "patterns": "on these activation patterns",
    "separate": "each neuron feeding one output",
    "gates": "with these gates",
    "whitened": "on the whitened rows",
}
_RANK = re.compile(r"rank \d+")
#: By how much a bound may be above the objective of a network, relative to it: rounding of the objective itself.
_ROUNDING = 1e-12
#: A likely bound above the objective by more, relatively, was wrong.
_REFUTED = 1e-9


#: A proven gap so small leaves nothing to say of a likely one.
_SMALL = 1e-6


class ContradictionError(RuntimeError):
    """A lower bound above the objective of a network: one of the two is wrong."""


class ByFormula(NamedTuple):
    """A lower bound by a formula; its dual point, if there is one, is not kept."""

    value: float
    attained: float | None = None
    limit: float | None = None


@dataclass(frozen=True)
class Certificate:
    r"""A pair of bounds around the optimal training objective: one gate through which every claim passes.

    Attributes
    ----------
    objective : float
        Regularised objective of the network, evaluated on the network itself: an upper bound on the optimum.
    lower_bound : float
        **Proven** lower bound on the objective of every network of the ``scope``, with rounding accounted for.
    scope : str
        Which networks the bounds speak of. ``"global"``: those of the architecture, of any width. Otherwise the
        restrictions, joined by commas: ``"parallel"`` (deep networks made of branches that share nothing but inputs
        and outputs), ``"patterns"`` (networks whose neurons use the activation patterns in use), ``"separate"``
        (networks each of whose neurons feeds one output), ``"gates"`` (gated networks with the gates in use),
        ``"rank k"`` (networks that see the k leading directions of the rows only), ``"whitened"`` (networks on the
        whitened rows).
    method : str
        How the lower bound was proven.
    attained : float or None
        The largest value of the dual constraint that was found at the dual point of the lower bound, before scaling.
    limit : float or None
        The upper bound on it that the lower bound rests on; None where the proof needs no dual point.
    beta : float
        Weight decay; 0 stands for minimum-norm interpolation, where the objective is the penalty itself, infinite for
        a network that misses its targets by more than the ``tol`` of its loss, and the bounds speak of all networks
        that come as close to them as this one.
    loss : str
    n_patterns : int or None
    elapsed : float
        Seconds of training and certification.
    witness : tuple of float or None
        The hidden weights (with the bias last, if there is one) that violate the dual constraint most: the neuron
        whose addition helps most.
    likely_bound : float
        The lower bound if local search has found the largest value of the dual constraint: what we believe. The
        proven one if there is nothing better, or if the network itself refutes the search.
    likely_method : str
        Where it comes from.
    rescaled_objective : float or None
        The objective after what costs nothing: balancing the two layers and merging parallel neurons.
    evidence : Evidence or None
        What :meth:`verify` needs.

    Raises
    ------
    ContradictionError
        If a lower bound is above the objective.
    ValueError
        If a number is not one.
    """

    #: What :meth:`verify` calls: it poses problems, which is known above this room only (``bidual.certification``).
    verifier: ClassVar[Callable[[Certificate, Array, Array, Array | None, Any], bool]]

    objective: float
    lower_bound: float
    scope: str
    method: str
    attained: float | None
    limit: float | None
    beta: float
    loss: str
    n_patterns: int | None = None
    elapsed: float = 0.0
    witness: tuple[float, ...] | None = None
    likely_bound: float = -np.inf
    likely_method: str = ""
    rescaled_objective: float | None = None
    evidence: Evidence | None = field(default=None, compare=False, repr=False)
    #: The gaps that a file states beside the numbers they follow from: :meth:`verify` compares them.
    stated: dict[str, float] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        # a search whose bound is refuted, or is no better than what is proven, tells nothing
        if self.likely_bound > (1.0 + _REFUTED) * self.objective or self.likely_bound <= self.lower_bound:
            object.__setattr__(self, "likely_bound", self.lower_bound)
            object.__setattr__(self, "likely_method", self.method)
        # the objective of a network that does not fit exactly, where that is asked for, is infinite
        if np.isnan(self.objective) or not all(map(np.isfinite, (self.lower_bound, self.likely_bound, self.beta))):
            raise ValueError(
                f"no certificate without numbers: objective {self.objective}, lower bound {self.lower_bound}, likely "
                f"bound {self.likely_bound}, beta {self.beta}"
            )
        unknown = [name for name in self._scopes if name not in _WORDS and not _RANK.fullmatch(name)]
        if not self.scope or unknown:
            raise ValueError(f"a certificate must name its scope: 'global' or restrictions, got {self.scope!r}")
        if self.lower_bound > self.objective + _ROUNDING * abs(self.objective) + np.finfo(float).tiny:
            raise ContradictionError(
                f"contradiction: the lower bound {self.lower_bound:.12g} ({self.method}) is above the objective "
                f"{self.objective:.12g} of a network. If the loss {self.loss!r} is your own, check its gradient and "
                "conjugate; else please report this"
            )

    @classmethod
    def of(
        cls, objective: float, bound: Bound | ByFormula, *, began: float, likely: Bound | None = None, **about: Any
    ) -> Certificate:
        """The certificate of a network with this objective, from what is proven and what is likely: all are made here.

        ``began`` is when training did, of :func:`~bidual._util.clock.clock`; ``about`` are the other attributes.
        """
        return cls(
            objective=float(objective),
            lower_bound=float(bound.value) + 0.0,  # no negative zero
            attained=None if bound.attained is None else float(bound.attained),
            limit=None if bound.limit is None else float(bound.limit),
            likely_bound=-np.inf if likely is None else float(likely.value),
            elapsed=clock() - began,
            **about,
        )

    @property
    def gap(self) -> float:
        """Proven: ``(objective - lower_bound) / max(objective, tiny)``."""
        return relative_gap(self.objective, self.lower_bound)

    @property
    def likely_gap(self) -> float:
        """The same with the likely bound: what we believe."""
        return relative_gap(self.objective, self.likely_bound)

    @property
    def tells_more(self) -> bool:
        """Whether the likely gap is worth a word beside the proven one."""
        proven, likely = self._above(self.lower_bound), self._above(self.likely_bound)
        return np.isfinite(self.objective) and proven > _SMALL and likely < 0.9 * proven

    @property
    def restrictions(self) -> str:
        """The scope in words, such as "with these gates"; empty if it is global."""
        return ", ".join(
            _WORDS.get(name, f"on the leading {name.removeprefix('rank ')} directions of the rows")
            for name in self._scopes
        )

    @property
    def _scopes(self) -> list[str]:
        return [] if self.scope == "global" else self.scope.split(", ")

    @property
    def among(self) -> str:
        """What the network is compared with, in words."""
        return " ".join(["the best possible network of any width", self.restrictions]).strip()

    @property
    def _about(self) -> str:
        return "smallest penalty of an exact fit" if self.beta == 0 else f"{self.loss} loss, beta={self.beta:g}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        """What there is to say, by name."""
        yield "objective of this network", f"{self.objective:.8g}"
        yield "lower bound, any network", f"{self.lower_bound:.8g}   (proven: {self.method})"
        if self.restrictions:
            yield "", f"any network {self.restrictions}"
        yield "proven gap", f"{self.gap:.2e}"
        if self.tells_more:
            yield "likely gap", f"{self.likely_gap:.2e}   ({self.likely_method})"
        if self.rescaled_objective is not None and self.rescaled_objective < (1 - 1e-6) * self.objective:
            yield "after free rescaling", f"{self.rescaled_objective:.8g}"

    def __str__(self) -> str:
        return "\n".join([f"Certificate ({self._about})", *(f"  {name:<29}{value}" for name, value in self._rows())])

    def _repr_html_(self) -> str:
        sentence = f"{self.sentence[:1].upper()}{self.sentence[1:]}."
        rows = [*self._rows(), ("seconds", f"{self.elapsed:.3g}")]
        return html.shown(sentence, self._bar(), rows, f"certificate: {self._about}")

    def _bar(self) -> str:
        """From zero to the objective: how much of it is proven to be necessary, and how much likely is."""
        if not np.isfinite(self.objective):
            return ""

        def share(bound: float) -> float:
            return bound / self.objective if self.objective > 0 else 1.0

        parts = [html.Part("proven", share(self.lower_bound), html.PROVEN, f"proven bound {self.lower_bound:.5g}")]
        if self.tells_more:
            likely = f"likely bound {self.likely_bound:.5g}"
            parts.append(html.Part("likely", share(self.likely_bound), html.LIKELY, likely, 0.6))
        parts.append(html.Part("objective", 1.0, html.OPEN, f"objective {self.objective:.5g}", 0.6))
        return html.bar(parts, self.sentence)

    @property
    def sentence(self) -> str:
        """The certificate in plain words."""
        if not np.isfinite(self.objective):
            return "this network does not fit the data: its objective is infinite"
        likely = ""
        if self.tells_more:
            likely = f"likely within {_percent(self._above(self.likely_bound))} (local search)"
        if self.lower_bound <= 0:
            return "; ".join(filter(None, (f"nothing could be proven about {self.among}", likely)))
        within = f"proven within {_percent(self._above(self.lower_bound))}"
        return f"this network's objective is {', '.join(filter(None, (within, likely)))} of that of {self.among}"

    def _above(self, bound: float) -> float:
        return self.objective / bound - 1.0 if bound > 0 else np.inf

    def verify(self, X: Array, y: Array, sample_weight: Array | None = None, model: Any = None) -> bool:
        """Whether the claims hold, computed again from the stored multipliers, without any search.

        Parameters
        ----------
        X, y, sample_weight : array
            The data of the certificate.
        model : network or None
            Anything :func:`bidual.certify` takes; given, its objective is computed again too.
        """
        return Certificate.verifier(self, X, y, sample_weight, model)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, with the gap beside them; ``inf`` becomes a string, which JSON can hold."""
        data = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "stated"}
        if self.evidence is not None:
            data["evidence"] = self.evidence.to_dict()
        if self.witness is not None:
            data["witness"] = list(self.witness)
        data["gap"], data["likely_gap"] = self.gap, self.likely_gap
        return {k: str(v) if isinstance(v, float) and str(v) in _NOT_FINITE else v for k, v in data.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Certificate:
        """Inverse of :meth:`to_dict`; anything that is not such an object gets a ValueError that says why."""
        parsing.text(data, "scope")
        names = {f.name for f in fields(cls)} - {"stated"}
        missing = {f.name for f in fields(cls) if f.name not in _OPTIONAL} - data.keys()
        if missing:
            raise ValueError(f"the certificate lacks {', '.join(sorted(missing))}")
        values: dict[str, Any] = {k: _restored(k, v) for k, v in data.items() if k in names}
        if values.get("n_patterns") is not None:
            parsing.integer(values, "n_patterns")
        if values.get("witness") is not None:
            values["witness"] = tuple(parsing.array(values, "witness", 1).tolist())
        if values.get("evidence") is not None:
            from bidual.bounds.evidence import Evidence

            values["evidence"] = Evidence.from_dict(values["evidence"])
        stated = {name: _restored(name, data[name]) for name in ("gap", "likely_gap") if name in data}
        return cls(**{**values, "stated": stated})

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
        data = read_json(path, "certificate")
        with reading(path):
            return cls.from_dict(data)


#: Fields that are texts, and that are numbers; the latter may be none at all if they are optional.
_TEXTS = ("scope", "method", "likely_method", "loss")
_NUMBERS = (
    "objective", "lower_bound", "likely_bound", "attained", "limit", "beta", "elapsed", "rescaled_objective", "gap",
    "likely_gap",
)  # fmt: skip


def _restored(name: str, value: Any) -> Any:
    """The value of a field as a file has it, checked."""
    if name in _TEXTS:
        return parsing.text({name: value}, name)
    if name not in _NUMBERS or (value is None and name in ("attained", "limit", "rescaled_objective")):
        return value
    return float(value) if isinstance(value, str) and value in _NOT_FINITE else parsing.number({name: value}, name)


def relative_gap(objective: float, lower_bound: float) -> float:
    """Gap relative to the objective; a bound above it by rounding counts as no gap, NaN as an infinite one."""
    if not (np.isfinite(objective) and lower_bound > -np.inf):
        return np.inf
    return max(0.0, objective - lower_bound) / max(objective, float(np.finfo(float).tiny))


def joined_scope(*parts: str) -> str:
    """The scope with all these restrictions; "" and "global" are none."""
    return ", ".join(part for part in parts if part not in ("", "global")) or "global"


def covers(wider: str, scope: str) -> bool:
    """Whether networks of the one scope hold those of the other: a bound on more networks is one on fewer.

    Patterns and ranks make them fewer; networks with gates, for instance, are others.
    """
    held, asked = ({*text.split(", ")} - {"global"} for text in (wider, scope))
    fewer = {part for part in asked if part in ("patterns", "separate") or part.startswith("rank ")}
    return held <= asked <= held | fewer


def _percent(ratio: float) -> str:
    if ratio >= 10:
        return f"a factor of {1 + ratio:.3g}"
    return f"{100 * ratio:.2g} %" if ratio < 0.1 else f"{100 * ratio:.0f} %"
