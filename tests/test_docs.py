"""What the documentation makes by itself: titles of examples, formulas, lists of names."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path

import pytest

import bidual

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "docs" / "_ext").is_dir(), reason="the documentation is not here")


def extension(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_becomes_a_page(path):
    script = path.read_text(encoding="utf-8")
    page = extension("gallery").titled(script)
    words = ast.get_docstring(ast.parse(page)).splitlines()
    assert len(words[0]) > 5
    assert set(words[1]) == {"="}
    assert len(words[1]) >= len(words[0])
    # the code is the same
    dump = [ast.dump(node) for node in ast.parse(script).body[1:]]
    assert [ast.dump(node) for node in ast.parse(page).body[1:]] == dump


def test_plain_docstrings_get_a_title():
    titled = extension("gallery").titled
    page = titled('"""Do a thing. It is\nnice.\n\n    python x.py\n"""\nx = 1\n')
    head = 'r"""\nDo a thing\n==========\n\nIt is nice.\n\n'
    assert page == head + '.. code-block:: none\n\n    python x.py\n"""\nx = 1\n'
    assert titled("x = 1\n").startswith('r"""\nAn example\n')
    assert titled(page) == page


def test_gallery_follows_the_examples(tmp_path):
    gallery, source, target = extension("gallery"), tmp_path / "a", tmp_path / "b"
    source.mkdir()
    (source / "one.py").write_text('"""One."""\n')
    gallery.prepare(source, target)
    written = (target / "one.py").stat().st_mtime_ns
    (source / "two.py").write_text('"""Two."""\n')
    gallery.prepare(source, target)
    assert (target / "one.py").stat().st_mtime_ns == written  # not run again
    assert (target / "two.py").exists()
    (source / "one.py").unlink()
    gallery.prepare(source, target)
    assert not (target / "one.py").exists()


def test_reference_lists_every_public_name(tmp_path):
    pytest.importorskip("docutils", reason="Sphinx is not installed")
    extension("reference").write_names(tmp_path / "api")
    page = (tmp_path / "api" / "index.rst").read_text()
    assert all(f"   ~bidual.{name}\n" in page for name in bidual.__all__)
    assert "bidual.plots.FitDisplay" in page


def test_formulas_become_mathml():
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    pytest.importorskip("latex2mathml", reason="latex2mathml is not installed")
    mathml = extension("mathml")
    assert "<mfrac>" in mathml._mathml(r"\tfrac\beta2 \sum_j \|u_j\|^2", "inline")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_sources_that_a_page_shows_exist(page):
    for path, name in re.findall(r"\{literalinclude\} (\S+)\n:pyobject: (\S+)", page.read_text(encoding="utf-8")):
        tree = ast.parse((page.parent / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def test_the_table_of_what_goes_together_is_the_one_that_is_declared():
    table = "\n".join(extension("together").table())
    assert table in (ROOT / "README.md").read_text(encoding="utf-8")


def test_papers_are_linked_where_text_cites_them_and_numbers_are_left_alone():
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    papers = extension("papers")
    cited = "as 003 eq. 8 and (000 Theorem 2.2) say, 004's cuts, 001."
    assert papers.SHORT.findall(cited) == ["003", "000", "004", "001"]
    assert not papers.SHORT.findall("10,000 rows, .002, 0.001, 200,000; 003.5 and x-003")
    assert set(papers.PAPERS) == set(re.findall(r"^\| (00\d) \|", (ROOT / "README.md").read_text(), re.MULTILINE))
    for paper in papers.PAPERS.values():
        assert f"[{paper.title}]({paper.link})" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_titles_of_examples_cite_nothing_in_brackets():
    assert (
        extension("gallery").titled('"""Kinks at points (004 sec. 3, figure 1). More."""\n').splitlines()[1]
        == "Kinks at points"
    )


def test_what_scrolls_can_be_reached_by_keys():
    accessible = extension("accessible")
    page = '<pre>x</pre><pre class="a">y</pre><div class="table-wrapper docutils"><p>z</p></div><preface>'
    assert accessible.reachable(page).count('tabindex="0"') == 3
    assert 'aria-level="2"' in accessible.levelled('<p role="heading">a</p>')


def test_the_numbers_of_the_defaults_in_readme_are_those_recorded():
    results, readme = extension("results"), (ROOT / "README.md").read_text(encoding="utf-8")
    sets = results.scores()
    shown = dict(
        zip(("ours", "boosting", "MLP", "SVM", "linear"), re.findall(r"\| \**(\.\d{3})\** \|", readme), strict=False)
    )
    assert len(shown) == 5
    for model, score in shown.items():
        recorded = sum(of[model] for of in sets.values()) / len(sets)
        assert float(score) == pytest.approx(recorded, abs=5.1e-4)
    assert f"on unseen rows, {len(sets)} sets" in re.sub(r"\s+", " ", readme)


def test_plots_of_the_benchmarks_are_drawn_from_what_is_recorded(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    results = extension("results")
    results.draw(tmp_path)
    pages = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for name in results.FIGURES:
        assert f"_results/{name}.svg" in pages
        assert "<svg" in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
    assert results.ranks({"a": 1.0, "b": 2.0, "c": 1.0}) == {"a": 2.5, "b": 1.0, "c": 2.5}


def test_lower_bounds_are_read_from_the_project():
    spec = importlib.util.spec_from_file_location("lower_bounds", ROOT / ".ci" / "lower_bounds.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    bounds = list(module.lower_bounds(ROOT / "pyproject.toml", ["plot"]))
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", bound) for bound in bounds)
    assert {"numpy", "scikit-learn", "matplotlib"} <= {bound.partition("==")[0] for bound in bounds}


def test_version_and_citation_agree():
    assert f"version: {bidual.__version__}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_proven_gaps_in_readme_are_those_recorded():
    results, readme = extension("results"), (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (planted \d+ x \d+|breast_cancer|diabetes)[^|]*\| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|", readme, re.M
    )
    recorded = {(line["problem"], line["kappa"]): line for line in results.journal("certify")}
    assert len(rows) >= 6
    for name, *gaps in rows:
        for kappa, shown in zip(("0.3", "0.1", "0.02"), gaps, strict=True):
            line = recorded[name.replace(" x ", "x"), kappa]
            said = next(line[f"ours, {seconds} s"] for seconds in (60, 10, 1) if line.get(f"ours, {seconds} s"))
            assert float(shown) == pytest.approx(float(said.split()[0]), rel=0.03, abs=0.051), (
                f"{name}, {kappa}: {said}"
            )
