"""A standby takes over from a leader that is killed, paused, stopped or replaced: nothing is lost or counted twice."""

import asyncio
import re
import signal
from itertools import product

import pytest
from integration.deployment import FEDERATION, POSTGRESQL, SQLITE, Deployment, client_name, died_by_sigkill, on, swept
from integration.oracle import check_history, contribute
from integration.recorder import Recorder
from sqlalchemy import text
from support.postgres_server import PostgresServer
from support.prepared_processes import PreparedProcess, with_defaults
from support.waiting import PATIENCE_S, until

from foltr.core.failpoints import Failpoint
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.signing import epoch_and_number
from foltr.storage.leases import LEASE_S, Lease, find_lease, list_standbys
from foltr.storage.queries import list_events, list_rounds

N_CLIENTS, N_ROUNDS = 3, 4
Told = list[asyncio.Task[int]]
# One that was fenced asks who leads, however long the answer takes.
EXPLAINED = with_defaults({"foltr.federator.leading.keeper._EXPLAINED_WITHIN_S": PATIENCE_S})
# The pass at which the leader dies: in mid-run, and surely reached.
DIES_AT = {
    Failpoint.FEDERATION_CLAIMED: 1,
    Failpoint.BATCH_DECIDED: 6,
    Failpoint.IN_BATCH_TRANSACTION: 6,
    Failpoint.BATCH_COMMITTED: 6,
    Failpoint.RECEIPT_SENT: 8,
    Failpoint.COLLECTING_STOPPED: 2,
    Failpoint.AGGREGATED: 2,
    Failpoint.IN_ROUND_TRANSACTION: 2,
    Failpoint.ROUND_COMPLETED: 2,
    Failpoint.MODEL_ANNOUNCED: 2,
    Failpoint.ROUND_ANNOUNCED: 2,
}
ON_SQLITE = (Failpoint.FEDERATION_CLAIMED, Failpoint.IN_BATCH_TRANSACTION, Failpoint.ROUND_COMPLETED)
# Before a commit, within it, after it, and after what it announces.
USUAL = (
    ("postgresql", Failpoint.BATCH_DECIDED),
    ("sqlite", Failpoint.IN_BATCH_TRANSACTION),
    ("sqlite", Failpoint.ROUND_COMPLETED),
    ("postgresql", Failpoint.MODEL_ANNOUNCED),
)


async def lease_of(deployment: Deployment) -> Lease | None:
    return await find_lease(deployment.database, FEDERATION)


async def holder_of(deployment: Deployment) -> str | None:
    lease = await lease_of(deployment)
    return None if lease is None else lease.holder


async def start_standby(deployment: Deployment, n_standbys: int = 1) -> PreparedProcess:
    """Start one, and return when so many wait, or when it leads as nobody else does."""
    standby = deployment.start_federator(N_ROUNDS, "--standby", FOLTR_LOG_LEVEL="info")

    async def all_wait() -> bool:
        waiting = await list_standbys(deployment.database, FEDERATION)
        return len(waiting) == n_standbys or f":{standby.pid}:" in str(await holder_of(deployment))

    await until(all_wait, f"no {n_standbys} standbys; they said {deployment.said()}")
    return standby


async def start_both(deployment: Deployment, **variables: str) -> tuple[PreparedProcess, PreparedProcess]:
    """Start a leader, and a standby once the leader serves."""
    leader = deployment.start_federator(N_ROUNDS, **variables)
    await deployment.serves()
    return leader, await start_standby(deployment)


def all_but_the_last(group: asyncio.TaskGroup, deployment: Deployment) -> Told:
    return [group.create_task(contribute(credentials)) for credentials in deployment.devices[:-1]]


async def end(group: asyncio.TaskGroup, deployment: Deployment, told: Told, process: PreparedProcess) -> None:
    """Let the last device come, without which no round is full; the process then ends the federation."""
    told.append(group.create_task(contribute(deployment.devices[-1])))
    assert await deployment.exit_code(process) == 0, deployment.said()


async def leads(deployment: Deployment, process: PreparedProcess) -> None:
    """Wait until this process has claimed the federation."""

    async def has_started() -> bool:
        events = await list_events(deployment.database, FEDERATION, kind="federator_started")
        return any(f":{process.pid}:" in event.detail for event in events)

    await until(has_started, f"{process.pid} does not lead")


