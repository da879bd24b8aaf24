"""A sample of features is read from what an application can write, and what is wrong with it is said with its place."""

import numpy as np
import pytest

from foltr.core.data.feature_samples import read_feature_sample
from foltr.core.errors import DataError

VALUES = [[1.0, -2.5], [0.0, 1e6], [3.0, 4.0]]


def test_a_csv_names_its_columns(tmp_path):
    """In its first line; a mark at the beginning and empty lines are nothing. What is no CSV or npz is LETOR."""
    path = tmp_path / "sample.csv"
    path.write_text("\ufeffbm25, price of it\n1,-2.5\n\n0,1e6\n3,4\n", encoding="utf-8")
    sample = read_feature_sample(path)
    assert sample.names == ("bm25", "price of it")
    assert sample.values.tolist() == VALUES
    path = tmp_path / "logged.txt"
    path.write_text("1 qid:1 1:1 2:-2.5\n0 qid:1 2:1e6\n0 qid:2 1:3 2:4\n")
    assert read_feature_sample(path).values.tolist() == VALUES


@pytest.mark.parametrize("arrays", [{"features": VALUES, "clicks": [1]}, {"anything": VALUES}])
def test_an_npz_has_an_array_of_features(tmp_path, arrays):
    path = tmp_path / "sample.NPZ"
    with path.open("wb") as file:
        np.savez(file, **arrays)
    sample = read_feature_sample(path)
    assert (sample.values.tolist(), sample.names) == (VALUES, None)
    with path.open("wb") as file:
        np.savez(file, features=np.array(VALUES, np.float32), names=["a", "b"])
    assert read_feature_sample(path).names == ("a", "b")


def test_what_is_no_sample_is_said_with_its_place(tmp_path):
    """One error, with the file."""
    for name, content, said in [
        ("a.csv", b"", "first line must name"),
        ("a.csv", b"1,2\n3,4\n", "first line must name the columns"),
        ("a.csv", b"a,b\n", "a sample has rows"),
        ("a.csv", b"a,b\n1,2\n3\n", "row 3 has 1 columns, and the first 2"),
        ("a.csv", b"a,b\n1,green\n", "row 2: 'b' is 'green', not a number"),
        ("a.csv", b"a,b\n1,nan\n", "column 1 of document 0 is nan"),
        ("a.csv", b"a,b\n1,2\n1e39,2\n", "column 0 of document 1 is 1e[+]39"),
        ("a.csv", b"\xff\xfe", "not UTF-8 text"),
        ("a.npz", b"PK", "not an npz of plain arrays"),
        ("a.txt", b"a\n", "a.txt"),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"{name}.*{said}" if said != name else said):
            read_feature_sample(path)
    for name in ["a.csv", "a.npz", "a.txt"]:
        with pytest.raises(DataError, match=name):
            read_feature_sample(tmp_path / name)
    for arrays, said in [
        ({"a": [[1.0]], "b": [[1.0]]}, "array of numbers named 'features'"),
        ({"features": [["x"]]}, "array of numbers"),
        ({"features": [1.0]}, "rows of documents"),
        ({"features": np.array([[None]])}, "plain arrays"),
    ]:
        path = tmp_path / "a.npz"
        np.savez(path, **arrays)
        with pytest.raises(DataError, match=said):
            read_feature_sample(path)
