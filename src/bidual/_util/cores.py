"""How many cores to use, and using them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any


def cores() -> int:
    """Cores this process may use; OMP_NUM_THREADS, if set, says how many it should."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, int(asked)) if asked.isdigit() and int(asked) > 0 else available


def threads() -> ThreadPoolExecutor:
    """Threads of this process for compiled work, one for each core."""
    return _threads_of(os.getpid())


@lru_cache(maxsize=1)  # a forked child inherits the pool of its parent, but none of its threads: it needs its own
def _threads_of(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="bidual")


def over_pieces(work: Callable[[int, int], Any], n: int, piece: int) -> None:
    """Run ``work(start, stop)``, compiled and without the GIL, for consecutive pieces of ``range(n)``, on all cores.

    (Numba's own parallel loops would change the number of threads of other libraries, such as torch.)
    """
    if n <= piece:
        work(0, n)
        return
    pool = threads()
    jobs = [pool.submit(work, i, min(i + piece, n)) for i in range(0, n, piece)]
    for job in jobs:
        job.result()
