"""Which methods are run, on what, for how long. A new peer is one entry here and one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from problems import Problem

from .bidual_peer import Ours, OursGated
from .common import Trace
from .external import Worker
from .gated import Gated
from .sklearn_peer import SklearnAdam, SklearnLBFGS
from .torch_peer import LBFGS, Adam

Run = Callable[[Problem, int, float], Trace]


def _anywhere(_: Problem) -> str:
    return ""


@dataclass(frozen=True)
class Peer:
    """A method.

    ``kind`` is "relu" (the problem itself), "other" (a network outside the problem's class: shown, not ranked) or
    "gated" (the relaxation with fixed gates: a problem of its own). ``refuse`` says why a problem is left out, or "".
    """

    name: str
    run: Run
    limit: float
    seeds: tuple[int, ...] = (0,)
    kind: str = "relu"
    refuse: Callable[[Problem], str] = field(default=_anywhere)


def _at_most(patterns: int, numbers: float) -> Callable[[Problem], str]:
    def refuse(problem: Problem) -> str:
        n, d = problem.shape
        large = 2 * patterns * n * d > numbers
        return f"left out: more than {numbers:.1e} numbers in the cone constraints" if large else ""

    return refuse


def _some(problem: Problem) -> str:
    # starting the workers takes longer than solving
    wanted = problem.beta == 0.01 and problem.name.startswith(("planted", "diabetes", "breast_cancer"))
    return "" if wanted else "left out in this mode"


def _cvxpy(patterns: int, limit: float, numbers: float) -> Peer:
    run = Worker("cvxpy_worker.py", own_environment=False, patterns=patterns)
    return Peer(f"CVXPY+Clarabel, {patterns} patterns", run, limit, refuse=_at_most(patterns, numbers))


def _pyscnn(patterns: int, limit: float, numbers: float) -> Peer:
    run = Worker("pyscnn_worker.py", own_environment=True, group="pyscnn", model="relu", patterns=patterns)
    return Peer(f"pyscnn AL, {patterns} patterns", run, limit, refuse=_at_most(patterns, numbers))


def _gated(limit: float, n_gates: int, refuse: Callable[[Problem], str]) -> list[Peer]:
    fista = Worker("pyscnn_worker.py", own_environment=True, group="pyscnn", model="gated")
    runs: dict[str, Run] = {
        "ours, gated": OursGated(n_gates),
        "pyscnn R-FISTA": Gated(fista, n_gates),
        **{
            solver: Gated(Worker("group_lasso_worker.py", own_environment=True, group=solver, solver=solver), n_gates)
            for solver in ("adelie", "skglm")
        },
    }
    return [Peer(name, run, limit, kind="gated", refuse=refuse) for name, run in runs.items()]


def quick(method: str) -> list[Peer]:
    """All code paths in less than a minute."""
    return [
        Peer("ours", Ours(method), 3),
        Peer("Adam m=50, 200 steps", Adam(50, 200), 3, (0, 1)),
        Peer("L-BFGS m=200", LBFGS(200), 1),
        Peer("scikit-learn adam m=200", SklearnAdam(200), 1, kind="other"),
        Peer("scikit-learn lbfgs m=200", SklearnLBFGS(200), 1, kind="other"),
        _cvxpy(20, 5, 1e6),
        _pyscnn(20, 2, 1e6),
        *_gated(2, 20, _anywhere),
    ]


def default(method: str) -> list[Peer]:
    """Three quarters of an hour on two cores."""
    return [
        Peer("ours", Ours(method), 20),
        Peer("Adam m=50, 4000 steps", Adam(50, 4000), 12, (0, 1, 2)),
        Peer("Adam m=200, 4000 steps", Adam(200, 4000), 20, (0, 1, 2)),
        Peer("L-BFGS m=200", LBFGS(200), 6),
        Peer("scikit-learn adam m=200", SklearnAdam(200), 4, kind="other"),
        Peer("scikit-learn lbfgs m=200", SklearnLBFGS(200), 4, kind="other"),
        _cvxpy(100, 10, 1.5e6),
        _cvxpy(500, 10, 1.5e6),
        _pyscnn(100, 6, 8.1e6),
        *_gated(5, 500, _some),
    ]


def full(method: str) -> list[Peer]:
    """Some hours."""
    seeds = (0, 1, 2)
    return [
        Peer("ours", Ours(method), 100, seeds),
        Peer("Adam m=50, 4000 steps", Adam(50, 4000), 100, seeds),
        Peer("Adam m=200, 4000 steps", Adam(200, 4000), 100, seeds),
        Peer("Adam m=200, 20000 steps", Adam(200, 20_000, pilot_steps=1000), 100, seeds),
        Peer("L-BFGS m=200", LBFGS(200), 100, seeds),
        Peer("scikit-learn adam m=200", SklearnAdam(200), 30, seeds, kind="other"),
        Peer("scikit-learn lbfgs m=200", SklearnLBFGS(200), 30, seeds, kind="other"),
        _cvxpy(100, 100, 1e7),
        _cvxpy(500, 100, 1e7),
        _pyscnn(100, 100, 1e9),
        _pyscnn(500, 100, 1e9),
        *_gated(30, 500, _anywhere),
    ]


MODES = {"quick": quick, "default": default, "full": full}
