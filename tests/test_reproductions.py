"""The experiments of the papers: the machinery, and a few that take seconds."""

import json
import re
import warnings
from collections import Counter
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


@pytest.fixture
def experiments(framework):
    return framework.discover()


@pytest.fixture
def context(framework, tmp_path):
    from reproductions.data import Data

    return framework.Context(framework.Size.QUICK, Data(), tmp_path)


def test_every_script_can_be_imported(framework):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        framework.discover()
    assert not [str(warning.message) for warning in caught]


def test_every_figure_and_table_of_the_papers_has_a_script_and_a_record(experiments):
    parts = {
        "000": ["fig1", "fig2", "fig3", "fig4", "a2", "a5"],
        "001": [f"fig{k}" for k in range(1, 7)],
        "002": ["fig1", "fig4", "fig5", "fig6", "fig7", "table2", "table3"],
        "003": [*(f"fig{k}" for k in range(2, 12)), "table1"],
        "004": [*(f"fig{k}" for k in range(1, 11)), "table1", "table1-images"],
    }
    names = {f"{paper}-{part}" for paper, every in parts.items() for part in every}
    assert set(experiments) == names
    assert {path.stem for path in (ROOT / "reproductions" / "results").glob("*.json")} == names


def test_every_experiment_states_its_claim_and_the_paper_s_numbers(experiments):
    assert "003-fig2" in experiments
    for name, experiment in experiments.items():
        assert NAME.fullmatch(name), name
        assert experiment.claim.endswith(".")
        assert experiment.paper
        assert experiment.title


def test_the_readme_tells_the_verdicts_of_the_records(framework):
    records = [json.loads(path.read_text()) for path in (ROOT / "reproductions" / "results").glob("*.json")]
    count = Counter(record["verdict"] for record in records)
    told = f"{count['holds']} claims hold here, {count['holds in part']} in part, {count['does not hold here']} do not"
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"The {len(records)} experiments" in readme
    assert told in readme


def test_an_experiment_without_its_data_is_not_called_a_success(framework, tmp_path):
    from reproductions.data import Data

    experiment = framework.Experiment("000-fig0", "t", "c.", "p", lambda context: context.data.load("nowhere"))
    outcome, _ = experiment(framework.Context(framework.Size.QUICK, Data(), tmp_path))
    assert outcome.verdict is framework.Verdict.UNTESTED
    assert "--data" in outcome.details


def test_broken_files_are_named(framework, context, tmp_path):
    from reproductions.data import Data

    (tmp_path / "iris.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"iris\.npz is not an NPZ file"):
        Data(tmp_path).load("iris")
    (tmp_path / "003-fig2.json").write_text("{")
    with pytest.raises(ValueError, match=r"003-fig2\.json is not a record of an experiment"):
        context.numbers("003-fig2")


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


def test_runs_of_an_ensemble_are_those_of_its_networks_alone(framework):
    import numpy as np
    import torch
    from reproductions.descent import Ensemble, descend, two_layer

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 3)), np.sign(rng.standard_normal(20))
    options = {"beta": 0.01, "loss": "hinge", "rate": 0.05, "momentum": 0.9, "epochs": 50}
    together = descend(Ensemble(3, 6, seeds=[4, 7]), X, y, **options)
    for run, seed in enumerate([4, 7]):
        alone = descend(two_layer(3, 6, seed=seed), X, y, **options)
        np.testing.assert_allclose(together.objectives[:, run], alone.objectives, rtol=1e-10)
        F = together.module.network(run)(torch.as_tensor(X)).detach().numpy()
        np.testing.assert_allclose(F, alone.module(torch.as_tensor(X)).detach().numpy(), atol=1e-10)
    in_batches = descend(Ensemble(3, 6, seeds=[4, 4]), X, y, batch_size=5, **options)
    assert in_batches.objectives[-1, 0] != in_batches.objectives[-1, 1]  # each run has batches of its own
    assert in_batches.objectives[-1].max() < in_batches.objectives[0].min()


