"""One sentence for each argument that cannot be."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bidual._util.typing import FloatArray

#: The largest number of anything that fits an index, and the largest number that is not infinite.
_MOST, _LARGEST = 2**63 - 1, float(np.finfo(float).max)
#: The largest width, rank, window, stride or padding that an architecture may have.
LARGEST_SIZE = 2**31 - 1
#: Hidden biases that cost nothing.
FREE = "free"


def check_number(
    name: str, value: Any, *, at_least: float = 0.0, above: float | None = None, integer: bool = False
) -> None:
    """Raise, with the name of the argument, unless it is a finite number of at least (or strictly above) so much."""
    kind, largest = (Integral, _MOST) if integer else (Real, _LARGEST)
    right = not isinstance(value, bool) and isinstance(value, kind)
    if not (right and (value >= at_least if above is None else value > above) and value <= largest):
        noun = "an integer" if integer else "a number"
        limit = f">= {at_least:g}" if above is None else f"> {above:g}"
        raise ValueError(f"{name} must be {noun} {limit}, got {shown(value)}")


def is_size(value: Any, at_least: int = 1) -> bool:
    """Whether the value is an integer of at least so much, and not so large that it must be a mistake."""
    return not isinstance(value, bool) and isinstance(value, Integral) and at_least <= int(value) <= LARGEST_SIZE


def check_time_limit(value: Any) -> None:
    """Raise unless it is None or a number of seconds."""
    if value is not None:
        check_number("time_limit", value)


def check_flag(name: str, value: Any) -> None:
    """Raise unless it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {shown(value)}")


def as_bias(bias: Any) -> bool | str:
    """Whether there are hidden biases, or "free" ones; ValueError for anything else."""
    if isinstance(bias, str) and bias == FREE:
        return FREE
    if not isinstance(bias, bool | np.bool_):
        raise ValueError(f"bias must be True, False or {FREE!r}, got {shown(bias)}")
    return bool(bias)


def check_seed(random_state: Any) -> None:
    """Raise unless it is something that seeds random numbers."""
    try:
        check_random_state(random_state)
    except (ValueError, TypeError) as error:
        raise ValueError(
            "random_state must be None, an integer from 0 to 2**32 - 1 or a RandomState: "
            f"{shown(random_state)} is no seed"
        ) from error


def check_verbose(value: Any) -> None:
    """Raise unless it is a level of how much to say."""
    if not isinstance(value, bool | np.bool_):
        check_number("verbose", value, integer=True)


def check_prove(prove: Any) -> None:
    """Raise unless it says how long to look for a proof."""
    seconds = isinstance(prove, int | float | np.number) and not isinstance(prove, bool)
    auto = isinstance(prove, str) and prove == "auto"
    if not (prove is False or auto or (seconds and 0 <= prove <= float(np.finfo(float).max))):
        raise ValueError(f"prove must be 'auto', False or a number of seconds >= 0, got {shown(prove)}")


def as_numbers(name: str, values: Any) -> FloatArray:
    """The values as floating point; ValueError if they are anything but real numbers."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "cmM":  # complex numbers and dates would lose what they are in silence
            raise TypeError
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must hold real numbers, in rows of equal length") from error


def shown(value: Any) -> str:
    """The value in a message, in a few words."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return f"a huge {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}... ({type(value).__name__})"
