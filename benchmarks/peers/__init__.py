"""The peers: one file per family, each method a function ``(problem, seed, limit) -> Trace``."""