def test_runs_of_parallel_networks_are_those_of_the_networks_alone(framework):
    import numpy as np
    from reproductions.descent import descend
    from reproductions.paper002_table2 import M1, M2, D, N, ParallelModule, Runs

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((N, D)), rng.standard_normal(N)
    options = {"beta": 0.01, "rate": 0.05, "momentum": 0.9, "epochs": 40}
    together = descend(Runs(4, 2), X, y, penalty=lambda m: m.path_norms(), **options)
    for seed in range(2):
        module = ParallelModule([D, M1, M2, 1], 4, seed=seed)
        alone = descend(module, X, y, penalty=lambda m: m.path_norm(), **options)
        np.testing.assert_allclose(together.objectives[:, seed], alone.objectives, rtol=1e-10)
        assert alone.objective == pytest.approx(module.network().objective(X, y, beta=0.01), rel=1e-10)


def test_tuning_keeps_the_lowest_end_and_never_a_run_that_blew_up(framework):
    import numpy as np
    from reproductions.descent import descend, tuned, two_layer

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 3)), rng.standard_normal(20)
    run, rate = tuned((1e-4, 0.05, 1e6), lambda r: descend(two_layer(3, 5), X, y, beta=0.01, rate=r, epochs=200))
    assert rate == 0.05
    assert np.isfinite(run.objective)


def test_tuning_goes_past_the_ends_of_its_rates(framework):
    import numpy as np
    from reproductions.descent import Descent, tuned

    tried = []

    def train(rate):
        tried.append(rate)
        return Descent(None, np.array([abs(np.log10(rate) - best)]), np.ones(1))

    for best, expected in (
        (1.2, [0.1, 1.0, 10.0, 100.0]),
        (-9.0, [0.1, 1.0, 0.01, 1e-3, 1e-4]),
        (0.1, [0.1, 1.0, 10.0]),
    ):
        tried.clear()
        _, rate = tuned((0.1, 1.0), train)
        np.testing.assert_allclose(tried, expected)
        assert rate == pytest.approx(min(expected, key=lambda r: abs(np.log10(r) - best)))
    tried.clear()
    assert tuned((0.1,), train)[1] == 0.1
    assert tried == [0.1]
    ends = {0.1: [3.0, 3.0, 3.0], 1.0: [2.0, 2.0, 9.0], 10.0: [1.0, 1.0, np.nan]}
    run = {rate: Descent(None, np.array([end]), np.ones(1)) for rate, end in ends.items()}
    assert tuned((0.1, 1.0, 10.0), run.get)[1] == 1.0  # where one of the runs blows up the step is too long


def test_the_peer_of_the_spiral_charges_more_than_the_path_regulariser(framework):
    pytest.importorskip("cvxpy")
    import numpy as np
    from reproductions import paper002_fig1

    from bidual import Parallel, ReLURegressor

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 2)), rng.standard_normal(6)
    predict, objective = paper002_fig1.weight_decay(X, y, m1=2)
    path = ReLURegressor(paper002_fig1.BETA_PAPER / 6, architecture=Parallel(2), method="exact").fit(X, y)
    assert objective >= 6 * path.lower_bound_
    np.testing.assert_allclose(predict(X), y, atol=1e-2)


def test_verdicts_and_tables(framework):
    assert framework.judge(True, True) is framework.Verdict.HOLDS
    assert framework.judge(True, False) is framework.Verdict.PARTLY
    assert framework.judge(False, False) is framework.Verdict.FAILS
    assert framework.table(["a", "b"], [(1, 2.0)]).splitlines() == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]


def test_experiments_are_in_the_order_of_the_papers(framework):
    names = ["003-table1", "003-fig10", "003-fig9", "000-a2"]
    assert sorted(names, key=framework.natural) == ["000-a2", "003-fig9", "003-fig10", "003-table1"]


@pytest.mark.parametrize("name", ["004-fig2", "004-fig3", "004-fig4"])
def test_small_experiments_run_and_their_claims_hold(framework, experiments, context, name):
    outcome, _ = experiments[name](context)
    assert outcome.verdict is framework.Verdict.HOLDS
    assert (context.folder / f"{name}.png").stat().st_size > 1000
    assert context.cpu_seconds > 0


