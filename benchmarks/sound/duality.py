"""Weak duality: no proven lower bound is above the objective of any network of its scope, whoever has found it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bidual import (
    BatchNorm,
    Convolutional,
    DeepReLUClassifier,
    LinearConvRegressor,
    LinearNetRegressor,
    Parallel,
    ReLUClassifier,
    ReLURegressor,
    SplineRegressor,
    beta_max,
)
from bidual._util.typing import Array, FloatArray
from bidual.bounds import Certificate
from bidual.networks import Network
from bidual.study.descent import descend

#: By how much a bound may be above an objective, relative to it: rounding of the objective itself.
ROUNDING = 1e-12
#: The same of exact fits, which are exact up to a tolerance: a network that fits a little less well may be smaller.
FITTING = 1e-4
#: Seconds for a proof, and for a training with its proof.
PROVE, LIMIT = 0.05, 1.0
#: Share of the problems that ask for the smallest network that fits exactly.
EXACT_FITS = 0.1
_NUMBERS = ("squared", "squared", "huber", "absolute", "quantile", "epsilon_insensitive")
_LABELS = ("logistic", "hinge", "squared_hinge", "softmax", "margin")
_SMOOTH = ("squared", "huber", "logistic", "squared_hinge", "softmax")
_REFUSALS = (ValueError, TypeError, NotImplementedError, TimeoutError)


@dataclass(frozen=True)
class Data:
    """Rows, targets and weights."""

    X: FloatArray
    y: Array
    weight: FloatArray | None


@dataclass
class Found:
    """What trainings of one problem claim and reach.

    Attributes
    ----------
    bounds, objectives : list
        What is claimed of all networks, and what is reached; each with the name of the training.
    trained : list
        Certificates and their networks.
    refused, errors : list
        Trainings that were refused in words, and crashes.
    """

    kind: str
    given: Data
    bounds: list[tuple[str, float]] = field(default_factory=list)
    objectives: list[tuple[str, float]] = field(default_factory=list)
    trained: list[tuple[Certificate, Network]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def worst(self) -> tuple[float, str]:
        """By how much the largest bound is above the lowest objective, relative to it, and which two these are."""
        if not self.bounds or not self.objectives:  # not one has trained
            return -1.0, ""
        name, bound = max(self.bounds, key=lambda pair: pair[1])
        other, objective = min(self.objectives, key=lambda pair: pair[1])
        return (bound - objective) / max(abs(objective), 1e-300), f"{name} {bound!r} > {other} {objective!r}"

    @property
    def false(self) -> str:
        """The bound that is above an objective; "" if there is none."""
        fits = any(certificate.loss in ("exact_fit", "margin", "tube") for certificate, _ in self.trained)
        above, which = self.worst
        return which if above > (FITTING if fits else ROUNDING) else ""

    @property
    def violated(self) -> bool:
        """Whether a bound is false, or a training has contradicted itself or crashed."""
        return bool(self.errors or self.false)

    def train(self, name: str, fit: Callable[[], Any]) -> None:
        """Run one training, and note what it claims."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = fit()
            except _REFUSALS as refusal:
                self.refused.append(f"{name}: {refusal}")
                return
            except Exception as error:  # a crash is a finding too
                self.errors.append(f"{name}: {type(error).__name__}: {error}")
                return
        if isinstance(found, float):
            self.objectives.append((name, found))
            return
        certificate = found.certificate_
        self.trained.append((certificate, found.network_))
        self.objectives.append((name, certificate.objective))
        # a bound on some networks only is compared with theirs alone, which the certificate itself does
        if certificate.scope in ("global", "parallel", "whitened"):
            self.bounds.append((name, certificate.lower_bound))


