"""Data sets by name: a published folder, the MSLR sample, or a generated set that is called synthetic."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from foltr.core.data.dataset import RankingDataset, label_scale
from foltr.core.errors import SettingsError

SYNTHETIC = "synthetic"
SYNTHETIC_NONLINEAR = "synthetic-nonlinear"
SYNTHETIC_LARGE = "synthetic-large"
MSLR_SAMPLE = "mslr-sample"
_SYNTHETIC_FEATURES = 136  # as many as MSLR-WEB10K has, for similar costs


@dataclass(frozen=True)
class LoadedData:
    """A training and a test set, what reports call them, and a validation set if the data has one."""

    train: RankingDataset
    test: RankingDataset
    description: str
    vali: RankingDataset | None = None

    @property
    def n_grades(self) -> int:
        """3 or 5: the click models are published for grades 0 to 2 and 0 to 4."""
        return label_scale(self.train, self.test)


def load_data(name: str, seed: int, fold: int | None = None, *, normalise: bool = True) -> LoadedData:
    """Return the data set called ``name``.

    Args:
        name: a folder in one of the published layouts, or one of the names above.
        seed: makes the synthetic sets.
        fold: which fold of a folder that holds several; by default its first.
        normalise: see `foltr.core.data.letor.load_letor`; synthetic sets are made in [0, 1].

    Raises:
        DataError: the folder cannot be read.
        SettingsError: an unknown fold, or a fold of data without folds.
        UnavailableError: the MSLR sample is not here and could not be fetched.
    """
    if fold is not None and name in (SYNTHETIC, SYNTHETIC_NONLINEAR, SYNTHETIC_LARGE, MSLR_SAMPLE):
        raise SettingsError(f"fold {fold}: only a folder has folds; expected --data with a folder")
    if name == SYNTHETIC:
        return _synthetic(seed, "linear")
    if name == SYNTHETIC_NONLINEAR:
        return _synthetic(seed, "nonlinear")
    if name == SYNTHETIC_LARGE:
        return _synthetic_large(seed)
    if name == MSLR_SAMPLE:
        return _mslr_sample(normalise)
    from foltr.core.data.layouts import load_published

    folder = Path(name)
    split = load_published(folder, fold, normalise)
    return LoadedData(split.train, split.test, str(folder) if fold is None else f"{folder}, fold {fold}", split.vali)


def _mslr_sample(normalise: bool) -> LoadedData:
    from foltr.core.data.letor import load_split
    from foltr.core.data.mslr_sample import fetch_mslr_sample

    split = load_split(fetch_mslr_sample(), normalise)
    return LoadedData(split.train, split.test, "MSLR-WEB10K sample (genuine rows)", split.vali)


def _synthetic(seed: int, relevance: Literal["linear", "nonlinear"]) -> LoadedData:
    from foltr.core.data.synthetic import split_queries, synthetic_dataset

    dataset = synthetic_dataset(
        np.random.default_rng(seed), n_queries=150, n_features=_SYNTHETIC_FEATURES, relevance=relevance
    )
    train, test = split_queries(dataset, 100)
    return LoadedData(train, test, f"synthetic (generated, planted {relevance} relevance)")


def _synthetic_large(seed: int) -> LoadedData:
    """Enough queries that 1 % of them make a logging policy, with as many documents each as Yahoo's set has."""
    from foltr.core.data.synthetic import split_queries, synthetic_dataset

    dataset = synthetic_dataset(
        np.random.default_rng(seed), n_queries=1_500, docs_per_query=(10, 50), n_features=60, label_noise=0.5
    )
    return LoadedData(*split_queries(dataset, 1_000), "synthetic-large (generated, planted linear relevance)")
