"""Tables as people have them: files of many kinds, and columns of any kind as numbers."""

from bidual.tables.encoder import TableEncoder
from bidual.tables.frames import frame_of, table_of
from bidual.tables.reading import INDEX, read_table
from bidual.tables.table import Cells, Label, Table
from bidual.tables.writing import csv_text, write_csv

__all__ = [
    "INDEX",
    "Cells",
    "Label",
    "Table",
    "TableEncoder",
    "csv_text",
    "frame_of",
    "read_table",
    "table_of",
    "write_csv",
]
