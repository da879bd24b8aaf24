"""Measures of unlearning: remains of the client, losses of the others, and cost. Ours and the study's.

Every model is compared with a federation that never had the client (`RETRAINED`). A second retraining from other
interactions shows the distance between two such models.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.methods.base import scores_of
from foltr.core.unlearning.measures import cosine, relative_distance
from foltr_research.reproductions.experiment import CLICKS, Scale, Variant
from foltr_research.reproductions.experiments.thesis_unlearning import (
    CLIENTS,
    LEAVER,
    RETRAINED,
    federation,
    outcome,
    settings,
)
from foltr_research.reproductions.outcomes import DataProfile, Outcome
from foltr_research.simulation.clients.loading import load_experiment, population_for
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.unlearning.departure import Leaver, UnlearningSimulation
from foltr_research.simulation.unlearning.history import History
from foltr_research.simulation.unlearning.measures import click_losses, distance_gap, list_overlap
from foltr_research.simulation.unlearning.own_labels import with_reset_labels
from foltr_research.simulation.unlearning.rounds import Trained
from foltr_research.simulation.unlearning.strategies import AGAIN, INTERVAL, LATE_WAYS, LONG, WAYS, federate

POISONER, LATE, HONEST, RESET = "poisoner", "poisoner, second half", "honest", "opposite labels"
BEFORE = "before"
IID, SKEWED = "IID", "two grades each"

CLICKS_OF: Mapping[str, Sequence[str]] = {IID: CLICKS, SKEWED: ("navigational",)}
"""The click models of each population."""
_OF_THE_OTHERS = (AGAIN, LONG)
# With 3 grades there are 3 ways to choose two, with 5 there are 10, and the number of clients is a multiple.
_CLIENTS_WITH_THREE_GRADES = 12


def leavers(rounds: int, client: int = LEAVER) -> dict[str, Leaver]:
    """Return the clients that leave after the last round, by name."""
    return {
        POISONER: Leaver(client),
        # Its first round must be one of those that are stored.
        LATE: Leaver(client, joined=rounds // (2 * INTERVAL) * INTERVAL + 1),
        HONEST: Leaver(client, z=None),
        RESET: Leaver(client, z=None),
    }


def never_there(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    """Return the harness' runs: federations that never had the client. All else is simulated departures."""
    return [
        Variant({"leaver": "nobody", "model": RETRAINED, "clicks": clicks}, federation(scale, clicks, CLIENTS - 1))
        for clicks in CLICKS
    ]


def all_outcomes(scale: Scale, data: DataProfile, n_seeds: int) -> Sequence[Outcome]:
    """Return every federation's outcomes."""
    return [
        one for population, config in configurations(scale, data, n_seeds) for one in outcomes_of(config, population)
    ]


def configurations(scale: Scale, data: DataProfile, n_seeds: int) -> list[tuple[str, SimulationConfig]]:
    """Return every federation with its population's name. Each of the leavers leaves it."""
    return [
        (population, config if population == IID else _skewed(config, data))
        for population, clicks in CLICKS_OF.items()
        for config in settings(scale, data, n_seeds)
        if config.clicks[0] in clicks
    ]


def _skewed(config: SimulationConfig, data: DataProfile) -> SimulationConfig:
    """Return the federation with documents of two grades on each device (thesis, Section 4.3)."""
    clients = config.clients if data.n_grades == 5 else _CLIENTS_WITH_THREE_GRADES
    return config.changed(population="type2", labels_per_client=2, clients=clients)


def outcomes_of(config: SimulationConfig, population: str) -> Iterator[Outcome]:
    """Yield a federation for each leaver, every way to forget it, and all figures of each model.

    What the others learn alone from fresh interactions does not depend on the leaver, so it is learned once.
    """
    reference: Trained | None = None
    alone: dict[tuple[str, int], Trained] = {}
    for name, leaver in leavers(config.rounds, config.clients - 1).items():
        simulation = _simulation_of(config, name, leaver)
        history = federate(simulation)
        reference = reference or simulation.federate(with_leaver=False).trained
        models = {BEFORE: history.trained, RETRAINED: reference}
        for way, make in {**WAYS, **(LATE_WAYS if leaver.joined > 1 else {})}.items():
            first = 1 if way == AGAIN else leaver.joined
            if way in _OF_THE_OTHERS and (way, first) not in alone:
                alone[way, first] = make(simulation, history)
            models[way] = alone[way, first] if way in _OF_THE_OTHERS else make(simulation, history)
        for model, trained in models.items():
            labels = {"population": population, "leaver": name, "model": model}
            yield outcome(labels, config, trained, figures=_figures(simulation, history, trained, reference.weights))


def _simulation_of(config: SimulationConfig, name: str, leaver: Leaver) -> UnlearningSimulation:
    population = population_for(config, load_experiment(config))
    if name == RESET:
        population = with_reset_labels(population, leaver.client)
    return UnlearningSimulation(config, population, leaver)


def _figures(
    simulation: UnlearningSimulation, history: History, trained: Trained, reference: NDArray[np.float32]
) -> dict[str, float]:
    own = [one for log in history.interactions.values() for one in log.get(simulation.leaver.client, ())]
    weights, before = trained.weights, history.trained.weights
    [test] = simulation.population.tests
    return {
        "ndcg": trained.ndcg[-1][1],
        "distance": relative_distance(weights, reference),
        "cosine": cosine(weights, reference),
        "overlap": list_overlap(*_both_scores(simulation, weights, reference, test), test.offsets),
        "gap": distance_gap(before, weights, reference),
        "others": simulation.others_ndcg(weights),
        "own": simulation.own_ndcg(weights),
        "own_loss": float(np.nanmean(click_losses(simulation.ranker, weights, own))),
        "steps": float(trained.ndcg[-1][0]),
        "updates": float(trained.updates),
        # An update is as long as the model it is learned from, both float32.
        "bytes": float(trained.updates * 2 * weights.nbytes),
        "seconds": trained.seconds,
    }


def _both_scores(
    simulation: UnlearningSimulation, weights: NDArray[np.float32], reference: NDArray[np.float32], data: RankingDataset
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    first, second = (scores_of(simulation.ranker, one, data.features) for one in (weights, reference))
    return first, second
