"""Files that are either whole or absent."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bidual._util.registry import UnknownNameError


def write_atomically(path: str | os.PathLike[str], write: Callable[[Path], object]) -> Path:
    """Let ``write`` fill a temporary file beside ``path``, then move it into place.

    Whatever goes wrong, an existing file stays as it was and no partial one is left.
    """
    target = Path(path).resolve()  # a link stays one: the file it points to is replaced
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: the folder {target.parent} does not exist")
    temporary = target.with_name(f".{target.stem}-{uuid.uuid4().hex}{target.suffix}")
    temporary.touch(exist_ok=False)
    try:
        write(temporary)
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return Path(path)


def write_json(path: str | os.PathLike[str], data: dict[str, Any]) -> Path:
    """Write a JSON document atomically. Floats survive the round trip bit for bit."""
    try:
        text = json.dumps(data, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"cannot write {path}: it would hold more than plain, finite numbers: {error}") from error
    return write_atomically(path, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8"))


def read_json(path: str | os.PathLike[str], what: str = "bidual model file") -> dict[str, Any]:
    """Read a JSON object; a file that is not one raises ValueError: it is not ``what``, and why."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} is not a {what}: its lists are nested too deeply") from error
    except ValueError as error:  # not JSON, not text, or a number of thousands of digits
        raise ValueError(f"{path} is not a {what}: {error}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not a {what}: it holds a {type(data).__name__}, not an object")
    return data


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever the content of a damaged file provokes on the way to our objects becomes one ValueError."""
    try:
        yield
    except UnknownNameError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        lacks = "it lacks " if type(error) is KeyError else ""
        raise ValueError(f"{path} is incomplete or damaged: {lacks}{error}") from error
