"""Ours and the peers one after the other on the same problems: objective against time.

python benchmarks/engine.py [--quick | --full] [--data DIR] [--problems TEXT ...] [--methods TEXT ...]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from peers import bidual_peer, external
from peers.common import Trace
from peers.registry import MODES, Peer
from problems import Problem, problems, tiny
from report import machine, table, write_section

HERE = Path(__file__).parent
RESULTS = HERE / "results"
#: Points of a trace that are kept in the raw results.
KEPT_POINTS = 30

INTRODUCTION = """\
Squared mean loss, weight decay `beta/2 (||W1||^2 + ||W2||^2)`, no biases and no intercept; real data is standardised
and has a ones column as a feature. Every objective is that of the network itself in float64; evaluating it is not
timed. Columns in seconds show the lowest objective up to that time (the last one, if the run has ended); "to 1 %" is
the time to come within 1 % of the best objective of all ranked methods of this run. With several seeds all are medians,
and the best final objective is in brackets. Adam: full batch, float32, cosine rate; its step size and number of
threads are tuned on seed 0 by short runs whose time is not counted. Ours: `tol=1e-3`, kernels compiled before
({warm_up:.1f} s, once).

scikit-learn (marked *) has unpenalised hidden biases and a free intercept that cannot be switched off, so it solves
another problem: its objective is shown with hidden biases charged like weights, and not ranked."""

GATED_INTRODUCTION = """\
Gated ReLU: fixed Gaussian gates, the same for all methods; a group lasso, and another problem than the one above.
adelie and skglm do not tell their progress: each point is a run of its own to a smaller tolerance, and a column in
seconds shows the best run that takes no longer."""


@dataclass
class Outcome:
    """One method on one problem, a trace for each seed."""

    problem: Problem
    peer: Peer
    traces: list[Trace]

    @property
    def ran(self) -> list[Trace]:
        """The traces with points."""
        return [t for t in self.traces if t.objectives]

    @property
    def best(self) -> float:
        """The lowest objective over all seeds."""
        return min((t.best for t in self.traces), default=np.inf)

    def median(self, values: list[float]) -> float:
        """Median over the seeds; the upper one of an even number, so that it is the value of a run."""
        return statistics.median_high(values) if values else np.nan


@dataclass
class Run:
    """Everything of one run of the benchmark."""

    mode: str
    method: str
    warm_up: float
    checkpoints: list[int]
    notes: list[str]
    load: float
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    def of(self, problem: Problem, *kinds: str) -> list[Outcome]:
        """The outcomes of one problem that have points."""
        return [o for o in self.outcomes if o.problem is problem and o.peer.kind in kinds and o.ran]

    def problems(self) -> list[Problem]:
        """The problems in the order they were run."""
        return list(dict.fromkeys(o.problem for o in self.outcomes))

    def best_known(self, problem: Problem, kind: str) -> float:
        """The lowest objective of the methods of this kind."""
        return min((o.best for o in self.of(problem, kind)), default=np.nan)


# ---- tables ------------------------------------------------------------------------------------


def _number(value: float, digits: int = 5) -> str:
    return f"{value:.{digits}g}" if np.isfinite(value) else "-"


def _seconds(value: float) -> str:
    return "-" if not np.isfinite(value) else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _gap(trace: Trace) -> str:
    """Our likely gap and what it is about."""
    if "gap" not in trace.extra:
        return ""
    scope = trace.extra.get("scope", "global")
    return f"{trace.extra['gap']:.1e}" + (f" ({scope})" if scope != "global" else "")


def main_table(run: Run, problem: Problem, *kinds: str) -> str:
    """Methods of one problem, one a row."""
    best = run.best_known(problem, kinds[0])
    rows = []
    for outcome in run.of(problem, *kinds):
        ran = outcome.ran
        final = outcome.median([t.best for t in ran])
        row = [outcome.peer.name + (" *" if outcome.peer.kind == "other" else "")]
        row += [_number(outcome.median([t.at(s) for t in ran])) for s in run.checkpoints]
        if outcome.peer.kind == "other":
            row += ["", ""]
        else:
            row += [_seconds(outcome.median([t.time_to(best * (1 + e)) for t in ran])) for e in (1e-2, 1e-3)]
        row.append(_number(final, 6) + (f" ({_number(outcome.best, 6)})" if len(ran) > 1 else ""))
        row.append(_seconds(outcome.median([t.seconds for t in ran])))
        row += [_gap(ran[0]), "" if ran[0].neurons is None else str(ran[0].neurons)]
        rows.append(row)
    columns = [
        "method",
        *(f"{s} s" for s in run.checkpoints),
        "to 1 %",
        "to .1 %",
        "final",
        "ended at",
        "likely gap",
        "neurons",
    ]
    return table(columns, rows)


def target_table(run: Run) -> str:
    """Ours beside the best Adam run, and our time to the gap asked for."""
    rows = []
    for problem in run.problems():
        ours = next((o for o in run.of(problem, "relu") if o.peer.name == "ours"), None)
        adam = min((o for o in run.of(problem, "relu") if o.peer.name.startswith("Adam")), key=_best, default=None)
        if ours is None or adam is None:
            continue
        fastest = min(adam.ran, key=lambda t: t.best)
        reached = ours.median([t.time_to(fastest.best) for t in ours.ran])
        near = fastest.time_to(fastest.best * (1 + 1e-4))
        to_gap = ours.median([t.extra["seconds_to_gap"] for t in ours.ran])
        rows.append(
            [
                problem.key,
                f"{_number(fastest.best, 6)} ({adam.peer.name})",
                _seconds(fastest.seconds),
                _seconds(near),
                _seconds(reached),
                f"{fastest.seconds / reached:.1f} x" if np.isfinite(reached) else "-",
                _number(ours.best, 6),
                _seconds(to_gap),
                _gap(ours.ran[0]),
            ]
        )
    columns = [
        "problem", "Adam's best of its runs", "one Adam run, s", "Adam within 1e-4 of it, s", "ours to Adam's best, s",
        "Adam run / ours", "ours, final", f"ours to likely gap {bidual_peer.TOL:g}, s", "likely gap at the end",
    ]  # fmt: skip
    return table(columns, rows)


def _best(outcome: Outcome) -> float:
    return outcome.best


def notes_list(run: Run) -> str:
    """What was left out, stopped or not installed: one line for each method and reason."""
    where: dict[tuple[str, str], list[str]] = {}
    for outcome in run.outcomes:
        for note in dict.fromkeys(t.note for t in outcome.traces if t.note):
            where.setdefault((outcome.peer.name, note), []).append(outcome.problem.key)
    lines = [f"- {note}" for note in run.notes]
    total = len(run.problems())
    for (name, note), keys in where.items():
        lines.append(f"- {name}: {note} ({'everywhere' if len(keys) == total else '; '.join(keys)})")
    return "\n".join(lines)


def contradictions(run: Run) -> list[str]:
    """Methods that went below our likely bound: there must be none, or somebody solves another problem."""
    found = []
    for problem in run.problems():
        for ours in (t for o in run.of(problem, "relu") for t in o.ran if t.extra.get("scope") == "global"):
            lower = ours.extra["lower_bound"]
            for outcome in run.of(problem, "relu"):
                if outcome.best < lower - 1e-6 * abs(lower):
                    found.append(
                        f"{problem.key}: {outcome.peer.name} reached {outcome.best:.8g}, below our likely bound "
                        f"{lower:.8g}"
                    )
    return list(dict.fromkeys(found))


def section(run: Run) -> str:
    """The section of the results."""
    parts = [f'## Engine (`benchmarks/engine.py`, {run.mode}; method "{run.method}"; {machine()})']
    parts += [INTRODUCTION.format(warm_up=run.warm_up), "### The targets", target_table(run)]
    if run.mode != "quick":
        parts.append("![objective above the best known against time](results/engine.png)")
    for problem in run.problems():
        n, d = problem.shape
        parts += [f"### {problem.key} ({n} x {d})", main_table(run, problem, "relu", "other")]
    gated = [p for p in run.problems() if run.of(p, "gated")]
    if gated:
        parts += ["### Gated ReLU", GATED_INTRODUCTION]
        for problem in gated:
            parts += [f"#### {problem.key}", main_table(run, problem, "gated")]
    if found := contradictions(run):
        parts += ["### CONTRADICTIONS", "\n".join(f"- {line}" for line in found)]
    parts += ["### Left out, stopped, not installed", notes_list(run) or "Nothing."]
    parts.append(f"The whole run took {run.seconds / 60:.1f} minutes.")
    return "\n\n".join(parts)


# ---- files -------------------------------------------------------------------------------------


def _thin(trace: Trace) -> dict[str, Any]:
    """The points at which the objective fell, at most KEPT_POINTS of them, evenly in the logarithm of time."""
    times, values = np.array(trace.times), np.array(trace.objectives)
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    keep = np.flatnonzero(values < np.minimum.accumulate(np.concatenate([[np.inf], values[:-1]])))
    if len(keep) > KEPT_POINTS:
        wanted = np.geomspace(max(times[keep[0]], 1e-4), max(times[keep[-1]], 2e-4), KEPT_POINTS)
        near = np.clip(np.searchsorted(times[keep], wanted), 0, len(keep) - 1)
        keep = keep[np.unique([0, *near, len(keep) - 1])]
    points = {
        "times": [float(f"{t:.3g}") for t in times[keep]],
        "objectives": [float(f"{v:.8g}") for v in values[keep]],
        "seconds": float(f"{trace.seconds:.3g}") if trace.times else None,
    }
    extra = {
        k: float(f"{v:.6g}") if isinstance(v, float) and np.isfinite(v) else str(v) for k, v in trace.extra.items()
    }
    return {**points, "neurons": trace.neurons, "note": trace.note, **extra}


def write_raw(run: Run) -> None:
    """benchmarks/results/engine.json, written after every problem."""
    data = {
        "mode": run.mode,
        "method": run.method,
        "machine": machine(),
        "load_before": round(run.load, 2),
        "warm_up_seconds": round(run.warm_up, 2),
        "notes": run.notes,
        "results": [
            {
                "problem": o.problem.name,
                "beta": o.problem.beta,
                "shape": o.problem.shape,
                "method": o.peer.name,
                "kind": o.peer.kind,
                "limit": o.peer.limit,
                "runs": [{"seed": s, **_thin(t)} for s, t in zip(o.peer.seeds, o.traces, strict=False)],
            }
            for o in run.outcomes
        ],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "engine.json").write_text(json.dumps(data), encoding="utf-8")


def draw(run: Run) -> None:
    """One small figure a problem: objective minus the best known against time, seed 0."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    shown = [p for p in run.problems() if len(run.of(p, "relu")) > 0]
    names = list(dict.fromkeys(o.peer.name for o in run.outcomes if o.peer.kind == "relu" and o.ran))
    colours = {name: plt.get_cmap("tab10")(k % 10) for k, name in enumerate(names)}
    longest = 1.1 * max(t.seconds for p in shown for o in run.of(p, "relu") for t in o.ran)
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.4 * columns, 2.7 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    for axis, problem in zip(axes.flat, shown, strict=False):
        best = run.best_known(problem, "relu")
        for outcome in run.of(problem, "relu"):
            trace = outcome.ran[0]
            times, lowest = np.array(trace.times), np.minimum.accumulate(trace.objectives)
            style = {"marker": "o", "markersize": 4} if len(times) == 1 else {"drawstyle": "steps-post"}
            colour, width = colours[outcome.peer.name], 2.2 if outcome.peer.name == "ours" else 1.1
            axis.plot(times, np.maximum(lowest - best, 1e-6 * best), color=colour, linewidth=width, **style)
        axis.set(xscale="log", yscale="log", xlim=(1e-2, longest))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_title(problem.key, fontsize=8)
        axis.tick_params(labelsize=6)
    for axis in axes[:, 0]:
        axis.set_ylabel("objective - best known", fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("seconds", fontsize=7)
    lines = [plt.Line2D([], [], color=colours[name], linewidth=2) for name in names]
    figure.legend(lines, names, loc="outside upper center", ncols=4, fontsize=8)
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "engine.png", dpi=80, pil_kwargs={"optimize": True})
    plt.close(figure)


