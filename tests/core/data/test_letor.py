import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.waiting import PATIENCE_S

from foltr.core.data import letor
from foltr.core.data.letor import load_letor, load_split
from foltr.core.data.letor_lines import normalise_by_query, read_lines, read_query
from foltr.core.errors import DataError

GOOD = """\
2 qid:10 1:5 2:-1 4:7 #docid = GX1 inc = 1
0 qid:10 1:3 2:-1

1 qid:11 1:2 3:0.5 # 3:9
0 qid:9 3:0.25 4:1e8
"""
READ_RAW = "import sys; from foltr.core.data.letor import load_letor; load_letor(*sys.argv[1:2], cache_dir=sys.argv[2])"


def write(folder: Path, text: str, name: str = "train.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_reading_and_normalising_by_hand(tmp_path: Path) -> None:
    """The least becomes 0, the largest 1, the rest 0; a query id of nineteen digits is left to the line reader."""
    data = load_letor(write(tmp_path, GOOD), cache_dir=tmp_path)
    assert data.features.tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert data.relevance.tolist() == [2, 0, 1, 0]
    assert data.offsets.tolist() == [0, 2, 3, 4]
    assert data.query_ids.tolist() == [10, 11, 9]
    raw = load_letor(write(tmp_path, GOOD), normalise=False, cache_dir=tmp_path)
    assert raw.features.tolist() == [[5, -1, 0, 7], [3, -1, 0, 0], [2, 0, 0.5, 0], [0, 0, 0.25, 1e8]]
    features = np.array([[2**30], [2**30 + 1], [2**30 + 2]], np.float64)
    assert normalise_by_query(features, np.array([0, 3])).ravel().tolist() == [0.0, 0.5, 1.0]
    data = load_letor(write(tmp_path, f"1 qid:{2**63 - 1} 1:1\n0 qid:{-(2**63)} 1:2\n"), cache_dir=tmp_path)
    assert data.query_ids.tolist() == [2**63 - 1, -(2**63)]


def test_a_long_query_of_numbers_that_python_must_read_ends(tmp_path: Path) -> None:
    """Where the block is full on the line after one that was left to Python, reading goes on; it once never did."""
    path = write(tmp_path, "1 qid:1 1:1e-320\n" * 300)
    subprocess.run(
        [sys.executable, "-c", READ_RAW, str(path), str(tmp_path)], check=True, timeout=PATIENCE_S
    )  # compiled code cannot be interrupted, a process can
    assert load_letor(path, normalise=False, cache_dir=tmp_path).features.shape == (300, 1)


def test_a_bad_line_is_found_and_explained(tmp_path: Path) -> None:
    """File, line number and what was expected, for each way a line can be wrong."""
    for line, complaint in [
        ("0 1:1", "no query id"),
        ("0 qid:x 1:1", "no query id"),
        ("0 qid:99999999999999999999 1:1", "no query id"),
        ("-1 qid:1 1:1", "grade '-1'; expected a whole number from 0"),
        ("1.5 qid:1 1:1", "grade '1.5'"),
        ("99 qid:1 1:1", "grade '99'"),
        ("0 qid:1 0:1", "feature 0; expected feature numbers from 1"),
        ("0 qid:1 100001:1", "feature 100001; expected feature numbers from 1 to 100000"),
        (f"0 qid:1 {'9' * 5000}:1", "expected feature numbers from 1 to 100000"),
        (f"0 qid:{'9' * 5000} 1:1", "no query id"),
        ("0 qid:1 1:1_000", "feature 1 has value '1_000'"),
        ("0 qid:1 1:\u0661", "feature 1 has value"),
        ("0 qid:1 2:1 2:1", "feature 2 after 2"),
        ("0 qid:1 1:nan", "feature 1 has value 'nan'"),
        ("0 qid:1 1:", "feature 1 has value ''"),
        ("0 qid:1 one:1", "'one:1' is not <feature>:<value>"),
        ("0 qid:9 1:1", "query 9 comes back"),
    ]:
        path = write(tmp_path, "0 qid:9 1:1\n# a comment\n1 qid:1 1:1\n" + line + "\n0 qid:77 1:3\n")
        with pytest.raises(DataError) as caught:
            load_letor(path, cache_dir=tmp_path)
        assert str(caught.value).startswith(f"{path}:4: "), (line, complaint)
        assert complaint in str(caught.value), (line, complaint)


def test_what_is_no_file_of_documents_is_refused(tmp_path: Path) -> None:
    """An empty data set is a mistake in the path; raw a value beyond float32 would silently become infinite."""
    for text in ["", "\n\n", "# nothing\n"]:
        with pytest.raises(DataError, match=r"train\.txt"):
            load_letor(write(tmp_path, text), cache_dir=tmp_path)
    with pytest.raises(DataError, match=r"nowhere\.txt: cannot be read"):
        load_letor(tmp_path / "nowhere.txt", cache_dir=tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        load_letor(tmp_path, cache_dir=tmp_path / "cache")
    path = write(tmp_path, "0 qid:1 1:1e300\n1 qid:1 1:0\n")
    assert load_letor(path, cache_dir=tmp_path).features.tolist() == [[1], [0]]
    with pytest.raises(DataError, match="float32"):
        load_letor(path, normalise=False, cache_dir=tmp_path)


def test_a_pipe_is_read_once_and_as_a_file_is(tmp_path: Path) -> None:
    """What a shell passes for the output of a command, such as one that unpacks."""
    path = tmp_path / "set.txt"
    path.write_text("0 qid:1 1:0.5 2:1\n2 qid:1 1:1 2:3\n1 qid:2 2:4\n")
    reads, writes = os.pipe()
    os.write(writes, path.read_bytes())
    os.close(writes)
    piped, read = load_letor(Path(f"/dev/fd/{reads}")), load_letor(path)
    os.close(reads)
    assert np.array_equal(piped.features, read.features)
    assert np.array_equal(piped.query_ids, read.query_ids)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    """A hundred gigabytes of it, and a device that has no end at all."""
    monkeypatch.setattr(letor, "COMPILED", compiled and letor.COMPILED)
    path = tmp_path / "set.txt"
    with path.open("wb") as file:
        file.truncate(100 * 2**30)
    with pytest.raises(DataError, match="a line of more than"):
        load_letor(path)
    for other in ("/dev/zero", tmp_path):
        with pytest.raises(DataError, match=f"{other}: .*expected a LETOR text file"):
            load_letor(other)


def test_the_second_reading_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal arrays of one's own; another option or a changed file is parsed; a damaged cache only costs time."""
    path = write(tmp_path, GOOD)
    first = load_letor(path, cache_dir=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(letor, "_parse", lambda *_: pytest.fail("parsed again"))
        second = load_letor(path, cache_dir=tmp_path)
        with pytest.raises(pytest.fail.Exception):
            load_letor(path, normalise=False, cache_dir=tmp_path)
    for field in ("features", "relevance", "offsets", "query_ids"):
        assert (getattr(first, field) == getattr(second, field)).all()
    write(tmp_path, GOOD + "0 qid:12 1:1\n")
    assert load_letor(path, cache_dir=tmp_path).n_queries == 4
    path = write(tmp_path, GOOD)
    load_letor(path, cache_dir=tmp_path)
    load_letor(path, cache_dir=tmp_path).features[:] = 9
    assert load_letor(path, cache_dir=tmp_path).features.max() == 1
    path = write(tmp_path, GOOD, "again.txt")
    before = set((tmp_path / "letor").iterdir())
    load_letor(path, cache_dir=tmp_path)
    (entry,) = set((tmp_path / "letor").iterdir()) - before
    (entry / "features.npy").write_bytes(b"\x93NUMPY")
    assert load_letor(path, cache_dir=tmp_path).n_queries == 3
    assert np.load(entry / "features.npy").shape == (4, 4)
    assert set((tmp_path / "letor").iterdir()) == before | {entry}
    monkeypatch.setattr(letor, "_write_cached", lambda *_: (_ for _ in ()).throw(PermissionError))
    assert load_letor(path, cache_dir=tmp_path / "train.txt").n_queries == 3


def test_a_device_without_numba_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only slower, and with the same refusal of what float32 cannot hold."""
    path = write(tmp_path, GOOD)
    first = load_letor(path, cache_dir=tmp_path / "a")
    monkeypatch.setattr(letor, "COMPILED", False)
    monkeypatch.setattr(letor, "read_compiled", lambda *_: pytest.fail("compiled"))
    second = load_letor(path, cache_dir=tmp_path / "b")
    assert first.features.tolist() == second.features.tolist()
    with pytest.raises(DataError, match="float32"):
        load_letor(write(tmp_path, "0 qid:1 1:1e300\n"), normalise=False, cache_dir=tmp_path)


def test_a_split_has_one_width_and_perhaps_no_validation_set(tmp_path: Path) -> None:
    write(tmp_path, "1 qid:1 1:1 3:1\n0 qid:1 1:2\n", "train.txt")
    write(tmp_path, "1 qid:2 1:1\n0 qid:2 1:2\n", "test.txt")
    split = load_split(tmp_path, cache_dir=tmp_path)
    assert split.vali is None
    assert split.train.n_features == split.test.n_features == 3
    assert split.test.features.tolist() == [[0, 0, 0], [1, 0, 0]]


def test_real_collections_read_as_published(real_data, parsed_cache: Path) -> None:
    """MQ2008 Fold1 and the MSLR sample have the sizes their description gives, normalised to [0, 1]."""
    split = load_split(real_data("MQ2008") / "Fold1", cache_dir=parsed_cache)
    assert split.vali is not None
    assert [s.n_queries for s in (split.train, split.vali, split.test)] == [471, 157, 156]
    assert split.train.n_features == 46
    mslr = load_letor(real_data("MSLR-sample") / "test.txt", cache_dir=parsed_cache)
    assert (mslr.n_queries, mslr.n_features) == (60, 136)
    assert mslr.features.min() == 0.0
    assert mslr.features.max() == 1.0


def test_one_query_is_read_like_a_file_of_it(tmp_path: Path) -> None:
    """For files too long for memory: the same arrays, and the same errors at a place that is given."""
    text = b"1 qid:7 1:3 3:5 # a comment\n0 qid:7 1:1 3:2\n"
    (tmp_path / "one.txt").write_bytes(text)
    whole = read_lines(tmp_path / "one.txt", normalise=True)
    relevance, features = read_query(text.splitlines(keepends=True), "here", normalise=True)
    np.testing.assert_array_equal(relevance, whole["relevance"])
    np.testing.assert_array_equal(features, whole["features"])
    for wrong, told in ((b"0 qid:8 1:1\n", "lines of one query"), (b"\n", "grade ''"), (b"0 qid:7 1:x\n", "value 'x'")):
        with pytest.raises(DataError, match=f"here: .*{told}"):
            read_query([text.splitlines()[0], wrong], "here", normalise=True)
