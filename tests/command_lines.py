"""Bad command lines, made from what the parser knows: each option of each command with each ugly value or file.

python -m tests.command_lines [BEGIN [END [STEP]]] runs a slice of them and prints those that break a promise.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bidual.cli import main, make_parser

#: What somebody may type for a number, a name, or a file.
WORDS = (
    "", " ", "0", "-1", "1", "2.5", "nan", "inf", "-inf", "1e400", "1e-320", "9" * 400, "1,2", "true", "None", "a",
    "y", "no_such", "../x", "\u00e9\u4e2d", "%s", "{}", "a=1", "huber:delta=0", "batch_norm:rank=0", "parallel:m1=2",
    "convolutional:kernel_size=9", "softmax", "0x10", "--", "1_0",
)  # fmt: skip
#: Files: what they hold.
FILES = {
    "empty.csv": b"",
    "blank.csv": b"\n\n\n",
    "header.csv": b"a,b,y\n",
    "one.csv": b"a,b,y\n1,2,3\n",
    "ragged.csv": b"a,b,y\n1,2\n3,4,5,6\n",
    "words.csv": b"a,b,y\nx,2,3\n4,5,6\n",
    "nan.csv": b"a,b,y\nnan,2,3\n4,,6\n7,8,9\n",
    "huge.csv": b"a,b,y\n1e308,2,3\n4,-1e308,6\n7,8,1e308\n",
    "same.csv": b"a,a,y\n1,2,3\n4,5,6\n",
    "constant.csv": b"a,b,y\n1,2,3\n1,2,3\n1,2,3\n",
    "nul.csv": b"a,b,y\n1,\x002,3\n",
    "latin.csv": b"a,b,y\n\xe9,2,3\n",
    "binary.npz": bytes(range(256)),
    "zip.npz": b"PK\x03\x04broken",
    "x.npy": b"\x93NUMPY\x01\x00broken",
    "x.parquet": b"PAR1",
    "x.xlsx": b"PK",
    "empty.json": b"",
    "list.json": b"[1, 2]",
    "null.json": b"null",
    "deep.json": b"[" * 100_000,
    "half.json": b'{"format": "bidual"',
    "format.json": b'{"format": "bidual", "version": 1}',
    "kind.json": b'{"kind": "two_layer", "U": [], "alpha": 3}',
    "x.pt": b"\x80\x02broken",
    "x.onnx": b"broken",
}
#: Commands that serve, or run for minutes.
_LONG = ("playground", "reproduce")
#: What a good command line says beyond its command.
GOOD = {
    "fit": ["data.csv", "--target", "y", "--out", "out.json", "--beta", ".1", "--time-limit", ".2"],
    "cv": ["data.csv", "--target", "y", "--out", "out.json", "--n-betas", "2", "--folds", "2", "--time-limit", ".2"],
    "path": ["data.csv", "--target", "y", "--out", "out.csv", "--n-betas", "2", "--time-limit", ".2"],
    "certify": ["model.json", "data.csv", "--target", "y", "--out", "out.json", "--time-limit", ".2"],
    "predict": ["model.json", "data.csv", "--out", "out.csv"],
    "info": ["model.json"],
    "report": ["model.json", "data.csv", "--out", "out.html", "--no-compare"],
    "export": ["model.json", "--out", "out.onnx"],
    "verify": ["certificate.json", "data.csv", "--model", "model.json", "--target", "y"],
    "completion": ["bash"],
}


def prepare(folder: Path) -> None:
    """A good table, its model and certificate, and all bad files, in ``folder``."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((8, 3)).round(3)
    (folder / "data.csv").write_text("a,b,y\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    quiet = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        assert main(["fit", "data.csv", "--target", "y", "--out", "model.json", "--beta", ".1"]) == 0
        assert main(["certify", "model.json", "data.csv", "--target", "y", "--out", "certificate.json"]) == 0


def command_lines() -> Iterator[list[str]]:
    """All of them, in a fixed order."""
    commands = next(a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    for command, good in GOOD.items():
        places = [i for i, word in enumerate(good) if "." in word and not word.startswith(".")]
        for i in places:
            for name in (*FILES, "folder", "no_such.csv", "data.csv", "model.json", "certificate.json", ""):
                yield [command, *good[:i], name, *good[i + 1 :]]
        for i in range(len(good)):
            yield [command, *good[:i], *good[i + 1 :]]
        for action in commands.choices[command]._actions:
            if not action.option_strings or action.option_strings[-1] == "--help":
                continue
            option = action.option_strings[-1]
            if action.nargs == 0:
                yield [command, *good, option]
                yield [command, *good, f"{option}=1"]
                continue
            yield [command, *good, option]
            for word in (*WORDS, *(map(str, action.choices or ()))):
                yield [command, *good, f"{option}={word}"]
            if command in ("fit", "certify", "path"):
                for word in WORDS[2:8]:
                    yield [command, *good, f"{option}={word}", "--json", "--strict"]
    for command in _LONG:
        for word in WORDS[6:]:
            yield [command, f"--no-such={word}"]
    yield from ([], ["--help"], ["--version"], ["no_such"], ["fit", "--help"])


def broken_promise(line: list[str]) -> str:
    """What a command line does that none may do, in the current folder; empty if it behaves."""
    outputs = [Path(name) for name in ("out.json", "out.csv", "out.html", "out.onnx")]
    for path in outputs:
        path.unlink(missing_ok=True)
    inputs = {path: path.read_bytes() for path in map(Path, ("data.csv", "model.json", "certificate.json"))}
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(line)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"[:400]
    errors = [text for text in err.getvalue().splitlines() if "error:" in text]
    if code not in (0, 1, 2, 3):
        return f"exit code {code}"
    if "Traceback" in err.getvalue():
        return "a traceback is printed"
    if code in (1, 2) and (len(errors) != 1 or len(errors[0]) > 700):
        return f"exit code {code} with {len(errors)} errors: {err.getvalue()[:300]!r}"
    if code == 0 and errors:
        return f"exit code 0 with an error: {errors[0][:300]}"
    changed = [str(p) for p, content in inputs.items() if not p.exists() or p.read_bytes() != content]
    for path, content in inputs.items():
        path.write_bytes(content)
    if changed and code in (1, 2):
        return f"an error, and {changed} changed"
    left = [path.name for path in Path().iterdir() if path.name.endswith((".tmp", ".part"))]
    written = [path for path in outputs if path.exists()]
    if left or (written and code in (1, 2)):
        return f"an error, and {left or written} was left"
    for path in written:
        if path.suffix == ".json":
            try:
                json.loads(path.read_text())
            except ValueError as error:
                return f"{path} is half-written: {error}"
    return ""


def _run() -> None:
    lines = list(command_lines())
    chosen = slice(*(int(word) for word in sys.argv[1:4])) if len(sys.argv) > 2 else slice(None)
    count, broken, slow = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        os.chdir(folder)
        for line in lines[chosen]:
            began = time.process_time()
            promise = broken_promise(line)
            seconds = time.process_time() - began
            count, broken, slow = count + 1, broken + bool(promise), slow + (seconds > 5)
            if promise or seconds > 5:
                print(f"{seconds:.1f} s", " ".join(line)[:200], "->", promise, flush=True)
        os.chdir("/")
    print(f"{count} of {len(lines)} command lines, {broken} break a promise, {slow} took more than 5 s", flush=True)


if __name__ == "__main__":
    _run()
