"""What breaks is named, with its culprit, by `foltr status`, the API, its page and the metrics (``make drills``)."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from integration.deployment import FEDERATION, POSTGRESQL, Deployment, client_name
from integration.drills import Watch, watched
from integration.oracle import contribute
from integration.whole import click, closed, joined, running
from sqlalchemy import select
from support.broker_links import connected
from support.databases import open_migrated
from support.prepared_processes import with_defaults
from support.secure_cohorts import FEDERATION as SECURE_FEDERATION
from support.servers import ProvisionedMosquitto
from support.waiting import until

from foltr.broker.authorities import issuing_authority
from foltr.broker.certificates import issue_client, issue_server
from foltr.broker.provision import reload_broker
from foltr.broker.renewal import renew_server
from foltr.broker.users import readmit_user
from foltr.core.errors import UnavailableError
from foltr.core.operator.credentials import FEDERATOR_USER, BrokerAccess, read_credentials, write_credentials
from foltr.core.protocol.states import RoundState
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.verdicts import Ending, Reason
from foltr.storage.database import Database
from foltr.storage.lease_tables import leases
from foltr.storage.leases import find_lease
from foltr.storage.migrate import downgrade
from foltr.storage.urls import address_of

pytestmark = [POSTGRESQL, pytest.mark.nightly]

N_CLIENTS = 4
WITHOUT_DEVICES = frozenset({"leader_changed", "too_few_devices"})
HOUR_AHEAD = "import sys, time\nreal = time.time\ntime.time = lambda: real() + 3600.0\n"
MAIN = "from foltr.cli.main import main\nsys.argv[0] = 'foltr'\nmain()\n"


@dataclass(frozen=True)
class Drill:
    """A federation that works, with its devices, and who watches it."""

    deployment: Deployment
    devices: list[asyncio.Task[int]]
    watch: Watch
    operator: Callable


@pytest.fixture
async def drill(deployment, tmp_path, operator):
    """A federation whose first rounds have a model; devices go on until the test ends."""
    async with watched(deployment.database_url, FEDERATION, tmp_path) as watch:
        start(deployment)
        await deployment.serves()
        devices = [asyncio.create_task(contribute(one)) for one in deployment.devices]
        await deployment.rounds_reach(2)
        await watch.is_well()
        yield Drill(deployment, devices, watch, operator)
        for device in devices:
            device.cancel()
        await asyncio.gather(*devices, return_exceptions=True)


def start(deployment: Deployment, **more):
    """Start a federator whose rounds need two of the four devices."""
    options = ("--min-clients", "2", "--min-time", "0.5")
    return deployment.start_federator(100_000, *options, **more)


async def holder(deployment: Deployment) -> str:
    """The process that leads, as its lease names it."""
    async with deployment.database.reading() as connection:
        return str((await connection.execute(select(leases.c.holder))).scalar_one())


async def named_leader(deployment: Deployment) -> str:
    """The process that a verdict names; none if the last one gave its lease up."""
    lease = await find_lease(deployment.database, FEDERATION)
    return "" if lease is None or lease.holder is None else lease.holder


async def test_the_federator_is_killed(drill):
    """And started again: then it is said who leads now."""
    who = await holder(drill.deployment)
    drill.deployment.federator.kill()
    await drill.watch.finds("federator killed", Reason.FEDERATOR_STOPPED, who)
    start(drill.deployment)
    await drill.watch.is_well()


@pytest.mark.parametrize("ending", [Ending.DATA_KEYS_MISSING, Ending.SETTINGS_REFUSED])
async def test_the_federator_ends_by_itself(drill, ending):
    """For want of data keys, or of settings that fit: starting it again does not help, so its reason is named."""
    drill.deployment.federator.kill()
    if ending is Ending.DATA_KEYS_MISSING:
        for i in range(N_CLIENTS):
            drill.deployment.database.keys.destroy(FEDERATION, client_name(i))
        start(drill.deployment)
    else:
        drill.deployment.start_federator(100_000, "--min-clients", "9", "--max-clients", "2")
    assert await drill.deployment.exit_code() == 2
    await drill.watch.finds(
        f"federator ended: {ending}", Reason.FEDERATOR_STOPPED, await named_leader(drill.deployment)
    )
    lease = await find_lease(drill.deployment.database, FEDERATION)
    assert lease is not None
    assert lease.ended is ending


async def test_the_federator_hangs(drill):
    """Stopped by a signal, it goes on as if nothing had been."""
    who = await holder(drill.deployment)
    drill.deployment.federator.send_signal(signal.SIGSTOP)
    await drill.watch.finds("federator hangs", Reason.FEDERATOR_STOPPED, who)
    drill.deployment.federator.send_signal(signal.SIGCONT)
    await drill.watch.is_well()


async def test_the_broker_is_killed(drill, mosquitto_server):
    """By its address."""
    await asyncio.to_thread(mosquitto_server.kill)
    await drill.watch.finds("broker killed", Reason.BROKER_UNREACHABLE, mosquitto_server.url)
    await asyncio.to_thread(mosquitto_server.start)
    await drill.watch.is_well()


async def test_the_database_is_killed(drill, postgres_server):
    """By its address, which only the operator's own command says."""
    await asyncio.to_thread(postgres_server.kill)
    try:
        where = address_of(drill.deployment.database.engine.url)
        await drill.watch.finds("database killed", Reason.DATABASE_UNREACHABLE, where, named_by=["status"])
    finally:
        await asyncio.to_thread(postgres_server.start)
    await drill.watch.is_well()


