"""DataFrames and arrays as tables, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from bidual._util.checks import shown
from bidual.tables.table import Cells, Table


def table_of(X: Any, source: str = "X", *, decimal: str | None = None) -> Table:
    """A DataFrame, a mapping of names to columns or an array ``(n, d)`` as a table; a table is returned as it is."""
    if isinstance(X, Table):
        return X
    categorical: frozenset[str] = frozenset()
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        names = list(X.columns)
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{source} has more than one column called {twice[0]!r}: give them different names")
        columns: dict[str, Cells] = {str(name): _cells(X[name]) for name in names}
        if len(columns) < len(names):
            raise ValueError(f"{source} has columns whose names differ in type only: make all of them text")
        categorical = frozenset(
            str(name) for name in names if str(getattr(X[name], "dtype", "")).lower().startswith(("categor", "enum"))
        )
    elif isinstance(X, dict):
        columns = {str(name): _cells(values) for name, values in X.items()}
    else:
        array = np.asarray(X)
        if array.ndim != 2 or array.dtype.kind in "cV":
            raise ValueError(f"{source} must be a table: a DataFrame, or rows of equal length, got {shown(X)}")
        columns = {f"x{j}": _cells(column) for j, column in enumerate(array.T)}
    if not columns:
        raise ValueError(f"{source} has no columns")
    if len({len(cells) for cells in columns.values()}) > 1:
        raise ValueError(f"the columns of {source} differ in length")
    return Table(source, columns, typed=True, decimal=decimal, categorical=categorical)


def _cells(column: Any) -> Cells:
    """Numbers and truth values as an array of these, anything else cell by cell."""
    values = np.asarray(column)
    return values if values.dtype.kind in "biuf" else list(column)


def frame_of(table: Table) -> Any:
    """A table as a pandas DataFrame: columns of numbers as numbers, others as they are."""
    from bidual._util.extras import require

    require("a pipeline that takes columns by name", "tables", "pandas")
    import pandas

    def typed(name: str) -> Any:
        return table.numbers(name) if table.first_not_number(name) is None else list(table.columns[name])

    return pandas.DataFrame({name: typed(name) for name in table.names})
