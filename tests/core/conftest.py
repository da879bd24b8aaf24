"""Where the tests of the kernel find real data, and where they keep what they parsed."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20211)


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Return a folder of the research data, or skip the test if it is not on this machine."""
    root = Path(os.environ.get("FOLTR_DATA", PROJECT.parent / "shared" / "data"))

    def find(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"no {name} in {root}; set FOLTR_DATA to the folder with the research data")
        return root / name

    return find


@pytest.fixture(scope="session")
def parsed_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the whole run, never the user's own."""
    return tmp_path_factory.mktemp("parsed")
