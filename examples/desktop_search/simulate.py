"""Eight people search the standard library for an afternoon: the model's quality, and the lists they saw.

Broker, federator and devices are real, in one process. People (see `queries`) and their clicks are simulated.

    python examples/desktop_search/simulate.py --json results.json
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collection import Collection, JudgedQueries, make_collection
from documents import standard_library
from features import SCHEMA
from federation import Federation, running_federation
from foltr.cli.output import configure_logging
from foltr.core.errors import first_cause
from foltr.core.evaluation.click_models import click_model, simulate_clicks
from foltr.core.learning.lambdarank import fit_lambdarank
from foltr.core.learning.linear import score
from foltr.core.methods.registry import usual_learning_rate
from foltr.core.numerics.streams import ClientStreams, client_streams
from foltr.core.protocol.explorations import SAFE, exploration_text, read_exploration
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy, Ranking
from queries import N_DEVICES

K: Final = 10
SEARCHES: Final = 5
"""Per device and round."""
LONGEST_BLOCK: Final = 20
# Cascade models that click 5 % and 30 % of the wrong documents they read.
CLICK_MODELS: Final = {"clean": "navigational", "noisy": "informational"}
_PATIENCE_S: Final = 90.0


@dataclass(frozen=True)
class Settings:
    """The settings of a simulation.

    Attributes:
        clicks: a key of `CLICK_MODELS`.
        shuffle: whether candidates are passed in random order instead of BM25's.
        warm_start: the weight of BM25 in the first model, all others being 0.
        gate: whether devices keep BM25's order until the model has earned better.
    """

    clicks: str
    rounds: int
    seed: int
    shuffle: bool
    warm_start: float
    gate: bool


@dataclass(frozen=True, eq=False)
class Person:
    """A person on one device, and the results of each search: round by round, `SEARCHES` in each.

    Attributes:
        queries: (n,) indices in the collection.
        shown, base: reciprocal ranks of the intended document, in the list shown and in BM25's.
        by_model: whether a model influenced the list shown.
    """

    client: EdgeClient
    asked: JudgedQueries
    queries: NDArray[np.int64]
    streams: ClientStreams
    settings: Settings
    shown: list[float] = field(default_factory=list)
    base: list[float] = field(default_factory=list)
    by_model: list[bool] = field(default_factory=list)

    async def take_part(self) -> None:
        """Search in every round until the last."""
        newest = 0
        while True:
            opened = await self.client.next_round(after=newest, timeout_s=_PATIENCE_S)
            if not opened.open:
                return
            newest = opened.round
            for _ in range(SEARCHES):
                self.search()

    def search(self) -> None:
        """Ask once, read the list, click."""
        rng = self.streams.user
        features, bm25, meant = self.asked.query(int(rng.choice(self.queries)))
        order = rng.permutation(len(features)) if self.settings.shuffle else np.arange(len(features))
        serp = self.client.rank(features[order], K, base=bm25[order])
        relevance = (order[serp.ranking] == meant).astype(np.int16)
        clicks = simulate_clicks(click_model(CLICK_MODELS[self.settings.clicks], 2), relevance, rng)
        self.client.record_clicks(serp, np.flatnonzero(clicks).tolist())
        self.shown.append(reciprocal_rank(relevance))
        self.base.append(reciprocal_rank(np.arange(K) == meant))
        self.by_model.append(serp.source != "base")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    settings = Settings(
        options.clicks, options.rounds, options.seed, options.shuffle, options.warm_start, not options.no_gate
    )
    started = time.perf_counter()
    configure_logging("error", "console")
    collection = make_collection(options.folder, settings.seed, options.share)
    print(
        f"{collection.n_documents} documents; of {collection.train.n_asked} queries to learn from and "
        f"{collection.test.n_asked} to judge by, {collection.train.dataset.n_queries} and "
        f"{collection.test.dataset.n_queries} have their document among BM25's first 50"
    )
    training = _training(options)
    try:
        models, people = asyncio.run(simulate(collection, settings, training))
    except BaseExceptionGroup as failures:
        raise first_cause(failures) from failures
    results = report(collection, settings, models, people)
    results["settings"] |= {
        "learning_rate": training.learning_rate,
        "exploration": exploration_text(training.exploration),
    }
    results["seconds"] = round(time.perf_counter() - started, 1)
    _show(results)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


async def simulate(
    collection: Collection, settings: Settings, training: PdgdTraining
) -> tuple[list[NDArray[np.float32]], list[Person]]:
    """Let all people search in all rounds. Return the announced models, and the people."""
    names = [f"device-{i}" for i in range(1, N_DEVICES + 1)]
    with tempfile.TemporaryDirectory() as folder:
        running = running_federation(
            names, SCHEMA, training, settings.rounds, Path(folder), _weight_of_bm25(settings.warm_start)
        )
        async with running as federation:
            people = await asyncio.gather(
                *(_person(i, name, federation, collection, settings) for i, name in enumerate(names))
            )
            await federation.federating
            return await federation.models(), people


async def _person(i: int, name: str, federation: Federation, collection: Collection, settings: Settings) -> Person:
    """Run one device and its user to the end."""
    streams = client_streams(settings.seed, name)
    queries = np.flatnonzero(collection.train.devices == i)
    credentials = federation.credentials[name]
    seed, gate = streams.device_seed, settings.gate
    client = EdgeClient(
        credentials,
        store=":memory:",
        schema=SCHEMA,
        ranking=Ranking(gate=gate),
        privacy=Privacy(click_window_s=0.0),
        experiment=Experiment(seed=seed),
    )
    async with client:
        person = Person(client, collection.train, queries, streams, settings)
        await person.take_part()
    return person


def report(
    collection: Collection, settings: Settings, models: Sequence[NDArray[np.float32]], people: Sequence[Person]
) -> dict[str, Any]:
    """Return the results: the models on held-out queries, and the lists shown beside BM25's."""
    test = collection.test
    shown, base, by_model = (
        np.array([getattr(person, which) for person in people]).reshape(len(people), settings.rounds, SEARCHES)
        for which in ("shown", "base", "by_model")
    )
    blocks = [slice(at, at + LONGEST_BLOCK) for at in range(0, settings.rounds, LONGEST_BLOCK)]
    by_round = [mrr_at_10(score(weights, test.dataset.features), test) for weights in models]
    return {
        "settings": asdict(settings),
        "base_mrr_at_10": mrr_at_10(test.base, test),
        "model_mrr_at_10": by_round[-1],
        "full_information": full_information(collection, settings.seed),
        "shown_minus_base": [float((shown - base)[:, block].mean()) for block in blocks],
        "standard_errors": [float(standard_error((shown - base)[:, block])) for block in blocks],
        "shown_mrr_at_10": [float(shown[:, block].mean()) for block in blocks],
        "lists_by_model": [float(by_model[:, block].mean()) for block in blocks],
        "model_mrr_at_10_by_round": by_round,
    }


