"""The random generator of the tests of research is always the same one; what a module's tests plug in goes with it."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from foltr.core.aggregation.rule_spec import RULES
from foltr.core.evaluation.named_metrics import METRIC_FUNCTIONS
from foltr.core.methods.registry import METHODS
from foltr_research.attacks.registry import ATTACKS
from foltr_research.simulation import plugins


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20211)


@pytest.fixture(autouse=True, scope="module")
def only_our_own() -> Iterator[None]:
    """Tests of other modules look at what foltr has."""
    with _names_restored():
        yield


@pytest.fixture
def forgets_plug_ins() -> Iterator[None]:
    """Other tests of the module look at what foltr has."""
    with _names_restored():
        yield


@contextmanager
def _names_restored() -> Iterator[None]:
    tables = (RULES, METRIC_FUNCTIONS, METHODS, ATTACKS, plugins._held)  # noqa: SLF001 (as it was before)
    before = [dict(table) for table in tables]
    yield
    for table, was in zip(tables, before, strict=True):
        table.clear()
        table.update(was)
