"""Optional libraries: whether they are there, and how to get them."""

from __future__ import annotations

from importlib.util import find_spec


def require(what: str, extra: str, *modules: str) -> None:
    """Raise ImportError, naming commands that help, unless all these modules can be imported; none is loaded."""
    missing = [module for module in modules if not _there(module)]
    if missing:
        raise ImportError(advice(what, extra, *missing))


def advice(what: str, extra: str, *modules: str) -> str:
    """What to install."""
    names = " ".join(modules)
    return (
        f"{what} needs {' and '.join(modules)}: pip install {names}, or in a clone of bidual pip install '.[{extra}]'"
    )


def _there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # a module that was put into sys.modules by hand, or kept out by hand
        return False
