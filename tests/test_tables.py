"""Tables as people have them: what a file says, whatever it looks like, and what its columns become."""

from __future__ import annotations

import gzip
import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidual import TableEncoder, read_table
from bidual.tables import Table, table_of
from bidual.tables.cells import is_date, is_missing, number
from bidual.tables.columns import median

PLAIN = "area,city,price\n50.5,Bern,1200\n70,Zürich,1500.25\n90,Bern,1800\n"


def read(tmp_path, content, name="d.csv", encoding="utf-8", **options):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return read_table(path, **options)


def same_as_plain(table):
    assert table.names == ["area", "city", "price"]
    np.testing.assert_array_equal(table.numbers("area"), [50.5, 70, 90])
    np.testing.assert_array_equal(table.numbers("price"), [1200, 1500.25, 1800])
    assert table.labels("city") == ["Bern", "Zürich", "Bern"]


def encoded(**columns):
    encoder = TableEncoder().fit(columns)
    return encoder, encoder.transform(columns)


def from_csv(tmp_path, text, **options):
    table = read(tmp_path, text, **options)
    return TableEncoder().fit(table), table


# ---- reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " "])
def test_any_separator_is_found(tmp_path, separator):
    same_as_plain(read(tmp_path, PLAIN.replace(",", separator)))


def test_an_unusual_separator_can_be_said(tmp_path):
    same_as_plain(read(tmp_path, PLAIN.replace(",", "~"), separator="~"))


def test_a_separator_is_what_cuts_all_rows_alike(tmp_path):
    table = read(tmp_path, "price, in EUR;area, in m2;name, first\n1,5;2,5;a\n3;4,25;b\n")
    assert table.names == ["price, in EUR", "area, in m2", "name, first"]
    assert table.numbers("area, in m2").tolist() == [2.5, 4.25]


@pytest.mark.parametrize(
    ("written", "separator"), [("1,5 2,25 -3", ";"), ("1,5 2.000,25 -3", "\t"), ("1.5 2,000.25 -3", ";")]
)
def test_decimal_commas_and_groups_of_thousands_are_told_by_their_column(tmp_path, written, separator):
    cells = written.split()
    table = read(tmp_path, f"a{separator}b\n" + "".join(f"{cell}{separator}x\n" for cell in cells))
    assert table.numbers("a").tolist() == [1.5, 2000.25 if "000" in written else 2.25, -3.0]


def test_what_may_be_two_numbers_is_refused_unless_the_file_or_the_user_tells(tmp_path):
    ambiguous = "a;b\n1,234;x\n5,678;y\n"
    with pytest.raises(ValueError, match=r"column 'a': '1,234' may be 1234 or 1\.234: say which with --decimal"):
        read(tmp_path, ambiguous).numbers("a")
    assert read(tmp_path, ambiguous, decimal=",").numbers("a").tolist() == [1.234, 5.678]
    assert read(tmp_path, ambiguous, decimal=".").numbers("a").tolist() == [1234, 5678]
    assert read(tmp_path, 'a,b\n"1,234",x\n"5,678",y\n').numbers("a").tolist() == [1234, 5678]
    assert read(tmp_path, "a;b\n1,234;0,5\n5,678;7,25\n").numbers("a").tolist() == [1.234, 5.678]
    assert read(tmp_path, "a;b\n1.234;0,5\n5.678;7,25\n").numbers("a").tolist() == [1234, 5678]


def test_quoted_cells_hold_separators_quotes_and_new_lines(tmp_path):
    table = read(tmp_path, 'name,"a, b"\n"Bern, ""old"" town",1\n"two\nlines",2\n')
    assert table.names == ["name", "a, b"]
    assert table.labels("name") == ['Bern, "old" town', "two\nlines"]


@pytest.mark.parametrize("name", ["d.csv.gz", "d.csv"])
def test_compressed_files_are_read_whatever_their_name(tmp_path, name):
    same_as_plain(read(tmp_path, gzip.compress(PLAIN.encode()), name))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_unicode_files_are_read_in_their_encoding(tmp_path, encoding):
    table = read(tmp_path, PLAIN, encoding=encoding)
    same_as_plain(table)
    assert table.remarks == ()


