"""The device side of a simulated round, one interaction at a time: the very code that a device of the service runs.

It runs every method. `foltr.simulation.blocks.block_runners` does the same for whole blocks of clients, to
the same bits.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foltr.evaluation.click_models import clicks_from_draws, examination_by_rank
from foltr.evaluation.metrics import ndcg_at_k, reciprocal_rank
from foltr.learning.interaction import Interaction
from foltr.methods.base import Aggregation, Device, DeviceContext
from foltr.methods.lists import make_list
from foltr.methods.registry import Ranker, make_device
from foltr.protocol.trainings import Training
from foltr.simulation.clients.crowd import Crowd
from foltr.simulation.clients.population import Population
from foltr.simulation.defence_record import RoundDefence

State = dict[str, NDArray[np.generic]]
# A user whose lists earn no clicks must not search for ever.
MAX_REPETITIONS = 100


@dataclass(frozen=True, eq=False)
class Experience:
    """An experience is what the clients of a round saw.

    Attributes:
        ndcg: (clients,) mean nDCG@K of the lists each was shown, 0 where no document is relevant.
        reciprocal_ranks: (clients,) mean reciprocal rank of the highest click, 0 without one.
        n_interactions: lists shown to all of them.
        clients: (clients,) int64, who they are.
        defence: what the federator did with their updates; None where it added all of them up.
    """

    ndcg: NDArray[np.float64]
    reciprocal_ranks: NDArray[np.float64]
    n_interactions: int
    clients: NDArray[np.int64]
    defence: RoundDefence | None = None

    def honest(self, n_attackers: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return both means of all but the first so many clients: an attacker shows its lists to nobody."""
        chosen = self.clients >= n_attackers
        return self.ndcg[chosen], self.reciprocal_ranks[chosen]


class Runner(Protocol):
    """The clients of a population, with what they keep from round to round."""

    def run(
        self, base: NDArray[np.float32], version: int, clients: NDArray[np.int64], aggregation: Aggregation
    ) -> Experience:
        """Let ``clients`` interact and learn from model ``version``, and give their updates to ``aggregation``.

        Args:
            base: (n_weights + n_auxiliary,) the global model.
            clients: in order of their names, which is the federator's order of summation.
        """

    def ranker_of(self, client: int, base: NDArray[np.float32]) -> NDArray[np.floating]:
        """(n_weights,) of the ranker one client would use under a global model."""

    def state(self) -> State:
        """Return what the clients keep, apart from their streams."""

    def restore(self, state: State) -> None:
        """Go on from a state."""


