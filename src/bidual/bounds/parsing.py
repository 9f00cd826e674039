"""Numbers, texts and arrays out of a certificate file: what is not there, or is something else, gets one sentence."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from bidual._util.typing import Array, BoolArray, FloatArray

#: Entries that an array in a certificate may have: a gigabyte of them is no certificate but an attack.
LARGEST = 2**27


def field(data: Any, name: str) -> Any:
    """The entry ``name`` of an object."""
    if not isinstance(data, dict):
        raise ValueError(f"the certificate is damaged: expected an object with {name!r}, found {_kind(data)}")
    if name not in data:
        raise ValueError(f"the certificate is incomplete: it lacks {name!r}")
    return data[name]


def number(data: Any, name: str) -> float:
    """A finite number."""
    value = field(data, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the certificate is damaged: {name!r} is {_kind(value)}, not a number")
    try:
        result = float(value)
    except OverflowError:
        result = np.inf
    if not np.isfinite(result):
        raise ValueError(f"the certificate is damaged: {name!r} is not a finite number")
    return result


def integer(data: Any, name: str) -> int:
    """An integer of at least zero."""
    value = field(data, name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise ValueError(f"the certificate is damaged: {name!r} is {_kind(value)}, not a count")
    return value


def flag(data: Any, name: str) -> bool:
    """True or False."""
    value = field(data, name)
    if not isinstance(value, bool):
        raise ValueError(f"the certificate is damaged: {name!r} is {_kind(value)}, not true or false")
    return value


def text(data: Any, name: str) -> str:
    """A string."""
    value = field(data, name)
    if not isinstance(value, str):
        raise ValueError(f"the certificate is damaged: {name!r} is {_kind(value)}, not a text")
    return value


def entries(data: Any, name: str) -> list[Any]:
    """A list."""
    value = field(data, name)
    if not isinstance(value, list):
        raise ValueError(f"the certificate is damaged: {name!r} is {_kind(value)}, not a list")
    return value


def array(data: Any, name: str, ndim: int) -> FloatArray:
    """Finite numbers in nested lists of equal lengths."""
    value = entries(data, name)
    try:
        result = np.array(value, dtype=object if not value else None)
    except ValueError as error:
        raise ValueError(f"the certificate is damaged: the lists in {name!r} have different lengths") from error
    if result.size and result.dtype.kind not in "iuf":
        raise ValueError(f"the certificate is damaged: {name!r} holds something else than numbers")
    result = result.astype(np.float64)
    if result.ndim != ndim or not np.isfinite(result).all() or result.size > LARGEST:
        raise ValueError(f"the certificate is damaged: {name!r} must hold finite numbers in {ndim} dimension(s)")
    return result


def integers(value: Any, name: str) -> list[int]:
    """A list of integers of at least -1."""
    if not isinstance(value, list) or not all(type(k) is int and -1 <= k < 2**31 for k in value):
        raise ValueError(f"the certificate is damaged: {name!r} must be a list of integers")
    return value


def pack(values: Array, dtype: str = "<f4") -> str:
    """Numbers as text; :func:`unpack` reads them."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=dtype).tobytes()).decode()


def unpack(value: Any, name: str, dtype: str = "<f4") -> Array:
    """Numbers that :func:`pack` wrote."""
    try:
        raw = base64.b64decode(value, validate=True)
        return np.frombuffer(raw, dtype)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValueError(f"the certificate is damaged: {name!r} does not hold packed numbers") from error


def pack_bits(active: BoolArray) -> dict[str, Any]:
    """A matrix of bits, row by row."""
    return {"shape": list(active.shape), "bits": pack(np.packbits(active, axis=1), "u1")}


def unpack_bits(data: Any, name: str) -> BoolArray:
    """Inverse of :func:`pack_bits`."""
    packed = field(data, name)
    shape, raw = integers(field(packed, "shape"), "shape"), unpack(field(packed, "bits"), "bits", "u1")
    if len(shape) != 2 or min(shape) < 0 or len(raw) != shape[0] * ((shape[1] + 7) // 8):
        raise ValueError(f"the certificate is damaged: {name!r} has another shape than it says")
    rows = raw.reshape(shape[0], -1) if shape[0] else np.zeros((0, (shape[1] + 7) // 8), dtype=np.uint8)
    return np.unpackbits(rows, axis=1, count=shape[1]).astype(bool)


def _kind(value: Any) -> str:
    return f"of type {type(value).__name__}"
