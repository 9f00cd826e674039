"""What objects show in a notebook: a sentence and a bar, well-formed, escaped, loading nothing."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
import sklearn

from bidual import Certificate, DeepNetwork, ReLURegressor, TwoLayerNetwork

NUMBERS = {
    "objective": 0.226,
    "lower_bound": 0.147,
    "scope": "global",
    "method": "norms of rows",
    "attained": 0.1,
    "limit": 0.2,
    "beta": 0.01,
    "loss": "squared",
    "likely_bound": 0.218,
    "likely_method": "local search",
}
SVG = "{http://www.w3.org/2000/svg}"


def parsed(shown):
    """The element, if it is well-formed."""
    return ET.fromstring(shown._repr_html_())


def marks(root):
    """Where the marks are, by name, as parts of the bar."""
    width = float(root.find(f".//{SVG}svg").get("viewBox").split()[2])
    return {line.get("class"): float(line.get("x1")) / width for line in root.iter(f"{SVG}line")}


def test_the_marks_are_where_the_numbers_are_and_in_their_order():
    root = parsed(Certificate(**NUMBERS))
    at = marks(root)
    assert list(at) == ["proven", "likely", "objective"]
    assert at["proven"] == pytest.approx(0.147 / 0.226, abs=1e-2)
    assert at["likely"] == pytest.approx(0.218 / 0.226, abs=1e-2)
    assert at["proven"] < at["likely"] < at["objective"]
    words = "".join(root.itertext())
    for number in ("0.147", "0.218", "0.226", "proven within 54 %", "norms of rows"):
        assert number in words


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"likely_bound": -np.inf}, ["proven", "objective"]),
        ({"lower_bound": 0.226}, ["proven", "objective"]),
        ({"lower_bound": 0.0}, ["proven", "likely", "objective"]),
        ({"lower_bound": -3.0, "likely_bound": -1.0}, ["proven", "objective"]),
        ({"objective": 0.0, "lower_bound": 0.0, "likely_bound": 0.0}, ["proven", "objective"]),
        ({"objective": np.inf}, []),
    ],
    ids=["nothing likely", "closed", "nothing proven", "negative bounds", "zero", "infinite objective"],
)
def test_marks_stay_on_the_bar_whatever_the_numbers(changes, names):
    root = parsed(Certificate(**{**NUMBERS, **changes}))
    if not names:
        assert root.find(f".//{SVG}svg") is None
        assert "objective is infinite" in "".join(root.itertext())
        return
    at = marks(root)
    assert list(at) == names
    assert all(0.0 <= x <= 1.0 for x in at.values())
    assert list(at.values()) == sorted(at.values())
    widths = [float(rect.get("width")) for rect in root.iter(f"{SVG}rect")]
    assert np.isfinite(widths).all()
    assert min(widths) >= 0.0


def test_what_comes_from_files_is_escaped():
    certificate = Certificate(**{**NUMBERS, "method": "<script>alert(1)</script> & \"'", "loss": "</summary><b>x"})
    root = parsed(certificate)
    assert not {"script", "b"} & {element.tag for element in root.iter()}
    assert "<script>alert(1)</script>" in "".join(root.itertext())


@pytest.mark.parametrize(
    "shown",
    [
        Certificate(**NUMBERS),
        TwoLayerNetwork([[1.0, 2.0], [0.5, 1.0]], [[1e200], [-3e199]]),
        TwoLayerNetwork(np.ones((500, 2)), np.ones((500, 3))),
        TwoLayerNetwork(np.zeros((0, 2)), np.zeros((0, 1))),
        DeepNetwork([np.ones((2, 3)), np.ones((3, 1))]),
    ],
    ids=["certificate", "huge weights", "many neurons", "no neurons", "deep"],
)
def test_nothing_is_loaded_or_run(shown):
    text = shown._repr_html_()
    root = ET.fromstring(text)
    assert not {"script", "style", "link", "img", f"{SVG}image", f"{SVG}use"} & {element.tag for element in root.iter()}
    assert "href" not in text
    assert "url(" not in text
    assert root.find("details").get("open") is None
    assert "nan" not in text.lower()


def test_a_network_shows_its_neurons_largest_first():
    root = parsed(TwoLayerNetwork(np.ones((3, 2)), [[1.0], [-3.0], [2.0]]))
    widths = np.array([float(rect.get("width")) for rect in root.iter(f"{SVG}rect")])
    np.testing.assert_allclose(widths / widths.sum(), np.array([9, 4, 1]) / 14, atol=1e-4)
    assert "hidden_weights3 x 2" in "".join(root.itertext())


def test_a_fitted_estimator_shows_its_certificate_below_the_diagram():
    est = ReLURegressor(beta=0.1, tol=1e-2, random_state=0)
    assert 'class="bidual"' not in est._repr_mimebundle_()["text/html"]
    est.fit(np.array([[0.0], [1.0], [2.0]]), [0.0, 1.0, 0.0])
    for text in (est._repr_mimebundle_()["text/html"], est._repr_html_()):
        assert "sk-estimator" in text
        assert text.endswith(est.certificate_._repr_html_())
    with sklearn.config_context(display="text"):
        assert set(est._repr_mimebundle_()) == {"text/plain"}
