"""The experiments of the papers: the machinery, and a few that take seconds."""

import re
from pathlib import Path

import pytest

from bidual.cli import main

ROOT = Path(__file__).parents[1]
NAME = re.compile(r"00[0-4]-(fig|table|a)\d+[a-z]?(-[a-z]+)?")


@pytest.fixture
def framework(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT))
    from reproductions import framework

    return framework


def test_every_experiment_states_its_claim_and_the_paper_s_numbers(framework):
    experiments = framework.discover()
    assert "003-fig2" in experiments
    for name, experiment in experiments.items():
        assert NAME.fullmatch(name), name
        assert experiment.claim.endswith(".")
        assert experiment.paper
        assert experiment.title


def test_an_experiment_without_its_data_is_not_called_a_success(framework, tmp_path):
    from reproductions.data import Data

    experiment = framework.Experiment("000-fig0", "t", "c.", "p", lambda context: context.data.load("nowhere"))
    outcome, _ = experiment(framework.Context(framework.Size.QUICK, Data(), tmp_path))
    assert outcome.verdict is framework.Verdict.UNTESTED
    assert "--data" in outcome.details


def test_sizes_fall_back_to_the_default(framework, tmp_path):
    from reproductions.data import Data

    def picked(size):
        return framework.Context(framework.Size(size), Data(), tmp_path).pick(quick=1, default=2)

    assert [picked(size) for size in ("quick", "default", "full")] == [1, 2, 2]


def test_descent_minimises_the_objective_it_reports(framework):
    import numpy as np
    from reproductions.descent import descend, two_layer

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 3)), rng.standard_normal(20)
    result = descend(two_layer(3, 10), X, y, beta=0.1, rate=0.05, epochs=300)
    first, _, second = result.module
    W1, W2 = (layer.weight.detach().numpy() for layer in (first, second))
    F = np.maximum(X @ W1.T, 0) @ W2.T
    by_hand = 0.5 * np.mean((F[:, 0] - y) ** 2) + 0.05 * (np.sum(W1**2) + np.sum(W2**2))
    assert result.objective == pytest.approx(by_hand, rel=1e-12)
    assert result.objectives[-1] < result.objectives[0]


def test_the_command_lists_experiments_and_refuses_unknown_ones(framework, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["reproduce", "--list"]) == 0
    assert "003-fig2" in capsys.readouterr().out
    assert main(["reproduce", "009-fig1"]) == 1
    assert "--list" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["reproduce", "--all", "--quick", "--full"])


def test_results_are_stored_and_become_a_page(framework, tmp_path):
    from reproductions import results
    from reproductions.data import Data

    outcome = framework.Outcome(framework.Verdict.HOLDS, ours="1 | 2", details="| a |\n|---|")
    experiment = framework.Experiment("003-fig0", "Title", "Claim.", "3", lambda context: outcome)
    context = framework.Context(framework.Size.QUICK, Data(), tmp_path / "results")
    found, seconds = experiment(context)
    results.store(tmp_path / "results", experiment, context, found, seconds)
    results.write_page(tmp_path / "results", tmp_path / "RESULTS.md", {experiment.name: experiment})
    page = (tmp_path / "RESULTS.md").read_text()
    assert "1 \\| 2" in page
    assert "**holds**" in page
