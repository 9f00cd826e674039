"""Finite convex programs: conic assembly, corrective steps, the operator of gated networks."""
