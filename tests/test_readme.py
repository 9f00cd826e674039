"""What README and the documentation show is what happens."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import io
import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\s*```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
#: Relative difference of numbers that count as the same (bounds depend on the time there was), and what is zero.
SAME, ZERO = 0.05, 1e-4
pytestmark = pytest.mark.skipif(not PAGES[0].exists(), reason="the documentation is not here")

BLOCKS = [
    (page.name, code, output) for page in PAGES if page.exists() for code, output in BLOCK.findall(page.read_text())
]
SHOWN = [(name, code, output) for name, code, output in BLOCKS if output]


def words_and_numbers(text):
    """The words with gaps for the numbers, and the numbers; how many cones there was time for is neither."""
    text = re.sub(r"over \d+ cones", "over some cones", "\n".join(line.rstrip() for line in text.strip().splitlines()))
    return re.sub(r"\s+", " ", NUMBER.sub("#", text)), [float(number) for number in NUMBER.findall(text)]


def same(printed, shown):
    """Whether two outputs say the same."""
    (words, numbers), (expected_words, expected) = words_and_numbers(printed), words_and_numbers(shown)
    return words == expected_words and numbers == pytest.approx(expected, rel=SAME, abs=ZERO)


def test_other_words_and_other_numbers_are_noticed():
    shown = "gap   3.46e-01 (proven: over 100 cones)\nwithin 53 %\n"
    assert same("gap 3.47e-01   (proven: over 9000 cones)\nwithin 52 %", shown)
    assert not same("gap 3.46e-01 (proven: over 100 cones)\nwithin 73 %", shown)
    assert not same("gap 3.46e-01 (likely: over 100 cones)\nwithin 53 %", shown)
    assert not same("gap 3.46e-01 (proven: over 100 cones)", shown)


def test_there_are_outputs_to_check():
    assert sum(name == "README.md" for name, _, _ in SHOWN) >= 2


@pytest.mark.parametrize(("name", "code", "output"), SHOWN, ids=[f"{name}-{k}" for k, (name, _, _) in enumerate(SHOWN)])
def test_a_snippet_prints_what_is_shown_below_it(name, code, output):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("default")
        exec(compile(code, name, "exec"), {})
    assert same(said.getvalue(), output), said.getvalue()


@pytest.mark.parametrize(("name", "code"), [b[:2] for b in BLOCKS], ids=[f"{b[0]}-{k}" for k, b in enumerate(BLOCKS)])
def test_snippets_are_python_and_name_what_there_is(name, code):
    for node in ast.walk(ast.parse(code, name)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bidual":
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "bidual":
            assert hasattr(importlib.import_module("bidual"), node.attr)


def test_links_to_files_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists() or target.endswith(".rst"), f"{page.name}: {target}"


def test_the_picture_is_what_its_script_draws(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    spec = importlib.util.spec_from_file_location("hero", ROOT / "docs" / "hero.py")
    hero = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hero)
    told = re.search(r"with five neurons,\s+is stuck above it in (\d+) of (\d+) runs", PAGES[0].read_text())
    assert (hero.main(str(tmp_path / "fit.png")), hero.RUNS) == tuple(map(int, told.groups()))
    assert hero.WIDTH == 5
    assert (ROOT / "docs" / "fit.png").stat().st_size < 100_000
