from pathlib import Path

import pytest

from foltr.core.data.layouts import load_published
from foltr.core.errors import DataError, SettingsError

TRAIN = "1 qid:{q} 1:1 2:3\n0 qid:{q} 1:2 2:5\n"


def put(folder: Path, *names: str, text: str = TRAIN) -> None:
    """Write files, each with a query of its own: 1, 2, ... in the order given."""
    folder.mkdir(parents=True, exist_ok=True)
    for query, name in enumerate(names, start=1):
        (folder / name).write_text(text.format(q=query))


def queries(folder: Path, fold: int | None, cache: Path) -> list[list[int]]:
    """The query ids of train, vali and test."""
    split = load_published(folder, fold, cache_dir=cache)
    return [[] if part is None else part.query_ids.tolist() for part in (split.train, split.vali, split.test)]


def test_folds_as_letor_and_mslr_publish_them(tmp_path: Path) -> None:
    """The first, unless another is asked for; a fold's own folder is a collection too; all are equally wide."""
    for fold in [None, 1, 3]:
        for i in range(1, 6):
            put(tmp_path / f"Fold{i}", "train.txt", "vali.txt", "test.txt")
            (tmp_path / f"Fold{i}" / "train.txt").write_text(TRAIN.format(q=100 * i))
        assert queries(tmp_path, fold, tmp_path / "cache") == [[100 * (fold or 1)], [2], [3]], fold
        assert queries(tmp_path / "Fold2", None, tmp_path / "cache") == [[200], [2], [3]], fold
    put(tmp_path / "parts", *(f"S{i}.txt" for i in range(1, 6)))
    (tmp_path / "parts" / "S2.txt").write_text("1 qid:2 7:1\n0 qid:2 1:1\n")
    split = load_published(tmp_path / "parts", 1, normalise=False, cache_dir=tmp_path / "cache")
    assert split.vali is not None
    assert {split.train.n_features, split.vali.n_features, split.test.n_features} == {7}
    assert split.train.query(1).features.tolist() == [[0, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0, 0]]


def test_five_parts_make_folds_in_rotation(tmp_path: Path) -> None:
    for fold, expected in [(None, [[1, 2, 3], [4], [5]]), (3, [[3, 4, 5], [1], [2]]), (5, [[5, 1, 2], [3], [4]])]:
        put(tmp_path, *(f"S{i}.txt" for i in range(1, 6)))
        assert queries(tmp_path, fold, tmp_path / "cache") == expected, (fold, expected)


@pytest.mark.parametrize("inner", [".", "ltrc_yahoo"])
def test_yahoo_has_two_sets(tmp_path: Path, inner: str) -> None:
    put(tmp_path / inner, "set1.train.txt", "set1.valid.txt", "set1.test.txt", "set2.train.txt", "set2.test.txt")
    assert queries(tmp_path, None, tmp_path / "cache") == [[1], [2], [3]]
    assert queries(tmp_path, 2, tmp_path / "cache") == [[4], [], [5]]


@pytest.mark.parametrize("inner", [".", "sample", "full"])
def test_istella_and_single_folders(tmp_path: Path, inner: str) -> None:
    """With or without a validation set."""
    put(tmp_path / inner, "train.txt", "test.txt")
    assert queries(tmp_path, None, tmp_path / "cache") == [[1], [], [2]]
    put(tmp_path / inner, "train.txt", "test.txt", "vali.txt")
    assert queries(tmp_path, None, tmp_path / "cache") == [[1], [3], [2]]


def test_an_unknown_fold_is_told_which_there_are(tmp_path: Path) -> None:
    """A folder that is not there is a wrong setting; half a fold is none."""
    folds = tmp_path / "folds"
    for i in range(1, 6):
        put(folds / f"Fold{i}", "train.txt", "test.txt")
    with pytest.raises(SettingsError) as caught:
        load_published(folds, 7)
    assert str(caught.value) == f"fold 7: {folds} has folds 1, 2, 3, 4, 5"
    with pytest.raises(SettingsError, match=r"fold 1: .*Fold2 is one fold"):
        load_published(folds / "Fold2", 1)
    put(tmp_path / "half", "train.txt")
    found = {tmp_path: DataError, tmp_path / "half": DataError}
    absent = {tmp_path / "nowhere": SettingsError, tmp_path / "half" / "train.txt": SettingsError}
    for folder, error in (found | absent).items():
        with pytest.raises(error, match=r"train\.txt and test\.txt .*Fold1 to Fold5, or S1\.txt to S5\.txt"):
            load_published(folder)


def test_what_cannot_be_learned_from_is_refused(tmp_path: Path) -> None:
    """No relevant document, grades beyond the click models, a query in two parts."""
    put(tmp_path, "train.txt", "test.txt")
    (tmp_path / "test.txt").write_text("0 qid:1 1:1\n0 qid:1 1:2\n")
    with pytest.raises(DataError, match="test has no relevant document"):
        load_published(tmp_path, cache_dir=tmp_path / "cache")
    (tmp_path / "test.txt").write_text("7 qid:1 1:1\n0 qid:1 1:2\n")
    with pytest.raises(DataError, match="grade 7; expected grades 0 to 4"):
        load_published(tmp_path, cache_dir=tmp_path / "cache")
    parts = tmp_path / "parts"
    put(parts, *(f"S{i}.txt" for i in range(1, 6)))
    (parts / "S3.txt").write_text(TRAIN.format(q=1))
    with pytest.raises(DataError, match=r"S3\.txt: a query of it is in another part"):
        load_published(parts, cache_dir=tmp_path / "cache")


def test_the_real_collection_reads_as_published(real_data, parsed_cache: Path) -> None:
    for fold in (1, 3):
        split = load_published(real_data("MQ2008"), fold, cache_dir=parsed_cache)
        assert split.vali is not None
        assert split.train.n_queries + split.vali.n_queries + split.test.n_queries == 784
