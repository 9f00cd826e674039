"""How many cores to use."""

from __future__ import annotations

import os


def cores() -> int:
    """Cores this process may use; OMP_NUM_THREADS, if set, says how many it should."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, int(asked)) if asked.isdigit() and int(asked) > 0 else available
