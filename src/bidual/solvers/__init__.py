"""Methods of training. Each takes a problem and options, and returns neurons with a lower bound."""

from __future__ import annotations

from bidual.abilities import Needs, needs
from bidual.solvers.adaptive import solve_adaptive
from bidual.solvers.base import HistoryEntry, Method, Options, Solution
from bidual.solvers.closed_form import solve_closed_form
from bidual.solvers.conic import FiniteProgram, InfeasibleError
from bidual.solvers.constant import solve_constant
from bidual.solvers.cutting_plane import solve_cutting_plane, solve_cutting_plane_l1
from bidual.solvers.finite import solve_exact, solve_finite, solve_sampled
from bidual.solvers.gated import gates_of, solve_gated
from bidual.solvers.normalised import solve_normalised
from bidual.solvers.parallel import solve_parallel

METHODS: dict[str, Method] = {
    "adaptive": solve_adaptive,
    "exact": solve_exact,
    "sampled": solve_sampled,
    "closed_form": solve_closed_form,
    "cutting_plane": solve_cutting_plane,
    "cutting_plane_l1": solve_cutting_plane_l1,
}

#: What each of them needs of a problem.
NEEDS: dict[str, Needs] = {
    "adaptive": needs("finite loss"),
    "exact": needs("all patterns", ("finite program", "finite loss")),  # several outputs are left to the adaptive one
    "sampled": needs("finite program"),
    "closed_form": needs("formula", "squared loss", ("finite loss", "no intercept"), ("one output", "no intercept")),
    "cutting_plane": needs("ordinary neurons"),
    "cutting_plane_l1": needs("ordinary neurons"),
}

__all__ = [
    "METHODS",
    "NEEDS",
    "FiniteProgram",
    "HistoryEntry",
    "InfeasibleError",
    "Method",
    "Options",
    "Solution",
    "gates_of",
    "solve_adaptive",
    "solve_closed_form",
    "solve_constant",
    "solve_cutting_plane",
    "solve_cutting_plane_l1",
    "solve_exact",
    "solve_finite",
    "solve_gated",
    "solve_normalised",
    "solve_parallel",
    "solve_sampled",
]
