"""The state of a long fit in a file, written atomically, read back to go on."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from bidual._util.clock import clock
from bidual._util.files import write_atomically
from bidual._util.tuning import tuning
from bidual._util.typing import Array


class Checkpoint:
    """Named arrays and a few numbers of one training problem.

    Parameters
    ----------
    path : path or None
        None keeps nothing.
    problem : dict
        What tells this problem from others; numbers and strings.
    """

    def __init__(self, path: str | os.PathLike[str] | None, problem: dict[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.problem = problem
        self._kept: dict[str, Array] = {}
        self._last = clock()

    def keep(self, **arrays: Array) -> None:
        """Arrays that do not change from now on, to be written with every state."""
        self._kept.update(arrays)

    def fixed(self, name: str) -> Array | None:
        """One of these arrays of the run before, if there was one."""
        stored = self.read()
        return None if stored is None else stored.get(name)

    def read(self) -> dict[str, Any] | None:
        """The stored state, or None if there is none.

        Raises
        ------
        ValueError
            If the file belongs to another problem, or is none of ours.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            with open(self.path, "rb") as handle, np.load(handle, allow_pickle=False) as stored:
                about = json.loads(str(stored["about"]))
                arrays: dict[str, Array] = {name: stored[name] for name in stored.files if name != "about"}
            theirs, state = dict(about["problem"]), dict(about["state"])
        except (OSError, EOFError, BadZipFile, zlib.error, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.path} is not a checkpoint of bidual, or not a whole one: remove the file, or give another name"
            ) from error
        mine = json.loads(json.dumps(self.problem))
        if different := sorted(k for k in mine if theirs.get(k) != mine[k]):
            raise ValueError(
                f"the checkpoint {self.path} belongs to another problem ({', '.join(different)} "
                f"{'differs' if len(different) == 1 else 'differ'}): remove the file, or give another name"
            )
        return {**state, **arrays}

    def offer(self, state: Callable[[], dict[str, Any]], force: bool = False) -> None:
        """Write the state if the last time was long ago."""
        if self.path is None or not (force or clock() - self._last > tuning().checkpoint_seconds):
            return
        everything = {**self._kept, **state()}
        arrays = {k: v for k, v in everything.items() if isinstance(v, np.ndarray)}
        rest = {k: v for k, v in everything.items() if k not in arrays}
        about = json.dumps({"problem": self.problem, "state": rest})

        def write(temporary: Path) -> None:
            with open(temporary, "wb") as handle:
                np.savez(handle, about=np.array(about), **arrays)  # type: ignore[arg-type]

        write_atomically(self.path, write)
        self._last = clock()