def test_latin_text_is_read_and_said(tmp_path):
    table = read(tmp_path, PLAIN, encoding="latin-1")
    same_as_plain(table)
    assert "read as Windows-1252 (--encoding says otherwise)" in table.remarks[0]
    path = tmp_path / "greek.csv"
    path.write_bytes("a,b\nα,1\n".encode("iso-8859-7"))
    assert read_table(path, encoding="iso-8859-7").labels("a") == ["α"]
    with pytest.raises(ValueError, match="no encoding 'klingon': try utf-8"):
        read_table(path, encoding="klingon")


def test_stdin_is_a_table(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(PLAIN.encode())))
    table = read_table("-")
    same_as_plain(table)
    assert table.source == "stdin"


@pytest.mark.parametrize(
    "text", ["5.1,3.5,setosa\n4.9,3.0,setosa\n", "1,2\n3,4\n", "1;2,5\n3;4,5\n"], ids=["iris", "numbers", "commas"]
)
def test_files_without_a_header_are_refused(tmp_path, text):
    with pytest.raises(ValueError, match="needs a header"):
        read(tmp_path, text)


def test_years_may_be_names_of_columns(tmp_path):
    assert read(tmp_path, "country,2019,2020\nCH,1,2\n").names == ["country", "2019", "2020"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", r"row 3 has 1 cells, the header has 2 .*--separator"),
        ("a,b\n1,2\x00\n", "NUL characters"),
        ("a,,c\n1,2,3\n", "column 2 of the header has no name"),
        ('a,b\n"1,2\n', "not a CSV file"),
    ],
)
def test_broken_files_are_refused_in_a_sentence(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)


def test_the_line_that_excel_writes_for_itself_is_no_header(tmp_path):
    assert read(tmp_path, "sep=;\na;b\n1;2\n").names == ["a", "b"]


def test_blanks_around_cells_and_before_quotes_mean_nothing(tmp_path):
    table = read(tmp_path, 'a, b, c\n1 , "x, y", ?\n2, "z",  3\n')
    assert table.columns == {"a": ["1", "2"], "b": ["x, y", "z"], "c": ["?", "3"]}


def test_separators_at_the_end_of_lines_make_no_column(tmp_path):
    assert read(tmp_path, "a,b,\n1,2,\n3,4,\n").names == ["a", "b"]


@pytest.mark.parametrize("suffix", [".parquet", ".xlsx"])
def test_parquet_and_excel_hold_what_pandas_wrote(tmp_path, suffix):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow" if suffix == ".parquet" else "openpyxl", reason="an engine is not installed")
    frame = pandas.DataFrame({"area": [50.5, None, 90], "city": ["Bern", "Zürich", None], "new": [True, False, True]})
    path = tmp_path / f"d{suffix}"
    frame.to_parquet(path) if suffix == ".parquet" else frame.to_excel(path, index=False)
    table = read_table(path)
    assert table.names == ["area", "city", "new"]
    encoder = TableEncoder().fit(table)
    names = ["area", "area is missing", "city=Bern", "city=Zürich", "city is missing", "new"]
    assert encoder.get_feature_names_out().tolist() == names
    np.testing.assert_array_equal(encoder.transform(table), TableEncoder().fit(frame).transform(frame))


