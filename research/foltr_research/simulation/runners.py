"""The device side of a simulated round, one interaction at a time, with the device code of the service.

It runs every method. `foltr_research.simulation.blocks.block_runners` does the same for blocks of clients, bit for bit.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foltr.core.evaluation.click_models import clicks_from_draws, examination_by_rank
from foltr.core.evaluation.metrics import ndcg_at_k, reciprocal_rank
from foltr.core.learning.interaction import Interaction
from foltr.core.methods.base import Aggregation, DeviceContext, MethodDevice
from foltr.core.methods.lists import make_list
from foltr.core.methods.registry import Ranker, make_device
from foltr.core.protocol.trainings import Training
from foltr_research.simulation.clients.applications import Applications, OrderedQuery
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.clients.voters import Voters
from foltr_research.simulation.defence_record import RoundDefence

State = dict[str, NDArray[np.generic]]
Seen = tuple[float, float, float]
"""Of a list: its nDCG, its reciprocal rank by clicks, and the nDCG of the application's own list (NaN without one)."""
# A user whose lists earn no clicks must not search forever.
MAX_REPETITIONS = 100


@dataclass(frozen=True, eq=False)
class Experience:
    """What the clients of a round saw.

    Attributes:
        ndcg: (clients,) mean nDCG@K of the lists each was shown, 0 without a relevant document.
        reciprocal_ranks: (clients,) mean reciprocal rank of the highest click, 0 without one.
        base_ndcg: (clients,) mean nDCG@K of the applications' own lists; None if they have no order.
        n_interactions: lists shown to all of them.
        clients: (clients,) int64, their indices.
        defence: what the federator did with their updates; None if it added all of them.
    """

    ndcg: NDArray[np.float64]
    reciprocal_ranks: NDArray[np.float64]
    n_interactions: int
    clients: NDArray[np.int64]
    defence: RoundDefence | None = None
    base_ndcg: NDArray[np.float64] | None = None

    def honest(self, n_attackers: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None]:
        """Return the three means without the first ``n_attackers`` clients, whose lists nobody sees."""
        chosen = self.clients >= n_attackers
        base_ndcg = None if self.base_ndcg is None else self.base_ndcg[chosen]
        return self.ndcg[chosen], self.reciprocal_ranks[chosen], base_ndcg


@dataclass(frozen=True, eq=False)
class ConsecutiveRounds:
    """What the clients of several successive rounds saw, if the learner is not read between them.

    Attributes:
        ndcg: (rounds, clients) as in `Experience`.
        reciprocal_ranks: (rounds, clients) likewise.
        n_interactions: (rounds, clients) int64 lists that each was shown.
        clients: (rounds, clients) int64, their indices.
    """

    ndcg: NDArray[np.float64]
    reciprocal_ranks: NDArray[np.float64]
    n_interactions: NDArray[np.int64]
    clients: NDArray[np.int64]

    def experience(self, row: int) -> Experience:
        """Return what the clients of one of the rounds saw."""
        n_interactions = int(self.n_interactions[row].sum())
        return Experience(self.ndcg[row], self.reciprocal_ranks[row], n_interactions, self.clients[row])


class Runner(Protocol):
    """The clients of a population, with their state between rounds."""

    def run(
        self, base: NDArray[np.float32], version: int, clients: NDArray[np.int64], aggregation: Aggregation
    ) -> Experience:
        """Let ``clients`` interact and learn from model ``version``, and give their updates to ``aggregation``.

        Args:
            base: (n_weights + n_auxiliary,) the global model.
            clients: in order of their names, which is the federator's order of summation.
        """

    def ranker_of(self, client: int, base: NDArray[np.float32]) -> NDArray[np.floating]:
        """(n_weights,) of the ranker that one client would use under a global model."""

    def state(self) -> State:
        """Return the clients' state, except for their streams."""

    def restore(self, state: State) -> None:
        """Continue from a state."""


