"""From the columns of a table to what an estimator trains on, and from what it trained to a model of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple, Self

import numpy as np

from bidual._util.checks import shown
from bidual._util.data import normalise_weights
from bidual._util.scaling import standardisation
from bidual._util.typing import Array, FloatArray
from bidual.bounds import Certificate
from bidual.models import Model, Target, Training
from bidual.networks import Network
from bidual.tables import INDEX, Cells, Label, Table, TableEncoder
from bidual.tables.cells import is_code, is_date, is_missing, number, unit
from bidual.tables.columns import reading

TASKS = ("auto", "regression", "classification")
#: Whole numbers of at most so many different values, each in so many rows on average, may be classes.
_FEW, _OFTEN = 10, 5
#: Texts of a target are classes unless there are more of them than this, one in every two rows.
_MANY_CLASSES = 10
#: Names of columns that number the rows, if that is what they do.
_INDEX_NAMES = frozenset((INDEX, "unnamed: 0", "index", "row", "rownames", "row_number"))


class Choice(NamedTuple):
    """A task that was found, why, and whether another one is as likely."""

    task: str
    because: str
    guessed: bool = False


@dataclass(frozen=True)
class Prepared:
    """A table made ready: numbers, targets, how they are scaled, and the shape of a sample that is a tensor."""

    table: Table
    encoder: TableEncoder | None
    features: tuple[str, ...]
    X: FloatArray
    y: Any
    weights: FloatArray | None
    target: Target
    scaling: tuple[FloatArray, FloatArray] | None
    shape: tuple[int, ...] | None
    remarks: tuple[str, ...]
    choice: Choice | None

    @classmethod
    def of(
        cls,
        table: Table,
        target: str,
        *,
        weights: str | None = None,
        drop: Sequence[str] = (),
        task: str = "auto",
        scale: bool = True,
        scale_target: bool | None = None,
        encoder: TableEncoder | None = None,
        tensors: bool = False,
    ) -> Self:
        """From a table and what its columns are for.

        Parameters
        ----------
        table : Table
        target : str
        weights : str or None
            Column of sample weights.
        drop : sequence of str
            Columns that are not features.
        task : {"auto", "regression", "classification"}
        scale, scale_target : bool
            Standardise the columns, and the target of a regression (None: yes, of a regression).
        encoder : TableEncoder or None
            How columns become numbers; None: as it does by itself.
        tensors : bool
            The architecture takes samples in their shape; without one, the columns are a sequence.
        """
        apart = [target, *filter(None, [weights, *drop])]
        table.require(apart)
        if task not in TASKS:
            raise ValueError(f"task must be one of {', '.join(map(repr, TASKS))}, got {shown(task)}")
        inputs = [name for name in table.names if name not in apart]
        index = [name for name in inputs if _counts_rows(name, table.columns[name])]
        inputs = [name for name in inputs if name not in index]
        if not inputs:
            raise ValueError(
                f"{table.source} has no columns to learn from besides {', '.join(map(repr, apart + index))}"
            )
        choice = None
        if task == "auto":
            choice = choose_task(table, target)
            task = choice.task
        if task == "classification" and scale_target:
            raise ValueError("--scale-target is for regression, but this is a classification")
        mass = table.numbers(weights) if weights else None
        w = normalise_weights(mass, len(table))
        remarks = [f"column {name!r} numbers the rows: left out" for name in index]
        shape = None
        if tensors:
            encoder, (X, shape) = None, _samples(table, inputs)
            remarks += table.remarks
            features: tuple[str, ...] = tuple(inputs)
        else:
            encoder = (encoder or TableEncoder()).fit(table.only(inputs), sample_weight=w)
            X, features = encoder.transform(table.only(inputs)), tuple(encoder.get_feature_names_out())
            remarks += encoder.remarks_
        about: Target
        y: Any
        if task == "classification":
            about, y = _classes(table, target)
        else:
            about, y = _values(table, target, w, scale_target is not False)
            remarks += reading(target, table.columns[target], table.decimal_of(target))
        scaling = standardisation(X, w) if scale else None
        return cls(table, encoder, features, X, y, mass, about, scaling, shape, tuple(remarks), choice)

    @property
    def task(self) -> str:
        """``"regression"`` or ``"classification"``."""
        return "regression" if self.target.classes is None else "classification"

    @property
    def inputs(self) -> FloatArray:
        """The columns as the network sees them."""
        X = self.X if self.scaling is None else (self.X - self.scaling[0]) / self.scaling[1]
        return X if self.shape is None else X.reshape(len(X), *self.shape)

    @property
    def coded(self) -> Array:
        """What the estimator trains on: class codes, or values in the network's units."""
        if self.target.classes is None:
            return np.asarray((self.y - self.target.centre) / self.target.scale)
        code = {label: k for k, label in enumerate(self.target.classes)}
        return np.array([code[label] for label in self.y])

    def model(self, network: Network, certificate: Certificate, training: Training) -> Model:
        """A trained network with what it takes to use it on raw tables."""
        centre, scale = self.scaling or (None, None)
        labelled = certificate.labelled(None if self.target.classes is None else np.array(self.target.classes))
        return Model(
            network, self.features, self.target, training, labelled, centre, scale, self.shape, encoder=self.encoder
        )


