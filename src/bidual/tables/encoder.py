"""From the columns of a table to columns of numbers, in the same way at training and ever after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bidual._util.checks import check_number
from bidual._util.data import normalise_weights
from bidual._util.typing import Array, FloatArray
from bidual.tables.columns import Column, Numbers, learn
from bidual.tables.frames import table_of
from bidual.tables.table import Table


class TableEncoder(TransformerMixin, BaseEstimator):
    """Columns of any kind as columns of numbers, for networks.

    ============= ==========================================================================================
    numbers       as they are, also written as ``$63,738``, ``1.234,50 €``, ``12 %`` or ``(17)``; a missing one is
                  the median, and a column "... is missing" says so
    truth values  0 and 1: true/false, yes/no, t/f, y/n, on/off
    categories    one column each (two make one column); missing ones are a category of their own, and those beyond
                  ``max_categories`` are "other"; a category that training did not know is an average row
    codes         with leading zeros (``00501``) are categories
    constants     and columns without values are left out
    dates         are refused, and so are identifiers and text among numbers
    ============= ==========================================================================================

    Numbers are not scaled: put a ``StandardScaler`` behind it, or use :func:`~bidual.table_model`.

    Parameters
    ----------
    categorical : sequence of str
        Columns that are categories although they look like numbers, or like identifiers.
    max_categories : int, default=30
        The most frequent categories of a column that are told apart.
    decimal : {".", ","} or None
        Decimal mark of numbers that are text; None: each column tells.

    Attributes
    ----------
    columns_ : tuple of Column
        What each column was found to be.
    left_out_ : dict
        Columns that are not used, and why.
    remarks_ : tuple of str
        What was assumed, in sentences.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> from bidual import TableEncoder
    >>> houses = {"area": [50, 70, None, 90], "city": ["Bern", "Basel", "Bern", "Chur"], "garden": ["no", "yes"] * 2}
    >>> encoder = TableEncoder().fit(houses)
    >>> encoder.get_feature_names_out().tolist()
    ['area', 'area is missing', 'city=Basel', 'city=Bern', 'city=Chur', 'garden']
    >>> encoder.transform(houses)[2].tolist()
    [70.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    """

    columns_: tuple[Column, ...]
    left_out_: dict[str, str]
    remarks_: tuple[str, ...]

    def __init__(
        self, *, categorical: Sequence[str] = (), max_categories: int = 30, decimal: str | None = None
    ) -> None:
        self.categorical = categorical
        self.max_categories = max_categories
        self.decimal = decimal

    def fit(self, X: Any, y: Any = None, sample_weight: Array | None = None) -> Self:
        """Learn what the columns are.

        Parameters
        ----------
        X : DataFrame, Table, dict of columns or array of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,) or None
            Rows of weight zero have no influence.
        """
        self._check()
        table = table_of(X)
        if len(table) == 0:
            raise ValueError(f"{table.source} has no rows")
        table.require(self.categorical)
        table = self._read_as(table)
        weights, remarks = normalise_weights(sample_weight, len(table)), list(table.remarks)
        found, refused = dict[str, Column | str](), dict[str, ValueError]()
        for name in table.names:
            try:
                found[name] = learn(table, name, weights, self.max_categories, remarks)
            except ValueError as error:
                refused[name] = error
        if refused:
            first, *others = refused
            more = f"; the same or another reason refuses {', '.join(map(repr, others))}" if others else ""
            raise ValueError(f"{refused[first]}{more}") from refused[first]
        self.columns_ = tuple(column for column in found.values() if isinstance(column, Column))
        self.left_out_ = {name: why for name, why in found.items() if isinstance(why, str)}
        if not self.columns_:
            reasons = "; ".join(f"{name!r} {why}" for name, why in list(self.left_out_.items())[:3])
            raise ValueError(f"{table.source} has no columns to learn from: {reasons}")
        remarks += [f"column {name!r} is left out: it {why}" for name, why in self.left_out_.items()]
        names = self.get_feature_names_out().tolist()
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{table.source}: two columns would be called {twice[0]!r} once encoded: rename one")
        self.remarks_ = tuple(remarks)
        self.feature_names_in_ = np.array(table.names, dtype=object)
        self.n_features_in_ = len(table.names)
        return self

    def transform(self, X: Any) -> FloatArray:
        """The columns as numbers: by name, or by position for an array.

        Parameters
        ----------
        X : DataFrame, Table, dict of columns or array of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_columns)
        """
        check_is_fitted(self, "columns_")
        table = table_of(X)
        if not (isinstance(X, Table | dict) or hasattr(X, "columns")):
            if len(table.names) != self.n_features_in_:
                raise ValueError(f"X must have {self.n_features_in_} columns, got {len(table.names)}")
            table = replace(table, columns=dict(zip(self.feature_names_in_, table.columns.values(), strict=True)))
        table = self._read_as(table)
        table.require(column.name for column in self.columns_)
        return np.hstack([column.encode(table) for column in self.columns_])

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns of numbers."""
        check_is_fitted(self, "columns_")
        return np.array([name for column in self.columns_ for name in column.names], dtype=object)

    @property
    def plain(self) -> bool:
        """Whether the numbers are those of the table, all columns in their order."""
        return len(self.columns_) == self.n_features_in_ and all(
            type(column) is Numbers and not column.indicator for column in self.columns_
        )

    @property
    def summary(self) -> str:
        """The columns, and those that are not used, in one line."""
        out = f"; not used: {', '.join(self.left_out_)}" if self.left_out_ else ""
        return f"{', '.join(column.summary for column in self.columns_)}{out}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain lists, numbers and strings."""
        check_is_fitted(self, "columns_")
        return {
            "categorical": list(self.categorical),
            "max_categories": self.max_categories,
            "decimal": self.decimal,
            "feature_names_in": self.feature_names_in_.tolist(),
            "left_out": self.left_out_,
            "remarks": list(self.remarks_),
            "columns": [column.to_dict() for column in self.columns_],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`."""
        encoder = cls(**{name: data[name] for name in ("categorical", "max_categories", "decimal")})
        encoder._check()
        encoder.columns_ = tuple(Column.from_dict(column) for column in data["columns"])
        encoder.left_out_ = dict(data["left_out"])
        encoder.remarks_ = tuple(data["remarks"])
        encoder.feature_names_in_ = np.array(data["feature_names_in"], dtype=object)
        encoder.n_features_in_ = len(encoder.feature_names_in_)
        return encoder

    def _check(self) -> None:
        check_number("max_categories", self.max_categories, at_least=2, integer=True)
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be '.', ',' or None, got {self.decimal!r}")
        if isinstance(self.categorical, str):
            raise ValueError(f"categorical must be a list of columns, got the text {self.categorical!r}")

    def _read_as(self, table: Table) -> Table:
        """The table with what the parameters say about it."""
        categorical = table.categorical | frozenset(self.categorical)
        return replace(table, categorical=categorical, decimal=table.decimal or self.decimal)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags
