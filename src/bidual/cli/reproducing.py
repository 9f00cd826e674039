"""``bidual reproduce``: the experiments of the five papers."""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from bidual.cli.commands import VERBOSE, argument, command


@command(
    argument("names", nargs="*", metavar="NAME", help="experiments, such as 003-fig2, or beginnings of their names"),
    argument("--list", action="store_true", dest="list_all", help="list all experiments"),
    argument("--all", action="store_true", dest="run_all", help="run all experiments"),
    argument("--page", action="store_true", help="only write the page of results again, from their records"),
    argument("--quick", action="store_true", help="small sizes: minutes for everything"),
    argument("--full", action="store_true", help="the sizes of the papers: hours"),
    argument("--data", type=Path, metavar="DIR", help="folder of data sets (NPZ files)"),
    argument("--download", action="store_true", help="fetch missing data sets from openml.org"),
    argument("--out", type=Path, metavar="DIR", help="where results go (default: beside the experiments)"),
    VERBOSE,
)
def reproduce(args: argparse.Namespace) -> None:
    """Repeat the experiments of the papers, with the published numbers beside ours.

    bidual reproduce 003-fig2 --quick
    """
    if args.quick and args.full:
        raise argparse.ArgumentError(None, "--quick and --full exclude each other")
    framework, results, data = (_module(name) for name in ("framework", "results", "data"))
    experiments = framework.discover()
    if args.list_all:
        for experiment in experiments.values():
            print(f"{experiment.name:16s} {experiment.title}")
        return
    named = {known for name in args.names for known in _matches(name, experiments)}
    home = args.out if args.out is not None else Path(str(framework.__file__)).parent
    folder = home / "results"
    if args.page:
        results.write_page(folder, home / "RESULTS.md")
        print(f"results: {home / 'RESULTS.md'}")
        return
    chosen = [experiment for name, experiment in experiments.items() if args.run_all or name in named]
    if not chosen:
        raise argparse.ArgumentError(None, "name an experiment, or give --all, --list or --page")
    if args.data is not None and not args.data.is_dir():
        raise NotADirectoryError(f"{args.data} is not a folder")
    size = framework.Size("quick" if args.quick else "full" if args.full else "default")
    folder.mkdir(parents=True, exist_ok=True)
    sets, failed = data.Data(args.data, args.download), []
    shared: dict[object, object] = {}
    for experiment in chosen:
        print(f"{experiment.name}: {experiment.title}", flush=True)
        context = framework.Context(size, sets, folder, verbose=args.verbose > 0, shared=shared)
        try:
            outcome, seconds = experiment(context)
        except Exception:  # one experiment that breaks must not cost the others
            if len(chosen) == 1:
                raise
            failed.append(experiment.name)
            traceback.print_exc()
            continue
        results.store(folder, experiment, context, outcome, seconds)
        results.write_page(folder, home / "RESULTS.md")
        print(f"  claim: {experiment.claim}\n  paper: {experiment.paper}\n  ours:  {outcome.ours}")
        print(f"  {outcome.verdict} ({seconds:.1f} s, CPU {context.cpu_seconds:.1f} s)", flush=True)
    print(f"results: {home / 'RESULTS.md'}")
    if failed:
        raise RuntimeError(f"these experiments broke off: {', '.join(failed)}")


def _matches(name: str, experiments: Iterable[str]) -> list[str]:
    """The experiment of this name or, if there is none, those whose names begin with it."""
    found = [known for known in experiments if known == name] or [k for k in experiments if k.startswith(name)]
    if not found:
        raise ValueError(f"there is no experiment {name!r}; bidual reproduce --list names them")
    return found


def _module(name: str) -> ModuleType:
    """A module of the experiments, which are part of the repository, not of the installed package."""
    here = Path(__file__).resolve().parents[3]
    for root in (Path.cwd(), here):
        if (root / "reproductions" / "framework.py").exists():
            if str(root) not in sys.path:
                sys.path.insert(0, str(root))
            return importlib.import_module(f"reproductions.{name}")
    raise FileNotFoundError(
        "the experiments are not part of the installed package: clone the repository and run this command inside it"
    )
