"""Points that come to the playground from elsewhere: tables and links."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import bidual

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node on this machine")
MODULE = Path(bidual.__file__).parent / "playground" / "static" / "data.js"
VIEW = {"x": [-3, 3], "y": [-2, 2]}
OPTIONS = {
    "losses": {"regression": ["squared"], "classification": ["logistic"]},
    "architectures": ["two_layer", "gated"],
    "max_points": 5,
}


def ask(expression, *arguments):
    """The value of a JavaScript expression of ``m``, the module, and ``a``, the arguments; or the error's message."""
    url = "data:text/javascript;base64," + base64.b64encode(MODULE.read_bytes()).decode()
    script = (
        f"const m = await import({json.dumps(url)}), a = {json.dumps(arguments)}; let value;"
        f"try {{ value = {expression}; }} catch (error) {{ value = {{ error: error.message }}; }}"
        "console.log(JSON.stringify(value));"
    )
    done = subprocess.run(
        [NODE, "--input-type=module"], input=script, capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(done.stdout)


def parsed(text, task="regression", most=150):
    return ask("m.parse(...a)", text, task, VIEW, most)


@pytest.mark.parametrize(
    "text",
    [
        "0.5,1\n-1,0.25",
        "x,y\n0.5, 1\n-1, 0.25\n",
        "x;y\r\n0,5;1\r\n-1;0,25\r\n",
        "0.5\t1\n\n-1\t.25",
        "  0.5   1\n-1 0.25",
        '"x","y"\n"0.5","1"\n"-1","0.25"',
    ],
    ids=["commas", "names", "decimal commas", "tabs", "spaces", "quotes"],
)
def test_tables_are_read_as_they_come(text):
    assert parsed(text) == {"points": [[0.5, 1], [-1, 0.25]], "words": "2 points."}


def test_columns_out_of_sight_are_brought_into_the_picture_and_that_is_said():
    answer = parsed("100,0\n300,1\n200,-1")
    points = np.array(answer["points"])
    assert np.abs(points[:, 0]).max() <= 3
    assert points[:, 0][2] == 0
    np.testing.assert_allclose(points[:, 1], [0, 1, -1])
    assert "x is shown as (x - 200) / 37.04" in answer["words"]
    assert "y is" not in answer["words"]
    constant = np.array(parsed("7,1\n7,2")["points"])
    np.testing.assert_array_equal(constant[:, 0], 0)


def test_labels_are_numbered():
    answer = parsed("a,b,kind\n0,0,no\n1,1,yes\n2,0,no", "classification")
    assert answer["points"] == [[0, 0, 0], [1, 1, 1], [2, 0, 0]]


@pytest.mark.parametrize(
    ("text", "task", "words"),
    [
        ("", "regression", "empty"),
        ("1,2\n3", "regression", "Row 2 has 1 columns"),
        ("1,2\n3,four", "regression", "no number: 3, four"),
        ("1,2\n3,", "regression", "no number"),
        ("1,1,a\n1,1,b\n1,1,c\n1,1,d", "classification", "4 different labels"),
        ("\n".join(["1,2"] * 151), "regression", "no more than 150"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_sentence(text, task, words):
    assert words in parsed(text, task)["error"]


def test_a_link_holds_the_problem():
    problem = {
        "task": "classification",
        "points": [[0.5, -1, 0], [1, 2, 2]],
        "loss": "logistic",
        "architecture": "gated",
        "bias": False,
        "beta": -1.5,
        "width": 5,
    }
    assert ask("m.unlink(m.link(a[0]), a[1])", problem, OPTIONS) == problem


@pytest.mark.parametrize(
    "change",
    [
        ("classification", "other"),
        ("logistic", "__proto__"),
        ("gated", "nothing"),
        ("beta=-1.5", "beta=x"),
        ("beta=-1.5&", ""),
        ("1%2C2%2C2", "1%2C2%2C7"),
        ("1%2C2%2C2", "1%2C2"),
        ("1%2C2%2C2", "1%2C1e9%2C2"),
        ("1%2C2%2C2", "%3B".join(["1%2C2%2C2"] * 6)),
        ("classification", "constructor"),
    ],
)
def test_links_that_hold_no_problem_are_not_followed(change):
    link = "#task=classification&loss=logistic&architecture=gated&bias=0&beta=-1.5&width=5&points=0%2C1%2C0%3B1%2C2%2C2"
    assert ask("m.unlink(...a)", link, OPTIONS) is not None
    assert change[0] in link
    assert ask("m.unlink(...a)", link.replace(*change), OPTIONS) is None