def data(rng: np.random.Generator, shape: tuple[int, ...], classes: int = 0, outputs: int = 1) -> Data:
    """Gaussian or tied rows of all scales, with targets of all scales or labels, with and without weights."""
    n = shape[0]
    tied = rng.random() < 0.3
    X = rng.integers(-2, 3, shape).astype(float) if tied else rng.standard_normal(shape)
    if rng.random() < 0.3:
        X = X * 10.0 ** rng.uniform(-6, 6, shape[-1] if len(shape) == 2 else 1)
    elif rng.random() < 0.2:
        X = X + 10.0 ** rng.uniform(0, 4)
    if n > 2 and rng.random() < 0.3:
        X[-1] = X[0] * rng.choice([1.0, -1.0, 0.0, 2.0])
    y: Array = rng.integers(-2, 3, (n, outputs)).astype(float) if tied else rng.standard_normal((n, outputs))
    y = y * 10.0 ** rng.uniform(-6, 6) if rng.random() < 0.3 else y
    y = y[:, 0] if outputs == 1 else y
    if classes:
        y = rng.integers(0, classes, n)
        y[:classes] = np.arange(classes)
    weight = 10.0 ** rng.uniform(-2, 2, n) if rng.random() < 0.3 else None
    return Data(X, y, weight)


def _beta(rng: np.random.Generator, given: Data, **posed: Any) -> float:
    """Between 1e-6 and 1 times the largest that matters."""
    share = float(10.0 ** rng.uniform(-6, 0.1) if rng.random() < 0.5 else rng.uniform(0.02, 0.5))
    try:
        largest = beta_max(given.X, given.y, sample_weight=given.weight, **posed)
    except _REFUSALS:
        largest = 1.0
    return share * (largest if 0 < largest < np.inf else 1.0)


def networks(rng: np.random.Generator, kind: str, prove: float = PROVE) -> Found:
    """Two-layer, normalised, convolutional, parallel and gated networks by several methods and seeds."""
    n, d = int(rng.integers(3, 9)), int(rng.integers(1, 4))
    labels = rng.random() < 0.3
    losses = _LABELS if labels else _NUMBERS
    if kind == "gated":
        losses = tuple(loss for loss in losses if loss in _SMOOTH)
    if kind == "batch norm after":
        losses = tuple(loss for loss in losses if loss != "softmax")
    outputs = 1 if labels or kind == "batch norm after" or rng.random() < 0.7 else 2
    loss = str(rng.choice(losses))
    classes = 0 if not labels else (3 if loss == "softmax" else 2)
    shape: tuple[int, ...] = (max(n, classes + 1), d)
    architecture: Any = "two_layer"
    if kind == "batch norm before":
        architecture = BatchNorm()
    elif kind == "batch norm after":
        architecture = BatchNorm(position="after")
    elif kind == "parallel":
        architecture = Parallel(int(rng.integers(1, 3)))
        shape = (min(shape[0], 6), min(d, 2))
    elif kind == "convolutional":
        pooling = rng.choice(np.array(["sum", "average", "flatten"], dtype=object))
        architecture = Convolutional(2, pooling=pooling, batch_norm=bool(rng.random() < 0.2))
        shape = (min(shape[0], 6), 3, 1)
    given = data(rng, shape, classes, outputs)
    bias = bool(rng.random() < 0.5) if kind in ("two layers", "convolutional", "gated") else True
    posed = {"loss": loss, "architecture": architecture, "bias": bias, "fit_intercept": bool(rng.random() < 0.5)}
    found = Found(kind, given)
    beta = _beta(rng, given, **posed)
    if loss == "squared" and kind in ("two layers", "batch norm before") and rng.random() < EXACT_FITS:
        beta = 0.0
    estimator = ReLUClassifier if classes else ReLURegressor

    def fit(seed: int, **options: Any) -> Callable[[], Any]:
        settings = {"time_limit": LIMIT, "prove": prove, "random_state": seed, **posed, **options}
        return lambda: estimator(beta, **settings).fit(given.X, given.y, sample_weight=given.weight)

    def descent() -> float:
        runs = descend(given.X, given.y, beta=beta, sample_weight=given.weight, n_runs=1, width=6, steps=300, **posed)
        return float(min(run.objective for run in runs))

    if kind == "gated":
        found.train("gated", fit(0, activation="gated"))
        return found
    found.train("adaptive", fit(0))
    if kind != "parallel":  # the dearest ones
        found.train("adaptive, another seed", fit(1, tol=1e-6))
    found.train("exact", fit(0, method="exact"))
    found.train("sampled", fit(0, method="sampled", n_patterns=20))
    found.train("closed form", fit(0, method="closed_form"))
    if kind == "two layers":
        found.train("cutting planes", fit(0, method="cutting_plane"))
    if not classes and beta > 0 and kind in ("two layers", "batch norm before"):
        found.train("descent", descent)
    return found


