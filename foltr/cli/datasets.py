"""Which data a command works on: a folder, the MSLR sample, or a generated set that is called synthetic."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foltr.cli.output import console
from foltr.datasets import RankingDataset
from foltr.errors import DataError, UnavailableError

SYNTHETIC = "synthetic"
MSLR_SAMPLE = "mslr-sample"
_SYNTHETIC_FEATURES = 136  # as many as MSLR-WEB10K has, so that the costs are alike


@dataclass(frozen=True)
class LoadedData:
    train: RankingDataset
    test: RankingDataset
    description: str

    @property
    def n_grades(self) -> int:
        """3 or 5: the click models are published for grades 0 to 2 and 0 to 4."""
        highest = max(int(self.train.relevance.max()), int(self.test.relevance.max()))
        return 3 if highest <= 2 else 5


def load_data(name: str | None, seed: int) -> LoadedData:
    """The dataset called ``name``; by default the MSLR sample, or a synthetic set where that cannot be had."""
    if name == SYNTHETIC:
        return _synthetic(seed)
    if name is None:
        try:
            return _mslr_sample()
        except (UnavailableError, DataError) as error:
            console.print(f"No real data: {error}", style="yellow", markup=False, soft_wrap=True)
            console.print("Going on with a generated set. It is synthetic: its figures mean little.", style="yellow")
            return _synthetic(seed)
    if name == MSLR_SAMPLE:
        return _mslr_sample()
    from foltr.letor import load_split

    folder = Path(name)
    split = load_split(folder)
    return LoadedData(split.train, split.test, str(folder))


def _mslr_sample() -> LoadedData:
    from foltr.letor import load_split
    from foltr.samples import fetch_mslr_sample

    with console.status("Fetching the MSLR-WEB10K sample (once, 2 MB)"):
        split = load_split(fetch_mslr_sample())
    return LoadedData(split.train, split.test, "MSLR-WEB10K sample (genuine rows)")


def _synthetic(seed: int) -> LoadedData:
    from foltr.synthetic import split_queries, synthetic_dataset

    dataset = synthetic_dataset(np.random.default_rng(seed), n_queries=150, n_features=_SYNTHETIC_FEATURES)
    train, test = split_queries(dataset, 100)
    return LoadedData(train, test, "synthetic (generated, planted linear relevance)")