@pytest.mark.parametrize(("name", "module"), [("d.parquet", "pyarrow"), ("d.xlsx", "openpyxl")])
def test_without_the_extra_the_sentence_names_it(tmp_path, monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs {module}: pip install {module}, or in a clone .*\[tables\]"):
        read(tmp_path, b"", name)


def test_csv_needs_no_extra(tmp_path, monkeypatch):
    for module in ("pandas", "pyarrow", "openpyxl"):
        monkeypatch.setitem(sys.modules, module, None)
    table = read(tmp_path, PLAIN.replace("70", ""))
    assert TableEncoder().fit(table).transform(table).shape == (3, 4)


@pytest.mark.parametrize(("name", "what"), [("d.parquet", "Parquet"), ("d.xlsx", "Excel")])
def test_damaged_files_are_refused_in_a_sentence(tmp_path, name, what):
    pytest.importorskip("pyarrow" if what == "Parquet" else "openpyxl", reason="an engine is not installed")
    with pytest.raises(ValueError, match=f"not a readable {what} file"):
        read(tmp_path, b"PK broken", name)


# ---- cells -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "decimal", "value"),
    [
        ("$63,738", ".", 63738.0),
        ("-$5.50", ".", -5.5),
        ("($1,200)", ".", -1200.0),
        ("1'234.5", ".", 1234.5),
        ("63 738 €", ".", 63738.0),
        ("63.738,50 €", ",", 63738.5),
        ("CHF 12", ".", 12.0),
        ("12 %", ".", 12.0),
        ("1e3", ".", 1000.0),
        (".5", ".", 0.5),
        ("+7", ".", 7.0),
        (True, ".", 1.0),
        ("1_000", ".", None),
        ("12,34", ".", None),
        ("1,2345", ".", None),
        ("0x10", ".", None),
        ("abc", ".", None),
        ("$", ".", None),
        ("12 kg", ".", None),
        ("$5€", ".", None),
        ("(5", ".", None),
    ],
)
def test_a_number_is_read_as_it_is_written_or_not_at_all(cell, decimal, value):
    assert number(cell, decimal) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_that_python_writes_is_read_bit_for_bit(value):
    assert number(repr(value)) == value


@given(st.integers(-(10**12), 10**12), st.sampled_from([",", ".", "'", " "]))
def test_groups_of_thousands_do_not_change_a_number(value, mark):
    assert number(f"{value:,}".replace(",", mark), "," if mark == "." else ".") == value


@given(st.text(max_size=20))
def test_no_text_breaks_the_reading_of_cells(text):
    number(text)
    number(text, ",")
    is_missing(text)
    is_date(text)


@pytest.mark.parametrize("cell", ["", " ", "NA", "n/a", "NaN", "null", "None", "?", "-", "#N/A", None, np.nan])
def test_missing_values_have_many_spellings(cell):
    encoder, X = encoded(a=["1", "2", "4", cell])
    assert encoder.get_feature_names_out().tolist() == ["a", "a is missing"]
    assert X.tolist() == [[1, 0], [2, 0], [4, 0], [2, 1]]


# ---- columns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cells", ["true False TRUE", "yes no YES", "t f t", "Y n y", "on Off ON", [True, False, True], "1 0 1"]
)
def test_truth_values_are_zero_and_one_in_any_spelling(cells):
    encoder, X = encoded(a=cells.split() if isinstance(cells, str) else cells)
    assert encoder.get_feature_names_out().tolist() == ["a"]
    assert X.tolist() == [[1], [0], [1]]


def test_truth_values_are_understood_in_another_spelling():
    encoder, _ = encoded(a=["yes", "no"])
    assert encoder.transform({"a": ["TRUE", "f", "1", "0"]}).tolist() == [[1], [0], [1], [0]]
    with pytest.raises(ValueError, match="'perhaps' is neither true nor false"):
        encoder.transform({"a": ["perhaps"]})


def test_categories_have_a_column_each_and_missing_ones_their_own():
    encoder, X = encoded(city=["Bern", "", "Chur", "Bern"], size=["L", "S", "L", "L"])
    names = ["city=Bern", "city=Chur", "city is missing", "size=S"]
    assert encoder.get_feature_names_out().tolist() == names
    assert X.tolist() == [[1, 0, 0, 0], [0, 0, 1, 1], [0, 1, 0, 0], [1, 0, 0, 0]]


def test_a_category_that_training_did_not_know_is_an_average_row_and_said():
    encoder, X = encoded(city=["Bern", "Basel", "Chur", "Bern"])
    with pytest.warns(UserWarning, match=r"column 'city' holds 'Zug' in 1 of 2 rows"):
        np.testing.assert_allclose(encoder.transform({"city": ["Zug", "Bern"]})[0], X.mean(axis=0))


