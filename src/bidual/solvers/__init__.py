"""Methods of training. Each takes a problem and options, and returns neurons with a lower bound."""

from __future__ import annotations

from bidual.programs.conic import FiniteProgram, InfeasibleError
from bidual.solvers import engine, free_bias, normalised, parallel  # noqa: F401 - they make their steps known
from bidual.solvers.base import HistoryEntry, Options, Solution, Solver
from bidual.solvers.constant import solve_constant
from bidual.solvers.cutting_plane import solve_cutting_plane, solve_cutting_plane_l1
from bidual.solvers.finite import solve_exact, solve_finite, solve_sampled
from bidual.solvers.formula import solve_closed_form
from bidual.solvers.gated import gates_of, solve_gated
from bidual.solvers.methods import METHODS, Constant, Gated, Rough
from bidual.solvers.steps import solve_adaptive

__all__ = [
    "METHODS",
    "Constant",
    "FiniteProgram",
    "Gated",
    "HistoryEntry",
    "InfeasibleError",
    "Options",
    "Rough",
    "Solution",
    "Solver",
    "gates_of",
    "solve_adaptive",
    "solve_closed_form",
    "solve_constant",
    "solve_cutting_plane",
    "solve_cutting_plane_l1",
    "solve_exact",
    "solve_finite",
    "solve_gated",
    "solve_sampled",
]