def test_the_table_of_times_judges_by_the_records_of_other_experiments(framework, experiments, context):
    from reproductions.paper003_table1 import PAPER

    table = experiments["003-table1"]

    def verdict(**program):
        """With programs that took one second and ended at 1, and SGD nine and 2; the last figure may differ."""
        for figure, names in PAPER.items():
            sgd, fit = ({"seconds": s, "objective": o, "test": t} for s, o, t in ((9.0, 2.0, 60.0), (1.0, 1.0, 66.0)))
            fit |= program if figure == "003-fig5" else {}
            numbers = {name: sgd if name == "SGD" else fit for name in names}
            (context.folder / f"{figure}.json").write_text(json.dumps({"numbers": numbers}))
        return table(context)[0]

    assert table(context)[0].verdict is framework.Verdict.UNTESTED
    assert verdict().verdict is framework.Verdict.HOLDS
    assert "420.663" in verdict().details
    assert verdict(objective=3.0).verdict is framework.Verdict.PARTLY
    assert verdict(matched=0.5).verdict is framework.Verdict.PARTLY  # SGD is there earlier
    (context.folder / "003-fig3.json").unlink()
    assert table(context)[0].verdict is framework.Verdict.UNTESTED


def test_one_broken_experiment_costs_no_other(framework, experiments, capsys, monkeypatch, tmp_path):
    def fails(context):
        raise KeyError("broken")

    made = {
        "000-fig8": framework.Experiment("000-fig8", "t", "c.", "p", fails),
        "000-fig9": framework.Experiment(
            "000-fig9", "t", "c.", "p", lambda context: framework.Outcome(framework.Verdict.HOLDS, ours="1")
        ),
    }
    monkeypatch.setattr(framework, "discover", lambda: made)
    monkeypatch.chdir(ROOT)
    assert main(["reproduce", "--all", "--quick", "--out", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "000-fig8" in captured.err
    assert "holds" in captured.out
    assert not (tmp_path / "results" / "000-fig8.json").exists()
    assert "000-fig9" in (tmp_path / "RESULTS.md").read_text()


def test_the_command_lists_experiments_and_refuses_unknown_ones(framework, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["reproduce", "--list"]) == 0
    assert "003-fig2" in capsys.readouterr().out
    assert main(["reproduce", "009-fig1"]) == 1
    assert "--list" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["reproduce", "--all", "--quick", "--full"])


def test_a_whole_name_means_one_experiment_and_a_beginning_means_several(framework, capsys, monkeypatch, tmp_path):
    outcome = framework.Outcome(framework.Verdict.HOLDS, ours="1")
    made = {
        name: framework.Experiment(name, "t", "c.", "p", lambda context: outcome)
        for name in ("004-fig1", "004-fig10", "004-fig2")
    }
    monkeypatch.setattr(framework, "discover", lambda: made)
    monkeypatch.chdir(ROOT)
    for k, (name, expected) in enumerate((("004-fig1", ["004-fig1"]), ("004-f", sorted(made)))):
        assert main(["reproduce", name, "--quick", "--out", str(tmp_path / str(k))]) == 0
        assert sorted(path.stem for path in (tmp_path / str(k) / "results").glob("*.json")) == expected


def test_results_are_stored_and_become_a_page(framework, tmp_path):
    from reproductions import results
    from reproductions.data import Data

    outcome = framework.Outcome(framework.Verdict.HOLDS, ours="1 | 2", details="| a |\n|---|")
    experiment = framework.Experiment("003-fig0", "Title", "Claim.", "3", lambda context: outcome)
    context = framework.Context(framework.Size.QUICK, Data(), tmp_path / "results")
    found, seconds = experiment(context)
    results.store(tmp_path / "results", experiment, context, found, seconds)
    results.write_page(tmp_path / "results", tmp_path / "RESULTS.md")
    page = (tmp_path / "RESULTS.md").read_text()
    assert "1 experiments, claim: holds (1)." in page
    assert "1 \\| 2" in page
    assert "**holds**" in page