def test_rare_categories_are_one():
    cells = ["a"] * 30 + ["b"] * 20 + [f"c{k}" for k in range(8)]
    encoder = TableEncoder(max_categories=3).fit({"x": cells})
    assert encoder.get_feature_names_out().tolist() == ["x=a", "x=b", "x is other"]
    assert encoder.transform({"x": ["c1", "never seen", "a"]}).tolist() == [[0, 0, 1], [0, 0, 1], [1, 0, 0]]
    assert "8 rare categories of 10" in encoder.remarks_[0]


def test_codes_with_leading_zeros_are_categories(tmp_path):
    encoder, table = from_csv(tmp_path, "zip,a\n03012,1\n03012,2\n04001,3\n90210,4\n")
    assert encoder.get_feature_names_out().tolist() == ["zip=03012", "zip=04001", "zip=90210", "a"]
    assert encoder.transform(table)[3].tolist() == [0, 0, 1, 4]
    assert "leading zeros" in encoder.remarks_[0]


def test_a_missing_number_is_said_if_training_had_none():
    encoder, _ = encoded(a=[1.0, 2.0, 9.0])
    with pytest.warns(UserWarning, match=r"column 'a' lacks 1 of 2 values, but none in the training data"):
        assert encoder.transform({"a": [np.nan, 5.0]}).tolist() == [[2], [5]]


def test_text_among_numbers_is_a_mistake_and_never_a_category(tmp_path):
    cells = [f"${63_738 + k:,}" for k in range(60)]
    encoder, table = from_csv(tmp_path, "price\tx\n" + "".join(f"{cell}\t{k}\n" for k, cell in enumerate(cells)))
    assert encoder.transform(table)[:, 0].tolist() == [63_738 + k for k in range(60)]
    assert encoder.remarks_ == ("column 'price': '$63,738' is read as 63738",)
    with pytest.raises(ValueError, match=r"row 4, column 'a': 'many' is not a number, as other cells.*--categorical"):
        from_csv(tmp_path, "a,b\n1,1\n2,2\nmany,3\n")
    forced = TableEncoder(categorical=["a"]).fit(read(tmp_path, "a,b\n1,1\n2,2\nmany,3\n"))
    assert forced.get_feature_names_out().tolist() == ["a=1", "a=2", "a=many", "b"]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["$5", "€7"], r"mixes the units \$ and €"),
        (["5%", "0.07"], "percentage"),
        (["1", "inf"], "'inf' is not a finite number"),
        (["2024-01-03", "2024-02-03"], r"holds dates or times \('2024-01-03'\)"),
        (["3.1.2024", "4.1.2024"], "dates"),
        (["01/03/24 12:30", ""], "dates"),
        (["Jan 3, 2024", "Feb 4, 2024"], "dates"),
        (["12:30", "13:45"], "times"),
        (np.array(["2024-01-03", "2024-02-03"], dtype="datetime64[D]"), "dates"),
        ([f"person {k}" for k in range(20)], r"20 different texts in 20 rows.*identifiers"),
        ([1, 1, 1], "no columns to learn from: 'a' is 1 in every row"),
        (["x", "x"], "no columns to learn from: 'a' is 'x' in every row"),
        ([None, ""], "no columns to learn from: 'a' has no values"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_with_a_hint(cells, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder().fit({"a": cells})


def test_all_refused_columns_are_named_at_once():
    names = [f"person {k}" for k in range(20)]
    with pytest.raises(ValueError, match=r"column 'a' holds 20 different texts.*refuses 'c'"):
        TableEncoder().fit({"a": names, "b": range(20), "c": ["2024-01-03"] * 20})


def test_constant_and_empty_columns_are_left_out_and_need_not_be_there_later():
    encoder, X = encoded(a=[1, 2], b=[5, 5], c=["", ""], d=["x", "x"])
    assert X.tolist() == [[1], [2]]
    assert encoder.left_out_ == {"b": "is 5 in every row", "c": "has no values", "d": "is 'x' in every row"}
    assert encoder.transform({"a": [7]}).tolist() == [[7]]


def test_rows_of_weight_zero_have_no_influence():
    table = {"a": ["1", "2", "4", ""], "b": ["x", "y", "x", "z"]}
    encoder = TableEncoder().fit(table, sample_weight=[1, 1, 1, 0])
    assert encoder.get_feature_names_out().tolist() == ["a", "b=y"]


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), min_size=1, max_size=9))
def test_the_median_of_weights_is_that_of_repeated_values(pairs):
    values, times = np.array(pairs, dtype=float).T
    if times.any():
        assert median(values, times) == np.median(np.repeat(values, times.astype(int)))


