"""The whole system in one process: a federator and devices over a real broker and a real database."""

import asyncio
from collections import Counter

import numpy as np
import pytest
from integration.deployment import on
from integration.oracle import power_learner
from integration.peers import DIM, FEDERATION, make_plan
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.receipts import ReceiptCode
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Connection, Experiment
from foltr.federator.round import RoundPolicy
from foltr.federator.service import FederatorService
from foltr.storage.models import list_models
from foltr.storage.queries import list_contributions, list_rounds


async def contribute_each_round(broker: str, i: int) -> Counter[str]:
    client = EdgeClient(
        store=":memory:",
        connection=Connection(broker=broker, federation=FEDERATION, client_id=f"oracle-{i:02d}"),
        experiment=Experiment(learner=power_learner(i), seed=i),
    )
    async with client:
        newest = 0
        while True:
            round_ = await client.next_round(after=newest, timeout_s=PATIENCE_S)
            if not round_.open:
                break
            newest = round_.round
            client.record_clicks(client.rank(np.ones((2, DIM), np.float32)), [0])
        await client.wait_settled(PATIENCE_S)
        return Counter(client.receipts)


@pytest.mark.parametrize("mqtt_broker", ["mosquitto_server", "iotcore_broker"], indirect=True)
@pytest.mark.usefixtures("patient_devices")
@on("sqlite")
async def test_every_update_counts_once_and_is_in_the_database(mqtt_broker, database):
    """Five devices, six rounds: 30 receipts, 30 rows, and every model is the exact mean of its round."""
    n_clients, n_rounds = 5, 6
    plan = make_plan(RoundPolicy(n_clients, n_clients, 0, 3600), n_rounds=n_rounds)
    service = FederatorService(plan, database, BrokerAddress.parse(mqtt_broker), give_up_after_s=PATIENCE_S)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        devices = [group.create_task(contribute_each_round(mqtt_broker, i)) for i in range(n_clients)]
    assert sum((task.result() for task in devices), Counter()) == {ReceiptCode.ACCEPTED: n_clients * n_rounds}
    rounds = await list_rounds(database, FEDERATION)
    assert [(row.round, row.state, row.n_updates) for row in rounds] == [
        (number, "completed", n_clients) for number in range(1, n_rounds + 1)
    ]
    assert len(await list_contributions(database, FEDERATION)) == n_clients * n_rounds
    models = await list_models(database, FEDERATION)
    mean = sum(2.0**i for i in range(n_clients)) / n_clients
    first_weights = [float(unpack_vector(model.weights)[0]) for model in models]
    assert first_weights == pytest.approx([mean * version for version in range(n_rounds + 1)])
    assert all(model.published_at is not None for model in models)