async def n_started(deployment: Deployment) -> int:
    return len(await list_events(deployment.database, FEDERATION, kind="federator_started"))


async def check_all(deployment: Deployment, told: Told, n_untold: int = 0) -> None:
    """What devices were told, what is stored and the models agree; ``n_untold`` answers to each may be lost."""
    counted = await check_history(deployment.database_url, FEDERATION)
    n_told = {client_name(i): task.result() for i, task in enumerate(told)}
    assert counted.keys() == n_told.keys()
    assert all(0 <= counted[name] - n <= n_untold for name, n in n_told.items()), (counted, n_told)
    assert [row.state for row in await list_rounds(deployment.database, FEDERATION)] == ["completed"] * N_ROUNDS


@pytest.mark.parametrize(
    ("migrated_url", "failpoint"),
    swept([("postgresql", each) for each in DIES_AT] + [("sqlite", each) for each in ON_SQLITE], USUAL),
    indirect=["migrated_url"],
)
async def test_kill_9_of_the_leader(deployment, failpoint):
    """Killed there by the kernel: the standby leads, it completes the rounds, and every sum is exact."""
    async with asyncio.TaskGroup() as group:
        leader = deployment.start_federator(N_ROUNDS, failpoints=f"{failpoint}=kill@{DIES_AT[failpoint]}")
        await deployment.serves()
        standby = await start_standby(deployment)
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
        assert died_by_sigkill(await deployment.exit_code(leader)), deployment.said()
        n_completed = await deployment.n_completed()
        await leads(deployment, standby)
        assert await deployment.exit_code(standby) == 0, deployment.said()
    # On a slow machine batches are larger, and the leader dies in its last round: the standby ends the federation then.
    await check_all(deployment, told, n_untold=int(n_completed >= N_ROUNDS - 1))


async def pause(deployment: Deployment, leader: PreparedProcess) -> None:
    """Stop it where it does not hold SQLite's lock, which nobody could take from it."""
    while True:
        leader.send_signal(signal.SIGSTOP)
        if deployment.database.dialect != "sqlite":
            return
        try:
            async with asyncio.timeout(0.5), deployment.database.transaction():  # clock: runs out
                return
        except TimeoutError:
            leader.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.05)


@on("postgresql")
async def test_a_paused_leader_wakes(deployment, mosquitto_server):
    """The standby leads; the one that wakes ends by itself, and says nothing that a device hears."""
    everything = Recorder(mosquitto_server.url, f"foltr/v1/{FEDERATION}/#")
    async with asyncio.TaskGroup() as group, everything.listening() as recorder:
        leader, standby = await start_both(deployment, **EXPLAINED)
        told = all_but_the_last(group, deployment)
        await until(lambda: n_joined(recorder) == 2, "nobody joined")
        await pause(deployment, leader)
        await leads(deployment, standby)
        leader.send_signal(signal.SIGCONT)
        assert await deployment.exit_code(leader) == 1
        await end(group, deployment, told, standby)
    says_who_leads(deployment, leader, standby)
    await check_all(deployment, told)
    spoken = claims_spoken_under(recorder)
    assert all(claims == sorted(claims) for claims in spoken.values()), spoken
    assert len(set().union(*spoken.values())) == 2


def says_who_leads(deployment: Deployment, woken: PreparedProcess, leader: PreparedProcess) -> None:
    """One that has woken names the process that leads now and what to do, and blames no database that is there."""
    said = deployment.said()
    assert re.search(rf"lease_lost +holder=\S+:{woken.pid}:\w+ leader=\S+:{leader.pid}:\w+ since=", said), said
    told = re.search(
        rf"error: .*another federator leads, \S+:{leader.pid}:\w+, since \S+ \S+ UTC\. This one, (.*)", said
    )
    assert told is not None, said
    assert f":{woken.pid}:" in told[1]
    assert told[1].endswith("Start it again with --standby: it waits until it may lead")
    assert "Start PostgreSQL" not in said


