"""How much memory there is, and refusing what does not fit."""

from __future__ import annotations

import os
import sys

#: Share of the free memory that one piece of work may take.
SHARE = 0.8


def available_memory() -> int:
    """Bytes that can be had without swapping, within the limit of the process (``ulimit -v``) if it has one."""
    return min(_free(), _allowed())


def _allowed() -> int:
    """Bytes that the process may still ask for."""
    try:
        import resource  # not on every system

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        with open("/proc/self/statm", encoding="ascii") as sizes:
            used = int(sizes.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return sys.maxsize
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(0, limit - used)


def _free() -> int:
    """Bytes that the machine has left (half the physical memory where the system does not say)."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30


def require_memory(need: float, what: str, advice: str, available: int | None = None) -> None:
    """Refuse, with the numbers, ``what`` needs more bytes than there are."""
    have = available_memory() if available is None else available
    if need > SHARE * have:
        # sizes that are no mistakes of the user's fit a float; dividing huge integers does not
        wanted = f"about {float(need) / 2**30:.1f}" if need < 1e60 else "more than 1e50"
        raise MemoryError(f"{what} needs {wanted} GiB, and {have / 2**30:.1f} GiB are free. {advice}")
