"""Loads the data of a configuration and makes its population."""

import functools
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foltr.core.data.dataset import RankingDataset
from foltr.core.data.sources import MSLR_SAMPLE, SYNTHETIC, SYNTHETIC_LARGE, SYNTHETIC_NONLINEAR, load_data
from foltr.core.errors import DataError, SettingsError
from foltr_research.simulation.clients.intents import (
    IntentCollection,
    read_intents,
    shuffle_intents,
    synthetic_intents,
    with_synthetic_features,
)
from foltr_research.simulation.clients.partitions import (
    Arrangement,
    click_skew_population,
    intent_population,
    label_skew_population,
    split_shared,
    with_quantity_skew,
    with_shared_data,
)
from foltr_research.simulation.clients.population import Population, iid_population
from foltr_research.simulation.config import SYNTHETIC_INTENTS, SimulationConfig
from foltr_research.simulation.fingerprints import data_fingerprint
from foltr_research.simulation.own_data import load_own
from foltr_research.simulation.plugins import held

_ARRANGEMENTS: dict[str, Arrangement] = {"type1-iid": "iid", "type1-iid-per-intent": "iid-per-intent"}


@dataclass(frozen=True, eq=False)
class Experiment:
    """The data of a run.

    Attributes:
        train, test: of an intent collection both are its merged set.
        n_grades: of the label scale.
        description: for reports.
        intents: set if users differ in what they find relevant; else None.
        vali: validation queries, if the data has any.
    """

    train: RankingDataset
    test: RankingDataset
    n_grades: int
    description: str
    intents: IntentCollection | None = None
    vali: RankingDataset | None = None


def check_data_name(config: SimulationConfig) -> None:
    """Raise SettingsError if the data's name shows that it does not suit the population.

    Not part of `check_config`, because a run may be given a population directly.
    """
    of_intents = config.population.startswith("type1")
    if of_intents and config.data in {SYNTHETIC, SYNTHETIC_NONLINEAR, SYNTHETIC_LARGE, MSLR_SAMPLE}:
        raise SettingsError(
            f"population: {config.population} needs intents: --data {SYNTHETIC_INTENTS} or a folder with 1.txt to "
            f"4.txt, not {config.data}"
        )
    if not of_intents and config.data == SYNTHETIC_INTENTS:
        raise SettingsError(
            f"data: {SYNTHETIC_INTENTS} has labels per intent, which {config.population} does not use; "
            "add --population type1"
        )


def load_experiment(config: SimulationConfig) -> Experiment:
    """Return the data of a configuration, cached for the next run on the same data.

    With ``evaluate_on`` validation, the validation queries are in place of the test queries.

    Raises:
        DataError: it cannot be read, or has no validation queries.
        SettingsError: unknown fold, or the data does not suit the population.
    """
    experiment = _load(config)
    if config.evaluate_on == "test":
        return experiment
    if experiment.vali is None:
        raise DataError(f"{experiment.description}: no validation queries (vali.txt); measure on test queries")
    return replace(experiment, test=experiment.vali, description=f"{experiment.description}, validation queries")


def forget_own_data() -> None:
    """Let own data be made again: what a function or an object returns may have changed since it was last called."""
    _own.cache_clear()


@contextmanager
def unchanged_data(config: SimulationConfig) -> Iterator[None]:
    """Raise DataError if a method from outside changes its data in place, which later runs would learn from, too."""
    if held("method", config.method) is None:
        yield
        return
    before = _checksums(load_experiment(config))
    try:
        yield
    finally:  # an error of the run's own goes first
        is_changed = _checksums(load_experiment(config)) != before
        if is_changed:
            for cache in (_split, _own, _intents):
                cache.cache_clear()
    if is_changed:
        raise DataError(
            f"method: {config.method} changes the features that it sees in place, and so the data of all clients; "
            "let it make new arrays"
        )