@pytest.mark.parametrize(
    ("migrated_url", "role"), swept(product(("sqlite", "postgresql"), ("all", "leader")), []), indirect=["migrated_url"]
)
async def test_a_leader_that_is_paused_again_as_it_wakes(deployment, role):
    """And whose successor's machine has ingest workers: it publishes nothing more, and says who leads when it ends."""
    shares = ("--role", role)
    async with asyncio.TaskGroup() as group:
        leader = deployment.start_federator(N_ROUNDS, *shares, **EXPLAINED)
        await deployment.serves()
        if role == "leader":
            deployment.start_worker()
        standby = deployment.start_federator(N_ROUNDS, "--standby", *shares)
        told = all_but_the_last(group, deployment)
        await until(lambda: stands_by(deployment), "no standby waits")
        await pause(deployment, leader)
        await leads(deployment, standby)
        for _ in range(5):
            # It may end meanwhile, or be stopped wherever it is.
            leader.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.02)
            await pause(deployment, leader)
            await asyncio.sleep(0.2)  # clock: away
        leader.send_signal(signal.SIGCONT)
        assert await deployment.exit_code(leader) == 1, deployment.said()
        says_who_leads(deployment, leader, standby)
        await end(group, deployment, told, standby)
    await check_all(deployment, told)


@pytest.mark.nightly
@POSTGRESQL
async def test_a_leader_that_wakes_while_the_database_is_away(deployment, postgres_server: PostgresServer):
    """It says that, as it is so; and who leads once the database is back."""
    async with asyncio.TaskGroup() as group:
        leader, standby = await start_both(deployment, **EXPLAINED)
        told = all_but_the_last(group, deployment)
        leader.send_signal(signal.SIGSTOP)
        await leads(deployment, standby)
        await deployment.database.close()
        before = len(deployment.said())
        try:
            await asyncio.to_thread(postgres_server.stop)
            leader.send_signal(signal.SIGCONT)
            await until(lambda: "Start PostgreSQL" in deployment.said()[before:], "nobody misses the database")
            assert leader.poll() is None
        finally:
            await asyncio.to_thread(postgres_server.start)
        await deployment.reopen_database()
        assert await deployment.exit_code(leader) == 1, deployment.said()
        await end(group, deployment, told, standby)
    assert re.search(rf"error: .*another federator leads, \S+:{standby.pid}:", deployment.said()), deployment.said()
    await check_all(deployment, told)


@on("postgresql")
async def test_a_standby_that_was_paused_goes_on_waiting(deployment):
    """Woken, it neither takes the lease from the leader nor ends; and leads when that one is gone."""
    async with asyncio.TaskGroup() as group:
        leader, standby = await start_both(deployment)
        told = all_but_the_last(group, deployment)
        await pause(deployment, standby)
        await asyncio.sleep(LEASE_S + 0.5)
        standby.send_signal(signal.SIGCONT)
        await asyncio.sleep(1)  # clock: silence
        assert await n_started(deployment) == 1
        leader.kill()
        await leads(deployment, standby)
        await end(group, deployment, told, standby)
    await check_all(deployment, told)


async def stands_by(deployment: Deployment) -> bool:
    return bool(await list_standbys(deployment.database, FEDERATION))


def n_joined(recorder: Recorder) -> int:
    return sum(topic.endswith("/inbox") for topic in recorder.heard)


def claims_spoken_under(recorder: Recorder) -> dict[str, list[int]]:
    """By topic of a federator, the claims that its messages are signed under, in the order in which one hears them."""
    return {
        topic: [epoch_and_number(open_envelope(payload).sequence)[0] for payload in payloads]
        for topic, payloads in recorder.heard.items()
        if topic.endswith(("/round", "/model", "/inbox"))
    }


@POSTGRESQL
async def test_a_leader_that_is_paused_within_a_transaction(deployment):
    """It holds the federation's row, which the standby needs: PostgreSQL takes it from a leader that says nothing."""
    async with asyncio.TaskGroup() as group:
        leader, standby = await start_both(deployment, **EXPLAINED)
        async with deployment.database.transaction() as connection:
            # The leader's insert waits behind this, with the federation's row locked.
            await connection.execute(text("LOCK TABLE updates IN SHARE MODE"))
            told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
            waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted")

            async def leader_waits() -> bool:
                return bool(await connection.scalar(waits))

            await until(leader_waits, "the leader stores nothing")
            leader.send_signal(signal.SIGSTOP)
        await leads(deployment, standby)
        leader.send_signal(signal.SIGCONT)
        assert await deployment.exit_code(leader) == 1
        assert await deployment.exit_code() == 0, deployment.said()
    says_who_leads(deployment, leader, standby)
    await check_all(deployment, told)


