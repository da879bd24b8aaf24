"""A standby takes over from a leader that is killed, paused, stopped or replaced: nothing is lost or counted twice."""

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator

import pytest
from integration.deployment import FEDERATION, Deployment, client_name, died_by_sigkill, until
from integration.oracle import check_history, contribute
from integration.recorder import Recorder
from sqlalchemy import text
from support.prepared_processes import PreparedProcess
from support.servers import MosquittoServer, PostgresServer

from foltr.core.failpoints import Failpoint
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.signing import epoch_and_number
from foltr.storage.errors import WriterFencedError
from foltr.storage.leases import LEASE_S, Lease, find_lease, list_standbys
from foltr.storage.queries import list_events, list_rounds

pytestmark = pytest.mark.slow

N_CLIENTS, N_ROUNDS = 3, 4
TAKE_OVER_LIMIT_S = 5.0
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


@pytest.fixture
async def deployment(mosquitto_server: MosquittoServer, migrated_url: str, tmp_path) -> AsyncIterator[Deployment]:
    async with Deployment(tmp_path, mosquitto_server.url, migrated_url, N_CLIENTS) as opened:
        yield opened


async def lease_of(deployment: Deployment) -> Lease | None:
    return await find_lease(deployment.database, FEDERATION)


async def start_standby(deployment: Deployment, n_standbys: int = 1, n_rounds: int = N_ROUNDS) -> PreparedProcess:
    """Start one, and return when so many wait, or when it leads as nobody else does."""
    standby = deployment.start_federator(n_rounds, "--standby", FOLTR_LOG_LEVEL="info")

    async def all_wait() -> bool:
        lease, waiting = await lease_of(deployment), await list_standbys(deployment.database, FEDERATION)
        return len(waiting) == n_standbys or (lease is not None and f":{standby.pid}:" in str(lease.holder))

    await until(all_wait, 20, f"no {n_standbys} standbys; they said {deployment.said()}")
    return standby


async def leads(deployment: Deployment, process: PreparedProcess, timeout_s: float = 20.0) -> None:
    """Wait until this process has claimed the federation."""

    async def has_started() -> bool:
        events = await list_events(deployment.database, FEDERATION, kind="federator_started")
        return any(f":{process.pid}:" in event.detail for event in events)

    try:
        await until(has_started, timeout_s, f"{process.pid} does not lead")
    except AssertionError as error:
        raise AssertionError(f"{error}; the federators said:\n{deployment.said()}") from None


async def n_started(deployment: Deployment) -> int:
    return len(await list_events(deployment.database, FEDERATION, kind="federator_started"))


async def check_all(
    deployment: Deployment, told: list[asyncio.Task[int]], n_rounds: int = N_ROUNDS, n_untold: int = 0
) -> None:
    """What the devices were told, what is stored and what the models are made of is all the same.

    ``n_untold``: so many answers to each device may have ended with a federation, which nobody could be asked for.
    """
    counted = await check_history(deployment.database_url, FEDERATION)
    n_told = {client_name(i): task.result() for i, task in enumerate(told)}
    assert counted.keys() == n_told.keys()
    assert all(0 <= counted[name] - n <= n_untold for name, n in n_told.items()), (counted, n_told)
    assert [row.state for row in await list_rounds(deployment.database, FEDERATION)] == ["completed"] * n_rounds


def dying_at() -> list[tuple[str, Failpoint]]:
    return [("postgresql", each) for each in DIES_AT] + [("sqlite", each) for each in ON_SQLITE]


