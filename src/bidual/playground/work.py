"""What the playground computes: checked requests in, plain lists and numbers out. No files, no state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bidual._util.tuning import tuning
from bidual._util.typing import FloatArray
from bidual.models import Model, Target, Training
from bidual.networks import FORMAT_VERSION, Network
from bidual.playground.schema import VIEW, Invalid
from bidual.plots.fit import kinks_of
from bidual.solvers import Options
from bidual.study.descent import iterate
from bidual.training.paths import beta_grid, trace
from bidual.training.routing import pose_data
from bidual.training.train import Trained, TrainingSet

#: Gates of a gated network.
_GATES = 60
#: Points of the grid in x, and in x and y of the plane: for the optimum, and for the many frames of a descent.
_LINE, _PLANE = (241, 61), ((61, 41), (31, 21))


@dataclass(frozen=True)
class Question:
    """A checked request as a training problem."""

    data: TrainingSet
    task: str
    classes: tuple[int, ...] | None
    activation: str

    @classmethod
    def of(cls, request: dict[str, Any]) -> Question:
        """Raises :class:`Invalid` where the entries do not go together."""
        task, loss, architecture = (request[name] for name in ("task", "loss", "architecture"))
        points = np.array(request["points"], dtype=np.float64)
        X, y, classes = points[:, :-1], points[:, -1], None
        if task == "classification":
            classes = tuple(int(c) for c in np.unique(y))
            if len(classes) < 2:
                raise Invalid("points of two classes are needed")
        gated = architecture == "gated"
        try:
            kind = "two_layer" if gated else architecture
            y = y if classes is None else y.astype(int)
            data = pose_data(X, y, loss=loss, architecture=kind, bias=request["bias"])
        except ValueError as error:
            raise Invalid(str(error)) from error
        assert isinstance(data, TrainingSet)
        return cls(data, task, classes, "gated" if gated else "relu")

    def train(self, beta: float, limit: float, start: Trained | None = None, tol: float = 1e-4) -> Trained:
        """The best network at ``beta``."""
        gates = _GATES if self.activation == "gated" else None
        options = Options(tol=tol, time_limit=limit, n_patterns=gates, random_state=0)
        try:
            return self.data.at(beta).train("adaptive", options, start, activation=self.activation)
        except ValueError as error:  # such as a loss that gated networks do not know
            raise Invalid(str(error)) from error

    def model(self, trained: Trained) -> Model:
        """A model file's content."""
        names = ("x",) if self.task == "regression" else ("x1", "x2")
        training = Training.that(trained.objective, len(self.data.X), activation=self.activation)
        return Model(trained.network, names, Target("y", classes=self.classes), training, trained.certificate)


def fit(request: dict[str, Any]) -> dict[str, Any]:
    """The global optimum, its picture, its certificate, and the model to take home."""
    question, beta = Question.of(request), float(request["beta"])
    trained = question.train(beta, tuning().playground_seconds)
    c = trained.certificate
    model = question.model(trained).to_dict()
    return {
        "certificate": {
            "objective": c.objective,
            "lower_bound": c.lower_bound,
            "gap": c.gap,
            "likely_bound": c.likely_bound,
            "likely_gap": c.likely_gap,
            "sentence": c.sentence,
            "method": c.method,
            "scope": c.scope,
        },
        "n_neurons": trained.network.n_neurons,
        "shape": shape(question.task, trained.network),
        "elapsed": c.elapsed,
        "model": {"format": "bidual.model", "version": FORMAT_VERSION, **model},
    }


def path(request: dict[str, Any]) -> dict[str, Any]:
    """Optimal networks for a sequence of betas, each with its picture."""
    question = Question.of(request)
    betas = beta_grid(question.data, None, request["n_betas"], 1e-3, Options(random_state=0))
    seconds = tuning().playground_path_seconds
    if question.activation == "gated":
        points = [question.train(beta, seconds, tol=1e-2) for beta in betas]
    else:
        options = Options(tol=1e-2, time_limit=seconds, random_state=0, audit=False, prove=False)
        points = list(trace(question.data, betas, "adaptive", options))
    return {
        "betas": betas.tolist(),
        "n_neurons": [point.network.n_neurons for point in points],
        "objectives": [point.certificate.objective for point in points],
        "likely_bounds": [point.certificate.likely_bound for point in points],
        "shapes": [shape(question.task, point.network) for point in points],
    }


def descend(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Gradient descents side by side: what they are at, step by step. The request is checked before the first one."""
    question = Question.of(request)
    if question.activation == "gated":
        raise Invalid("gradient descent is for ReLU networks: gates that are fixed leave a convex problem")
    data = question.data.at(float(request["beta"]))
    steps = request["steps"]
    states = iterate(
        data.problem,
        [request["seed"] + k for k in range(request["runs"])],
        width=request["width"],
        steps=steps,
        learning_rate=float(request["learning_rate"]),
        optimiser=request["optimiser"],
        every=max(1, steps // 60),
    )

    def answers() -> Iterator[dict[str, Any]]:
        for state in states:
            if not np.isfinite(state.objectives).all():
                yield {"error": "gradient descent diverged: choose a smaller learning rate"}
                return
            networks = [data.lift.recover(neurons) for neurons in state.neurons]
            yield {
                "step": state.step,
                "objectives": state.objectives.tolist(),
                "shapes": [shape(question.task, network, lines=False) for network in networks],
            }

    return answers()


def shape(task: str, network: Network, *, lines: bool = True) -> dict[str, Any]:
    """What there is to draw: the function on a grid, and where its neurons switch."""
    (left, right), (low, high), fine = VIEW["x"], VIEW["y"], 0 if lines else 1
    if task == "regression":
        kinks = kinks_of(network, left, right)
        grid = np.unique(np.concatenate([np.linspace(left, right, _LINE[fine]), kinks]))
        drawn = {"x": _rounded(grid), "y": _rounded(network.predict(grid[:, None]))}
        corners = np.column_stack([kinks, network.predict(kinks[:, None])])
        return {**drawn, "kinks": _rounded(corners)} if lines else drawn
    columns, rows = _PLANE[fine]
    plane = np.stack(np.meshgrid(np.linspace(left, right, columns), np.linspace(low, high, rows)), axis=-1)
    scores = network.forward(plane.reshape(-1, 2)).T.reshape(network.n_outputs, rows, columns)
    drawn = {"scores": _rounded(scores)}
    return {**drawn, "lines": _rounded(network.gate_vectors())} if lines else drawn


def _rounded(values: FloatArray) -> Any:
    """Enough digits for a picture; what is far out of it may be clipped."""
    return np.round(np.clip(values, -1e6, 1e6), 4).tolist()
