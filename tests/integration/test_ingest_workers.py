"""Leader and ingest workers as processes, with a real broker and real databases: every click in exactly one update."""

import asyncio
from collections.abc import Sequence

import pytest
from integration.deployment import POSTGRESQL, Deployment, died_by_sigkill, on, swept
from integration.oracle import contribute
from support.prepared_processes import with_defaults
from support.waiting import until

from foltr.core.failpoints import Failpoint
from foltr.storage.queries import list_rounds

N_CLIENTS, N_ROUNDS = 4, 4
# The pass at which a leader dies: in mid-run, and surely reached.
LEADER_DIES_AT = {
    Failpoint.FEDERATION_CLAIMED: 1,
    Failpoint.HANDED_OVER: 3,
    Failpoint.TAKEN_BACK: 3,
    Failpoint.IN_BATCH_TRANSACTION: 4,
    Failpoint.BATCH_COMMITTED: 4,
    Failpoint.COLLECTING_STOPPED: 2,
    Failpoint.IN_ROUND_TRANSACTION: 2,
    Failpoint.ROUND_COMPLETED: 2,
    Failpoint.ROUND_ANNOUNCED: 2,
}
WORKER_DIES_AT = {
    Failpoint.INGEST_BEGUN: 2,
    Failpoint.IN_INGEST_TRANSACTION: 2,
    Failpoint.INGEST_COMMITTED: 2,
    Failpoint.RECEIPT_SENT: 3,
}


# What a worker had begun is taken from it once it is gone for so long.
SOON_GONE = with_defaults({"foltr.storage.ingest.WORKER_GONE_S": 2.0})
# PostgreSQL locks a row, which all of these are about; SQLite locks the file.
ON_SQLITE = {Failpoint.TAKEN_BACK, Failpoint.IN_ROUND_TRANSACTION, Failpoint.IN_INGEST_TRANSACTION}
# Before a commit, within it, after it, and after what it announces.
USUAL = {
    ("postgresql", Failpoint.TAKEN_BACK),
    ("sqlite", Failpoint.IN_ROUND_TRANSACTION),
    ("postgresql", Failpoint.ROUND_ANNOUNCED),
    ("postgresql", Failpoint.INGEST_BEGUN),
    ("sqlite", Failpoint.IN_INGEST_TRANSACTION),
    ("postgresql", Failpoint.RECEIPT_SENT),
}


def on_databases(dies_at):
    """Each failpoint on PostgreSQL, and some of them on SQLite."""
    cases = [("postgresql", failpoint) for failpoint in dies_at]
    cases += [("sqlite", failpoint) for failpoint in dies_at if failpoint in ON_SQLITE]
    return pytest.mark.parametrize(("migrated_url", "failpoint"), swept(cases, USUAL), indirect=["migrated_url"])


@pytest.fixture(autouse=True)
def soon_again(monkeypatch):
    """What the broker gave to a worker that died, the device has to send again."""
    monkeypatch.setattr("foltr.edge_client.participation.FIRST_RESEND_S", 0.5)


def start_all(group: asyncio.TaskGroup, deployment: Deployment) -> list[asyncio.Task[int]]:
    return [group.create_task(contribute(credentials)) for credentials in deployment.devices]


async def check(deployment: Deployment, told: Sequence[asyncio.Task[int]], states: Sequence[str]) -> None:
    """What the devices were told, what is stored, and what the models are made of: all the same."""
    await deployment.check_told(told)
    rounds = await list_rounds(deployment.database, "oracle")
    assert [row.state for row in rounds] == list(states)


@on("postgresql")
async def test_two_workers_and_a_leader_count_every_update_once(deployment):
    """Both take updates of the same rounds; every model is the sum of exactly what its round lists."""
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(N_ROUNDS, "--role", "leader")
        for _ in range(2):
            deployment.start_worker()
        await deployment.serves()
        told = start_all(group, deployment)
        assert await deployment.exit_code() == 0, deployment.said()
    await check(deployment, told, ["completed"] * N_ROUNDS)
    assert [task.result() for task in told] == [N_ROUNDS] * N_CLIENTS


@on_databases(LEADER_DIES_AT)
async def test_kill_9_of_the_leader_loses_nothing_and_counts_nothing_twice(deployment, failpoint):
    """Two workers go on, or wait for the next leader, and every sum is exact."""
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(
            N_ROUNDS, "--role", "leader", failpoints=f"{failpoint}=kill@{LEADER_DIES_AT[failpoint]}"
        )
        for _ in range(2):
            deployment.start_worker()
        await deployment.serves()
        told = start_all(group, deployment)
        assert died_by_sigkill(await deployment.exit_code()), deployment.said()
        deployment.start_federator(N_ROUNDS, "--role", "leader")
        assert await deployment.exit_code() == 0, deployment.said()
    await check(deployment, told, ["completed"] * N_ROUNDS)


@on_databases(WORKER_DIES_AT)
async def test_kill_9_of_a_worker_loses_nothing_and_counts_nothing_twice(deployment, failpoint):
    """Both die there, before, in and after a transaction, and when a receipt is out; others take their place."""
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(N_ROUNDS, "--role", "leader", **SOON_GONE)
        at = f"{failpoint}=kill@{WORKER_DIES_AT[failpoint]}"
        dying = [deployment.start_worker(failpoints=at, **SOON_GONE) for _ in range(2)]
        await deployment.serves()
        told = start_all(group, deployment)
        await until(lambda: any(died_by_sigkill(worker.poll() or 0) for worker in dying), "no worker died")
        deployment.start_worker(**SOON_GONE)
        assert await deployment.exit_code() == 0, deployment.said()
    await check(deployment, told, ["completed"] * N_ROUNDS)


@POSTGRESQL
async def test_postgresql_is_killed_and_comes_back_under_workers(deployment, postgres_server):
    """Leader and workers wait for it; what was told is stored, and nothing twice."""
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(N_ROUNDS, "--role", "leader")
        for _ in range(2):
            deployment.start_worker()
        await deployment.serves()
        told = start_all(group, deployment)
        await deployment.rounds_reach(1)
        try:
            await asyncio.to_thread(postgres_server.kill)
            await asyncio.sleep(0.5)  # clock: away
        finally:
            await asyncio.to_thread(postgres_server.start)
        await deployment.reopen_database()
        assert await deployment.exit_code() == 0, deployment.said()
    await check(deployment, told, ["completed"] * N_ROUNDS)
    assert [worker.poll() for worker in deployment.workers] == [None, None]


@POSTGRESQL
async def test_a_standby_leads_the_workers_of_a_leader_that_was_killed(deployment):
    """They wait for it, and go on under its claim; the per-click sums are exact."""
    async with asyncio.TaskGroup() as group:
        first = deployment.start_federator(
            N_ROUNDS, "--role", "leader", failpoints=f"{Failpoint.ROUND_COMPLETED}=kill@2"
        )
        workers = [deployment.start_worker() for _ in range(2)]
        await deployment.serves()
        deployment.start_federator(N_ROUNDS, "--role", "leader", "--standby")
        told = start_all(group, deployment)
        assert died_by_sigkill(await deployment.exit_code(first))
        assert await deployment.exit_code() == 0, deployment.said()
    assert all(worker.poll() is None for worker in workers)
    await check(deployment, told, ["completed"] * N_ROUNDS)
