"""The leaving device of `foltr demo-forget`, and what the simulator expects of the federation without its harm."""

from pathlib import Path
from typing import Final

from foltr.cli.settings import Settings
from foltr.core.data.sources import LoadedData
from foltr.core.methods.registry import parameters_of
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.trainings import Training
from foltr.core.protocol.updates import DenseDelta, ModelUpdate, UpdateBody
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Connection, Experiment, Privacy, Ranking
from foltr_research.simulation.clients.population import iid_population
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.unlearning.departure import Leaver, UnlearningSimulation

# The leaver sends its local model times -Z (thesis, Eq. 6.3).
Z: Final = 2.0
GIVE_UP_S: Final = 30.0


class LeavingDevice(EdgeClient):
    """A device that sends M = -z * M_local in place of its model, so that its contribution is visible.

    Attributes:
        sent: (d,) little-endian float32 each, the bodies of its updates.
    """

    def __init__(self, credentials: Credentials, store: Path, seed: int) -> None:
        super().__init__(
            credentials,
            store=store,
            connection=Connection(give_up_after_s=GIVE_UP_S),
            ranking=Ranking(gate=False),
            privacy=Privacy(click_window_s=0.0),
            experiment=Experiment(seed=seed, alter_update=self._turned_round),
        )
        self.sent: list[bytes] = []

    async def _turned_round(self, update: ModelUpdate, _round: RoundAnnouncement) -> UpdateBody:
        """Return the update as -z * update - (z + 1) * model (thesis, Eq. 6.4)."""
        body, model = update.body, self.agent.participation.model
        if not isinstance(body, DenseDelta):
            raise TypeError(f"an update of kind {body.kind} has not all weights")
        if model is None or model.version != update.base_version:
            return body  # learned from an outdated model: it will not be sent
        local, base = (unpack_vector(one).astype(float) for one in (body.values, model.weights))
        values = pack_vector(-Z * local - (Z + 1.0) * base)
        self.sent.append(values)
        return body.model_copy(update={"values": values})


def expected_ndcg(
    settings: Settings, training: Training, data: LoadedData, n_clients: int, n_rounds: int
) -> dict[str, float]:
    """Return nDCG@10 on held-out queries after the last round, from the simulator with the service's seeds.

    Returns:
        ``honest``: with all clients honest; ``retrained``: without the last client.
    """
    config = SimulationConfig.read(
        {
            "method": settings.learning.method,
            "parameters": {name: getattr(training, name) for name in parameters_of(settings.learning.method)},
            "ranker": settings.learning.ranker,
            "hidden": settings.learning.hidden,
            "clients": n_clients,
            "interactions": settings.learning.interactions,
            "rounds": n_rounds,
            "clicks": settings.devices.clicks,
            "seed": settings.devices.seed,
            "eval_every": n_rounds,
        }
    )
    population = iid_population(
        data.train, data.test, n_clients, config.clicks, settings.learning.interactions, data.n_grades
    )
    simulation = UnlearningSimulation(config, population, Leaver(n_clients - 1, z=None))
    return {
        name: simulation.federate(with_leaver=with_leaver).trained.ndcg[-1][1]
        for name, with_leaver in (("honest", True), ("retrained", False))
    }