@on("sqlite")
async def test_of_two_standbys_one_leads_and_a_leader_that_stops_hands_over(deployment):
    """Killed, one of the two leads; stopped in order, that one gives its lease up before it ends."""
    async with asyncio.TaskGroup() as group:
        leader = deployment.start_federator(N_ROUNDS)
        await deployment.serves()
        standbys = [await start_standby(deployment), await start_standby(deployment, 2)]
        told = all_but_the_last(group, deployment)
        leader.kill()

        async def another_leads() -> bool:
            return await n_started(deployment) == 2

        await until(another_leads, "nobody took over")
        await asyncio.sleep(LEASE_S + 1)  # nobody else takes it
        assert await n_started(deployment) == 2
        holder = await holder_of(deployment)
        second, third = sorted(standbys, key=lambda each: f":{each.pid}:" not in holder)
        assert [f":{third.pid}:" in each for each in await list_standbys(deployment.database, FEDERATION)] == [True]
        second.terminate()
        assert await deployment.exit_code(second) == 0
        assert await holder_of(deployment) != holder
        await leads(deployment, third)
        await end(group, deployment, told, third)
    await check_all(deployment, told)


@SQLITE
async def test_a_start_without_standby_takes_over_at_once(deployment):
    """The one that leads ends with 1, and is to be started again; a standby that does not fit ends with 2."""
    async with asyncio.TaskGroup() as group:
        first = deployment.start_federator(N_ROUNDS, "--standby")
        await leads(deployment, first)
        told = all_but_the_last(group, deployment)
        second = deployment.start_federator(N_ROUNDS)
        await leads(deployment, second)
        assert await deployment.exit_code(first) == 1
        unfit = deployment.start_federator(N_ROUNDS, "--standby", "--features", "5")
        assert await deployment.exit_code(unfit) == 2
        assert "n_features = 5" in deployment.said()
        await end(group, deployment, told, second)
    await check_all(deployment, told)


@POSTGRESQL
async def test_a_database_that_was_away_keeps_its_leader(deployment, postgres_server: PostgresServer):
    """Gone for longer than a lease lasts: nobody could renew it, so the standby lets the leader do it first."""
    async with asyncio.TaskGroup() as group:
        leader, _ = await start_both(deployment)
        told = all_but_the_last(group, deployment)
        try:
            await asyncio.to_thread(postgres_server.stop)
            await asyncio.sleep(LEASE_S + 0.5)
        finally:
            await asyncio.to_thread(postgres_server.start)
        await deployment.reopen_database()
        await asyncio.sleep(LEASE_S + 0.5)
        assert await n_started(deployment) == 1
        await end(group, deployment, told, leader)
    await check_all(deployment, told)


@SQLITE
async def test_a_standby_without_a_broker_lets_another_try(deployment, monkeypatch):
    """It has the lease for as long as it looks for a broker, gives it up, and tries again after a pause."""
    monkeypatch.setattr("foltr.federator.service._NO_BROKER_S", 0.3)
    monkeypatch.setattr("foltr.federator.service.LEASE_S", 0.3)
    deployment.broker_url = "mqtt://127.0.0.1:9"
    service = deployment.service(N_ROUNDS, deployment.database, standby=True)
    running = asyncio.create_task(service.run())
    held: list[bool] = []

    async def gave_it_up_twice() -> bool:
        lease = await lease_of(deployment)
        held.append(lease is not None and lease.is_held)
        return [a for a, b in zip(held, [*held[1:], None], strict=True) if a != b].count(True) >= 2

    await until(gave_it_up_twice, "it keeps the lease")
    service.stop()
    async with asyncio.timeout(PATIENCE_S):
        await running
    assert await n_started(deployment) == 0
