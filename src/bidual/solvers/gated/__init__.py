"""Gated networks: fixed gates, a group lasso."""

from bidual.solvers.gated.solve import gates_of, solve_gated

__all__ = ["gates_of", "solve_gated"]
