"""Pictures show the numbers they should, and the report is one safe page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from bidual import (
    DeepReLUClassifier,
    ReLUClassifier,
    ReLURegressor,
    ReLURegressorCV,
    TwoLayerNetwork,
    certify,
    solution_path,
)
from bidual.report import write_report
from bidual.study.descent import descend, iterate
from bidual.training.routing import pose_data

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from bidual.plots import (  # noqa: E402
    DecisionDisplay,
    FitDisplay,
    HistoryDisplay,
    NeuronsDisplay,
    PathDisplay,
    RunsDisplay,
    plot_fit_1d,
)
from bidual.plots.neurons import clip  # noqa: E402

RNG = np.random.default_rng(0)
X1 = np.sort(RNG.uniform(-2, 2, 20))[:, None]
Y1 = np.abs(X1[:, 0]) + 0.1 * RNG.normal(size=20)
X2 = RNG.normal(size=(30, 2))
KIND = np.where(X2[:, 0] * X2[:, 1] > 0, "same", "other")


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def regressor():
    return ReLURegressor(beta=0.01, method="exact").fit(X1, Y1)


@pytest.fixture(scope="module")
def classifier():
    return ReLUClassifier(beta=0.01, prove=False, random_state=0).fit(X2, KIND)


def test_the_fit_is_linear_between_its_kinks(regressor):
    display = FitDisplay.from_estimator(regressor, X1, Y1)
    np.testing.assert_allclose(display.values, regressor.predict(display.grid[:, None]), rtol=1e-12)
    corners = np.concatenate([[display.grid[0]], display.kinks, [display.grid[-1]]])
    at = regressor.predict(corners[:, None])
    np.testing.assert_allclose(np.interp(display.grid, corners, at), display.values, atol=1e-9)
    assert "proven" in display.ax_.get_title()
    assert display.figure_ is display.ax_.figure
    ax = plt.subplots()[1]
    assert plot_fit_1d(regressor, X1, Y1, ax=ax) is ax


def test_the_fit_needs_one_input(classifier):
    with pytest.raises(ValueError, match="one input and one output"):
        FitDisplay.from_estimator(classifier, X2, KIND)


def test_history_ends_at_the_certificate(regressor, classifier):
    for estimator in (regressor, classifier):
        display = HistoryDisplay.from_estimator(estimator)
        assert display.objective[-1] == estimator.objective_
        assert display.likely_gap[-1] == pytest.approx(estimator.likely_gap_, abs=1e-15)
        assert len(display.axes_) == 2
    with pytest.raises(ValueError, match="2 axes, got 1"):
        HistoryDisplay.from_estimator(regressor, ax=plt.subplots()[1])


def test_path_display_draws_what_there_is():
    path = solution_path(X1, Y1, n_betas=4, random_state=0)
    assert len(PathDisplay.from_path(path).axes_) == 2
    display = PathDisplay.from_path(path, scores=[0.1, 0.2, 0.3, 0.4], beta=path.betas[1])
    assert len(display.axes_) == 3
    np.testing.assert_array_equal(display.axes_[0].lines[0].get_ydata(), path.n_neurons)
    cv = ReLURegressorCV(n_betas=3, cv=3, tol=1e-2, prove=False, random_state=0).fit(X1, Y1)
    display = PathDisplay.from_estimator(cv)
    np.testing.assert_array_equal(display.axes_[0].lines[0].get_ydata(), cv.mean_score_)


def test_regions_agree_with_predictions(classifier):
    display = DecisionDisplay.from_estimator(classifier, X2, KIND, resolution=40)
    first, second = (g.ravel() for g in np.meshgrid(*display.grid))
    wins = classifier.classes_[display.scores.reshape(-1, 2).argmax(axis=1)]
    np.testing.assert_array_equal(wins, classifier.predict(np.column_stack([first, second])))
    with pytest.raises(ValueError, match="two features"):
        DecisionDisplay.from_estimator(classifier, X1, Y1)


def test_regions_of_three_classes():
    three = np.digitize(X2[:, 0], [-0.5, 0.5])
    estimator = ReLUClassifier(beta=0.02, tol=1e-2, prove=False, random_state=0).fit(X2, three)
    assert DecisionDisplay.from_estimator(estimator, X2, three, resolution=20).scores.shape == (20, 20, 3)


def test_lines_are_where_neurons_switch(classifier):
    display = NeuronsDisplay.from_estimator(classifier, X2, KIND)
    network = classifier.network_
    drawn = 0
    for line, u, b in zip(display.lines, network.hidden_weights, network.bias_vector, strict=True):
        ends = clip(line, np.array([-3.0, -3.0]), np.array([3.0, 3.0]))
        if ends is not None:
            drawn += 1
            np.testing.assert_allclose(ends @ u + b, 0.0, atol=1e-9)
            assert (np.abs(ends) <= 3 + 1e-9).all()
    assert drawn > 0
    np.testing.assert_allclose(display.costs.sum(), network.penalty(), rtol=1e-6)  # balanced


def test_lines_through_more_inputs_are_slices_at_the_mean():
    network = TwoLayerNetwork([[1.0, 0.0, 2.0]], [[1.0]], [0.5])
    X = RNG.normal(size=(9, 3))
    display = NeuronsDisplay.from_network(network, X, plot=False)
    np.testing.assert_allclose(display.lines, [[1.0, 0.0, 2.0 * X[:, 2].mean() + 0.5]])


def test_networks_without_hyperplanes_say_so():
    y = np.repeat([0, 1, 2], 10)
    deep = DeepReLUClassifier(beta=0.01).fit(RNG.normal(size=(30, 40)), y)
    with pytest.raises(ValueError, match="no neurons that could serve"):
        NeuronsDisplay.from_network(deep.network_, RNG.normal(size=(30, 40)))


# ---- gradient descent --------------------------------------------------------------------------


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
@pytest.mark.parametrize(("loss", "y"), [("squared", Y1), ("huber", Y1), ("logistic", Y1 > 1)])
def test_descent_notes_the_objective_of_its_networks(loss, y, optimiser):
    data = pose_data(X1, y, loss=loss, beta=0.02)
    start, *_, end = iterate(data.problem, [0, 1], steps=60, optimiser=optimiser)
    for k, neurons in enumerate(end.neurons):
        network = TwoLayerNetwork(neurons.U[:, :1], neurons.alpha, neurons.U[:, 1], neurons.intercept)
        objective = network.objective(X1, y.astype(float), beta=0.02, loss=loss)
        assert end.objectives[k] == pytest.approx(objective, rel=1e-9)
        assert end.objectives[k] < start.objectives[k]
    for run in descend(X1, y, beta=0.02, loss=loss, n_runs=2, steps=60, optimiser=optimiser):
        assert run.network.objective(X1, y.astype(float), beta=0.02, loss=loss) <= run.objective


def test_gradients_are_those_of_the_objective():
    problem = pose_data(X2, X2[:, :1] ** 2 + X2, beta=0.1).problem
    start, step = list(iterate(problem, [3], width=4, steps=1, learning_rate=1e-6, optimiser="sgd"))
    # the first step of momentum is the gradient itself
    before, after = start.neurons[0], step.neurons[0]
    moved = (after.U - before.U, after.alpha - before.alpha, after.intercept - before.intercept)
    slope = sum((step**2).sum() for step in moved)
    assert (start.objectives[0] - step.objectives[0]) * 1e-6 == pytest.approx(slope, rel=1e-3)


def test_descent_never_undercuts_the_optimum(regressor):
    display = RunsDisplay.from_estimator(regressor, X1, Y1, n_runs=3, steps=300, width=5)
    assert all(run.objective >= regressor.lower_bound_ for run in display.runs)
    stuck = [
        certify(run.network, X1, Y1, beta=0.01, time_limit=5).objective > 1.01 * regressor.objective_
        for run in display.runs
    ]
    assert display.stuck == stuck
    mini = descend(X1, Y1, beta=0.01, n_runs=1, steps=50, batch_size=5)
    assert np.isfinite(mini[0].objective)
    with pytest.raises(ValueError, match="unknown optimiser"):
        descend(X1, Y1, beta=0.01, optimiser="magic")


# ---- report ------------------------------------------------------------------------------------


class Page(HTMLParser):
    VOID = ("meta", "br", "img", "link", "hr", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.urls, self.text, self.tags = [], [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for key, value in attrs:
            if key == "id":
                self.ids.append(value)
            if key in ("href", "src", "xlink:href") and not (value or "").startswith(("#", "data:")):
                self.urls.append(value)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def report(tmp_path, *args, **options):
    text = write_report(tmp_path / "r.html", *args, **options).read_text(encoding="utf-8")
    page = Page(text)
    assert page.urls == []
    assert "script" not in page.tags
    assert len(page.ids) == len(set(page.ids))
    assert "url(http" not in text
    return text, page


def test_report_of_a_fit(tmp_path, regressor):
    text, page = report(tmp_path, regressor, X1, Y1, target="y", source="a file")
    words = " ".join(page.text)
    assert f"{regressor.objective_:.6g}" in words
    assert f"{regressor.lower_bound_:.8g}" in words
    assert "proven" in words
    assert "scikit-learn, seed 0" in words
    assert page.tags.count("svg") >= 2
    assert text.count('role="img"') == page.tags.count("svg")


def test_the_comparison_is_of_the_same_beta(tmp_path, regressor):
    from bidual.models import Model
    from bidual.report.comparison import compare

    result = compare(Model.of(regressor, 20), X1, Y1, n_runs=1)
    assert result.certificate.beta == regressor.beta
    assert result.ours.objective == result.certificate.objective
    assert result.others[0].objective >= result.certificate.lower_bound
    assert (result.n_train, result.n_test) == (15, 5)


def test_the_others_are_trained_to_the_end_and_their_width_is_said(tmp_path, regressor):
    _, page = report(tmp_path, regressor, X1, Y1)
    words = " ".join(page.text)
    assert "scikit-learn's networks have 20 neurons, at least as many as ours" in words
    assert "until the gradient vanishes: 5 of 5 got there" in words


def test_names_and_labels_are_escaped(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X = pandas.DataFrame(X2, columns=["<script>alert(1)</script>", "$a$"])
    labels = np.where(KIND == "same", "<b>&", '"$x_1$"')
    estimator = ReLUClassifier(beta=0.05, tol=1e-2, random_state=0).fit(X, labels)
    text, page = report(tmp_path, estimator, X, labels, target="<i>t</i>", source="<u>")
    assert {"b", "i", "u"}.isdisjoint(page.tags)
    assert "<script>alert(1)</script>" in " ".join(page.text)
    assert re.search(r"default-src 'none'", text)


def test_report_of_many_inputs_and_of_a_constant(tmp_path):
    X = RNG.normal(size=(14, 30))
    constant = ReLURegressor(beta=1e3).fit(X, X[:, 0])
    assert constant.n_neurons_ == 0
    text, _ = report(tmp_path, constant, X, X[:, 0], compare=False)
    assert "has no neurons" in text
    assert "18 more columns" in text
    gated = ReLUClassifier(beta=0.05, activation="gated", n_patterns=5, random_state=0).fit(X, X[:, 0] > 0)
    text, _ = report(tmp_path, gated, X, X[:, 0] > 0)
    assert "with these gates" in text
    few = ReLURegressor(beta=0.1, tol=1e-2).fit(X[:4], X[:4, 0])
    assert "Too few rows" in report(tmp_path, few, X[:4], X[:4, 0])[0]


def test_unfitted_estimators_have_no_report(tmp_path):
    with pytest.raises(ValueError, match="not fitted yet"):
        write_report(tmp_path / "r.html", ReLURegressor(), X1, Y1)