def spikes(rng: np.random.Generator, kind: str, prove: float = PROVE) -> Found:
    """Targets made by a network of narrow spikes, which has only its penalty to pay."""
    n, d, delta = int(rng.integers(8, 14)), 2, float(2.0 ** -rng.integers(1, 8))
    X = rng.standard_normal((n, d))
    t, e = np.eye(2)
    U = np.array([t + delta * e, t, t - delta * e])
    alpha = np.array([1.0, -2.0, 1.0])
    X[: n // 2, 0] *= delta * rng.random(n // 2)
    y = np.maximum(X @ U.T, 0.0) @ alpha
    size = float(np.abs(y).max()) or 1.0
    beta = float(10.0 ** rng.uniform(-5, -1)) * delta
    found = Found(kind, Data(X, y / size, None))
    found.objectives.append(("planted", beta * float(np.linalg.norm(U, axis=1) @ np.abs(alpha)) / size))
    for seed in range(2):
        options: dict[str, Any] = {"bias": False, "fit_intercept": False, "prove": prove, "time_limit": LIMIT}
        found.train(f"seed {seed}", lambda s=seed, o=options: ReLURegressor(beta, random_state=s, **o).fit(X, y / size))
    return found


def closed(rng: np.random.Generator, kind: str, _prove: float = PROVE) -> Found:
    """Splines, linear networks and deep networks in closed form, each against other settings and descents."""
    n = int(rng.integers(4, 12))
    beta = float(10.0 ** rng.uniform(-6, 0.5))
    if kind == "splines":
        given = data(rng, (n, 1))
        found = Found(kind, given)
        loss = str(rng.choice(_NUMBERS))
        for tol in (1e-6, 1e-3):
            found.train(
                f"tol={tol}", lambda t=tol: SplineRegressor(beta, loss=loss, tol=t).fit(given.X, given.y, given.weight)
            )
    elif kind == "linear networks":
        given = data(rng, (n, int(rng.integers(1, 4))), outputs=int(rng.integers(1, 4)))
        found = Found(kind, given)
        depth, intercept = int(rng.integers(2, 5)), bool(rng.random() < 0.5)
        beta = 0.0 if rng.random() < EXACT_FITS else beta
        for tol in (1e-6, 1e-2):
            found.train(
                f"tol={tol}",
                lambda t=tol: LinearNetRegressor(depth, beta, fit_intercept=intercept, tol=t).fit(
                    given.X, given.y, sample_weight=given.weight
                ),
            )
    elif kind == "linear convolutions":
        given = data(rng, (n, 4, 1))
        found = Found(kind, given)
        circular = bool(rng.random() < 0.5)
        size = 4 if circular else 2
        for tol in (1e-6, 1e-2):
            found.train(
                f"tol={tol}",
                lambda t=tol: LinearConvRegressor(size, circular, beta, tol=t).fit(
                    given.X, given.y, sample_weight=given.weight
                ),
            )
    else:
        given = data(rng, (n, int(rng.integers(n - 1, n + 4))), classes=2)
        found = Found(kind, given)
        found.train("whitened", lambda: DeepReLUClassifier(int(rng.integers(2, 5)), beta).fit(given.X, given.y))
    return found


#: What makes problems of a kind: from random numbers, the name of the kind and the seconds for each proof.
KINDS: dict[str, Callable[..., Found]] = {
    **dict.fromkeys(
        ("two layers", "batch norm before", "batch norm after", "convolutional", "parallel", "gated"), networks
    ),
    "spikes": spikes,
    **dict.fromkeys(("splines", "linear networks", "linear convolutions", "deep ReLU"), closed),
}


def problems(seed: int) -> Iterator[tuple[int, Found]]:
    """One problem after the other, all kinds in turn, each with a seed of its own."""
    k = 0
    while True:
        kind = list(KINDS)[k % len(KINDS)]
        yield k, KINDS[kind](np.random.default_rng([seed, k]), kind)
        k += 1
