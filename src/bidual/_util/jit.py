"""How the loops of the library are compiled."""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.core import event

from bidual._util.clock import CLOCK


def _probe() -> None:
    """Compiled never; only asked where it would be kept."""


def _cache_is_writable() -> bool:
    """Whether numba finds a place for compiled code: beside the source, in the user's cache or in NUMBA_CACHE_DIR."""
    try:
        njit(cache=True)(_probe)
    except RuntimeError:  # "no locator available": a read-only installation and a read-only home
        return False
    return True


#: Options of every compiled function. Where nothing can be kept they are compiled in every process that needs them.
#: No fastmath: proofs rest on how sums are rounded, and how they are reordered would depend on whether the code was
#: just compiled or came from the cache.
JIT: dict[str, Any] = {"cache": _cache_is_writable(), "nogil": True, "error_model": "numpy"}

#: Options of functions that only compiled ones call: without the ways in from elsewhere, which take a moment each.
INNER: dict[str, Any] = JIT | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class _Compiling(event.Listener):  # type: ignore[misc]  # numba is not annotated
    """Stops the clock while numba compiles, or loads what it has compiled before."""

    def on_start(self, event: Any) -> None:
        CLOCK.stop()

    def on_end(self, event: Any) -> None:
        CLOCK.go_on()


#: What numba calls that, and who hears of it.
COMPILING, LISTENER = "numba:compiler_lock", _Compiling()
event.register(COMPILING, LISTENER)
