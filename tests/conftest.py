"""Settings of the property tests."""

import os

from hypothesis import settings

# The same examples on every run, so that a change lands or not by its own merits; `make fuzz` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", max_examples=200, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
