"""What some users find a new user starts from: a federator and devices over a real broker and a real database."""

import asyncio

import numpy as np
from integration.deployment import on
from integration.peers import DIM, FEDERATION, served
from integration.users import Plot, click_best, in_each_round, in_use
from support.waiting import PATIENCE_S, until

from foltr.core.learning.credits import OPENS_AT, pooled
from foltr.core.learning.gate import Source
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Connection, Experiment
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.storage.evaluations import list_credits

N_FIRST, LISTS_A_ROUND, N_DOCUMENTS = 3, 20, 4
TRAINING = PdgdTraining(min_interactions=LISTS_A_ROUND, max_interactions=LISTS_A_ROUND)
PLAN = FederationPlan(FEDERATION, DIM, RoundPolicy(N_FIRST, N_FIRST, 0.0, 3600.0), TRAINING, evaluation=True)


def device(broker: str, i: int) -> EdgeClient:
    """One that learns to rank by the first feature."""
    connection = Connection(broker=broker, federation=FEDERATION, client_id=f"device-{i}")
    return EdgeClient(
        store=":memory:", connection=connection, experiment=Experiment(learner=Plot(0).learner(i, 1.0), seed=i)
    )


def search(client: EdgeClient, rng: np.random.Generator, **options: str) -> None:
    """Click on the document of whom the first feature is largest, which the application has last."""
    features = rng.uniform(0.0, 1.0, (N_DOCUMENTS, DIM)).astype(np.float32)
    click_best(client, features, base=-features[:, 0], **options)


@on("sqlite")
async def test_a_new_users_gate_opens_by_what_others_have_found(mqtt_broker, database):
    """Through a restart of the federator; the new user has clicked on nothing but the application's lists."""

    async def use(client: EdgeClient, i: int) -> None:
        rng = np.random.default_rng(i)

        def act() -> None:
            for _ in range(LISTS_A_ROUND):
                search(client, rng)

        await in_each_round(client, act)

    async def is_known() -> bool:
        listed = np.array(await list_credits(database, FEDERATION, 0)).reshape(-1, 2)
        return pooled(*listed.T).growth >= OPENS_AT

    async with served(mqtt_broker, database, PLAN) as running:
        async with in_use([device(mqtt_broker, i) for i in range(N_FIRST)], use):
            await until(is_known, "the first users' lists do not favour the model")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    async with served(mqtt_broker, database, PLAN) as running, device(mqtt_broker, N_FIRST) as client:
        await client.next_round(timeout_s=PATIENCE_S)
        await until(lambda: client.gate.shared.growth >= OPENS_AT)
        rng, n = np.random.default_rng(9), 0
        while not client.gate.is_open and n < 100:
            search(client, rng, exploration="none")
            n += 1
        assert client.gate.is_open
        assert (client.gate.growth, set(client.gate.counts)) == (1.0, {Source.BASE})
        assert n < 60
        features = rng.uniform(0.0, 1.0, (N_DOCUMENTS, DIM)).astype(np.float32)
        assert client.rank(features, base=-features[:, 0], exploration="none").ranking[0] == features[:, 0].argmax()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