async def test_the_database_refuses_the_password(drill, postgres_server):
    """As after a rotation that nobody told the federator of: sessions have ended, and no other begins."""
    url = drill.deployment.database.engine.url
    access_file = postgres_server.data / "pg_hba.conf"
    before = access_file.read_text()
    access_file.write_text(f"host {url.database} all 127.0.0.1/32 scram-sha-256\n{before}")
    postgres_server.sql("SELECT pg_reload_conf()")
    try:
        await until(partial(is_refused, drill.deployment.database_url))
        postgres_server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname <> current_database()"
        )
        await drill.watch.finds("database refuses", Reason.DATABASE_UNREACHABLE, address_of(url), named_by=["status"])
        await drill.deployment.exit_code()
    finally:
        access_file.write_text(before)
        postgres_server.sql("SELECT pg_reload_conf()")
    start(drill.deployment)
    await drill.watch.is_well()


async def is_refused(url: str) -> bool:
    """Whether a new session is refused for want of a password."""
    try:
        async with await Database.connect(url):
            return False
    except UnavailableError as error:
        return "password" in str(error)


@asynccontextmanager
async def guarded(
    folder: Path, database_url: str, access: str
) -> AsyncIterator[tuple[ProvisionedMosquitto, Deployment]]:
    """A federation whose broker speaks TLS and knows its users; a federator leads, and no device is online."""
    (folder / "at_the_broker").mkdir()
    server = ProvisionedMosquitto(folder / "at_the_broker", access, FEDERATION)
    server.start()
    try:
        async with Deployment(folder, server.url, database_url, N_CLIENTS) as deployment:
            give(deployment, server.service("federator"))
            start(deployment)
            await deployment.serves()
            yield server, deployment
    finally:
        server.stop()


def give(deployment: Deployment, access: BrokerAccess) -> None:
    """Let the next federator process have this access to the broker."""
    path = deployment.operator_file.with_name("federator.json")
    write_credentials(path, read_credentials(path, "federator").model_copy(update={"broker": access}))


async def restart(deployment: Deployment, watch: Watch) -> None:
    """End the federator and start it again, once it is seen that nobody leads: what the former one found is void."""
    deployment.federator.kill()

    async def nobody_leads() -> bool:
        # They are read less often than the API, so it says so, too.
        return "federator_stopped" in {what for what, _ in (await watch.of_metrics())[1]}

    await until(nobody_leads)
    start(deployment)


