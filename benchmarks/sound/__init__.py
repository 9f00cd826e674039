"""The parts of the soundness suite (benchmarks/soundness.py): what must never be above the truth, and truths."""
