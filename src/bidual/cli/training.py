"""``bidual fit``, ``bidual path``, ``bidual cv``."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bidual._util import watch as _watch
from bidual._util.extras import require
from bidual._util.files import write_atomically
from bidual._util.progress import task
from bidual.cli.commands import (
    INTERRUPTED,
    JSON,
    NOT_REACHED,
    QUIET,
    STRICT,
    VERBOSE,
    argument,
    check_destination,
    command,
    describe,
    print_json,
    say,
    score_of,
)
from bidual.cli.data import DATA, GATES, TRAINING, options, read, read_data, source
from bidual.cli.using import target_of
from bidual.estimators import ReLUClassifier, ReLUClassifierCV, ReLURegressor, ReLURegressorCV
from bidual.estimators.prepared import Prepared
from bidual.models import Model, Training
from bidual.tables import csv_text, write_csv
from bidual.training.paths import SolutionPath, solution_path

_BETA = argument(
    "--beta",
    type=float,
    help="weight decay, beside the mean loss on standardised columns and target (default: chosen on rows held out)",
)
_OUT = argument("--out", type=Path, required=True, metavar="FILE", help="where the model goes (JSON)")
_REPORT = argument("--report", type=Path, metavar="FILE", help="write a report about it (one HTML page)")
_BETAS = (
    argument(
        "--betas",
        metavar="A,B,...",
        help="weight decays to train at (default: a sequence down from the largest useful one)",
    ),
    argument("--n-betas", type=int, default=20, metavar="N", help="length of that sequence (default %(default)s)"),
    argument(
        "--beta-min-ratio",
        type=float,
        default=1e-3,
        metavar="R",
        help="its end, relative to its start (default %(default)s)",
    ),
)
_WIDTH = argument("--max-neurons", type=int, metavar="N", help="largest width of the network")
_FOLDS = argument("--folds", type=int, default=5, dest="cv", metavar="K", help="default %(default)s")
_JOBS = argument("--jobs", type=int, dest="n_jobs", metavar="N", help="folds at a time")
_ONE_ERROR = argument(
    "--one-standard-error", action="store_true", help="the largest beta within a standard error of the best score"
)
_PLOT = argument("--plot", type=Path, metavar="FILE", help="draw it (png, svg or pdf)")


@command(*DATA, _OUT, _REPORT, _BETA, *TRAINING, *GATES, _WIDTH, STRICT, JSON, QUIET, VERBOSE)
def fit(args: argparse.Namespace) -> int | None:
    """Train a network on a table, and prove how close to optimal it is.

    bidual fit data.csv --target price --beta 0.01 --out model.json
    bidual fit data.csv --target price --out model.json --report report.html
    bidual fit data.npz --loss quantile:tau=0.9 --method exact --out model.json --json
    """
    _check_files(args, args.out, args.report)
    _check_pictures(args, "report")
    data = read_data(args)
    kind = ReLURegressor if data.target.classes is None else ReLUClassifier
    estimator = kind(**options(args, _BETA, *TRAINING, *GATES, _WIDTH, scale=False, verbose=args.verbose))
    return _fitted(args, data, _trained(estimator, data))


@command(
    *DATA, _OUT, _REPORT, _PLOT, *_BETAS, _FOLDS, _JOBS, _ONE_ERROR, *TRAINING, *GATES, STRICT, JSON, QUIET, VERBOSE
)
def cv(args: argparse.Namespace) -> int | None:
    """Choose the weight decay by cross-validation, then train on all rows.

    bidual cv data.csv --target price --out model.json
    bidual cv data.csv --target kind --folds 10 --one-standard-error --jobs 2 --out model.json --plot scores.png
    """
    _check_files(args, args.out, args.report, args.plot)
    _check_pictures(args, "report", "plot")
    data = read_data(args)
    kind = ReLURegressorCV if data.target.classes is None else ReLUClassifierCV
    searching = options(args, *_BETAS[1:], _FOLDS, _JOBS, _ONE_ERROR, betas=_numbers(args.betas))
    estimator = _trained(kind(**searching, scale=False, **options(args, *TRAINING, *GATES, verbose=args.verbose)), data)
    if args.plot is not None:
        from bidual.plots import PathDisplay

        _draw(args.plot, PathDisplay.from_estimator(estimator).figure_)
    scores = [
        {"beta": float(b), "mean_score": float(m), "std_score": float(s)}
        for b, m, s in zip(estimator.betas_, estimator.mean_score_, estimator.std_score_, strict=True)
    ]
    if not (args.json or args.quiet):
        print("        beta  mean score  deviation")
        for k, row in enumerate(scores):
            mark = "  <- chosen" if k == estimator.best_index_ else ""
            print(f"{row['beta']:12.4g}  {row['mean_score']:10.6f}  {row['std_score']:9.6f}{mark}")
    return _fitted(args, data, estimator, beta=estimator.beta_, scores=scores)


@command(
    *DATA,
    argument("--out", type=Path, metavar="FILE", help="where the table goes (CSV; default stdout)"),
    argument("--test", type=Path, metavar="FILE", help="a table with the same columns, to score every network on"),
    argument("--models", type=Path, metavar="FOLDER", help="write the model of every beta into this folder"),
    _PLOT,
    *_BETAS,
    *TRAINING,
    STRICT,
    JSON,
    QUIET,
    VERBOSE,
)
def path(args: argparse.Namespace) -> int | None:
    """Train optimal networks for a sequence of weight decays.

    bidual path data.csv --target price --out path.csv --plot path.png
    bidual path train.csv --target kind --test test.csv --n-betas 30 --models models/
    """
    if args.json and args.out is None:
        raise argparse.ArgumentError(None, "--json needs --out: stdout cannot hold the summary and the table")
    _check_files(args, args.out, args.plot)
    _check_pictures(args, "plot")
    if args.models is not None and not args.models.is_dir():
        raise FileNotFoundError(f"cannot write models: the folder {args.models} does not exist")
    data = read_data(args)
    training = options(args, *TRAINING)
    if data.target.classes is not None:
        training.setdefault("loss", "logistic")
    with contextlib.redirect_stdout(sys.stderr):  # progress must not mix with the report
        found = solution_path(
            data.inputs,
            data.coded,
            betas=_numbers(args.betas),
            n_betas=args.n_betas,
            beta_min_ratio=args.beta_min_ratio,
            sample_weight=data.weights,
            verbose=args.verbose,
            **training,
        )
    models = _models(data, found, training)
    scored = [model.on_numbers for model in models]
    columns: dict[str, Any] = {
        "beta": found.betas.tolist(),
        "neurons": found.n_neurons.tolist(),
        "objective": found.objectives.tolist(),
        "lower_bound": found.lower_bounds.tolist(),
        "gap": found.gaps.tolist(),
        "likely_bound": found.likely_bounds.tolist(),
        "likely_gap": found.likely_gaps.tolist(),
        "train_score": [score_of(m, data.X, data.y, data.weights)["value"] for m in scored],
    }
    if args.test is not None:
        columns["test_score"] = _test_scores(args, models)
    if args.models is not None:
        for k, model in enumerate(models):
            model.save(args.models / f"model-{k:03d}.json")
    if args.plot is not None:
        from bidual.plots import PathDisplay

        _draw(args.plot, PathDisplay.from_path(found, scores=columns.get("test_score")).figure_)
    if args.out is not None:
        write_csv(args.out, columns)
    elif not args.quiet:
        sys.stdout.write(csv_text(columns))
    if args.json:
        print_json(
            betas=len(found),
            converged=int(found.converged.sum()),
            largest_gap=float(found.gaps.max()),
            largest_likely_gap=float(found.likely_gaps.max()),
            path=str(args.out),
        )
    if found.interrupted:
        say(f"interrupted: the {len(found)} betas that were finished were written to {args.out or 'stdout'}")
        return INTERRUPTED
    return NOT_REACHED if args.strict and not found.converged.all() else None


def _check_files(args: argparse.Namespace, *outputs: Path | None) -> None:
    given = [out for out in outputs if out is not None]
    for k, out in enumerate(given):
        check_destination(out, args.data)
        if any(out.resolve() == other.resolve() for other in given[:k]):
            raise ValueError(f"two results would go to the same file, {out}")


def _check_pictures(args: argparse.Namespace, *outputs: str) -> None:
    """What draws must be there before the training, not after it."""
    for name in outputs:
        if getattr(args, name) is not None:
            require(f"--{name}", "plot", "matplotlib")


def _numbers(text: str | None) -> np.ndarray[Any, Any] | None:
    if text is None:
        return None
    try:
        return np.array([float(cell) for cell in text.split(",")])
    except ValueError as error:
        raise argparse.ArgumentError(None, f"--betas: {error}") from error


def _trained(estimator: Any, data: Prepared) -> Any:
    # progress must not mix with the report, which tells the certificate
    with contextlib.redirect_stdout(sys.stderr), task("command", estimator.verbose):
        return estimator.fit(data.inputs, data.coded, sample_weight=data.weights)


def _fitted(args: argparse.Namespace, data: Prepared, estimator: Any, **more: Any) -> int | None:
    """Save the model, report on it, and return the exit code."""
    certificate, record = estimator.certificate_, Training.of(estimator, n_rows=len(data.table))
    model = data.model(estimator.network_, certificate, record)
    score = score_of(model.on_numbers, data.X, data.y, data.weights)
    path = model.save(args.out)
    if args.report is not None:
        from bidual.report import write_report

        write_report(
            args.report,
            model,
            data.table,
            data.y,
            source=source(args),
            model_file=args.out.name,
            history=estimator.history_,
            tol=estimator.tol_,
        )
    converged = bool(estimator.likely_gap_ <= estimator.tol_)
    interrupted = estimator.status_ == _watch.INTERRUPTED
    if args.json:
        print_json(
            status="interrupted" if interrupted else "converged" if converged else "not converged",
            converged=converged,
            task=data.task,
            certificate=certificate.without_evidence().to_dict(),
            n_neurons=estimator.n_neurons_,
            train_score=score,
            path=str(path),
            **more,
        )
    elif not args.quiet:
        print(certificate)
        if data.target.scale != 1.0:
            about = data.target
            print(
                f"the target is standardised, ({about.name} - {about.centre:.6g}) / {about.scale:.6g}: the objective "
                "and beta count in these units (--no-scale-target: in its own)"
            )
        print(f"{estimator.n_neurons_} neurons; on the training rows {describe(score)}")
        print(f"model written to {path}")
        if args.report is not None:
            print(f"report written to {args.report}")
    if interrupted:
        say(
            f"interrupted: the best network so far was written to {path} (likely gap {certificate.likely_gap:.2g}, "
            f"proven gap {certificate.gap:.2g})"
        )
        return INTERRUPTED
    return NOT_REACHED if args.strict and not converged else None


def _models(data: Prepared, found: SolutionPath, training: dict[str, Any]) -> list[Model]:
    """A model for every beta."""
    method = training.get("method", "adaptive")
    return [
        data.model(p.network, p.certificate, Training.that(p.objective, len(data.table), method=method)) for p in found
    ]


def _test_scores(args: argparse.Namespace, models: list[Model]) -> list[float | None]:
    table = read(args, args.test)
    X, y = models[0].encode(table), target_of(models[0], table)
    return [score_of(model.on_numbers, X, y, None)["value"] for model in models]


def _draw(path: Path, figure: Any) -> None:
    import matplotlib.pyplot as plt

    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=150))
    plt.close(figure)