@pytest.mark.parametrize(("migrated_url", "failpoint"), dying_at(), indirect=["migrated_url"])
async def test_kill_9_of_the_leader(deployment, failpoint):
    """Killed there by the kernel: within 5 s the standby leads, it completes the rounds, and every sum is exact."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        leader = deployment.start_federator(N_ROUNDS, failpoints=f"{failpoint}=kill@{DIES_AT[failpoint]}")
        await deployment.serves(20)
        standby = await start_standby(deployment)
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
        await until(lambda: leader.poll() is not None, 20, "the leader goes on")
        died_at = time.monotonic()
        assert died_by_sigkill(leader.returncode), deployment.said()
        n_completed = await deployment.n_completed()
        await leads(deployment, standby)
        took_s = time.monotonic() - died_at
        await deployment.rounds_reach(n_completed + 1, 20)
        resumed_s = time.monotonic() - died_at
        assert await deployment.exit_code(30) == 0, deployment.said()
    told_s = f"leads {took_s:.2f} s and has completed a round {resumed_s:.2f} s after kill -9"
    print(f"\n{failpoint}, {deployment.database.dialect}: {told_s}")  # noqa: T201
    assert took_s < TAKE_OVER_LIMIT_S
    assert standby.returncode == 0
    # On a slow machine batches are larger, and the leader dies in its last round: the standby ends the federation then.
    await check_all(deployment, told, n_untold=int(n_completed == N_ROUNDS - 1))


async def pause(deployment: Deployment, leader: PreparedProcess) -> None:
    """Stop it where it does not hold SQLite's lock, which nobody could take from it."""
    while True:
        leader.send_signal(signal.SIGSTOP)
        if deployment.database.dialect != "sqlite":
            return
        try:
            async with asyncio.timeout(0.5), deployment.database.transaction():
                return
        except TimeoutError:
            leader.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.1)


async def test_a_paused_leader_wakes(deployment, mosquitto_server):
    """The standby leads within 5 s; the one that wakes ends by itself, and says nothing that a device hears."""
    recorder = Recorder(mosquitto_server.url, f"foltr/v1/{FEDERATION}/#")
    async with asyncio.timeout(60), asyncio.TaskGroup() as group, recorder.link:
        leader = deployment.start_federator(N_ROUNDS)
        await deployment.serves(20)
        standby = await start_standby(deployment)
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices[:-1]]
        await until(lambda: n_joined(recorder) == 2, 20, "nobody joined")
        await pause(deployment, leader)
        paused_at = time.monotonic()
        await leads(deployment, standby)
        took_s = time.monotonic() - paused_at
        leader.send_signal(signal.SIGCONT)
        await until(lambda: leader.poll() is not None, 5, "it goes on")
        told.append(group.create_task(contribute(deployment.devices[-1])))
        assert await deployment.exit_code(30) == 0, deployment.said()
    print(f"\n{deployment.database.dialect}: leads {took_s:.2f} s after SIGSTOP")  # noqa: T201
    assert took_s < TAKE_OVER_LIMIT_S
    assert leader.returncode == 1
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


@pytest.mark.parametrize("role", ["all", "leader"])
async def test_a_leader_that_is_paused_again_as_it_wakes(deployment, role):
    """And whose successor's machine has ingest workers: it publishes nothing more, and says who leads when it ends."""
    shares = ("--role", role)
    async with asyncio.timeout(90), asyncio.TaskGroup() as group:
        leader = deployment.start_federator(N_ROUNDS, *shares)
        await deployment.serves(20)
        if role == "leader":
            deployment.start_worker()
        standby = deployment.start_federator(N_ROUNDS, "--standby", *shares)
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices[:-1]]
        await until(lambda: stands_by(deployment), 20, "no standby waits")
        await pause(deployment, leader)
        await leads(deployment, standby)
        for _ in range(5):
            # It may end meanwhile, or be stopped wherever it is.
            leader.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.02)
            await pause(deployment, leader)
            await asyncio.sleep(0.2)
        leader.send_signal(signal.SIGCONT)
        await until(lambda: leader.poll() is not None, 20, "it goes on")
        says_who_leads(deployment, leader, standby)
        told.append(group.create_task(contribute(deployment.devices[-1])))
        await until(lambda: standby.poll() is not None, 30, "the run does not end")
    assert (leader.returncode, standby.returncode) == (1, 0), deployment.said()
    await check_all(deployment, told)


@pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)
async def test_a_leader_that_wakes_while_the_database_is_away(deployment, postgres_server: PostgresServer):
    """It says that, as it is so; and who leads once the database is back."""
    async with asyncio.timeout(90), asyncio.TaskGroup() as group:
        leader = deployment.start_federator(N_ROUNDS)
        await deployment.serves(20)
        standby = await start_standby(deployment)
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices[:-1]]
        leader.send_signal(signal.SIGSTOP)
        await leads(deployment, standby)
        await deployment.database.close()
        before = len(deployment.said())
        try:
            await asyncio.to_thread(postgres_server.stop)
            leader.send_signal(signal.SIGCONT)
            await until(lambda: "Start PostgreSQL" in deployment.said()[before:], 20, "nobody misses the database")
            assert leader.poll() is None
        finally:
            await asyncio.to_thread(postgres_server.start)
        await deployment.reopen_database()
        await until(lambda: leader.poll() is not None, 30, "it goes on")
        assert "error: " in deployment.said()
        told.append(group.create_task(contribute(deployment.devices[-1])))
        await until(lambda: standby.poll() is not None, 40, "the run does not end")
    assert (leader.returncode, standby.returncode) == (1, 0), deployment.said()
    assert re.search(rf"error: .*another federator leads, \S+:{standby.pid}:", deployment.said()), deployment.said()
    await check_all(deployment, told)


async def test_a_standby_that_was_paused_goes_on_waiting(deployment):
    """Woken, it neither takes the lease from the leader nor ends; and leads when that one is gone."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        leader = deployment.start_federator(N_ROUNDS)
        await deployment.serves(20)
        standby = await start_standby(deployment)
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices[:-1]]
        await pause(deployment, standby)
        await asyncio.sleep(LEASE_S + 1)
        standby.send_signal(signal.SIGCONT)
        await asyncio.sleep(2)
        assert await n_started(deployment) == 1
        leader.kill()
        await leads(deployment, standby)
        told.append(group.create_task(contribute(deployment.devices[-1])))
        await until(lambda: standby.poll() is not None, 30, "the run does not end")
    assert standby.returncode == 0, deployment.said()
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


@pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)
async def test_a_leader_that_is_paused_within_a_transaction(deployment):
    """It holds the federation's row, which the standby needs: PostgreSQL takes it from a leader that says nothing."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        leader = deployment.start_federator(N_ROUNDS)
        await deployment.serves(20)
        standby = await start_standby(deployment)
        async with deployment.database.transaction() as connection:
            # The leader's insert waits behind this, with the federation's row locked.
            await connection.execute(text("LOCK TABLE updates IN SHARE MODE"))
            told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
            waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted")

            async def leader_waits() -> bool:
                return bool(await connection.scalar(waits))

            await until(leader_waits, 20, "the leader stores nothing")
            leader.send_signal(signal.SIGSTOP)
        paused_at = time.monotonic()
        await leads(deployment, standby)
        took_s = time.monotonic() - paused_at
        leader.send_signal(signal.SIGCONT)
        await until(lambda: leader.poll() is not None, 5, "it goes on")
        assert await deployment.exit_code(30) == 0, deployment.said()
    print(f"\nleads {took_s:.2f} s after SIGSTOP within a transaction")  # noqa: T201
    assert took_s < TAKE_OVER_LIMIT_S + 1
    assert leader.returncode == 1
    says_who_leads(deployment, leader, standby)
    await check_all(deployment, told)