class ReferenceRunner:
    """Any method, through `foltr.methods`.

    Args:
        clicks_per_round: see `SimulationConfig.clicks_per_round`.
    """

    def __init__(
        self,
        population: Population,
        crowd: Crowd,
        training: Training,
        ranker: Ranker,
        clicks_per_round: int | None = None,
    ) -> None:
        self._population = population
        self._crowd = crowd
        self._training = training
        self._ranker = ranker
        self._clicks_per_round = clicks_per_round
        self._local_states: dict[int, bytes] = {}

    def run(
        self, base: NDArray[np.float32], version: int, clients: NDArray[np.int64], aggregation: Aggregation
    ) -> Experience:
        ndcg, reciprocal_ranks = np.empty(len(clients)), np.empty(len(clients))
        n_interactions = 0
        for row, client in enumerate(clients.tolist()):
            device = self._device(client, base, version)
            if self._clicks_per_round is None:
                seen = self._interact(client, device, version)
            else:
                seen = self._collect_clicks(client, device, version, self._clicks_per_round)
            body = device.body(self._crowd.streams(client).device)
            aggregation.add(body, len(seen), client_id=self._population.clients[client].name)
            state = device.local_state()
            if state is not None:
                self._local_states[client] = state
            ndcg[row], reciprocal_ranks[row] = np.mean(np.array(seen), axis=0)
            n_interactions += len(seen)
        return Experience(ndcg, reciprocal_ranks, n_interactions, clients)

    def ranker_of(self, client: int, base: NDArray[np.float32]) -> NDArray[np.floating]:
        return self._device(client, base, 0).weights

    def state(self) -> State:
        return pack_local_states(self._local_states)

    def restore(self, state: State) -> None:
        self._local_states = unpack_local_states(state)

    def _device(self, client: int, base: NDArray[np.float32], version: int) -> Device:
        context = DeviceContext(
            self._crowd.streams(client).device_seed,
            self._local_states.get(client),
            self._propensities(client),
        )
        return make_device(self._training, self._ranker, base, version, context)

    def _propensities(self, client: int) -> NDArray[np.float64] | None:
        """Return the propensities of a user who reads by position; None leaves it to the method's position bias."""
        models = self._crowd.models_of(client)
        if len(models) > 1 or models[0].examination_exponent == 0.0:
            return None
        return examination_by_rank(models[0].examination_exponent, self._training.serp_length)

    def _interact(self, client: int, device: Device, version: int) -> list[tuple[float, float]]:
        intentions = self._crowd.intend(np.array([client]))
        return [
            self._show(client, device, version, i, *chosen)[:2]
            for i, chosen in enumerate(
                zip(intentions.picks[0].tolist(), intentions.models[0].tolist(), intentions.draws[0], strict=True)
            )
        ]

    def _collect_clicks(self, client: int, device: Device, version: int, wanted: int) -> list[tuple[float, float]]:
        """Show the round's queries in turn, with fresh draws each time, until there are clicks enough (FedIPS, 4)."""
        intentions = self._crowd.intend(np.array([client]))
        user, n_models = self._crowd.streams(client).user, len(self._crowd.models_of(client))
        picks, models = intentions.picks[0].tolist(), intentions.models[0].tolist()
        seen: list[tuple[float, float]] = []
        n_clicks = 0
        for repetition in range(MAX_REPETITIONS):
            for i, pick in enumerate(picks):
                draws, model = intentions.draws[0, i], models[i]
                if repetition:
                    draws = user.random(len(draws))
                    model = self._crowd.first_model_of(client) + int(draws[1] * n_models)
                ndcg, reciprocal_ranks, clicks = self._show(client, device, version, len(seen), pick, model, draws)
                seen.append((ndcg, reciprocal_ranks))
                n_clicks += clicks
                if n_clicks >= wanted:
                    return seen
        return seen

    def _show(
        self,
        client: int,
        device: Device,
        version: int,
        number: int,
        pick: int,
        model: int,
        draws: NDArray[np.float64],
    ) -> tuple[float, float, int]:
        """Show a list; return its nDCG, its reciprocal rank, and how many clicks it got."""
        query = self._population.datasets[self._population.clients[client].dataset].query(pick)
        k = min(self._training.serp_length, len(query.relevance))
        rng = self._crowd.streams(client).device
        scores, variant = device.scores(query.features, exploring=True)
        shown = make_list(self._training, scores, k, rng)
        relevance = query.relevance[shown.ranking]
        clicks = clicks_from_draws(self._crowd.click_models[model], relevance, draws[2:])
        seen = (query.features, shown.ranking, clicks, variant, version, shown.reversals, shown.log_probability)
        device.learn(Interaction(number, *seen), rng)
        return ndcg_at_k(relevance, k, query.relevance), reciprocal_rank(clicks), int(clicks.sum())


def pack_local_states(states: dict[int, bytes]) -> State:
    """Local states by client as arrays; those of one method are all equally long."""
    clients = sorted(states)
    length = len(states[clients[0]]) if clients else 0
    data = np.frombuffer(b"".join(states[client] for client in clients), np.uint8).reshape(len(clients), length)
    return {"clients": np.array(clients, np.int64), "states": data}


def unpack_local_states(state: State) -> dict[int, bytes]:
    """Unpack what `pack_local_states` packed."""
    return {client: row.tobytes() for client, row in zip(state["clients"].tolist(), state["states"], strict=True)}
