"""The model beside scikit-learn's MLP: the same rows, the same split, the same weight decay."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor

from bidual._util.clock import clock
from bidual._util.typing import Array, FloatArray
from bidual.architectures import Architecture
from bidual.bounds import Certificate
from bidual.estimators import ReLUClassifier, ReLURegressor
from bidual.models import Model
from bidual.networks import from_sklearn
from bidual.plots import PathDisplay
from bidual.training.paths import solution_path

#: Losses of scikit-learn's MLP: those whose objectives can be set beside each other.
_MLP_LOSSES = ("squared", "logistic", "softmax")
#: Below this many rows a split says nothing.
ENOUGH = 12
#: Seconds for one training of the comparison, and below which a whole path is shown too.
_LIMIT, _QUICK = 60.0, 3.0
#: scikit-learn's L-BFGS, its best method for data of this size, ends after so many steps, or where the gradient is this
#: small.
_STEPS, _STILL = 5000, 1e-6


@dataclass(frozen=True)
class Entry:
    """One trained network of the comparison."""

    name: str
    objective: float | None
    score: float
    n_neurons: int
    seconds: float
    converged: bool = True


@dataclass(frozen=True)
class Comparison:
    """Ours and scikit-learn's, trained on the same rows and scored on the same others."""

    n_train: int
    n_test: int
    certificate: Certificate
    ours: Entry
    others: list[Entry]
    path: PathDisplay | None


def compare(model: Model, X: FloatArray, y: Any, *, n_runs: int = 5, random_state: int = 0) -> Comparison | None:
    """Train both on three quarters of the rows; None if there are too few, or a class has a single row."""
    classes = model.target.classes
    coded = np.asarray(y, dtype=np.float64) if classes is None else _codes(y, classes)
    if len(X) < ENOUGH or (classes is not None and np.bincount(coded.astype(int)).min() < 2):
        return None
    X_train, X_test, y_train, y_test = train_test_split(
        X, coded, test_size=0.25, random_state=random_state, stratify=None if classes is None else coded
    )
    if np.ptp(y_train) == 0:
        return None
    X_train, X_test = _scaled(model, X_train, X_train), _scaled(model, X_train, X_test)
    if classes is None:
        y_train, y_test = ((v - model.target.centre) / model.target.scale for v in (y_train, y_test))
    ours = _ours(model, random_state)
    samples, new = (X if model.input_shape is None else X.reshape(-1, *model.input_shape) for X in (X_train, X_test))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the report tells the gaps, ours and theirs
        ours.fit(samples, y_train)
        n, width = len(X_train), max(20, ours.n_neurons_)
        others = [_mlp(model, seed, n, width, X_train, y_train, X_test, y_test) for seed in range(n_runs)]
        certificate = ours.certificate_
        entry = Entry(
            "bidual", certificate.objective, ours.score(new, y_test), ours.n_neurons_, float(certificate.elapsed)
        )
        path = _path(model, ours, samples, y_train, new, y_test)
    return Comparison(len(X_train), len(X_test), certificate, entry, others, path)


def _codes(y: Any, classes: tuple[Any, ...]) -> Array:
    code = {label: k for k, label in enumerate(classes)}
    return np.array([code[label] for label in np.asarray(y, dtype=object).tolist()])


def _scaled(model: Model, train: FloatArray, X: FloatArray) -> FloatArray:
    """Standardised by the training rows alone, if the model standardises."""
    if model.scale is None:
        return X
    deviation = train.std(axis=0)
    return np.asarray((X - train.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0))


def _ours(model: Model, random_state: int) -> Any:
    how = model.training
    kind = ReLURegressor if model.target.classes is None else ReLUClassifier
    return kind(
        beta=how.beta,
        loss=how.loss,
        architecture=Architecture.registry.find(how.architecture).of(model.network),
        activation=how.activation,
        method=how.method,
        bias=how.bias,
        fit_intercept=how.fit_intercept,
        time_limit=_LIMIT,
        random_state=random_state,
    )


def _mlp(
    model: Model, seed: int, n: int, width: int, X: FloatArray, y: Array, X_test: FloatArray, y_test: Array
) -> Entry:
    """scikit-learn divides its alpha by the number of rows: alpha = n beta is the same weight decay."""
    how = model.training
    kind = MLPRegressor if model.target.classes is None else MLPClassifier
    mlp = kind(
        hidden_layer_sizes=(width,), alpha=n * how.beta, solver="lbfgs", max_iter=_STEPS, tol=_STILL, random_state=seed
    )
    began = clock()
    with np.errstate(over="ignore"):  # steps of its line search that it takes back
        mlp.fit(X, y)
    seconds = clock() - began
    objective = None
    if how.loss.name in _MLP_LOSSES and how.architecture == "two_layer" and how.activation == "relu" and how.beta > 0:
        network = from_sklearn(mlp)
        layers = (network.gate_vectors(), network.output_weights)
        balanced = float(np.prod([np.linalg.norm(W, axis=1) for W in layers], axis=0).sum())
        objective = network.objective(X, y, beta=how.beta, loss=how.loss) + how.beta * (balanced - network.penalty())
    converged = mlp.n_iter_ < _STEPS
    return Entry(f"scikit-learn, seed {seed}", objective, mlp.score(X_test, y_test), width, seconds, converged)


def _path(model: Model, ours: Any, X: FloatArray, y: Array, X_test: FloatArray, y_test: Array) -> PathDisplay | None:
    """How beta changes the network and its score on the rows left out, if that is quick."""
    how = model.training
    if how.activation != "relu" or how.beta <= 0 or ours.certificate_.elapsed > _QUICK:
        return None
    options: dict[str, Any] = {"architecture": ours.architecture, "bias": how.bias, "fit_intercept": how.fit_intercept}
    path = solution_path(
        X, y, n_betas=12, beta_min_ratio=1e-3, loss=how.loss, tol=1e-2, time_limit=_QUICK, random_state=0, **options
    )
    scores = []
    for point in path:
        ours._adopt(point)
        scores.append(ours.score(X_test, y_test))
    inside = path.betas[-1] <= how.beta <= path.betas[0]
    name = "R² on new rows" if model.target.classes is None else "accuracy on new rows"
    return PathDisplay.from_path(
        path, scores=np.array(scores), beta=how.beta if inside else None, score_name=name, plot=False
    )
