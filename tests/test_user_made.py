"""Losses, architectures and networks of users: trained, saved, loaded and verified."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bidual
from bidual import ReLURegressor, certify
from bidual._util.typing import Array, FloatArray
from bidual.architectures import Architecture, Lift, get_architecture
from bidual.atoms import Neurons
from bidual.bounds import Certificate
from bidual.losses import Loss, Squared, get_loss
from bidual.models import Model
from bidual.networks import Network, TwoLayerNetwork


class Halved(Loss):
    r""":math:`\tfrac c2 (f - y)^2`."""

    name = "test_halved"
    smooth, full_domain, lipschitz = True, True, 10.0

    def __init__(self, factor: float = 0.5) -> None:
        self.factor = factor

    def rows(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return np.asarray(0.5 * self.factor * ((F - Y) ** 2).sum(axis=1))

    def row_gradients(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return self.factor * (F - Y)

    def row_curvatures(self, F: FloatArray, Y: FloatArray) -> FloatArray:
        return np.full_like(F, self.factor)

    def row_conjugates(self, V: FloatArray, Y: FloatArray) -> FloatArray:
        return np.asarray((V**2 / (2 * self.factor) + V * Y).sum(axis=1))


class Folded(Architecture):
    """A two-layer network on the absolute values of the columns, beyond a threshold."""

    name = "test_folded"

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = threshold

    @classmethod
    def of(cls, network: Network) -> Folded:
        assert isinstance(network, FoldedNetwork)
        return cls(network.threshold)

    def lift(self, X: FloatArray, *, bias: bool, counts: FloatArray | None = None) -> FoldedLift:
        return FoldedLift(X, self.threshold)


class FoldedLift(Lift):
    def __init__(self, X: FloatArray, threshold: float) -> None:
        self.M, self.threshold = fold(X, threshold), threshold

    def recover(self, neurons: Neurons) -> FoldedNetwork:
        return FoldedNetwork(neurons.U, neurons.alpha, neurons.intercept, self.threshold)

    def neurons(self, network: Network) -> Neurons:
        assert isinstance(network, FoldedNetwork)
        inner = network.inner
        return Neurons(inner.hidden_weights, inner.output_weights, inner.intercept)


class FoldedNetwork(Network):
    kind = "test_folded"

    def __init__(self, hidden: Any, output: Any, intercept: Any, threshold: Any) -> None:
        self.inner = TwoLayerNetwork(hidden, output, intercept=intercept)
        self.threshold = float(threshold)

    n_inputs = property(lambda self: self.inner.n_inputs)  # type: ignore[assignment]
    n_outputs = property(lambda self: self.inner.n_outputs)  # type: ignore[assignment]
    n_neurons = property(lambda self: self.inner.n_neurons)  # type: ignore[assignment]

    def forward(self, X: FloatArray) -> FloatArray:
        return self.inner.forward(fold(X, self.threshold))

    def penalty(self) -> float:
        return self.inner.penalty()

    def weights(self) -> dict[str, Array | None]:
        inner = self.inner
        return {
            "hidden": inner.hidden_weights,
            "output": inner.output_weights,
            "intercept": inner.intercept,
            "threshold": np.asarray(self.threshold),
        }

    def to_torch(self, dtype: Any = None) -> Any:
        raise NotImplementedError


def fold(X: FloatArray, threshold: float) -> FloatArray:
    return np.maximum(np.abs(X) - threshold, 0.0)


@pytest.fixture(scope="module")
def data() -> tuple[FloatArray, FloatArray]:
    X = np.random.default_rng(0).normal(size=(12, 2))
    return X, np.abs(X[:, 0]) - 0.3 * np.abs(X[:, 1])


def fit(data: tuple[FloatArray, FloatArray], **options: Any) -> ReLURegressor:
    return ReLURegressor(beta=0.05, bias=False, random_state=0, **options).fit(*data)


def test_a_loss_of_ones_own_is_saved_and_loaded(data: tuple[FloatArray, FloatArray], tmp_path: Path) -> None:
    model = Model.of(fit(data, loss=Halved(0.7)), len(data[0]))
    back = bidual.load(model.save(tmp_path / "m.json"))
    assert isinstance(back, Model)
    assert back.training.loss == Halved(0.7)
    assert back.objective(*data) == pytest.approx(model.certificate.objective, rel=1e-12)


def test_a_loss_of_ones_own_is_found_by_its_name(data: tuple[FloatArray, FloatArray]) -> None:
    assert get_loss("test_halved") == Halved()
    assert fit(data, loss="test_halved").objective_ == pytest.approx(fit(data, loss=Halved()).objective_, rel=1e-9)


def test_certificates_of_a_loss_of_ones_own_are_verified(data: tuple[FloatArray, FloatArray], tmp_path: Path) -> None:
    fitted = fit(data, loss=Halved(0.7))
    certificate = certify(fitted, *data, random_state=0)
    back = Certificate.load(certificate.save(tmp_path / "c.json"))
    assert back.verify(*data, model=fitted)


def test_an_architecture_of_ones_own_is_saved_loaded_and_verified(
    data: tuple[FloatArray, FloatArray], tmp_path: Path
) -> None:
    fitted = fit(data, architecture=Folded(0.1))
    model = bidual.load(Model.of(fitted, len(data[0])).save(tmp_path / "m.json"))
    assert isinstance(model, Model)
    np.testing.assert_array_equal(model.predict(data[0]), fitted.predict(data[0]))
    certificate = certify(fitted.network_, *data, beta=0.05, bias=False, random_state=0)  # finds the architecture
    assert certificate.gap < 1e-2
    back = Certificate.load(certificate.save(tmp_path / "c.json"))
    assert back.evidence is not None
    assert (back.evidence.architecture, back.evidence.options) == ("test_folded", {"threshold": 0.1})
    assert back.verify(*data, model=fitted.network_)
    assert get_architecture("test_folded") == Folded()


def test_a_process_that_has_not_imported_the_class_is_told_to(
    data: tuple[FloatArray, FloatArray], tmp_path: Path
) -> None:
    Model.of(fit(data, loss=Halved()), len(data[0])).save(tmp_path / "loss.json")
    fit(data, architecture=Folded()).network_.save(tmp_path / "network.json")
    code = """
        import bidual, sys
        for name in sys.argv[1:]:
            try:
                bidual.load(name)
            except ValueError as error:
                print(error)
    """
    files = [str(tmp_path / "loss.json"), str(tmp_path / "network.json")]
    run = [sys.executable, "-c", textwrap.dedent(code), *files]
    done = subprocess.run(run, capture_output=True, text=True, env=os.environ, check=True)
    loss, network = done.stdout.splitlines()
    advice = "is not known here: import the module that defines it before loading"
    assert f"the loss 'test_halved' {advice}" in loss
    assert f"the kind of network 'test_folded' {advice}" in network


def test_an_intercept_under_another_name_is_seen(data: tuple[FloatArray, FloatArray]) -> None:
    network = FoldedNetwork([[0.9, -0.2]], [[1.0]], [0.5], 0.0)
    certificate = certify(network, *data, beta=0.05)
    better = FoldedNetwork([[0.93840291, -0.16624707]], [[0.95301527]], [-0.0081313], 0.0)
    objective = 0.5 * float(np.mean((better.forward(data[0])[:, 0] - data[1]) ** 2)) + 0.05 * better.penalty()
    assert certificate.lower_bound <= objective
    assert certificate.evidence is not None
    assert certificate.evidence.fit_intercept


def test_a_certificate_of_an_unknown_architecture_says_so(data: tuple[FloatArray, FloatArray], tmp_path: Path) -> None:
    path = certify(fit(data, architecture=Folded()).network_, *data, beta=0.05, bias=False).save(tmp_path / "c.json")
    document = json.loads(path.read_text())
    document["evidence"]["architecture"] = "elsewhere"
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="the architecture 'elsewhere' is not known here: import the module"):
        Certificate.load(path).verify(*data)


def test_names_of_the_library_are_taken() -> None:
    with pytest.raises(TypeError, match="'squared' is Squared of bidual: give Mine another name"):
        type("Mine", (Squared,), {"name": "squared", "__module__": "elsewhere"})
    assert get_loss("squared") == Squared()


def test_a_loss_without_a_name_is_refused_when_it_is_saved(data: tuple[FloatArray, FloatArray], tmp_path: Path) -> None:
    class Nameless(Halved):
        pass

    with pytest.raises(ValueError, match="Nameless cannot be saved: give the class a name of its own"):
        Model.of(fit(data, loss=Nameless()), len(data[0])).save(tmp_path / "m.json")
    assert not (tmp_path / "m.json").exists()
