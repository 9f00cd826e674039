"""The real data sets: from a folder of NPZ files, or downloaded by scikit-learn when asked to."""

from __future__ import annotations

import lzma
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Names at openml.org of the sets that can be downloaded whole.
OPENML = {"mnist": "mnist_784", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR_10"}
#: How many rows of the downloaded sets are for training.
TRAIN_ROWS = {"mnist": 60_000, "fashion-mnist": 60_000, "cifar10": 50_000}


class DataMissing(RuntimeError):
    """A data set is not here, and may not be downloaded."""


class Data:
    """Data sets by name.

    Parameters
    ----------
    folder : Path or None
        Folder of ``<name>.npz`` files.
    download : bool
        Whether missing sets may be fetched from openml.org.
    """

    def __init__(self, folder: Path | None = None, download: bool = False) -> None:
        self.folder = folder
        self.download = download
        self._loaded: dict[str, dict[str, NDArray[Any]]] = {}

    def load(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays of a data set.

        ``X`` and ``y``, or ``X_train``, ``y_train``, ``X_test``, ``y_test`` (images flat, bytes; the channels of
        cifar10 one after the other).
        """
        if name not in self._loaded:
            self._loaded[name] = self._read(name)
        return dict(self._loaded[name])

    def _read(self, name: str) -> dict[str, NDArray[Any]]:
        if self.folder is not None and (path := self.folder / f"{name}.npz").exists():
            try:
                with np.load(path) as stored:
                    return {key: stored[key] for key in stored.files}
            except (ValueError, AttributeError, EOFError, zipfile.BadZipFile, lzma.LZMAError) as error:
                raise ValueError(f"{path} is not an NPZ file of arrays, or is broken: {error}") from error
        if self.download and name in OPENML:
            return _fetched(name)
        raise DataMissing(f"the data set {name} is not here: give its folder with --data, or --download")

    def images(self, name: str) -> dict[str, NDArray[Any]]:
        """An image set with ``X_train`` and ``X_test`` of shape N x H x W x C, values in [0, 1], float32."""
        arrays = self.load(name)
        for key in ("X_train", "X_test"):
            X = arrays[key].astype(np.float32) / 255.0
            if name == "cifar10":
                X = X.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            arrays[key] = X.reshape(len(X), *X.shape[1:3], -1) if X.ndim > 2 else X.reshape(len(X), 28, 28, 1)
        return arrays


def standardised(X: NDArray[Any], *others: NDArray[Any]) -> list[NDArray[np.float64]]:
    """Columns with mean zero and deviation one over the first array, constant ones left at zero."""
    mean, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    return [(rows - mean) / np.where(deviation > 0, deviation, 1.0) for rows in (X, *others)]


def two_classes(
    arrays: dict[str, NDArray[Any]], classes: tuple[int, int], n: int, n_test: int, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Random rows of two classes of an image set, flat, values in [0, 1]; labels are 1 and -1."""
    rng = np.random.default_rng(seed)
    parts: list[NDArray[np.float64]] = []
    for part, count in (("train", n), ("test", n_test)):
        X, y = arrays[f"X_{part}"], arrays[f"y_{part}"]
        found = np.flatnonzero(np.isin(y, classes))
        rows = rng.choice(found, min(count, len(found)), replace=False)
        parts += [X[rows].reshape(len(rows), -1) / 255.0, np.where(y[rows] == classes[0], 1.0, -1.0)]
    return parts[0], parts[1], parts[2], parts[3]


def _fetched(name: str) -> dict[str, NDArray[Any]]:
    from sklearn.datasets import fetch_openml

    try:
        X, y = fetch_openml(OPENML[name], version=1, as_frame=False, return_X_y=True)
    except OSError as error:
        raise DataMissing(f"the data set {name} could not be downloaded: {error}") from error
    X, y, rows = X.astype(np.uint8), y.astype(np.int64), TRAIN_ROWS[name]
    return {"X_train": X[:rows], "y_train": y[:rows], "X_test": X[rows:], "y_test": y[rows:]}
