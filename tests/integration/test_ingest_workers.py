"""Leader and ingest workers as processes, with a real broker and real databases: every click in exactly one update."""

import asyncio

import pytest
from integration.deployment import Deployment, client_name
from integration.oracle import check_history, contribute

from storage.queries import list_rounds

N_CLIENTS, N_ROUNDS = 4, 4


@pytest.fixture
async def deployment(mosquitto_server, migrated_url, tmp_path):
    async with Deployment(tmp_path, mosquitto_server.url, migrated_url, N_CLIENTS) as opened:
        yield opened


async def test_two_workers_and_a_leader_count_every_update_once(deployment):
    """Both take updates of the same rounds; every model is the sum of exactly what its round lists."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        deployment.start_federator(N_ROUNDS, "--role", "leader")
        for _ in range(2):
            deployment.start_worker()
        await deployment.serves(20)
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
        assert await deployment.exit_code(40) == 0, deployment.said()
    counted = await check_history(deployment.database_url, "oracle")
    assert counted == {client_name(i): task.result() for i, task in enumerate(told)}
    assert set(counted.values()) == {N_ROUNDS}
    rounds = await list_rounds(deployment.database, "oracle")
    assert [row.state for row in rounds] == ["completed"] * N_ROUNDS
