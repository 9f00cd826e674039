"""From rows, wherever they are, to a certified gated network: the road for data of image size."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bidual._typing import Array, FloatArray
from bidual._watch import Watch, watching
from bidual.architectures.two_layer import TwoLayer, TwoLayerLift
from bidual.certificates import Certificate
from bidual.combinations import Combination
from bidual.losses import Loss
from bidual.networks import GatedNetwork, Network, normalise_weights
from bidual.operators.block import MakeProducts, Setting
from bidual.operators.products import numpy_products
from bidual.operators.sources import LocalSource, Source
from bidual.problem import GatedNeurons
from bidual.ranges import check_range, check_size
from bidual.solvers import Options
from bidual.solvers.gated.solve import DEFAULT_GATES
from bidual.solvers.large.checkpoint import Checkpoint
from bidual.solvers.large.gates import ROWS, quantile_gates
from bidual.solvers.large.problem import LargeProblem
from bidual.solvers.large.solve import solve_large
from bidual.solvers.large.trained_gates import TRAINED, trained_gates
from bidual.training import FAINT, Trained
from bidual.units import Units

#: Backends by name; "auto" is numpy.
BACKENDS = ("auto", "numpy", "torch")


def make_backend(backend: str, device: str | None) -> MakeProducts:
    """The maker of products named so."""
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}: use one of {', '.join(map(repr, BACKENDS))}")
    if backend != "torch":
        if device not in (None, "cpu"):
            raise ValueError(f"device={device!r} is for backend='torch'")
        return numpy_products
    try:
        from bidual.operators.torch import TorchBackend
    except ImportError as error:
        raise ImportError("backend='torch' needs torch: pip install bidual[torch]") from error
    return TorchBackend(device or "cpu")


@dataclass(frozen=True)
class LargeTrainingSet:
    """Rows and targets with a training problem, none of which is copied.

    Attributes
    ----------
    source : Source
    Y : ndarray, shape (n, C)
        Encoded targets.
    w : ndarray, shape (n,)
        Weights that sum to one.
    loss : Loss
    beta : float
    bias, fit_intercept : bool
    """

    source: Source
    Y: FloatArray
    w: FloatArray
    loss: Loss
    beta: float
    bias: bool
    fit_intercept: bool

    @classmethod
    def pose(
        cls,
        source: Source | Array,
        Y: FloatArray,
        sample_weight: Array | None = None,
        *,
        loss: Loss,
        beta: float,
        bias: bool = True,
        fit_intercept: bool = True,
    ) -> LargeTrainingSet:
        """Pose the problem; ``source`` may be an array."""
        rows: Source = LocalSource(source) if isinstance(source, np.ndarray) else source
        Combination(TwoLayer(), loss, beta, Y.shape[1], fit_intercept, "gated").check()
        check_range(y=Y)
        weight = np.ones(len(Y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        w = normalise_weights(weight, len(Y))
        faint = (w > 0) & (w <= FAINT * w.max())
        if faint.any():
            warnings.warn(
                f"{faint.sum()} rows weigh less than {FAINT:g} of the others and are left out, in the objective too",
                stacklevel=2,
            )
        return cls(rows, Y, np.where(faint, 0.0, w), loss, float(beta), bool(bias), bool(fit_intercept))

    @property
    def lift(self) -> TwoLayerLift:
        """Between networks and neurons; without rows."""
        return TwoLayerLift(np.zeros((0, self.source.shape[1])), self.bias)

    def gates(
        self,
        given: Array | Network | str | None,
        options: Options,
        start: GatedNetwork | None,
        trained: Callable[[int], FloatArray],
    ) -> FloatArray:
        """Gate vectors ``(P, p)``: the given ones, or those of ``start`` and new ones, drawn or trained."""
        if not (given is None or isinstance(given, str)):
            return self.lift.gates(given)
        count = DEFAULT_GATES if options.n_patterns is None else options.n_patterns
        old = np.zeros((0, self.source.shape[1] + self.bias)) if start is None else self.lift.gates(start)
        missing = max(0, count - len(old))
        if not missing:
            return old
        if given == TRAINED:
            return np.concatenate([old, trained(missing)])
        rng = check_random_state(options.random_state)
        return np.concatenate([old, quantile_gates(self.source.some_rows(ROWS), missing, rng, self.bias)])

    def _trained(self, setting: Setting, beta: float, options: Options, watch: Watch, count: int) -> FloatArray:
        """So many gates from a short training."""
        shards = self.source.shards(self.Y, self.w, setting)
        try:
            return trained_gates(
                shards,
                (count, setting.gates.shape[1], self.Y.shape[1]),
                self.source.shape[0],
                beta=beta,
                free=self.fit_intercept,
                seed=int(check_random_state(options.random_state).randint(2**31)),
                seconds=np.inf if options.time_limit is None else 0.3 * options.time_limit,
                interrupted=watch.late,
            )
        finally:
            shards.close()

    def train(
        self,
        options: Options,
        *,
        gates: Array | Network | str | None = None,
        start: GatedNetwork | None = None,
        backend: str = "auto",
        device: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Trained:
        """Train and certify."""
        began = time.perf_counter()
        if start is not None and not start.n_neurons:
            start = None
        products = make_backend(backend, device)
        mean_square = self.source.mean_square() + self.bias
        if not np.isfinite(mean_square):
            raise ValueError("X contains NaN, infinity, or entries too large to square in floating point: rescale it")
        check_size("X", float(np.sqrt(mean_square)))
        units = Units.of_targets(float(np.sqrt(mean_square)) or 1.0, self.Y, self.w, self.loss, self.fit_intercept)
        n, d = self.source.shape
        beta = self.beta * units.outputs ** (1 - units.power) / units.inputs
        setting = Setting(
            gates=np.zeros((0, d + self.bias)),
            loss=units.loss,
            bias=self.bias,
            unit=units.inputs,
            shift=units.shift,
            outputs=units.outputs,
            products=products,
            keep=getattr(self.source, "keep", True),
        )
        file = Checkpoint(checkpoint, self._fingerprint(gates, mean_square, options))
        with watching(options.time_limit) as watch:
            vectors = file.fixed("gates")
            if vectors is None:
                vectors = self.gates(gates, options, start, partial(self._trained, setting, beta, options, watch))
            file.keep(gates=vectors)
            setting = replace(setting, gates=vectors)
            shards = self.source.shards(self.Y, self.w, setting)
            problem = LargeProblem(
                shards=shards,
                setting=setting,
                beta=beta,
                fit_intercept=self.fit_intercept,
                n_rows=n,
                n_features=d + self.bias,
                n_outputs=self.Y.shape[1],
            )
            limit = options.time_limit
            left = None if limit is None else max(limit - (time.perf_counter() - began), 0.01 * limit)
            try:
                solution = solve_large(
                    problem,
                    replace(options, time_limit=left),
                    None if start is None else self._weights_of(start, vectors, units),
                    file,
                    watch.late,
                )
            finally:
                shards.close()
        value, oracle = units.outputs**units.power, units.outputs ** (units.power - 1) * units.inputs
        neurons = GatedNeurons(vectors, solution.W, solution.intercept)
        network = self.lift.recover_gated(neurons.in_units(units.inputs, units.outputs, units.shift))
        bound = solution.bound
        certificate = Certificate(
            objective=bound.objective * value,
            lower_bound=bound.value * value,
            scope="gates",
            method=f"all {len(vectors)} gates",
            attained=bound.attained * oracle,
            limit=bound.limit * oracle,
            beta=self.beta,
            loss=self.loss.name,
            n_patterns=len(vectors),
            elapsed=time.perf_counter() - began,
        )
        history = [
            replace(entry, objective=entry.objective * value, likely_bound=entry.likely_bound * value)
            for entry in solution.history
        ]
        return Trained(network, certificate, history, solution.n_iter, solution.status)

    def _weights_of(self, start: GatedNetwork, gates: FloatArray, units: Units) -> tuple[FloatArray, FloatArray]:
        """The weights of ``start`` on those of its gates that are here, in the units of the solver."""
        neurons = units.normalise_neurons(self.lift.gated_neurons(start))
        assert isinstance(neurons, GatedNeurons)
        here = {row.tobytes(): i for i, row in enumerate(gates)}
        W = np.zeros((len(gates), *neurons.W.shape[1:]))
        for row, block in zip(neurons.gates, neurons.W, strict=True):
            if row.tobytes() in here:
                W[here[row.tobytes()]] += block
        return W, neurons.intercept if self.fit_intercept else np.zeros(self.Y.shape[1])

    def _fingerprint(self, gates: Array | Network | str | None, mean_square: float, options: Options) -> dict[str, Any]:
        """What tells this problem from others."""

        def digest(*arrays: Array) -> str:
            joined = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
            return hashlib.blake2b(joined, digest_size=8).hexdigest()

        return {
            "rows": list(self.source.shape),
            "X": digest(self.source.some_rows(64), np.array([mean_square])),
            "y": digest(self.Y, self.w),
            "gates": gates if gates is None or isinstance(gates, str) else digest(self.lift.gates(gates)),
            "n_patterns": options.n_patterns,
            "random_state": options.random_state if isinstance(options.random_state, int | np.integer) else None,
            "beta": self.beta,
            "loss": repr(self.loss),
            "bias": self.bias,
            "fit_intercept": self.fit_intercept,
        }
