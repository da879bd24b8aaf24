"""The folder layouts in which learning-to-rank collections are published, recognised as they are.

| collection | what its folder holds |
|---|---|
| LETOR 4.0 MQ2007, MQ2008; MSLR-WEB10K, MSLR-WEB30K | Fold1 ... Fold5, each with train.txt, vali.txt, test.txt |
| the same, not yet put together | S1.txt ... S5.txt, which make the folds in rotation |
| Yahoo! Learning to Rank Challenge | set1.train.txt, set1.valid.txt, set1.test.txt (and set2.*) |
| Istella-S | train.txt, test.txt and perhaps vali.txt, in the folder itself, in `sample` or in `full` |

LETOR's description gives the rotation: fold i trains on the parts i, i + 1 and i + 2, validates on the next and tests
on the one after it.
"""

from pathlib import Path

import numpy as np

from foltr.core.data.dataset import RankingDataset, concatenate
from foltr.core.data.letor import RankingSplit, assemble_split, load_letor
from foltr.core.errors import DataError, SettingsError
from foltr.core.installed_plugins import also_installed

_PARTS = 5
_HIGHEST_GRADE = 4
# Archives of the collections unpack into folders of these names; the first one with content is used.
_INNER_FOLDERS = (".", "ltrc_yahoo", "sample", "full")
_LOOKED_FOR = (
    "train.txt and test.txt (also in sample/ or full/), set1.train.txt and set1.test.txt (also in ltrc_yahoo/), "
    "Fold1 to Fold5, or S1.txt to S5.txt"
)


def load_published(
    folder: Path, fold: int | None = None, normalise: bool = True, cache_dir: Path | None = None
) -> RankingSplit:
    """Read a collection from its published folder.

    Args:
        folder: the collection's folder, or one fold of it.
        fold: which fold, if the folder holds several; by default the first. For Yahoo's, set 1 or 2.
        normalise: see `foltr.core.data.letor.load_letor`.
        cache_dir: see `foltr.core.data.letor.load_letor`.

    Returns:
        all sets with the same number of features.

    Raises:
        DataError: the folder has no known layout, a file in it is bad, a grade is above 4, or the training or test set
            has no relevant document.
        SettingsError: the folder does not exist, or has no such fold; the message lists those it has.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise SettingsError(
            f"dataset: {folder}: no such folder; expected one with {_LOOKED_FOR}{also_installed('foltr.data', ())}"
        )
    folds = _folds(folder)
    if not folds:
        raise DataError(f"{folder}: none of the published layouts; looked for {_LOOKED_FOR}")
    if fold is None:
        fold = min(folds)
    elif fold not in folds:
        known = "is one fold" if list(folds) == [0] else f"has folds {', '.join(map(str, folds))}"
        raise SettingsError(f"fold {fold}: {folder} {known}")
    sets = {role: _load(paths, normalise, cache_dir) for role, paths in folds[fold].items()}
    split = assemble_split(sets["train"], sets["test"], sets.get("vali"))
    for dataset in (split.train, split.test):
        if dataset.relevance.max() == 0:
            raise DataError(f"{folder}: {dataset.name} has no relevant document; nothing can be learned or measured")
    for dataset in filter(None, (split.train, split.vali, split.test)):
        if dataset.relevance.max() > _HIGHEST_GRADE:
            raise DataError(f"{folder}: {dataset.name} has grade {dataset.relevance.max()}; expected grades 0 to 4")
    return split


def _folds(folder: Path) -> dict[int, dict[str, list[Path]]]:
    """The files of each fold and role; a folder that is one fold by itself has fold 0 only."""
    for inner in _INNER_FOLDERS:
        if files := _files(folder / inner, "train.txt", "test.txt", "vali.txt"):
            return {0: files}
        yahoo = {
            i: _files(folder / inner, f"set{i}.train.txt", f"set{i}.test.txt", f"set{i}.valid.txt") for i in (1, 2)
        }
        if any(yahoo.values()):
            return {i: files for i, files in yahoo.items() if files}
    numbered = {i: _files(folder / f"Fold{i}", "train.txt", "test.txt", "vali.txt") for i in range(1, _PARTS + 1)}
    if any(numbered.values()):
        return {i: files for i, files in numbered.items() if files}
    parts = [folder / f"S{i}.txt" for i in range(1, _PARTS + 1)]
    if not all(part.is_file() for part in parts):
        return {}
    rotated = {i: [parts[(i - 1 + step) % _PARTS] for step in range(_PARTS)] for i in range(1, _PARTS + 1)}
    return {i: {"train": order[:3], "vali": order[3:4], "test": order[4:]} for i, order in rotated.items()}


def _files(folder: Path, train: str, test: str, vali: str) -> dict[str, list[Path]]:
    """The files of one fold by role; empty unless it has a training and a test set."""
    candidates = {role: [folder / name] for role, name in (("train", train), ("test", test), ("vali", vali))}
    if not (candidates["train"][0].is_file() and candidates["test"][0].is_file()):
        return {}
    return {role: paths for role, paths in candidates.items() if paths[0].is_file()}


def _load(paths: list[Path], normalise: bool, cache_dir: Path | None) -> RankingDataset:
    """One set from one or several files."""
    dataset = load_letor(paths[0], normalise, cache_dir)
    for path in paths[1:]:
        part = load_letor(path, normalise, cache_dir)
        split = assemble_split(dataset, part, None)
        dataset = concatenate(split.train, split.test, f"{split.train.name}+{path.stem}")
        if np.unique(dataset.query_ids).shape[0] != dataset.n_queries:
            raise DataError(f"{path}: a query of it is in another part as well; expected parts without common queries")
    return dataset
