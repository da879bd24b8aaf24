"""Rows are read as an application has them: arrays, data frames, lists of dicts."""

import numpy as np
import pytest

from foltr.core.errors import DataError
from foltr.core.learning.rows import as_numbers

NAMES = ["bm25", "price"]
ROWS = [{"price": 2, "bm25": 1.5}, {"bm25": 3.0, "price": 4}]
WANTED = [[1.5, 2.0], [3.0, 4.0]]


class Frame:
    """What both libraries' data frames have in common, as far as it is used."""

    def __init__(self, rows, columns):
        self._rows, self.columns = rows, columns

    def __getitem__(self, names):
        chosen = [self.columns.index(name) for name in names]
        return Frame([[row[i] for i in chosen] for row in self._rows], names)

    def __len__(self):
        return len(self._rows)

    def to_numpy(self):
        return np.array(self._rows)


def frame_of(library, rows):
    """The rows as a library's data frame; a test skips without the library."""
    if library == "duck":
        return Frame([list(row.values()) for row in rows], list(rows[0]))
    return pytest.importorskip(library, reason=f"{library} is not installed").DataFrame(rows)


@pytest.mark.parametrize("library", ["duck", "pandas", "polars"])
def test_a_data_frame_is_matched_by_its_columns(library):
    """In any order; without names, columns are taken as they are."""
    frame = frame_of(library, [{"price": 2, "bm25": 1.5}, {"price": 4, "bm25": 3.0}])
    assert as_numbers(frame, NAMES).tolist() == WANTED
    assert as_numbers(frame).tolist() == [row[::-1] for row in WANTED]
    with pytest.raises(DataError, match="the data frame has no 'age', which is a feature of the schema"):
        as_numbers(frame, [*NAMES, "age"])
    with pytest.raises(DataError, match="the data frame has 'price', which is no feature of the schema"):
        as_numbers(frame, ["bm25"])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_what_a_data_frame_has_for_a_missing_value_is_no_number(library):
    """Read as NaN, which the schema refuses by row and column, or refused by the value."""
    frame = frame_of(library, [{"bm25": 1.0, "price": 2.0}, {"bm25": None, "price": 3.0}])
    assert np.isnan(as_numbers(frame, NAMES)[1, 0])
    with pytest.raises(DataError, match="'bm25' of document 1 is 'dear'; expected numbers"):
        as_numbers(frame_of(library, [{"bm25": "1", "price": 2.0}, {"bm25": "dear", "price": 3.0}]), NAMES)
    # A data frame that was made of no hits has no columns.
    assert len(as_numbers(frame_of(library, []), NAMES)) == 0
    if library == "pandas":
        nullable = frame.convert_dtypes()
        with pytest.raises(DataError, match="'bm25' of document 1 is <NA>; expected numbers"):
            as_numbers(nullable, NAMES)


def test_dicts_are_matched_by_their_keys():
    """Each row by its own, and an error names the row; of a column given twice nobody could say which counts."""
    assert as_numbers(ROWS, NAMES).tolist() == WANTED
    assert as_numbers(tuple(ROWS), NAMES).tolist() == WANTED
    for rows, words in [
        ([ROWS[0], {"bm25": 1}], "row 1 has no 'price', which is a feature of the schema"),
        ([{"bm25": 1, "prize": 2}], "row 0 has no 'price', which is a feature of the schema; 'prize' is none"),
        ([ROWS[0], {**ROWS[1], "title": "tea"}], "row 1 has 'title', which is no feature of the schema"),
        ([ROWS[0], [1.0, 2.0]], "row 1 is no dict"),
        ([ROWS[0], {"bm25": "dear", "price": 1}], "'bm25' of document 1 is 'dear'; expected numbers"),
    ]:
        with pytest.raises(DataError, match=words):
            as_numbers(rows, NAMES)
    with pytest.raises(DataError, match="rows are dicts; give a schema"):
        as_numbers(ROWS)
    with pytest.raises(DataError, match="the data frame has 'bm25' twice"):
        as_numbers(Frame([[1, 2, 3]], ["bm25", "price", "bm25"]), NAMES)


def test_a_value_that_is_no_number_is_named():
    """By row and column without names, by the name with them; rows of different lengths by the row."""
    for rows, names, words in [
        ([[1, 2], [3, "dear"]], None, "row 1, column 1 is 'dear'; expected numbers"),
        ([[1, 2], [3, "dear"]], NAMES, "'price' of document 1 is 'dear'; expected numbers"),
        ([[1, 2, 3], [3, 4, "dear"]], NAMES, "row 1, column 2 is 'dear'; expected numbers"),
        ([[1, 2], [3]], NAMES, "row 1 has 1 columns, and row 0 has 2"),
        ([[1, 2], [3, 4j]], NAMES, "'price' of document 1 is 4j; expected numbers"),
        ("tea", None, "expected numbers, "),
        ({"bm25": [1.5, 3.0]}, None, "got a dict of columns; give rows: a dict for each document"),
        (object(), None, "expected numbers, "),
        (np.array([["2026-01-01"]], "M8[s]"), None, "row 0, column 0 is .*2026-01-01"),
    ]:
        with pytest.raises(DataError, match=words):
            as_numbers(rows, names)
