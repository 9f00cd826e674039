"""One HTML page about a trained network: the data, the proof in plain words, pictures, weights, a comparison.

The page is a single file that asks nothing of the network.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bidual._util.files import write_atomically
from bidual.models import Model

__all__ = ["write_report"]


def write_report(
    path: str | os.PathLike[str],
    model: Model | Any,
    X: Any,
    y: Any,
    *,
    target: str = "y",
    source: str | None = None,
    model_file: str | None = None,
    history: Any = None,
    tol: float | None = None,
    compare: bool = True,
    random_state: int = 0,
) -> Path:
    """Write a report about a model and the data it was trained on.

    Parameters
    ----------
    path : str or path
        The HTML file to write.
    model : Model or fitted estimator
        What :func:`bidual.load` returns for a file of ``bidual fit``, or a :class:`~bidual.ReLURegressor` or
        :class:`~bidual.ReLUClassifier`, also in a :class:`~bidual.TableModel`.
    X, y : array
        The training data, as the model takes them: the table (or images, or sequences) for a Model.
    target : str
        What an estimator predicts; a Model knows.
    source : str or None
        Where the data come from, to be named in the report.
    model_file : str or None
        The file of the model, for the lines that show how to load it.
    history : list of HistoryEntry or None
        The training, for a picture of it; an estimator brings its own.
    tol : float or None
        The gap that was asked for.
    compare : bool
        Train scikit-learn's MLP, and the model again, on three quarters of the rows, and compare.
    random_state : int
        Of the split.

    Returns
    -------
    Path

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from pathlib import Path
    >>> from bidual import ReLURegressor
    >>> from bidual.report import write_report
    >>> X, y = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    >>> est = ReLURegressor(beta=0.01, method="exact").fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(Path(folder) / "report.html", est, X, y).read_text(encoding="utf-8")
    >>> "best possible network" in page
    True
    """
    from bidual.report.page import page  # matplotlib is needed from here on

    if not isinstance(model, Model):
        trained = getattr(model, "estimator_", model)  # of a TableModel
        history = getattr(trained, "history_", None) if history is None else history
        tol = getattr(trained, "tol_", None) if tol is None else tol
        model = Model.of(model, n_rows=len(y), target=target)
    text = page(
        model.on_numbers,
        model.encode(X),
        y,
        encoder=model.encoder,
        source=source,
        model_file=model_file,
        history=history,
        tol=tol,
        compare_with_mlp=compare,
        random_state=random_state,
    )
    return write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