# ---- the run -----------------------------------------------------------------------------------


def measure(problem: Problem, peer: Peer) -> Outcome:
    """All seeds of one method on one problem; what it cannot do is a trace without points."""
    reason = peer.refuse(problem)
    if reason:
        return Outcome(problem, peer, [Trace(note=reason)])
    traces = []
    for seed in peer.seeds:
        try:
            trace = peer.run(problem, seed, peer.limit)
        except Exception as error:  # one failing peer must not end the run
            if peer.name == "ours":
                raise
            trace = Trace(note=f"failed: {type(error).__name__}: {str(error)[:150]}")
        value = f"{trace.best:.7g} in {trace.seconds:.2f} s" if trace.objectives else ""
        print(f"  {peer.name}, seed {seed}: {value} {trace.note}", flush=True)
        traces.append(trace)
        if not trace.objectives:
            break  # the other seeds would fail the same way
    return Outcome(problem, peer, traces)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--quick", action="store_true", help="a smoke test of less than a minute; prints only")
    modes.add_argument("--full", action="store_true", help="long budgets, all seeds; some hours")
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data", help="folder of npz files")
    parser.add_argument("--method", default=bidual_peer.METHOD, help="method of our estimator")
    parser.add_argument("--problems", nargs="+", help="only problems whose name contains one of these; prints only")
    parser.add_argument("--methods", nargs="+", help="only methods whose name contains one of these; prints only")
    args = parser.parse_args()
    if not bidual_peer.available(args.method):
        parser.error(f"this version of the library has no method {args.method!r}")
    mode = "quick" if args.quick else "full" if args.full else "default"
    began = time.perf_counter()

    chosen, notes = (tiny(), []) if args.quick else problems(args.data)
    peers = MODES[mode](args.method)
    if args.problems:
        chosen = [p for p in chosen if any(text in p.key for text in args.problems)]
    if args.methods:
        peers = [p for p in peers if any(text in p.name for text in args.methods)]
    if not chosen or not peers:
        parser.error("no problem or no method is left")
    writes = mode != "quick" and not args.problems and not args.methods
    if any(isinstance(getattr(p.run, "worker", p.run), external.Worker) for p in peers):
        notes += [f"{name} could not be installed: {why}" for name, why in external.prepare().items() if why]
    for note in notes:
        print(note, flush=True)

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > 0.5:
        notes.append(f"the machine was busy (load {load:.1f} before the start): do not trust the times")
        print(notes[-1], flush=True)
    warm_up = bidual_peer.warm_up(args.method)
    run = Run(mode, args.method, warm_up, [1, 3, 10, 30] + [100] * args.full, notes, load)
    print(f"{len(chosen)} problems, {len(peers)} methods, {os.cpu_count()} cores; warm-up {warm_up:.1f} s", flush=True)
    for problem in chosen:
        print(f"{problem.key}, {problem.shape[0]} x {problem.shape[1]}", flush=True)
        run.outcomes += [measure(problem, peer) for peer in peers]
        if writes:
            write_raw(run)
    run.seconds = time.perf_counter() - began
    text = section(run)
    print(text)
    if writes:
        draw(run)
        write_section("engine", text)


if __name__ == "__main__":
    main()