def mrr_at_10(scores: NDArray[np.floating], asked: JudgedQueries) -> float:
    """Return the mean of 1 / rank of the intended document, 0 below the tenth; ties keep BM25's order."""
    total = 0.0
    for start, end in zip(asked.dataset.offsets, asked.dataset.offsets[1:], strict=False):
        order = np.argsort(-scores[start:end], kind="stable")
        total += reciprocal_rank(asked.dataset.relevance[start:end][order[:K]])
    return total / asked.dataset.n_queries


def reciprocal_rank(relevance: NDArray[np.integer] | NDArray[np.bool_]) -> float:
    """Return 1 / rank of the first relevant document of a list, 0 without one."""
    ranks = np.flatnonzero(relevance)
    return 1.0 / (1.0 + float(ranks[0])) if len(ranks) else 0.0


def standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std() / np.sqrt(values.size))


def full_information(collection: Collection, seed: int) -> float:
    """Return the quality of a linear ranker of the same features that is given the intended documents."""
    start = _weight_of_bm25(5.0)
    rng = np.random.default_rng([seed, *b"full information"])
    rankers = [
        fit_lambdarank(collection.train.dataset, rng, learning_rate=rate, epochs=10, weights=start)
        for rate in (0.01, 0.03)
    ]
    validation, test = collection.validation, collection.test
    best = max(rankers, key=lambda weights: mrr_at_10(score(weights, validation.dataset.features), validation))
    return mrr_at_10(score(best, test.dataset.features), test)


def _weight_of_bm25(weight: float) -> NDArray[np.float32]:
    """Return the model that ranks as BM25 does; the larger the weight, the firmer."""
    weights = np.zeros(SCHEMA.n_features, np.float32)
    weights[SCHEMA.names.index("bm25")] = weight
    return weights


def _show(results: dict[str, Any]) -> None:
    print(f"BM25: MRR@10 {results['base_mrr_at_10']:.3f}; the same features can {results['full_information']:.3f}")
    by_round = results["model_mrr_at_10_by_round"]
    for i, difference in enumerate(results["shown_minus_base"]):
        last = min(len(by_round) - 1, (i + 1) * LONGEST_BLOCK)
        print(
            f"rounds {i * LONGEST_BLOCK + 1:3} to {last:3}: the model {by_round[last]:.3f}, "
            f"people saw {difference:+.3f} beside BM25, {results['lists_by_model'][i]:.0%} of their lists by a model"
        )


def _training(options: argparse.Namespace) -> PdgdTraining:
    """Return the federation's training settings: its defaults with the given options."""
    exploration = SAFE if options.exploration is None else read_exploration(options.exploration)
    rate = options.learning_rate or usual_learning_rate("fpdgd", "linear", exploration)
    if rate is None:
        return PdgdTraining(exploration=exploration)
    return PdgdTraining(exploration=exploration, learning_rate=rate)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Eight people search; a federation learns from their clicks.")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--clicks", choices=sorted(CLICK_MODELS), default="clean")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--shuffle", action="store_true", help="hand candidates over in any order")
    parser.add_argument("--warm-start", type=float, default=0.0, help="the weight of BM25 in the first model")
    parser.add_argument("--learning-rate", type=float, help="another than the federation's default")
    parser.add_argument("--exploration", help="another than the federation's default, e.g. sampling, or swaps:0.1")
    parser.add_argument("--no-gate", action="store_true", help="show the model's lists from the first model on")
    parser.add_argument("--share", type=float, default=1.0, help="of the queries; fewer are sooner there")
    parser.add_argument("--folder", type=Path, default=standard_library(), help="what is searched")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
