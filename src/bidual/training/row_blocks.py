"""From rows, wherever they are, to a certified gated network: the road for data of image size."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from bidual._util.clock import clock
from bidual._util.data import normalise_weights
from bidual._util.extras import advice
from bidual._util.progress import task
from bidual._util.ranges import check_range, check_size
from bidual._util.tuning import tuning
from bidual._util.typing import Array, FloatArray
from bidual._util.watch import Watch
from bidual.architectures.two_layer import TwoLayerLift
from bidual.atoms import GatedNeurons
from bidual.bounds import Bound, Certificate, lower_bound
from bidual.bounds.evidence import Evidence
from bidual.bounds.proof import UnfinishedProof
from bidual.bounds.stored import GateProof
from bidual.networks import GatedNetwork, Network
from bidual.programs.gated.block import MakeProducts, Setting
from bidual.programs.gated.products import numpy_products
from bidual.programs.gated.sources import LocalSource, Source
from bidual.solvers import Options, Solution, Solver
from bidual.solvers.blocks.checkpoint import Checkpoint
from bidual.solvers.blocks.gates import quantile_gates
from bidual.solvers.blocks.problem import LargeProblem, group_norms
from bidual.solvers.blocks.solve import solve_large
from bidual.solvers.blocks.trained_gates import TRAINED, trained_gates
from bidual.solvers.gated.solve import DEFAULT_GATES, gates_of
from bidual.solvers.run import Log
from bidual.training.activations import gate_vectors
from bidual.training.rows import FAINT
from bidual.training.targets import is_dask
from bidual.training.train import Start, Trainable, Trained
from bidual.training.units import Units

if TYPE_CHECKING:
    from bidual.training.objective import Objective

#: Numbers of the rows, gates and dual points of a proof that a file may hold, and multiplications to find its bound:
#: beyond, the rows are where they are because they are too many to be held, or looked at once more, here.
EVIDENCE_SIZE, EVIDENCE_WORK = 10_000_000, 5_000_000_000
#: Bounds that differ by less, relatively, differ by the order of summation.
SAME = 5e-10


@dataclass(frozen=True)
class RowBlocks(Trainable):
    """Rows and targets with a training problem for gated networks, none of which is copied.

    Attributes
    ----------
    objective : Objective
    source : Source
    Y : ndarray, shape (n, C)
        Encoded targets.
    w : ndarray, shape (n,)
        Weights that sum to one.
    mean_square : float
        Mean squared norm of the rows, with the ones of the biases.
    products : callable
        The backend.
    checkpoint : path or None
    """

    objective: Objective
    source: Source
    Y: FloatArray
    w: FloatArray
    mean_square: float
    products: MakeProducts
    checkpoint: str | os.PathLike[str] | None = None

    @classmethod
    def of(
        cls,
        objective: Objective,
        X: Any,
        Y: FloatArray,
        sample_weight: Array | None = None,
        backend: str = "auto",
        device: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> RowBlocks:
        """Pose the problem on the rows of an array, a memory map or a dask array, of any numeric type."""
        objective.check(Y.shape[1], "gated")
        check_range(y=Y)
        weight = np.ones(len(Y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        w = normalise_weights(weight, len(Y))
        faint = (w > 0) & (w <= FAINT * w.max())
        if faint.any():
            warnings.warn(
                f"{faint.sum()} rows weigh less than {FAINT:g} of the others and are left out, in the objective too",
                stacklevel=2,
            )
        products, source = _products(backend, device), _source(X)
        mean_square = source.mean_square() + bool(objective.bias)
        if not np.isfinite(mean_square):
            raise ValueError("X contains NaN, infinity, or entries too large to square in floating point: rescale it")
        check_size("X", float(np.sqrt(mean_square)))
        return cls(objective, source, Y, np.where(faint, 0.0, w), mean_square, products, checkpoint)

    @property
    def lift(self) -> TwoLayerLift:  # type: ignore[override]
        """Between networks and neurons; without rows."""
        return TwoLayerLift(np.zeros((0, self.source.shape[1])), bool(self.objective.bias))

    @cached_property
    def units(self) -> Units:
        """Units in which the problem is of order one."""
        size = float(np.sqrt(self.mean_square)) or 1.0
        return Units.of_targets(size, self.Y, self.w, self.objective.loss, self.objective.fit_intercept)

    def at(self, beta: float) -> RowBlocks:
        """The same data with another positive ``beta``."""
        return replace(self, objective=replace(self.objective, beta=float(beta)))

    def value(self, network: Network) -> float:
        """The objective of a gated network, summed up where the rows are."""
        gates = self.lift.gates(network)
        with self._posed(gates) as problem:
            return problem.evaluate(*self._weights_of(network, gates)).objective * self.units.value

    def beta_max(self, options: Options) -> float:
        """The smallest beta at which none of the gates (those that ``options`` lead to) is of use."""
        with self._posed(self._drawn(options, np.zeros((0, self._n_features)))) as problem:
            point = problem.evaluate(np.zeros(problem.shape), problem.best_constant())
        return float(group_norms(point.G).max(initial=0.0)) / self.units.normalise_beta(1.0)

    def _trained(
        self, watch: Watch, method: str | Solver, options: Options, start: Start, activation: str, gates: Any
    ) -> Trained:
        began = clock()
        if isinstance(start, Trained):
            gates, start = gates if start.directions is None else start.directions, start.network
        if not isinstance(start, GatedNetwork) or not start.n_neurons:
            start = None
        file = Checkpoint(self.checkpoint, self._fingerprint(gates, options))
        vectors = file.fixed("gates")
        if vectors is None:
            vectors = self._gates(gates, options, start)
        file.keep(gates=vectors)
        with self._posed(vectors) as problem, task("training", options.verbose, self.units.value):
            found = solve_large(
                problem,
                replace(options, time_limit=None if watch.deadline == np.inf else watch.left),
                None if start is None else self._weights_of(start, vectors),
                file,
            )
        how = f"all {len(vectors)} gates"
        # the dual point is where the rows are: it is kept only where it can be found again in memory, below
        bound = Bound(found.bound.value, self.Y[:0], found.bound.attained, found.bound.limit, proof=UnfinishedProof())
        neurons = GatedNeurons(vectors, found.W, found.intercept)
        solution = self.units.restore(
            Solution(neurons, bound, "gates", how, found.status, found.n_iter, len(vectors), found.history)
        )
        certificate = Certificate.of(
            found.bound.objective * self.units.value,
            solution.bound,
            scope=solution.scope,
            method=how,
            beta=self.objective.beta,
            loss=self.objective.loss.name,
            n_patterns=solution.n_patterns,
            began=began,
        )
        network = self.lift.recover_gated(solution.neurons)  # type: ignore[arg-type]
        if not watch.late():
            certificate = replace(certificate, evidence=self._evidence(network, vectors, certificate))
        return Trained(
            network, certificate, self.objective, solution.history, solution.n_iter, solution.status, vectors
        )

    def _evidence(self, network: GatedNetwork, gates: FloatArray, certificate: Certificate) -> Evidence | None:
        """The residual of the network as a dual point, with all gates, if that is little work and proves the bound."""
        (n, d), (P, C) = self.source.shape, (len(gates), self.Y.shape[1])
        if not isinstance(self.source, LocalSource) or _mapped(self.source.X):
            return None  # the rows stay where they are
        if n * (d + P + C) > EVIDENCE_SIZE or n * d * P * C > EVIDENCE_WORK:
            return None
        posed = self.objective.pose(np.asarray(self.source.X, dtype=np.float64), self.Y, self.w, activation="gated")
        units, natural = posed.units, posed.natural
        F = (network.evaluate(posed.X) - units.shift) / units.outputs
        slope = -natural.loss.gradient(F, natural.Y, natural.w)
        V = natural.loss.dual_point(slope, natural.Y, natural.w, centred=natural.fit_intercept)
        proof = GateProof(gates_of(posed.problem.atoms.M, gates))
        bound = lower_bound(natural, V, 0.0, proof.bound(natural, V), proof)
        return posed.evidence(bound) if bound.value * units.value >= (1.0 - SAME) * certificate.lower_bound else None

    # ---- gates ---------------------------------------------------------------------------------

    def _gates(self, given: Any, options: Options, start: GatedNetwork | None) -> FloatArray:
        """Gate vectors ``(P, p)``: the given ones, or those of ``start`` and new ones, drawn or trained."""
        if not isinstance(given, str) and (vectors := gate_vectors(self.lift, given)) is not None:
            return vectors
        old = np.zeros((0, self._n_features)) if start is None else self.lift.gates(start)
        return self._drawn(options, old, trained=given == TRAINED)

    def _drawn(self, options: Options, old: FloatArray, trained: bool = False) -> FloatArray:
        """The ``old`` gates and as many new ones as are missing: drawn at random, or trained."""
        missing = (DEFAULT_GATES if options.n_patterns is None else options.n_patterns) - len(old)
        if missing <= 0:
            return old
        if not trained:
            rng = check_random_state(options.random_state)
            rows = self.source.some_rows(tuning().gate_rows)
            new = quantile_gates(rows, missing, rng, bool(self.objective.bias))
            return np.concatenate([old, new])
        with self._posed(np.zeros((0, self._n_features))) as problem:
            new = trained_gates(
                problem.shards,
                (missing, problem.n_features, problem.n_outputs),
                problem.n_rows,
                Log(options),
                beta=problem.beta,
                free=problem.fit_intercept,
            )
        return np.concatenate([old, new])

    # ---- in the units of the solver ------------------------------------------------------------

    @property
    def _n_features(self) -> int:
        return self.source.shape[1] + bool(self.objective.bias)

    @contextmanager
    def _posed(self, gates: FloatArray) -> Iterator[LargeProblem]:
        """The problem with these gates, in natural units, as long as its blocks are needed."""
        objective, units = self.objective, self.units
        setting = Setting(
            gates=gates,
            loss=units.loss,
            bias=bool(objective.bias),
            unit=units.inputs,
            shift=units.shift,
            outputs=units.outputs,
            products=self.products,
            keep=getattr(self.source, "keep", True),
        )
        shards = self.source.shards(self.Y, self.w, setting)
        try:
            yield LargeProblem(
                shards=shards,
                setting=setting,
                beta=units.normalise_beta(objective.beta),
                fit_intercept=objective.fit_intercept,
                n_rows=self.source.shape[0],
                n_features=self._n_features,
                n_outputs=self.Y.shape[1],
            )
        finally:
            shards.close()

    def _weights_of(self, network: Network, gates: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The weights of a network on those of its gates that are here, in the units of the solver."""
        neurons = self.units.normalise_neurons(self.lift.gated_neurons(network))
        assert isinstance(neurons, GatedNeurons)
        here = {row.tobytes(): i for i, row in enumerate(gates)}
        W = np.zeros((len(gates), *neurons.W.shape[1:]))
        for row, block in zip(neurons.gates, neurons.W, strict=True):
            if row.tobytes() in here:
                W[here[row.tobytes()]] += block
        return W, neurons.intercept if self.objective.fit_intercept else np.zeros(self.Y.shape[1])

    def _fingerprint(self, gates: Any, options: Options) -> dict[str, Any]:
        """What tells this problem from others."""

        def digest(*arrays: Array) -> str:
            joined = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
            return hashlib.blake2b(joined, digest_size=8).hexdigest()

        vectors = None if isinstance(gates, str) else gate_vectors(self.lift, gates)
        return {
            "rows": list(self.source.shape),
            "X": digest(self.source.some_rows(64), np.array([self.mean_square])),
            "y": digest(self.Y, self.w),
            "gates": gates if vectors is None else digest(vectors),
            "n_patterns": options.n_patterns,
            "random_state": options.random_state if isinstance(options.random_state, int | np.integer) else None,
            "beta": self.objective.beta,
            "loss": repr(self.objective.loss),
            "bias": self.objective.bias,
            "fit_intercept": self.objective.fit_intercept,
        }


def _mapped(X: Any) -> bool:
    """Whether the entries of an array are those of a file."""
    return X is not None and (isinstance(X, np.memmap) or _mapped(getattr(X, "base", None)))


def _source(X: Any) -> Source:
    """Where the rows come from."""
    if not is_dask(X):
        return LocalSource(X)
    from bidual.programs.gated.dask import DaskSource

    return DaskSource(X)


def _products(backend: str, device: str | None) -> MakeProducts:
    """What computes the products of a backend."""
    if backend != "torch":
        return numpy_products
    try:
        from bidual.programs.gated.torch import TorchBackend
    except ImportError as error:
        raise ImportError(advice("backend='torch'", "torch", "torch")) from error
    return TorchBackend(device or "cpu")
