"""Peers that run in a process of their own, most of them in an environment of their own.

The environment is made by :func:`prepare` beside this folder. Problem and result travel as npz files; the worker
measures itself, without its start and its imports, and is stopped if it does not stop by itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from problems import Problem

from .common import FloatArray, Trace

HERE = Path(__file__).parent
VENV = HERE.parent / ".venv"
#: What each group of packages is asked for in turn; torch first and pinned (a range pulls gigabytes of CUDA packages).
PACKAGES: dict[str, list[list[str]]] = {
    "pyscnn": [
        ["torch==2.13.0"],
        ["--no-deps", "pyscnn==0.0.10"],
        ["linalg-backends==0.0.1b0", "opt_einsum", "scipy", "tqdm", "typing_extensions", "scikit-learn"],
        # pyscnn imports cvxpy, and adelie wants numpy 1
        ["numpy<2", "cvxpy<1.7"],
    ],
    "adelie": [["adelie==1.1.52"]],
    "skglm": [["skglm==0.5"]],
}
IMPORTS = {"pyscnn": "scnn.optimize", "adelie": "adelie", "skglm": "skglm"}
#: Seconds that a worker may take beyond its time limit, for its start, imports and warm-up.
GRACE = 30.0


def _python() -> Path:
    return VENV / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def prepare() -> dict[str, str]:
    """Make the environment if need be. Returns for each group "" if it can be imported, else the reason."""
    stamp = VENV / "benchmark.json"
    wanted = json.dumps(PACKAGES)
    if stamp.exists():
        known = json.loads(stamp.read_text(encoding="utf-8"))
        if known["wanted"] == wanted:
            return dict(known["state"])
    print("making the environment of the peers (once, some minutes) ...", flush=True)
    state = dict.fromkeys(PACKAGES, "")
    try:
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return dict.fromkeys(PACKAGES, f"no environment: {_reason(error)}")
    for name, groups in PACKAGES.items():
        try:
            for group in groups:
                pip = [str(_python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *group]
                subprocess.run(pip, check=True, capture_output=True, text=True, timeout=1200)
            subprocess.run(
                [str(_python()), "-c", f"import {IMPORTS[name]}"], check=True, capture_output=True, text=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            state[name] = _reason(error)
    stamp.write_text(json.dumps({"wanted": wanted, "state": state}), encoding="utf-8")
    return state


def _reason(error: Exception) -> str:
    """The last line of what went wrong."""
    lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    return lines[-1][:200] if lines else type(error).__name__


class Worker:
    """A script of this folder as a peer.

    It is called as ``script input.npz output.npz``; the input holds ``X, y, beta, seed, limit`` and the options, the
    output ``times, objectives`` and optionally ``neurons, note``.
    """

    def __init__(self, script: str, *, own_environment: bool, group: str = "", **options: float | str) -> None:
        self.script, self.group, self.options = HERE / script, group, options
        self.python = _python() if own_environment else Path(sys.executable)
        self.own_environment = own_environment

    def __call__(self, problem: Problem, seed: int, limit: float, **arrays: FloatArray) -> Trace:
        """Run the script; what it cannot do becomes a trace without points and with a note."""
        if self.own_environment:
            reason = prepare().get(self.group, "")
            if reason:
                return Trace(note=f"not installed: {reason}")
        with tempfile.TemporaryDirectory() as folder:
            inputs, outputs = Path(folder, "in.npz"), Path(folder, "out.npz")
            np.savez(
                inputs, X=problem.X, y=problem.y, beta=problem.beta, seed=seed, limit=limit, **self.options, **arrays
            )
            command = [str(self.python), str(self.script), str(inputs), str(outputs)]
            try:
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=limit + GRACE)
            except subprocess.TimeoutExpired:
                if not outputs.exists():
                    return Trace(note=f"no result in {limit + GRACE:.0f} s")
            except (OSError, subprocess.CalledProcessError) as error:
                return Trace(note=f"failed: {_reason(error)}")
            with np.load(outputs) as result:
                trace = Trace(
                    neurons=int(result["neurons"]) if "neurons" in result else None,
                    note=str(result["note"]) if "note" in result else "",
                )
                for seconds, objective in zip(result["times"], result["objectives"], strict=True):
                    trace.add(seconds, objective)
        return trace