def _checksums(experiment: Experiment) -> list[int]:
    return [
        zlib.crc32(np.ascontiguousarray(array).data)
        for data in (experiment.train, experiment.test)
        for array in (data.features, data.relevance)
    ]


def _load(config: SimulationConfig) -> Experiment:
    if config.population.startswith("type1"):
        if config.fold is not None:
            raise SettingsError("fold: intents have no folds")
        return _intents(config.data, config.seed, config.intent_agreement, data_fingerprint(config.data))
    if config.intent_agreement is not None:
        raise SettingsError(f"intent_agreement: it is for populations of type1, not {config.population}")
    if (own := held("data", config.data)) is not None:
        if config.fold is not None:
            raise SettingsError("fold: own data has no folds")
        return _own(config.data, own if callable(own) else None, config.seed if callable(own) else 0)
    # Only generated data depends on the seed.
    seed = config.seed if config.data.startswith("synthetic") else 0
    return _split(config.data, seed, config.fold, data_fingerprint(config.data))


def population_for(config: SimulationConfig, experiment: Experiment) -> Population:
    """Return the clients of a configuration. Their random choices come from a separate stream.

    Raises:
        SettingsError: the number of clients does not suit the population, or unknown click model.
    """
    rng = np.random.default_rng(np.random.SeedSequence([config.seed, *b"population"]))
    train, shared = experiment.train, None
    if config.shared_fraction:
        train, shared = split_shared(rng, train, config.shared_fraction)
    population = _partitioned(config, experiment, train, rng)
    if "type4" in config.population:
        population = with_quantity_skew(rng, population, config.quantities)
    if shared is not None:
        if config.shared_alpha:
            return with_shared_data(rng, population, shared, config.shared_alpha)
        return replace(population, warm_up=shared)
    return population


def _partitioned(
    config: SimulationConfig, experiment: Experiment, train: RankingDataset, rng: np.random.Generator
) -> Population:
    everybody = (config.clients, config.clicks, config.interactions)
    kind = config.population
    if kind.startswith("type1"):
        if experiment.intents is None:
            raise SettingsError(f"population: {kind} needs a folder of intents, or {SYNTHETIC_INTENTS}")
        return intent_population(experiment.intents, *everybody, _ARRANGEMENTS.get(kind, "non-iid"))
    if kind.startswith("type2"):
        return label_skew_population(
            rng, train, experiment.test, config.labels_per_client, *everybody, experiment.n_grades
        )
    make = click_skew_population if kind == "type3" else iid_population
    return make(train, experiment.test, *everybody, experiment.n_grades)


# One data set at a time: a sweep uses them in sequence, and two may not fit into memory.
@functools.lru_cache(maxsize=1)
def _split(name: str, seed: int, fold: int | None, files: str) -> Experiment:  # noqa: ARG001 (part of the cache's key)
    data = load_data(name, seed, fold)
    return Experiment(data.train, data.test, data.n_grades, data.description, vali=data.vali)


@functools.lru_cache(maxsize=1)
def _own(name: str, given: Any, seed: int) -> Experiment:
    # Arrays have no hash; they are named by their content.
    data = load_own(name, given or held("data", name), seed)
    return Experiment(data.train, data.test, data.n_grades, data.description)


@functools.lru_cache(maxsize=1)
def _intents(name: str, seed: int, agreement: float | None, files: str) -> Experiment:  # noqa: ARG001 (likewise)
    rng = np.random.default_rng(seed)
    if name == SYNTHETIC_INTENTS:
        collection = synthetic_intents(rng, agreement=0.5 if agreement is None else agreement)
        description = "synthetic intents (generated)"
    else:
        judgements = shuffle_intents(read_intents(Path(name)), rng)
        collection = with_synthetic_features(judgements, rng, agreement=1.0 if agreement is None else agreement)
        description = f"{name}: genuine judgements of intents, renumbered by query; generated features"
    return Experiment(collection.merged, collection.merged, 2, description, collection)