class ReferenceRunner:
    """Any method, through `foltr.core.methods`.

    Args:
        clicks_per_round: see `SimulationConfig.clicks_per_round`.
        applications: the clients' own orders and gates; None: every list is the model's.
        voters: compare each model with the anchor; None without votes.
    """

    def __init__(
        self,
        population: Population,
        crowd: Crowd,
        training: Training,
        ranker: Ranker,
        clicks_per_round: int | None = None,
        applications: Applications | None = None,
        voters: Voters | None = None,
    ) -> None:
        self._applications = applications
        self._voters = voters
        self._compared: tuple[NDArray[np.floating], NDArray[np.floating]] | None = None
        self._population = population
        self._crowd = crowd
        self._training = training
        self._ranker = ranker
        self._clicks_per_round = clicks_per_round
        self._local_states: dict[int, bytes] = {}

    def run(
        self, base: NDArray[np.float32], version: int, clients: NDArray[np.int64], aggregation: Aggregation
    ) -> Experience:
        means = np.empty((len(clients), 3))
        n_interactions = 0
        for row, client in enumerate(clients.tolist()):
            device = self._device(client, base, version)
            self._compared = self._to_compare(client, device, base)
            if self._clicks_per_round is None:
                seen = self._interact(client, device, version)
            else:
                seen = self._collect_clicks(client, device, version, self._clicks_per_round)
            body = device.body(self._crowd.streams(client).device)
            aggregation.add(body, len(seen), client_id=self._population.clients[client].name)
            state = device.local_state()
            if state is not None:
                self._local_states[client] = state
            means[row] = np.mean(np.array(seen), axis=0)
            n_interactions += len(seen)
        base_ndcg = None if self._applications is None else means[:, 2]
        return Experience(
            means[:, 0],
            means[:, 1],
            n_interactions,
            clients,
            base_ndcg=base_ndcg,
        )

    def ranker_of(self, client: int, base: NDArray[np.float32]) -> NDArray[np.floating]:
        return self._device(client, base, 0).weights

    def state(self) -> State:
        kept = pack_local_states(self._local_states)
        return kept if self._applications is None else kept | self._applications.state()

    def restore(self, state: State) -> None:
        self._local_states = unpack_local_states(state)
        if self._applications is not None:
            self._applications.restore(state)

    def _to_compare(
        self, client: int, device: MethodDevice, base: NDArray[np.float32]
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]] | None:
        """Return a client's newest model and anchor before it learns. None if they are equal."""
        if self._voters is None or not self._voters.compares(base):
            return None
        return device.weights.copy(), self.ranker_of(client, self._voters.anchor)

    def _learn(self, client: int, device: MethodDevice, interaction: Interaction, rng: np.random.Generator) -> None:
        """Compare models by the list, then learn from it."""
        if self._voters is not None and self._compared is not None and interaction.reversals is not None:
            shown = (interaction.features, interaction.ranking, interaction.reversals, interaction.clicks)
            self._voters.take_list(client, self._compared, *shown)
        device.learn(interaction, rng)

    def _device(self, client: int, base: NDArray[np.float32], version: int) -> MethodDevice:
        context = DeviceContext(
            self._crowd.streams(client).device_seed,
            self._local_states.get(client),
            self._propensities(client),
            shows_base=self._applications is not None,
        )
        return make_device(self._training, self._ranker, base, version, context)

    def _propensities(self, client: int) -> NDArray[np.float64] | None:
        """Return the propensities of a user who reads by position. None leaves them to the method's position bias."""
        models = self._crowd.models_of(client)
        if len(models) > 1 or models[0].examination_exponent == 0.0:
            return None
        return examination_by_rank(models[0].examination_exponent, self._training.serp_length)

    def _interact(self, client: int, device: MethodDevice, version: int) -> list[Seen]:
        intentions = self._crowd.intend(np.array([client]))
        return [
            self._show(client, device, version, i, *chosen)[0]
            for i, chosen in enumerate(
                zip(intentions.picks[0].tolist(), intentions.models[0].tolist(), intentions.draws[0], strict=True)
            )
        ]

    def _collect_clicks(self, client: int, device: MethodDevice, version: int, wanted: int) -> list[Seen]:
        """Show the round's queries in turn, with fresh draws each time, until there are enough clicks (FedIPS, 4)."""
        intentions = self._crowd.intend(np.array([client]))
        user, n_models = self._crowd.streams(client).user, len(self._crowd.models_of(client))
        picks, models = intentions.picks[0].tolist(), intentions.models[0].tolist()
        seen: list[Seen] = []
        n_clicks = 0
        for repetition in range(MAX_REPETITIONS):
            for i, pick in enumerate(picks):
                draws, model = intentions.draws[0, i], models[i]
                if repetition:
                    draws = user.random(len(draws))
                    model = self._crowd.first_model_of(client) + int(draws[1] * n_models)
                one, clicks = self._show(client, device, version, len(seen), pick, model, draws)
                seen.append(one)
                n_clicks += clicks
                if n_clicks >= wanted:
                    return seen
        return seen

    def _show(
        self,
        client: int,
        device: MethodDevice,
        version: int,
        number: int,
        pick: int,
        model: int,
        draws: NDArray[np.float64],
    ) -> tuple[Seen, int]:
        """Show a list. Return its measures and the number of clicks."""
        query = self._population.datasets[self._population.clients[client].dataset].query(pick)
        k = min(self._training.serp_length, len(query.relevance))
        if self._applications is not None:
            ordered = self._applications.ordered(query.features, query.relevance)
            return self._show_gated(self._applications, client, device, version, number, ordered, k, model, draws)
        rng = self._crowd.streams(client).device
        scores, variant = device.scores(query.features, exploring=True)
        shown = make_list(self._training, scores, k, rng)
        relevance = query.relevance[shown.ranking]
        clicks = clicks_from_draws(self._crowd.click_models[model], relevance, draws[2:])
        seen = (query.features, shown.ranking, clicks, variant, version, shown.reversals, shown.log_probability)
        self._learn(client, device, Interaction(number, *seen), rng)
        return (ndcg_at_k(relevance, k, query.relevance), reciprocal_rank(clicks), math.nan), int(clicks.sum())

    def _show_gated(
        self,
        applications: Applications,
        client: int,
        device: MethodDevice,
        version: int,
        number: int,
        query: OrderedQuery,
        k: int,
        model: int,
        draws: NDArray[np.float64],
    ) -> tuple[Seen, int]:
        """Show a list chosen by the client's gate, and let the gate judge by the clicks."""
        rng = self._crowd.streams(client).device
        listed = applications.list_for(client, query, device, self._training.exploration, k, rng)
        shown = listed.shown
        relevance = query.relevance[shown.ranking]
        clicks = clicks_from_draws(self._crowd.click_models[model], relevance, draws[2:])
        applications.take_clicks(client, listed, clicks)
        seen = (query.features, shown.ranking, clicks, 0, version, shown.reversals, shown.log_probability)
        self._learn(client, device, Interaction(number, *seen, listed.source), rng)
        ndcg = ndcg_at_k(relevance, k, query.relevance)
        return (ndcg, reciprocal_rank(clicks), query.base_ndcg(k)), int(clicks.sum())


def pack_local_states(states: dict[int, bytes]) -> State:
    """Pack local states by client into arrays; those of one method have equal lengths."""
    clients = sorted(states)
    length = len(states[clients[0]]) if clients else 0
    data = np.frombuffer(b"".join(states[client] for client in clients), np.uint8).reshape(len(clients), length)
    return {"clients": np.array(clients, np.int64), "states": data}


def unpack_local_states(state: State) -> dict[int, bytes]:
    """The inverse of `pack_local_states`."""
    return {client: row.tobytes() for client, row in zip(state["clients"].tolist(), state["states"], strict=True)}