def choose_task(table: Table, name: str) -> Choice:
    """The task a target column asks for, and why; ValueError where it is neither numbers nor classes."""
    table.require([name])
    cells = table.filled(name)
    decimal = table.decimal_of(name)
    values = [None if _is_text(table, cell) else number(cell, decimal) for cell in cells]
    numeric = sum(value is not None for value in values)
    if numeric < len(cells) and any(map(is_date, cells[:1])):
        raise ValueError(
            f"{table.source}: the target {name!r} holds dates ({shown(str(cells[0]))}): convert them to numbers"
        )
    distinct = len({str(cell) for cell in cells})
    if numeric < len(cells):
        text = table.first_not_number(name) if numeric else None
        gap = next(i for i, value in enumerate(values) if value is None)
        if 2 * numeric >= len(cells) and is_missing(cells[gap]):
            raise ValueError(f"{table.where(name, gap)}: nothing is known ({shown(cells[gap])}): leave this row out")
        if 2 * numeric >= len(cells) and distinct > 2 and text is not None:
            raise ValueError(f"{text}, as other cells of the target are: correct it, or say --task classification")
        if distinct > max(_MANY_CLASSES, len(cells) / 2):
            raise ValueError(
                f"{table.source}: the target {name!r} holds {distinct} different texts in {len(cells)} rows, such as "
                f"{shown(cells[0])}: neither numbers nor classes"
            )
        why = f"the target is not numeric: {text or f'{name!r} holds {shown(cells[0])}'}"
        return Choice("classification", why)
    whole = all(value is not None and value.is_integer() for value in values)
    if distinct == 2 and whole:
        return Choice("classification", f"the target {name!r} has two distinct values")
    if whole and distinct <= _FEW and distinct * _OFTEN <= len(cells):
        because = (
            f"the target {name!r} holds whole numbers of {distinct} distinct values; if they are amounts, not classes"
        )
        return Choice("classification", because, guessed=True)
    return Choice("regression", f"the target {name!r} is numeric with {distinct} distinct values")


def _is_text(table: Table, cell: Any) -> bool:
    """Whether a cell of a target is text although it looks like a number: 007, or "1" in a typed table."""
    return is_code(cell) or (table.typed and isinstance(cell, str) and not unit(cell) and "," not in cell)


def _counts_rows(name: str, cells: Cells) -> bool:
    """Whether a column only numbers the rows: it says so by its name, and its cells rise by one."""
    if name.lower() not in _INDEX_NAMES and not name.lower().endswith("id"):
        return False
    values = [number(cell) for cell in cells]
    if name == INDEX:
        return True  # all different, which reading has made sure of
    return len(values) > 2 and all(a is not None and b is not None and b == a + 1 for a, b in pairwise(values))


def _samples(table: Table, inputs: list[str]) -> tuple[FloatArray, tuple[int, ...]]:
    """Samples of an architecture that takes tensors, as rows, and their shape."""
    if table.shape is None:  # the columns are a sequence
        return table.matrix(inputs), (len(inputs),)
    if len(inputs) < prod(table.shape):
        raise ValueError(f"{table.source}: single entries of samples of shape {table.shape} cannot be dropped")
    return table.matrix(inputs), table.shape


def _classes(table: Table, name: str) -> tuple[Target, list[Label]]:
    labels = table.labels(name)
    try:
        classes = tuple(sorted(set(labels)))
    except TypeError as error:
        raise ValueError(
            f"{table.source}: the labels in {name!r} are of several types: make all of them text"
        ) from error
    if len(classes) < 2:
        raise ValueError(f"{table.source}: the target {name!r} holds one class only, {classes[0]!r}")
    return Target(name, classes=classes), labels


def _values(table: Table, name: str, w: FloatArray, scaled: bool) -> tuple[Target, FloatArray]:
    y = table.numbers(name)
    used = y[w > 0]
    if np.ptp(used) == 0:
        raise ValueError(f"{table.source}: the target {name!r} is constant, {used[0]:g} in every row")
    centre, scale = standardisation(y[:, None], w) if scaled else (np.zeros(1), np.ones(1))
    return Target(name, float(centre[0]), float(scale[0])), y
