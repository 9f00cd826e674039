"""Layer-wise training: stages that are convex problems (002 Fig. 6)."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from bidual import (
    LayerwiseClassifier,
    LayerwiseNetwork,
    LayerwiseRegressor,
    Parallel,
    ReLUClassifier,
    ReLURegressor,
    TwoLayerNetwork,
    load,
)

from .helpers import gap_may_stay_open

STAGE = ReLUClassifier(0.01, method="sampled", n_patterns=4, loss="squared_hinge", tol=0.1, prove=False, random_state=0)
NUMBERS = ReLURegressor(0.01, method="sampled", n_patterns=4, prove=False, random_state=0)
ESTIMATORS = [
    LayerwiseClassifier(STAGE, n_stages=2, random_state=0),
    LayerwiseRegressor(NUMBERS, n_stages=2, random_state=0),
]


def rings(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, np.where((X**2).sum(axis=1) > 1.4, "outer", "inner")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*:UserWarning:sklearn")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_the_battery_is_not_skipped(estimator):
    assert len(list(estimator_checks_generator(estimator))) > 40


def test_every_stage_is_trained_on_the_features_of_the_one_before():
    X, y = rings()
    model = LayerwiseClassifier(STAGE, n_stages=3, early_stopping=False).fit(X, y)
    assert model.n_stages_ == 3
    assert model.validation_scores_ == []
    first, second, third = model.stages_
    alone = ReLUClassifier(**STAGE.get_params()).fit(X, y)
    assert first.objective_ == alone.objective_
    width = first.network_.n_neurons + 2
    assert second.network_.n_inputs == width
    scaled = first.network_.hidden(X) * np.linalg.norm(first.network_.output_weights, axis=1)
    again = ReLUClassifier(**STAGE.get_params()).fit(np.column_stack([scaled, X]), y)
    assert second.objective_ == pytest.approx(again.objective_)
    assert model.objective_ == third.objective_
    assert model.likely_gap_ == third.likely_gap_


def test_a_later_stage_never_costs_more_when_the_inputs_pass_through():
    # features and inputs contain what the stage before could do; beta charges it anew
    X, y = rings()
    model = LayerwiseClassifier(
        ReLUClassifier(0.01, loss="squared_hinge", tol=1e-2, random_state=0), n_stages=2, early_stopping=False
    ).fit(X, y)
    first, second = model.stages_
    assert second.objective_ <= first.objective_ * 1.02


def test_early_stopping_keeps_the_stages_up_to_the_best():
    X, y = rings(120)
    model = LayerwiseClassifier(STAGE, n_stages=4, random_state=1).fit(X, y)
    scores = model.validation_scores_
    assert model.n_stages_ == int(np.argmax(scores)) + 1
    assert len(scores) <= model.n_stages_ + model.patience
    assert len(model.network_.stages) == model.n_stages_


def test_stages_may_be_three_layer_networks(tmp_path):
    X, y = rings(40)
    stage = ReLUClassifier(0.02, architecture=Parallel(2), tol=5e-2, max_iter=3, random_state=0)
    with gap_may_stay_open():
        model = LayerwiseClassifier(stage, n_stages=2, early_stopping=False).fit(X, y)
    assert model.score(X, y) > 0.9
    back = load(model.network_.save(tmp_path / "network.json"))
    assert back.predict(X).tolist() == model.network_.predict(X).tolist()
    assert isinstance(back, LayerwiseNetwork)


@pytest.mark.parametrize("passthrough", [True, False])
def test_torch_computes_the_same(passthrough):
    torch = pytest.importorskip("torch")
    X, y = rings(40)
    branches = ReLUClassifier(0.02, architecture=Parallel(2), method="sampled", n_patterns=6, random_state=0)
    for stage in (STAGE, branches):
        model = LayerwiseClassifier(stage, n_stages=3, early_stopping=False, passthrough=passthrough).fit(X, y)
        outputs = model.network_.to_torch()(torch.as_tensor(X)).detach().numpy()
        assert outputs == pytest.approx(model.network_.forward(X))


def test_several_classes_and_probabilities():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.digitize(np.abs(X[:, 0]), [0.5, 1.0])
    stage = ReLUClassifier(0.01, method="sampled", n_patterns=10, random_state=0)
    model = LayerwiseClassifier(stage, n_stages=2, random_state=0).fit(X, y)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (60, 3)
    assert probabilities.sum(axis=1) == pytest.approx(1.0)
    assert (model.classes_[probabilities.argmax(axis=1)] == model.predict(X)).all()
    assert not hasattr(LayerwiseClassifier(STAGE), "predict_proba")


def test_bad_input_is_named():
    X, y = rings(20)
    with pytest.raises(TypeError, match="bidual's ReLU estimators"):
        LayerwiseClassifier(LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match="n_stages"):
        LayerwiseClassifier(STAGE, n_stages=0).fit(X, y)
    with pytest.raises(ValueError, match="validation_fraction"):
        LayerwiseClassifier(STAGE, validation_fraction=1.0).fit(X, y)
    with pytest.raises(ValueError, match="early_stopping=False"):
        LayerwiseClassifier(STAGE).fit(X[:3], ["a", "a", "b"])
    with pytest.raises(ValueError, match="takes 2 inputs"):
        LayerwiseNetwork([TwoLayerNetwork(np.ones((3, 2)), np.ones((3, 1)))] * 2)
