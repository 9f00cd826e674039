"""Certificates after every kind of tampering: refused, or still true.

A certificate is tampered with as its file holds it: every field of every kind of proof, the claims, the way the problem
is posed, and the data and the network beside it. Each change is tried with the claim as it is and with a claim that is
false, five percent above the optimum. A forgery is a certificate that is accepted though its claim is false: its lower
bound is above the objective of a network that exists, or its objective is not that of its network.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bidual import (
    BatchNorm,
    Certificate,
    Convolutional,
    LinearConvRegressor,
    LinearNetRegressor,
    Parallel,
    ReLUClassifier,
    ReLURegressor,
    certify,
)  # fmt: skip
from bidual._util.typing import Array, FloatArray
from bidual.certification.verification import pose
from bidual.networks import Network, TwoLayerNetwork
from bidual.solvers.base import Options
from sound.checking import CHECKERS, Claim, ask

#: A claim that is false by less, relatively, is a matter of digits: both checkers grant 1e-9.
DIGITS = 2e-9


@dataclass(frozen=True)
class Honest:
    """A certificate with its data and network, and an objective that is nearly the lowest there is."""

    name: str
    certificate: Certificate
    X: FloatArray
    y: Array
    weight: FloatArray | None
    network: Network
    optimum: float

    @property
    def data(self) -> dict[str, Any]:
        """As its file holds it."""
        held: dict[str, Any] = json.loads(json.dumps(self.certificate.to_dict()))
        return held


@dataclass
class Tally:
    """What the checkers have said, by the kind of tampering."""

    kinds: set[str] = field(default_factory=set)
    tried: int = 0
    accepted: int = 0
    forged: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


# ---- honest certificates -------------------------------------------------------------------------------------------


def honest(names: tuple[str, ...] = (), seed: int = 0) -> Iterator[Honest]:
    """A certificate for every kind of proof (or those named), some of networks that are not the best ones."""
    for name, make in _makers(seed).items():
        if not names or name in names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield make(name)


def _makers(seed: int) -> dict[str, Callable[[str], Honest]]:
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((9, 2)), rng.standard_normal(9)
    wide, several = rng.standard_normal((9, 4)), rng.standard_normal((9, 2))
    labels, weight = np.where(y > 0, "yes", "no"), rng.uniform(0.5, 2.0, 9)
    sequences, rows = rng.standard_normal((6, 4, 1)), rng.standard_normal((9, 11))
    plain: dict[str, Any] = {"bias": False, "fit_intercept": False}
    full: dict[str, Any] = {"bias": True, "fit_intercept": True}

    def trained(
        kind: Any = ReLURegressor, X: Array = X, y: Array = y, sample_weight: Array | None = None, **options: Any
    ) -> Callable[[str], Honest]:
        def make(name: str) -> Honest:
            found = kind(0.03, **{"prove": 2.0, "random_state": 0, **options}).fit(X, y, sample_weight=sample_weight)
            c = found.certificate_
            return Honest(name, c, X, y, sample_weight, found.network_, c.objective)

        return make

    def linear(found: Any, X: Array, y: Array) -> Callable[[str], Honest]:
        def make(name: str) -> Honest:
            c = found.fit(X, y).certificate_
            return Honest(name, c, X, y, None, found.network_, c.objective)

        return make

    def certified(
        method: str, X: Array = X, y: Array = y, sample_weight: Array | None = None
    ) -> Callable[[str], Honest]:
        def make(name: str) -> Honest:
            best = trained(X=X, y=y, sample_weight=sample_weight, prove=False, **plain)(name)
            bad, posed = _worse(best.network), {"beta": 0.03, "sample_weight": sample_weight, **plain}
            c = certify(bad, X, y, method=method, tol=1e-5, time_limit=3.0, random_state=0, **posed)
            assert isinstance(c, Certificate)
            return Honest(name, c, X, y, sample_weight, bad, best.optimum)

        return make

    return {
        "norms": trained(prove=False, max_iter=3, **plain),
        "patterns": trained(method="exact", **full),
        "sampled": trained(method="sampled", n_patterns=8, **plain),
        "several outputs": trained(y=several, method="exact", **plain),
        "gates": trained(activation="gated", **full),
        "normalised": trained(architecture=BatchNorm(position="after")),
        "layers": trained(architecture=Parallel(1), **plain),
        "batch norm": trained(architecture=BatchNorm()),
        "convolution": trained(X=sequences, y=y[:6], architecture=Convolutional(2), **plain),
        "logistic": trained(ReLUClassifier, y=labels, loss="logistic", **full),
        "hinge": trained(ReLUClassifier, y=labels, loss="hinge", **full),
        "huber": trained(loss="huber", **full),
        "cones": certified("cones"),
        "compact": certified("compact", wide),
        "signs": certified("signs", wide),
        "outputs": certified("compact", X, several),
        "signs of outputs": certified("signs", wide, several),
        "weights": certified("auto", sample_weight=weight),
        "formula": trained(X=rows, architecture=BatchNorm(), fit_intercept=False, method="closed_form"),
        "formula after": trained(X=rows, architecture=BatchNorm("after"), method="closed_form"),
        "row blocks": trained(activation="gated", backend="numpy", n_patterns=8, **full),
        "linear": linear(LinearNetRegressor(beta=0.03), wide, several),
        "linear filters": linear(LinearConvRegressor(2, beta=0.03), sequences, y[:6]),
        "circular filters": linear(LinearConvRegressor(2, True, beta=0.03, fit_intercept=False), sequences, y[:6]),
    }


def _worse(network: Any) -> Network:
    """The network with outputs ten percent too small."""
    return TwoLayerNetwork(network.hidden_weights, 0.9 * network.output_weights)


# ---- tampering -----------------------------------------------------------------------------------------------------

_NUMBERS: dict[str, Callable[[float], Any]] = {
    "negated": lambda x: -x,
    "doubled": lambda x: 2 * x,
    "halved": lambda x: x / 2,
    "zero": lambda x: 0,
    "one more": lambda x: x + 1,
    "one less": lambda x: x - 1,
    "huge": lambda x: 10**9,
    "astronomical": lambda x: 1e308,
    "NaN": lambda x: float("nan"),
    "infinite": lambda x: float("inf"),
    "minus infinity": lambda x: float("-inf"),
    "text": str,
    "nothing": lambda x: None,
    "a list": lambda x: [x],
}
_LISTS: dict[str, Callable[[list[Any]], Any]] = {
    "reversed": lambda x: x[::-1],
    "shortened": lambda x: x[:-1],
    "lengthened": lambda x: [*x, *x[-1:]],
    "emptied": lambda x: [],
    "first two swapped": lambda x: [*x[1:2], *x[:1], *x[2:]],
    "first repeated": lambda x: [x[0]] * len(x) if x else x,
    "nested": lambda x: [x],
    "nothing": lambda x: None,
}
_TEXTS = ("", "squared", "huber", "logistic", "hinge", "global", "patterns", "gates", "parallel", "rank 1", "whitened",
          "two_layer", "batch_norm", "convolutional", "norms", "weighted_patterns", "cones", "relaxation", "sampled",
          "spectral", "normalised", "layers")  # fmt: skip


def _floats(change: Callable[[FloatArray], FloatArray]) -> Callable[[str], str]:
    """A change of the single-precision numbers that a text holds."""

    def changed(text: str) -> str:
        values = np.frombuffer(base64.b64decode(text), "<f4").astype(np.float64)
        with np.errstate(all="ignore"):
            return base64.b64encode(change(values).astype("<f4").tobytes()).decode()

    return changed


_MULTIPLIERS: dict[str, Callable[[str], str]] = {
    "zeroed": _floats(lambda x: 0 * x),
    "negated": _floats(lambda x: -x),
    "doubled": _floats(lambda x: 2 * x),
    "shifted": _floats(lambda x: x + 5),
    "large": _floats(lambda x: x + 80),
    "small": _floats(lambda x: x - 80),
    "NaN": _floats(lambda x: x * np.nan),
    "infinite": _floats(lambda x: x + np.inf),
    "reversed": _floats(lambda x: x[::-1]),
    "shortened": _floats(lambda x: x[:-1]),
    "lengthened": _floats(lambda x: np.append(x, 0.0)),
    "no code": lambda x: "?" + x,
}


def changes(value: Any) -> Iterator[tuple[str, Any]]:
    """Ways to tamper with a value, and what becomes of it."""
    if isinstance(value, bool):
        yield "flipped", not value
        yield "nothing", None
        yield "text", "yes"
    elif isinstance(value, int | float):
        yield from ((name, change(value)) for name, change in _NUMBERS.items())
    elif isinstance(value, list):
        yield from ((name, change(value)) for name, change in _LISTS.items())
    elif value is None:
        yield from (("zero", 0), ("one", 1), ("text", "x"), ("a list", []))
    elif isinstance(value, str):
        for name, recoded in _MULTIPLIERS.items():
            with contextlib.suppress(ValueError):
                yield name, recoded(value)
        yield from ((f"{text!r} instead", text) for text in _TEXTS)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every field; of lists, to the first, a middle and the last entry."""
    yield path
    if isinstance(data, dict):
        for key in data:
            yield from places(data[key], (*path, key))
    elif isinstance(data, list):
        for k in sorted({0, len(data) // 2, len(data) - 1} & set(range(len(data)))):
            yield from places(data[k], (*path, k))


def tampered(case: Honest) -> Iterator[Claim]:
    """Every change of the certificate itself, and of what is given beside it."""
    given = (case.X, case.y, case.weight, case.network)
    for path in places(case.data):
        if not path:
            continue
        name = ".".join("*" if isinstance(key, int) else str(key) for key in path)
        for what, value in [("removed", ...), *changes(_at(case.data, path))]:
            data = case.data
            holder = _at(data, path[:-1])
            if value is ...:
                del holder[path[-1]]
            else:
                holder[path[-1]] = value
            yield Claim(f"{case.name}: {name} {what}", data, *given)
    yield from _wholesale(case)
    yield from _beside(case)


def _wholesale(case: Honest) -> Iterator[Claim]:
    """Changes of all entries of a field at once, and of two fields together: one leaf alone cannot lower a maximum."""
    given = (case.X, case.y, case.weight, case.network)

    def claim(what: str, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Iterator[Claim]:
        data = case.data
        with contextlib.suppress(KeyError, TypeError, AttributeError):  # proofs of other kinds have other fields
            change(data["evidence"], data["evidence"]["proof"])
            yield Claim(f"{case.name}: {what}", data, *given)

    for factor in (0.0, -1.0, 1e-3, 1e3, 1e-300, 1e300, float("nan")):
        for power in (1.0, 0.5):
            yield from claim(
                f"V scaled by {factor} to the power {power}",
                lambda e, p, f=factor, q=power: e.update(V=(f * np.abs(np.array(e["V"])) ** q).tolist()),
            )
    for name, recoded in _MULTIPLIERS.items():
        yield from claim(
            f"all multipliers {name}", lambda e, p, r=recoded: p.update(multipliers=[r(t) for t in p["multipliers"]])
        )
        yield from claim(
            f"scale negated, all multipliers {name}",
            lambda e, p, r=recoded: p.update(scale=-p["scale"], multipliers=[r(t) for t in p["multipliers"]]),
        )
    for scale in (1e-12, 1e12, 1e-300, 0.0, -1.0):
        yield from claim(f"scale {scale}", lambda e, p, s=scale: p.update(scale=s * p["scale"]))
    yield from claim("trees cut to their roots", lambda e, p: p.update(rows=[[-1] for _ in p["rows"]]))
    yield from claim(
        "all trees emptied", lambda e, p: p.update(rows=[[] for _ in p["rows"]], multipliers=["" for _ in p["rows"]])
    )
    yield from claim("leaves permuted", lambda e, p: p.update(multipliers=p["multipliers"][::-1], rows=p["rows"][::-1]))
    for text, number in (("one group", 0), ("no row counts", -1), ("a group too far", 10**6)):
        yield from claim(f"all rows: {text}", lambda e, p, k=number: p.update(group=[k] * len(p["group"])))
    yield from claim("axes shrunk", lambda e, p: p.update(axes=(0.5 * np.array(p["axes"])).tolist()))
    yield from claim("axes nearly so", lambda e, p: p.update(axes=(np.array(p["axes"]) * (1 - 1e-7)).tolist()))
    for kind in ("norms", "patterns", "weighted_patterns", "spectral", "normalised", "layers"):
        yield from claim(f"another proof: {kind}", lambda e, p, k=kind: e.update(proof={"kind": k}))
    for limit in (0.0, 1e-3, 0.5, -1.0):
        yield from claim(
            f"limit times {limit}, few cones", lambda e, p, x=limit: p.update(limit=x * p["limit"], cones=1)
        )
    yield from claim("no pattern in use", lambda e, p: p.update(active=[], n_patterns=0))


def _at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def _beside(case: Honest) -> Iterator[Claim]:
    """Other data, weights and networks."""
    X, y, w, net = case.X, case.y, case.weight, case.network
    numbers = y.dtype.kind == "f"
    rows: dict[str, Array] = {
        "halved": X / 2, "doubled": X * 2, "negated": -X, "shifted": X + 1.0, "rows reversed": X[::-1],
        "rounded": X.round(1), "zero": 0 * X, "first row repeated": np.concatenate([X[:1]] * len(X)),
    }  # fmt: skip
    for name, other in rows.items():
        yield Claim(f"{case.name}: X {name}", case.data, other, y, w, None)
        yield Claim(f"{case.name}: X {name}, with its network", case.data, other, y, w, net)
    targets = {"reversed": y[::-1]}
    if numbers:
        targets |= {"halved": y / 2, "negated": -y, "rounded": y.round(1), "shifted": y + 1.0, "zero": 0 * y}
    for name, other in targets.items():
        yield Claim(f"{case.name}: y {name}", case.data, X, other, w, None)
    for name, weights in {
        "none": None,
        "one heavy": np.r_[9.0, np.ones(len(X) - 1)],
        "rising": np.arange(1.0, len(X) + 1),
    }.items():
        yield Claim(f"{case.name}: weights {name}", case.data, X, y, weights, None)
    yield Claim(f"{case.name}: no rows", case.data, X[:0], y[:0], None, None)
    yield Claim(f"{case.name}: fewer rows", case.data, X[:-1], y[:-1], None, None)


# ---- checking ------------------------------------------------------------------------------------------------------


class Truth:
    """The lowest objective known of the problem that a certificate claims to be about."""

    def __init__(self, case: Honest) -> None:
        self.case = case
        self._known: dict[str, float] = {}

    def false(self, claim: Claim) -> str:
        """Why an accepted claim is false; empty if it may be true."""
        names = ("objective", "lower_bound", "scope", "beta", "loss", "evidence")
        try:
            certificate = Certificate.from_dict(self.case.data | {k: claim.data[k] for k in names if k in claim.data})
        except ValueError:  # how the problem is posed cannot be read: accepted as what it was
            claimed = {k: claim.data[k] for k in names[:2] if k in claim.data}
            certificate = Certificate.from_dict(self.case.data | claimed)
        try:
            lowest = self.lowest(claim, certificate)
        except ValueError as error:
            return f"there is no such problem: {error}"
        if certificate.lower_bound > lowest * (1.0 + DIGITS) + 1e-300:
            return f"a bound of {certificate.lower_bound:.9g} where {lowest:.9g} exists"
        same = claim.X is self.case.X and claim.y is self.case.y and claim.weight is self.case.weight
        own = self.case.certificate
        posed = certificate.beta == own.beta and certificate.loss == own.loss
        if (
            claim.model is not None
            and same
            and posed
            and not np.isclose(certificate.objective, own.objective, rtol=DIGITS)
        ):
            return f"an objective of {certificate.objective:.9g} instead of {own.objective:.9g}"
        return ""

    def lowest(self, claim: Claim, certificate: Certificate) -> float:
        """By training on the problem as posed; of restricted scopes the objective of the network at hand."""
        if certificate.scope not in ("global", "parallel"):
            return self.case.optimum
        assert certificate.evidence is not None
        e = certificate.evidence
        key = repr((certificate.beta, e.loss.to_dict(), e.architecture, e.options, e.bias, e.fit_intercept, e.classes))
        key += repr(
            (claim.X.tobytes(), np.asarray(claim.y).tolist(), None if claim.weight is None else claim.weight.tolist())
        )
        if key not in self._known:
            posed = pose(certificate, e, claim.X, claim.y, claim.weight)
            if e.architecture.startswith("linear"):
                self._known[key] = self._linear(claim, certificate)
                return self._known[key]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trained = posed.train("adaptive", Options(tol=1e-7, time_limit=3.0, random_state=0, prove=False))
            self._known[key] = trained.certificate.objective
        return self._known[key]

    def _linear(self, claim: Claim, certificate: Certificate) -> float:
        """Of linear networks, which are trained by other estimators and with the squared loss."""
        e = certificate.evidence
        assert e is not None
        if e.loss.name != "squared":
            return -np.inf  # nobody claims such a thing
        posed = {"beta": certificate.beta, "fit_intercept": e.fit_intercept, "tol": 1e-9}
        kind = LinearNetRegressor(**posed) if "depth" in e.options else LinearConvRegressor(**e.options, **posed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(kind.fit(claim.X, claim.y, claim.weight).certificate_.objective)


def attack(case: Honest, claims: Iterator[Claim], tallies: dict[str, Tally], late: Callable[[], bool]) -> None:
    """Put tampered claims before all checkers, as they are and with a bound that is false."""
    truth = Truth(case)
    for claim in claims:
        if late():
            return
        for variant in (claim, _raised(claim, case)):
            if variant is None:
                continue
            for name, checker in CHECKERS.items():
                tally = tallies.setdefault(name, Tally())
                tally.kinds.add(claim.kind)
                tally.tried += 1
                answer = ask(checker, variant)
                if answer.failed:
                    tally.failed.append(f"{variant.kind}: {answer.reason}")
                if answer.accepted:
                    tally.accepted += 1
                    lie = truth.false(variant)
                    if lie:
                        tally.forged.append(f"{variant.kind}: {lie}")


def _raised(claim: Claim, case: Honest) -> Claim | None:
    """The same with a lower bound above the optimum, and an objective above that."""
    if not isinstance(claim.data, dict) or "active" in claim.kind or "pattern in use" in claim.kind:
        return None  # of other patterns the bound may be higher
    data = copy.deepcopy(claim.data)
    if not {"lower_bound", "objective"} <= data.keys() or ": lower_bound" in claim.kind or ": objective" in claim.kind:
        return None
    data |= {"lower_bound": 1.05 * case.optimum, "objective": 1.1 * case.optimum, "likely_bound": 1.05 * case.optimum}
    return Claim(f"{claim.kind}, claim raised", data, claim.X, claim.y, claim.weight, None)