@given(
    st.lists(
        st.tuples(st.sampled_from(["1", "2.5", "", "-3"]), st.sampled_from(["x", "y", "z", "?"]), st.booleans()),
        min_size=3,
        max_size=12,
    )
)
def test_an_encoder_survives_its_file(rows):
    numbers, texts, flags = (list(column) for column in zip(*rows, strict=True))
    table = {"a": numbers, "b": texts, "c": flags, "d": np.arange(len(rows))}
    encoder = TableEncoder().fit(table)
    again = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict(), allow_nan=False)))
    np.testing.assert_array_equal(again.transform(table), encoder.transform(table))
    assert again.to_dict() == encoder.to_dict()
    assert np.isfinite(encoder.transform(table)).all()
    assert encoder.transform(table).shape[1] == len(set(encoder.get_feature_names_out()))


def test_arrays_are_taken_by_position_and_tables_by_name():
    X = np.array([[1.0, np.nan], [2.0, 5.0], [4.0, 7.0]])
    encoder = TableEncoder().fit(X)
    np.testing.assert_array_equal(encoder.transform(X), [[1, 6, 1], [2, 5, 0], [4, 7, 0]])
    swapped = {"x1": X[:, 1], "x0": X[:, 0]}
    np.testing.assert_array_equal(encoder.transform(swapped), encoder.transform(X))
    with pytest.raises(ValueError, match="X must have 2 columns, got 1"):
        encoder.transform(X[:, :1])
    with pytest.raises(ValueError, match="X lacks the column 'x1'; it has 'x0'"):
        encoder.transform({"x0": X[:, 0]})


def test_frames_of_every_dtype_are_encoded():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(
        {
            "whole": pandas.array([1, None, 3], dtype="Int64"),
            "grade": pandas.Categorical([1, 2, 2]),
            "flag": pandas.array([True, None, False], dtype="boolean"),
            "text": ["a", None, "b"],
            "real": [0.5, 1.5, np.nan],
        }
    )
    encoder = TableEncoder().fit(frame)
    assert encoder.get_feature_names_out().tolist() == [
        *("whole", "whole is missing", "grade=2", "flag", "flag is missing", "text=a", "text=b", "text is missing"),
        *("real", "real is missing"),
    ]
    assert encoder.transform(frame)[1].tolist() == [2, 1, 1, 0.5, 1, 0, 0, 1, 1.5, 0]


def test_an_encoder_is_a_transformer_of_scikit_learn():
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table = {"a": [1, 2, 4, 8], "b": ["x", "y", "x", "z"]}
    pipe = make_pipeline(TableEncoder(max_categories=5), StandardScaler()).fit(table)
    np.testing.assert_allclose(pipe.transform(table).mean(axis=0), 0, atol=1e-12)
    assert pipe.get_feature_names_out().tolist() == ["a", "b=x", "b=y", "b=z"]
    assert clone(pipe[0]).max_categories == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_categories": 1}, "max_categories must be an integer >= 2"),
        ({"decimal": "x"}, "decimal must be"),
        ({"categorical": "a"}, "categorical must be a list"),
        ({"categorical": ["b"]}, "lacks the column 'b'"),
    ],
)
def test_wrong_parameters_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder(**options).fit({"a": [1, 2]})


@pytest.mark.parametrize("X", [np.zeros(3), 5, {}, {"a": [1, 2], "b": [1]}, np.zeros((2, 0))])
def test_what_is_no_table_is_refused(X):
    with pytest.raises(ValueError, match=r"table|columns"):
        table_of(X)


def test_a_table_is_returned_as_it_is():
    table = Table("x", {"a": [1]}, typed=True)
    assert table_of(table) is table
