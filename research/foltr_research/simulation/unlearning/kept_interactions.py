"""Interactions that clients of a simulation keep, and learning from them again, as devices of the service do."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.interaction import Interaction
from foltr.core.methods.base import Aggregation, DeviceContext, MethodDevice
from foltr.core.methods.registry import Ranker, make_device
from foltr.core.protocol.trainings import Training
from foltr.core.protocol.updates import UpdateBody
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.runners import Experience, ReferenceRunner, State

KEPT_INTERACTIONS = 500
"""A device's default: the newest ones are kept."""

Log = Mapping[int, Sequence[Interaction]]
"""Interactions by client, in order of time."""


def drawn(logs: Mapping[int, Log], quantities: Sequence[int], rng: np.random.Generator) -> Log:
    """Draw each client's quantity of its newest interactions; all if it has fewer.

    Args:
        logs: by round, the newest last.
        quantities: by client.
    """
    kept: dict[int, list[Interaction]] = {client: [] for client in range(len(quantities))}
    for log in logs.values():
        for client, interactions in log.items():
            kept[client].extend(interactions)
    newest = {client: interactions[-KEPT_INTERACTIONS:] for client, interactions in kept.items()}
    return {
        client: [interactions[i] for i in rng.permutation(len(interactions))[: quantities[client]].tolist()]
        for client, interactions in newest.items()
    }


class Recorder(ReferenceRunner):
    """The reference runner, which also keeps what its clients learn from. Every runner makes the same updates."""

    def __init__(self, population: Population, crowd: Crowd, training: Training, ranker: Ranker) -> None:
        super().__init__(population, crowd, training, ranker)
        self._kept: dict[int, list[Interaction]] = {}

    def take(self) -> Log:
        """Return everything since the last call."""
        kept, self._kept = self._kept, {}
        return kept

    def _device(self, client: int, base: NDArray[np.float32], version: int) -> MethodDevice:
        return _RecordingDevice(super()._device(client, base, version), self._kept.setdefault(client, []))


class Replay:
    """A runner whose clients show no lists, but learn from the first interactions they kept of one round.

    Args:
        local_interactions: of each client, at most.
    """

    def __init__(
        self,
        log: Log,
        local_interactions: int,
        population: Population,
        crowd: Crowd,
        training: Training,
        ranker: Ranker,
    ) -> None:
        self._log = log
        self._local_interactions = local_interactions
        self._population = population
        self._crowd = crowd
        self._training = training
        self._ranker = ranker

    def run(
        self, base: NDArray[np.float32], version: int, clients: NDArray[np.int64], aggregation: Aggregation
    ) -> Experience:
        n_interactions = 0
        for client in clients.tolist():
            streams = self._crowd.streams(client)
            device = make_device(self._training, self._ranker, base, version, DeviceContext(streams.device_seed))
            learned = self._log[client][: self._local_interactions]
            for interaction in learned:
                device.learn(interaction, streams.device)
            name = self._population.clients[client].name
            aggregation.add(device.body(streams.device), len(learned), client_id=name)
            n_interactions += len(learned)
        nothing_shown = np.full(len(clients), np.nan)
        return Experience(nothing_shown, nothing_shown, n_interactions, clients)

    def ranker_of(self, client: int, base: NDArray[np.float32]) -> NDArray[np.floating]:  # noqa: ARG002
        return base[: self._ranker.n_weights]

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """See `foltr_research.simulation.runners.Runner`."""


class _RecordingDevice:
    """A device that records what it learns from."""

    def __init__(self, device: MethodDevice, kept: list[Interaction]) -> None:
        self._device = device
        self._kept = kept

    @property
    def weights(self) -> NDArray[np.float64]:
        return self._device.weights

    def scores(self, features: NDArray[np.float32], *, exploring: bool) -> tuple[NDArray[np.float32], int]:
        return self._device.scores(features, exploring=exploring)

    def learn(self, interaction: Interaction, rng: np.random.Generator) -> None:
        self._device.learn(interaction, rng)
        self._kept.append(interaction)

    def body(self, rng: np.random.Generator) -> UpdateBody:
        return self._device.body(rng)

    def local_state(self) -> bytes | None:
        return self._device.local_state()
