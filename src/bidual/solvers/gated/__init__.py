"""Gated networks: fixed gates, a group lasso."""

from bidual.solvers.gated.solve import gates_of, no_gates, solve_gated

__all__ = ["gates_of", "no_gates", "solve_gated"]