async def test_the_broker_refuses_the_password(tmp_path, migrated_url):
    """Another one was set, and the federator has the former: while it runs, and after it was started again."""
    async with (
        guarded(tmp_path, migrated_url, "passwords") as (server, deployment),
        watched(migrated_url, FEDERATION, tmp_path) as watch,
    ):
        await watch.is_well(WITHOUT_DEVICES)
        access = readmit_user(server.operator_dir, FEDERATOR_USER, None)
        reload_broker(server.operator_dir)
        await watch.finds("broker refuses", Reason.BROKER_UNREACHABLE, server.url)
        await restart(deployment, watch)
        await watch.finds("the same, restarted", Reason.BROKER_UNREACHABLE, server.url)
        give(deployment, access)
        await restart(deployment, watch)
        await watch.is_well(WITHOUT_DEVICES)


async def test_the_federators_certificate_has_expired(tmp_path, migrated_url):
    """The broker refuses it, so it does not lead again."""
    async with (
        guarded(tmp_path, migrated_url, "mtls") as (server, deployment),
        watched(migrated_url, FEDERATION, tmp_path) as watch,
    ):
        await watch.is_well(WITHOUT_DEVICES)
        access, half_an_hour = server.service("federator"), 0.5 / 24
        old = issue_client(issuing_authority(server.operator_dir), FEDERATOR_USER, days=-half_an_hour)
        give(deployment, access.model_copy(update={"certificate": old.certificate_pem, "key": old.key_pem}))
        await restart(deployment, watch)
        await watch.finds("certificate expired", Reason.CERTIFICATE_EXPIRED, f"federator CN={FEDERATOR_USER}")
        give(deployment, access)
        await restart(deployment, watch)
        await watch.is_well(WITHOUT_DEVICES)


async def test_the_brokers_certificate_is_replaced_by_an_expired_one(tmp_path, migrated_url):
    """Beneath a broker that runs, and the federator's connection that lives."""
    async with (
        guarded(tmp_path, migrated_url, "passwords") as (server, deployment),
        watched(migrated_url, FEDERATION, tmp_path) as watch,
    ):
        await watch.is_well(WITHOUT_DEVICES)
        old = issue_server(issuing_authority(server.operator_dir), ["localhost", "127.0.0.1"], -0.02)
        (server.broker_dir / "server.crt").write_text(old.certificate_pem)
        (server.broker_dir / "server.key").write_text(old.key_pem)
        reload_broker(server.operator_dir)
        await watch.finds("broker's certificate expired", Reason.CERTIFICATE_REFUSED, f"broker {server.url}")
        renew_server(server.operator_dir, issuing_authority(server.operator_dir))
        reload_broker(server.operator_dir)
        await watch.is_well(WITHOUT_DEVICES)
        assert deployment.is_alive


async def test_a_helper_is_killed(tmp_path, mosquitto_server, migrated_url):
    """By its name, before a round needs it; the round waits for it and has a model once it is back."""
    async with (
        running(tmp_path, mosquitto_server.url) as whole,
        joined(whole) as devices,
        await open_migrated(migrated_url) as database,
        watched(migrated_url, SECURE_FEDERATION, tmp_path) as watch,
    ):
        for helper in ("north", "south"):
            whole.start_helper(helper)
        whole.start_federator(migrated_url, "", "--rounds", "100000")
        for device in devices:
            click(device, 0)
        assert await closed(database, 1) is RoundState.COMPLETED
        await watch.is_well()
        whole.processes["south"].kill()
        await watch.finds("helper killed", Reason.HELPER_AWAITED, "south")
        for device in devices:
            click(device, 1)
        whole.start_helper("south")
        assert await closed(database, 2) is RoundState.COMPLETED
        await watch.is_well()


