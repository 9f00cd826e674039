"""004 Fig. 6: the duality gap closes at a certain number of neurons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import torch

from bidual import ReLURegressor, SplineRegressor
from bidual.plots import plot_gap_by_width
from bidual.study.minimal import l0_l1_equivalence
from reproductions import paper004_fig1
from reproductions.descent import Ensemble, Penalty, descend, half_squares
from reproductions.framework import Context, Outcome, experiment, judge, table
from reproductions.line import Array, Line, line_squares

BETA = 1e-3
CASES = {"regularised (16)": BETA, "exact fit (4)": 0.0}


@dataclass(frozen=True)
class Bound:
    """What is proven about all widths: the best objective, a lower bound, and the neurons that reach the former."""

    objective: float
    lower_bound: float
    neurons: int


@dataclass(frozen=True)
class Problem:
    """Data, the networks that are trained on them, and the optimum over all widths for beta (zero: exact fits)."""

    X: Array
    y: Array
    widths: tuple[int, ...]
    networks: Callable[[int, int], torch.nn.Module]
    penalty: Penalty
    optimum: Callable[[float], Bound]


def on_a_line(x: Array, y: Array, widths: tuple[int, ...]) -> Problem:
    """One input, free biases."""

    def optimum(beta: float) -> Bound:
        fit = SplineRegressor(beta, tol=1e-8).fit(x[:, None], y)
        return Bound(fit.objective_, fit.likely_bound_, fit.n_neurons_)

    return Problem(x[:, None], y, widths, lambda m, runs: Line(m, runs, 0.5), line_squares, optimum)


def white(X: Array, y: Array, widths: tuple[int, ...]) -> Problem:
    """Orthonormal rows, no biases; the cheapest exact fit is that of Lemma 3.1."""

    def optimum(beta: float) -> Bound:
        if beta == 0.0:
            answer = l0_l1_equivalence(X, y)
            return Bound(answer.cost, answer.lower_bound, answer.minimal.n_neurons)
        fit = ReLURegressor(beta, bias=False, fit_intercept=False, tol=1e-6, random_state=0).fit(X, y)
        return Bound(fit.objective_, fit.likely_bound_, fit.n_neurons_)

    return Problem(X, y, widths, lambda m, runs: Ensemble(X.shape[1], m, seeds=range(runs)), half_squares, optimum)


def problems() -> dict[str, Problem]:
    """The points of Fig. 1, rank-one rows, white rows."""
    rng = np.random.default_rng(1)
    c, a = rng.standard_normal(15), rng.standard_normal(10) / 3.0
    Q = np.linalg.qr(rng.standard_normal((40, 30)))[0].T
    return {
        "one input, n = 6": on_a_line(paper004_fig1.x, paper004_fig1.y, tuple(range(1, 9))),
        "rank one, n = 15, d = 10": on_a_line(c * np.linalg.norm(a), np.sin(2 * c), (1, 2, 3, 4, 6, 8, 10, 12, 14, 16)),
        "white rows, n = 30, d = 40": white(Q, rng.standard_normal(30), tuple(range(1, 6))),
    }


def reached(problem: Problem, beta: float, runs: int, steps: int) -> Array:
    """The lowest objective found by Adam at each width, infinite if nothing fits exactly and beta is zero."""
    best = []
    for m in problem.widths:
        module = problem.networks(m, runs)
        gd = descend(
            module, problem.X, problem.y, beta=beta, penalty=problem.penalty, optimiser="adam", rate=0.03, cosine=True,
            epochs=steps, records=1,
        )  # fmt: skip
        ends = gd.objectives[-1]
        if beta == 0.0:  # then that is the loss
            with torch.no_grad():
                ends = np.where(ends < 1e-10, problem.penalty(module).numpy(), np.inf)
        best.append(float(np.nanmin(ends)))
    return np.array(best)


@experiment(
    "004-fig6",
    title="Duality gap against the number of neurons",
    claim="The gap between networks of m neurons and the dual closes once m reaches a certain value, for regularised "
    "training (16) and for exact fits (4).",
    paper="curves only: zero from a small m on, for one input, rank-one and white data",
)
def run(context: Context) -> Outcome:
    """The best network known at each width against the proven lower bound over all widths."""
    runs, steps = context.pick(quick=10, default=30), context.pick(quick=600, default=3_000)
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), sharey=True, layout="constrained")
    rows, closes, opens = [], [], []
    for axis, (name, problem) in zip(axes, problems().items(), strict=True):
        gaps = {}
        for label, beta in CASES.items():
            bound, found = problem.optimum(beta), reached(problem, beta, runs, steps)
            wide = np.array(problem.widths) >= bound.neurons
            # a network of m neurons is also one of more
            best = np.minimum.accumulate(np.where(wide, np.minimum(found, bound.objective), found))
            gaps[label] = 1.0 - bound.lower_bound / best
            closed = [m for m, gap in zip(problem.widths, gaps[label], strict=True) if gap < 1e-3]
            closes.append(bool(closed))
            opens.append(bool(gaps[label][0] > 0.02))
            alone = [m for m, end in zip(problem.widths, found, strict=True) if 1 - bound.lower_bound / end < 0.02]
            listed = ", ".join(f"{m}: {gap:.1g}" for m, gap in zip(problem.widths, gaps[label], strict=True))
            rows.append((name, label, bound.objective, f"{1 - bound.lower_bound / bound.objective:.0e}", bound.neurons,
                         closed[0] if closed else "-", alone[0] if alone else "-", listed))  # fmt: skip
            context.log(str(rows[-1]))
        plot_gap_by_width(problem.widths, gaps, ax=axis)
        axis.set_title(name, fontsize=10)
    context.save(figure, "004-fig6.png")
    return Outcome(
        judge(all(closes), all(opens)),
        ours="gap closed from m = "
        + ", ".join(f"{one[5]} and {two[5]} ({one[0]})" for one, two in zip(rows[::2], rows[1::2], strict=True))
        + f", regularised and for exact fits; open at m = 1 in {sum(opens)} of {len(opens)} cases",
        sizes=f"best of {runs} runs of Adam of {steps} steps at each width, and the optimum itself where m allows; "
        f"beta = {BETA:g} of half the mean square as in (39), where (16) has the sum; our own points, those of Fig. 1",
        details=table(
            ["data", "problem", "optimum over all widths", "its gap", "its neurons", "closed from m",
             "Adam within 2 % from m", "gaps by m"],
            rows,
        )
        + "\n\nThe gap at m is that of the best network known with at most m neurons: from Adam, or the proven optimum "
        "over all widths if that has no more than m neurons. It counts as closed below 0.001. For exact fits only "
        "networks with a loss below 1e-10 count, by their penalty; the gap is 1 where none was found. Fewer neurons "
        "than those of our optimum may be enough, so m is an upper bound. Biases are free and there is an output bias "
        "(no biases for white rows). For rank-one rows c a' only the part of u along a matters, and networks are "
        "trained on the coordinate c |a|.",
    )  # fmt: skip
