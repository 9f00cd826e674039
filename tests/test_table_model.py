"""From a table to a certified model in one line, and back from whatever wraps a network to the network."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import bidual
from bidual import ReLUClassifier, ReLURegressor, ReLURegressorCV, TableEncoder, TableModel, certify, table_model
from bidual.models import as_network

RNG = np.random.default_rng(2)
N = 40
AREA = RNG.uniform(30, 200, N).round(1)
CITY = RNG.choice(["Bern", "Basel", "Chur"], N)
PRICE = (3000 * AREA * np.where(CITY == "Basel", 1.3, 1.0)).round()
KIND = np.where(AREA > 100, "large", "small")
HOUSES = {"area": [None, *AREA[1:]], "city": [*CITY[:-1], ""]}


@pytest.fixture(scope="module")
def model():
    return table_model({**HOUSES, "price": [f"${price:,.0f}" for price in PRICE]}, "price", beta=0.01, tol=1e-3)


def mlp(kind=MLPRegressor, **options):
    return kind(hidden_layer_sizes=(5,), max_iter=30, random_state=0, **options)


def quietly(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


# ---- table_model -------------------------------------------------------------------------------


def test_one_line_leads_from_a_table_to_a_certified_model(model):
    assert model.get_feature_names_out().tolist() == [
        *("area", "area is missing", "city=Basel", "city=Bern", "city=Chur", "city is missing"),
    ]
    assert model.score(HOUSES, PRICE) > 0.9
    assert is_regressor(model)
    assert model.certificate_.gap < 1
    assert model.model_.objective(HOUSES, PRICE) == pytest.approx(model.certificate_.objective, rel=1e-9)
    assert not hasattr(model, "predict_proba")


def test_its_file_predicts_from_the_table_bit_for_bit(model, tmp_path):
    loaded = bidual.load(model.save(tmp_path / "m.json"))
    np.testing.assert_array_equal(loaded.predict(HOUSES), model.predict(HOUSES))
    assert loaded.columns == ("area", "city")
    assert loaded.encoder.to_dict() == model.encoder_.to_dict()
    assert "area (numbers, some missing), city (4 categories)" in loaded.summary()
    assert "standardised: (price - " in loaded.summary()


def test_its_file_is_certified_from_the_table(model, tmp_path):
    loaded = bidual.load(model.save(tmp_path / "m.json"))
    for wrapped in (loaded, model):
        certificate = certify(wrapped, HOUSES, PRICE, method="local", time_limit=5)
        assert certificate.objective == pytest.approx(model.certificate_.objective, rel=1e-9)
    assert model.certificate_.verify(HOUSES, PRICE, model=loaded)


def test_a_file_or_a_frame_will_do(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(
        "area;price\n" + "".join(f"{a:.1f};{p:.1f}\n".replace(".", ",") for a, p in zip(AREA, PRICE, strict=True))
    )
    of_file = table_model(path, "price", beta=0.1, method="exact")
    of_dict = table_model({"area": AREA, "price": PRICE}, "price", beta=0.1, method="exact")
    np.testing.assert_allclose(of_file.predict({"area": AREA}), of_dict.predict({"area": AREA}), rtol=1e-9)
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    of_frame = TableModel(ReLURegressor(0.1, method="exact")).fit(
        pandas.DataFrame({"area": AREA}), pandas.Series(PRICE)
    )
    np.testing.assert_array_equal(of_frame.predict({"area": AREA}), of_dict.predict({"area": AREA}))


def test_text_is_classified_and_has_probabilities():
    model = table_model({**HOUSES, "kind": KIND}, "kind", beta=0.01, tol=0.01)
    assert is_classifier(model)
    assert model.classes_.tolist() == ["large", "small"]
    assert model.score(HOUSES, KIND) > 0.9
    np.testing.assert_allclose(model.predict_proba(HOUSES).sum(axis=1), 1.0)


def test_few_whole_numbers_are_classes_and_that_is_said():
    grade = np.arange(N) % 3
    with pytest.warns(UserWarning, match=r"task: classification .*3 distinct values.*task='regression'"):
        assert table_model({"area": AREA, "y": grade}, "y", beta=0.5, tol=0.5).classes_.tolist() == [0, 1, 2]
    for task, check in (("classification", is_classifier), ("regression", is_regressor)):
        assert check(table_model({"area": AREA, "y": grade}, "y", task=task, beta=0.5, tol=0.5))
    assert is_regressor(table_model({"area": AREA, "y": grade + 0.5}, "y", beta=0.5, tol=0.5))


def test_it_is_an_estimator_of_scikit_learn():
    X, y = {"area": AREA}, PRICE
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    estimator = TableModel(ReLURegressor(beta=0.1, tol=0.01))
    assert (cross_val_score(estimator, pandas.DataFrame(X), y, cv=3) > 0.5).all()
    assert clone(estimator).get_params()["estimator__beta"] == 0.1
    search = GridSearchCV(estimator, {"estimator__beta": [0.5, 0.05]}, cv=2).fit(pandas.DataFrame(X), y)
    assert search.best_params_ == {"estimator__beta": 0.05}
    assert certify(search, X, y, method="local", time_limit=5).objective == pytest.approx(
        search.best_estimator_.certificate_.objective, rel=1e-9
    )


def test_searches_for_beta_and_weights_go_along():
    weights = np.r_[np.zeros(5), np.ones(N - 5)]
    model = table_model(
        {"area": AREA, "w": weights, "price": PRICE},
        "price",
        weights="w",
        estimator=ReLURegressorCV(n_betas=3, cv=3, tol=0.01),
    )
    assert model.estimator_.beta_ == model.model_.training.beta
    same = TableModel(ReLURegressor(0.1, method="exact")).fit({"area": AREA}, PRICE, sample_weight=weights)
    few = TableModel(ReLURegressor(0.1, method="exact")).fit({"area": AREA[5:]}, PRICE[5:])
    assert same.certificate_.objective == pytest.approx(few.certificate_.objective, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "prize"}, "data lacks the column 'prize'"),
        ({"target": 3}, "target must be the name of a column"),
        ({"drop": "area"}, "drop must be a list"),
        ({"drop": ["area", "city"]}, "no columns to learn from besides"),
        ({"task": "ranking"}, "task must be one of"),
        ({"estimator": ReLUClassifier(), "task": "regression"}, "does not go with a ReLUClassifier"),
        ({"estimator": StandardScaler()}, "estimator must be a ReLURegressor"),
        ({"target": "city"}, "the cell is empty"),
        ({"beta": -1}, "beta must be"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(options, message):
    options = {"target": "price", **options}
    with pytest.raises(ValueError, match=message):
        table_model({**HOUSES, "price": PRICE}, **options)


def test_before_fit_it_says_so():
    with pytest.raises(AttributeError, match="not fitted yet"):
        _ = TableModel().certificate_
    with pytest.raises(ValueError, match="not fitted yet"):
        TableModel().predict(HOUSES)


def test_its_report_is_written_from_the_table(model, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from bidual.report import write_report

    page = write_report(tmp_path / "r.html", model, HOUSES, PRICE, compare=False).read_text(encoding="utf-8")
    assert "city (4 categories)" in page


# ---- what wraps a network ----------------------------------------------------------------------


def test_certify_applies_what_stands_before_the_network():
    X, inner = np.column_stack([AREA, AREA**2]), mlp()
    pipe = quietly(make_pipeline(StandardScaler(), inner), X, PRICE / 1e5)
    expected = as_network(inner).objective(pipe[:-1].transform(X), PRICE / 1e5, beta=0.1)
    assert certify(pipe, X, PRICE / 1e5, beta=0.1, method="local", time_limit=5).objective == pytest.approx(expected)
    assert as_network(pipe).n_inputs == 2


def test_certify_takes_columns_of_any_kind_through_a_column_transformer():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"area": AREA, "city": CITY})
    columns = ColumnTransformer(
        [("n", StandardScaler(), ["area"]), ("c", OneHotEncoder(), ["city"])], sparse_threshold=1
    )
    pipe = quietly(Pipeline([("columns", columns), ("net", mlp(MLPClassifier))]), frame, KIND)
    certificate = certify(pipe, frame, KIND, beta=0.1, method="local", time_limit=5)
    Z = columns.transform(frame).toarray()
    codes = np.where(pipe.classes_[1] == KIND, 1.0, -1.0)
    assert certificate.objective == pytest.approx(as_network(pipe).objective(Z, codes, beta=0.1, loss="logistic"))


def test_certify_takes_a_search_and_a_transformed_target():
    X = AREA[:, None]
    inner = TransformedTargetRegressor(make_pipeline(StandardScaler(), mlp()), transformer=StandardScaler())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = GridSearchCV(inner, {"regressor__mlpregressor__alpha": [0.1, 1.0]}, cv=2).fit(X, PRICE)
    scaled = (PRICE - PRICE.mean()) / PRICE.std()
    Z = StandardScaler().fit_transform(X)
    expected = as_network(search).objective(Z, scaled, beta=0.1)
    assert certify(search, X, PRICE, beta=0.1, method="local", time_limit=5).objective == pytest.approx(expected)


def test_an_encoder_and_a_network_make_a_pipeline():
    pipe = make_pipeline(TableEncoder(), StandardScaler(), ReLURegressor(0.1, tol=1e-3)).fit(HOUSES, PRICE / 1e5)
    certificate = certify(pipe, HOUSES, PRICE / 1e5, method="local", time_limit=5)
    assert certificate.objective == pytest.approx(pipe[-1].objective_, rel=1e-9)
    assert pipe[-1].certificate_.verify(HOUSES, PRICE / 1e5, model=pipe)


@pytest.mark.parametrize(
    ("wrapped", "message"),
    [
        (GridSearchCV(mlp(), {"alpha": [1.0]}), "holds no best estimator: fit it"),
        (Pipeline([("a", StandardScaler()), ("b", "passthrough")]), "no network"),
    ],
)
def test_what_wraps_no_network_is_refused(wrapped, message):
    with pytest.raises(ValueError, match=message):
        certify(wrapped, AREA[:, None], PRICE, beta=0.1)