@pytest.mark.parametrize(
    ("name", "constants", "reason"),
    [
        ("disk full", {"_FULL_BYTES": 2.0**62}, Reason.DISK_FULL),
        ("disk almost full", {"LOW_BYTES": 2.0**62, "LOW_SHARE": 1.0}, Reason.DISK_LOW),
    ],
)
async def test_a_disk_fills_up(drill, tmp_path, name, constants, reason):
    """With what counts as full made larger: a disk of the test's own would need rights that it has not."""
    drill.deployment.federator.kill()
    defaults = {f"foltr.federator.self_check.{constant}": value for constant, value in constants.items()}
    start(drill.deployment, **with_defaults(defaults))
    await drill.watch.finds(name, reason, str(tmp_path / "keys"))


async def test_the_federators_clock_is_an_hour_ahead(drill, tmp_path):
    """Against the database's."""
    drill.deployment.federator.kill()
    program = tmp_path / "ahead.py"
    program.write_text(HOUR_AHEAD + MAIN)
    start(drill.deployment, program=program)

    async def leads() -> bool:
        return drill.deployment.is_alive and "clock_differs" in {what for what, _ in (await drill.watch.of_api())[1]}

    began = time.monotonic()  # clock: measures
    await until(leads)
    await drill.watch.finds("clock +1 h", Reason.CLOCK_DIFFERS, await holder(drill.deployment), began)


async def test_two_federators_take_over_from_each_other(drill):
    """The older one ends, and who leads now is named."""
    first = drill.deployment.federator
    start(drill.deployment)
    await until(lambda: first.poll() is not None)
    await drill.watch.finds("two federators", Reason.LEADER_CHANGED, await holder(drill.deployment))


async def test_a_device_floods(drill):
    """With messages that nobody can read."""
    name, topics = client_name(0), Topics(FEDERATION)
    async with connected(drill.deployment.broker_url, f"{name}-flood") as link:
        for _ in range(10):
            await link.publish_at_most_once([(topics.client(name, ClientTopic.UPDATES), b"\x93nothing")] * 2_000)
        await drill.watch.finds("flood of 20,000", Reason.MESSAGES_REFUSED, name)


async def test_a_device_is_revoked(drill):
    """By an order of the operator."""
    name = client_name(3)
    done = await drill.operator("device", "revoke", name, "--broker", drill.deployment.broker_url)
    assert done.returncode == 0, done.stderr
    await drill.watch.finds("device revoked", Reason.DEVICE_REVOKED, name)


async def test_a_restore_brings_a_forgotten_client_back(drill):
    """Its data key is gone, as an erasure left it; the database has it by name, and its device is off."""
    name = client_name(2)
    drill.devices[2].cancel()
    drill.deployment.federator.kill()
    drill.deployment.database.keys.destroy(FEDERATION, name)
    start(drill.deployment, failpoints="")
    await drill.watch.finds("restore", Reason.KEY_MISSING, name)


async def test_a_client_is_forgotten(drill):
    """Until a model without it is in service, the one in service has learned from it."""
    name = client_name(1)
    done = await drill.operator("erasure", "request", name, "--broker", drill.deployment.broker_url)
    assert done.returncode == 0, done.stderr
    await drill.watch.finds("client forgotten", Reason.MODEL_HAS_ERASED)


async def test_the_tables_are_of_another_version(drill):
    """As in an upgrade of which one half was made."""
    drill.deployment.federator.kill()
    await downgrade(drill.deployment.database, "0001")
    where = address_of(drill.deployment.database.engine.url)
    await drill.watch.finds("upgrade half made", Reason.SCHEMA_OLDER, where, named_by=["status"])


async def test_too_few_devices_are_left(drill):
    """Three of four are revoked, and a round needs two."""
    done = [
        await drill.operator("device", "revoke", client_name(i), "--broker", drill.deployment.broker_url)
        for i in range(3)
    ]
    assert all(each.returncode == 0 for each in done)
    await drill.watch.finds("too few devices", Reason.TOO_FEW_DEVICES)
