"""From arrays to a certified network: posing the problem, units, the choice of solver, paths."""