async def test_of_two_standbys_one_leads_and_a_leader_that_stops_hands_over(deployment):
    """Killed, one of the two leads; stopped in order, that one gives its lease up, and the other leads within 2 s."""
    async with asyncio.timeout(90), asyncio.TaskGroup() as group:
        leader = deployment.start_federator(N_ROUNDS)
        await deployment.serves(20)
        standbys = [await start_standby(deployment), await start_standby(deployment, 2)]
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices[:-1]]
        leader.kill()

        async def another_leads() -> bool:
            return await n_started(deployment) == 2

        await until(another_leads, 20, "nobody took over")
        await asyncio.sleep(4)  # longer than a lease: nobody else takes it
        assert await n_started(deployment) == 2
        lease = await lease_of(deployment)
        assert lease is not None
        assert lease.holder is not None
        second, third = sorted(standbys, key=lambda each: f":{each.pid}:" not in lease.holder)
        assert [f":{third.pid}:" in each for each in await list_standbys(deployment.database, FEDERATION)] == [True]
        second.terminate()
        stopping_at = time.monotonic()
        await until(lambda: second.poll() is not None, 20, "it does not stop")
        stopped_at = time.monotonic()
        await leads(deployment, third)
        handed_over_s = time.monotonic() - stopped_at
        print(  # noqa: T201
            f"\n{deployment.database.dialect}: stopped in {stopped_at - stopping_at:.2f} s, handed over in "
            f"{handed_over_s:.2f} s"
        )
        assert second.returncode == 0
        assert handed_over_s < 2
        told.append(group.create_task(contribute(deployment.devices[-1])))
        await until(lambda: third.poll() is not None, 30, "the run does not end")
    assert third.returncode == 0, deployment.said()
    await check_all(deployment, told)


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
async def test_a_start_without_standby_takes_over_at_once(deployment):
    """The one that leads ends with 1, and is to be started again; a standby that does not fit ends with 2."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        first = deployment.start_federator(N_ROUNDS, "--standby")
        await leads(deployment, first)
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices[:-1]]
        second = deployment.start_federator(N_ROUNDS)
        started_at = time.monotonic()
        await leads(deployment, second)
        await until(lambda: first.poll() is not None, 5, "it goes on")
        print(f"\ntaken over in {time.monotonic() - started_at:.2f} s")  # noqa: T201
        assert first.returncode == 1
        unfit = deployment.start_federator(N_ROUNDS, "--standby", "--features", "5")
        await until(lambda: unfit.poll() is not None, 20, "it waits")
        assert unfit.returncode == 2
        assert "n_features = 5" in deployment.said()
        told.append(group.create_task(contribute(deployment.devices[-1])))
        await until(lambda: second.poll() is not None, 30, "the run does not end")
    assert second.returncode == 0, deployment.said()
    await check_all(deployment, told)


@pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)
async def test_a_database_that_was_away_keeps_its_leader(deployment, postgres_server: PostgresServer):
    """Gone for longer than a lease lasts: nobody could renew it, so the standby lets the leader do it first."""
    async with asyncio.timeout(90), asyncio.TaskGroup() as group:
        leader = deployment.start_federator(N_ROUNDS)
        await deployment.serves(20)
        await start_standby(deployment)
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices[:-1]]
        try:
            await asyncio.to_thread(postgres_server.stop)
            await asyncio.sleep(4)
        finally:
            await asyncio.to_thread(postgres_server.start)
        await deployment.reopen_database()
        await asyncio.sleep(4)
        assert await n_started(deployment) == 1
        told.append(group.create_task(contribute(deployment.devices[-1])))
        await until(lambda: leader.poll() is not None, 30, "the run does not end")
    assert leader.returncode == 0, deployment.said()
    await check_all(deployment, told)


@pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)
async def test_a_leader_of_ingest_workers_is_replaced(deployment):
    """Killed while two workers store: the standby shares updates with the same workers, and every sum is exact."""
    n_rounds = 20
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        leader = deployment.start_federator(n_rounds, "--role", "leader")
        await deployment.serves(20)
        workers = [deployment.start_worker() for _ in range(2)]
        standby = deployment.start_federator(n_rounds, "--role", "leader", "--standby")
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
        await deployment.rounds_reach(1, 20)
        leader.kill()
        await until(lambda: leader.poll() is not None, 20, "the leader goes on")
        assert died_by_sigkill(leader.returncode), "the run was over before it could be killed"
        await leads(deployment, standby)
        await until(lambda: standby.poll() is not None, 30, "the run does not end")
    assert standby.returncode == 0, deployment.said()
    assert all(worker.poll() is None for worker in workers)
    await check_all(deployment, told, n_rounds)


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

    await until(gave_it_up_twice, 20, "it keeps the lease", pause_s=0.05)
    service.stop()
    async with asyncio.timeout(30):
        await running
    assert await n_started(deployment) == 0


async def test_a_claim_by_a_lease_that_is_lost(deployment, monkeypatch):
    """A standby whose lease another has taken before it claims ends as one that is fenced, and has claimed nothing."""
    service = deployment.service(N_ROUNDS, deployment.database, standby=True)

    async def lost(*_: object) -> bool:
        return True

    monkeypatch.setattr("foltr.federator.leading.standby.take_lease", lost)
    async with asyncio.timeout(20):
        with pytest.raises(WriterFencedError, match="before this one could lead"):
            await service.run()
    assert await n_started(deployment) == 0
