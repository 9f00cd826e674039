"""The clock of all limits of time: seconds of work, which compiling is not.

Kernels are compiled once in an environment. If that counted, the first fit there would have less time for its work
than the second, and find another network.
"""

from __future__ import annotations

import threading
import time


class Clock:
    """Stands still while somebody compiles, in whatever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._compiling = 0
        self._frozen = self._lost = 0.0

    def now(self) -> float:
        """Seconds since some moment, as :func:`time.perf_counter` has them, without those of compiling."""
        return self._frozen if self._compiling else time.perf_counter() - self._lost

    def stop(self) -> None:
        """Compiling begins, perhaps within other compiling."""
        with self._lock:
            self._frozen = self.now()
            self._compiling += 1

    def go_on(self) -> None:
        """What began with :meth:`stop` has ended."""
        with self._lock:
            if self._compiling == 1:
                self._lost = time.perf_counter() - self._frozen
            self._compiling -= 1


#: The clock of this process.
CLOCK = Clock()
clock = CLOCK.now
