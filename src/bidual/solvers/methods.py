"""The methods by name, with what they need and what they honour."""

from __future__ import annotations

from bidual.atoms import Directional
from bidual.atoms.abilities import needs
from bidual.problem import Problem
from bidual.solvers.base import OPTIONAL, Options, Solution, Solver
from bidual.solvers.constant import solve_constant
from bidual.solvers.cutting_plane import solve_cutting_plane, solve_cutting_plane_l1
from bidual.solvers.finite import solve_exact, solve_sampled
from bidual.solvers.formula import solve_closed_form
from bidual.solvers.gated import solve_gated
from bidual.solvers.sampled import solve_sampled_several
from bidual.solvers.steps import Steps, solve_adaptive


class Adaptive(Solver):
    """Column generation: patterns are found (:mod:`bidual.solvers.steps`)."""

    name = "adaptive"
    needs = needs(("finite loss", "ordinary neurons"))
    honours = frozenset({"max_neurons"})
    #: Rounds go on for long after predictions have settled: what they do then is for whoever wants the optimum itself.
    accuracy = (1e-3, 1e-2)

    def _solve(self, problem: Problem, options: Options) -> Solution:
        return solve_adaptive(problem, options)


class Exact(Solver):
    """All patterns; with several outputs column generation over directions that they share, until it is proven."""

    name = "exact"
    needs = needs("all patterns", ("finite program", "finite loss"))

    def _solve(self, problem: Problem, options: Options) -> Solution:
        return solve_exact(problem, options)


class Sampled(Solver):
    """The patterns given, or random ones; several outputs share their neurons."""

    name = "sampled"
    needs = needs("finite program")
    honours = frozenset({"gates", "n_patterns"})

    def _solve(self, problem: Problem, options: Options) -> Solution:
        shared = problem.of(Directional)  # type: ignore[type-abstract]
        if shared is not None and "shared neurons" in shared.atoms.can and problem.n_outputs > 1:
            return solve_sampled_several(shared, options)
        return solve_sampled(problem, options)


class ClosedForm(Solver):
    """A formula, where one holds."""

    name = "closed_form"
    needs = needs("formula", "squared loss", ("finite loss", "no intercept"), ("one output", "no intercept"))

    def _solve(self, problem: Problem, options: Options) -> Solution:
        return solve_closed_form(problem, options)


class CuttingPlane(Solver):
    """The method of 004, with the spike-free relaxation."""

    name = "cutting_plane"
    needs = needs("ordinary neurons")

    def _solve(self, problem: Problem, options: Options) -> Solution:
        return solve_cutting_plane(problem, options)


class CuttingPlaneL1(Solver):
    """The same for neurons that feed one output each (004 A.7.3)."""

    name = "cutting_plane_l1"
    needs = needs("ordinary neurons")

    def _solve(self, problem: Problem, options: Options) -> Solution:
        return solve_cutting_plane_l1(problem, options)


class Gated(Solver):
    """Fixed gates: a group lasso. It has no name, as the activation chooses it."""

    needs = needs("gates", "smooth loss")
    honours = frozenset({"gates", "n_patterns"})

    def __repr__(self) -> str:
        return "activation='gated'"

    def _solve(self, problem: Problem, options: Options) -> Solution:
        return solve_gated(problem, options)


class Rough(Solver):
    """About the best network, to see how well it predicts; for the choice of beta."""

    needs = needs("finite loss")
    honours = frozenset({"max_neurons"})

    def _solve(self, problem: Problem, options: Options) -> Solution:
        return Steps.of(problem).rough(options)


class Constant(Solver):
    """The network without neurons, for the largest beta of a path."""

    honours = OPTIONAL

    def _solve(self, problem: Problem, options: Options) -> Solution:
        return solve_constant(problem, options)


#: The choices of ``method=``.
METHODS = Solver.registry
