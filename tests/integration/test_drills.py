"""Fourteen drills: what breaks is named, with its culprit, in status, in the API and in the metrics.

Each test breaks one thing of a federation of real processes, and waits until all three say so. ``make drills`` prints
after how many seconds each did; the bar is ten.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from cli.commands import foltr_process
from integration.deployment import FEDERATION, POSTGRESQL, Deployment, client_name
from integration.oracle import contribute
from integration.scraped import samples
from sqlalchemy import select
from support.api_server import Asked, asked
from support.broker_links import connected
from support.prepared_processes import with_defaults
from support.waiting import until

from foltr.api.tokens import Role
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.verdicts import Level, Reason
from foltr.storage.lease_tables import leases
from foltr.storage.migrate import downgrade

pytestmark = [POSTGRESQL, pytest.mark.nightly]

N_CLIENTS = 4
PRINTED = os.environ.get("FOLTR_TEST_DRILLS")
HOUR_AHEAD = "import sys, time\nreal = time.time\ntime.time = lambda: real() + 3600.0\n"
MAIN = "from foltr.cli.main import main\nsys.argv[0] = 'foltr'\nmain()\n"


class Drill:
    """A federation that works, and the three places that say how it is."""

    def __init__(self, deployment: Deployment, api: Asked, folder: Path, operator: Callable) -> None:
        self.deployment, self.operator = deployment, operator
        self.devices: list[asyncio.Task[int]] = []
        self._api, self._token, self._folder = api, api.token(Role.VIEWER, lasts_s=3600.0), folder

    async def of_status(self) -> tuple[Level, list[tuple[str, str]]]:
        """What ``foltr status`` says, and that its exit code says the same."""
        words = ("status", "--json", "--db", self.deployment.database_url, "--federation", FEDERATION)
        done = await asyncio.to_thread(foltr_process, *words, cwd=self._folder)
        if done.returncode == 2:
            return Level.DOWN, [("schema_differs", "")]  # an error of its own, with the command
        verdict = json.loads(done.stdout)["verdict"]
        assert done.returncode == {"ok": 0, "degraded": 1, "down": 3}[verdict["level"]]
        return Level(verdict["level"]), [(each["reason"], each["culprit"]) for each in verdict["findings"]]

    async def of_api(self) -> tuple[Level, list[tuple[str, str]]]:
        """What ``/api/v1/status`` says, as the page shows it, and that ``/health`` says the same."""
        told = (await self._api.get("/api/v1/status", self._token)).json()["verdict"]
        return Level(told["level"]), [(each["reason"], each["culprit"]) for each in told["findings"]]

    async def of_metrics(self) -> tuple[Level, list[tuple[str, str]]]:
        """What ``/metrics`` says, which has no names."""
        shown = samples((await self._api.get("/metrics", self._token)).text)
        (level,) = [Level(key[1]) for key, value in shown.items() if key[0] == "foltr_verdict" and value]
        return level, [(key[2], "") for key, value in shown.items() if key[0] == "foltr_findings" and value]

    async def finds(self, name: str, reason: Reason, culprit: str | None = None, since: float | None = None) -> None:
        """Wait until all three have the finding; print when each had it."""
        began = time.monotonic() if since is None else since  # clock: measures

        async def took(place: str) -> float:
            ask = getattr(self, f"of_{place}")

            async def has_it() -> bool:
                level, found = await ask()
                named = [who for what, who in found if what == reason]
                return level is not Level.OK and (culprit in named if culprit and place != "metrics" else bool(named))

            await until(has_it, f"{place} does not say {reason} of {culprit}: {await ask()}")
            return time.monotonic() - began  # clock: measures

        note(name, reason, await asyncio.gather(*(took(place) for place in ("status", "api", "metrics"))))

    async def is_well(self, but: frozenset[str] = frozenset({"leader_changed"})) -> None:
        """Wait until nothing is found any more."""

        async def well() -> bool:
            return {what for what, _ in (await self.of_api())[1]} <= but

        await until(well, f"it is not well: {await self.of_api()}")


def note(name: str, reason: Reason, seconds: Sequence[float]) -> None:
    """Add a row to the table, if somebody wants it."""
    if PRINTED:
        with Path(PRINTED).open("a") as table:
            table.write(f"| {name} | {reason.level} | {reason} | {' | '.join(f'{each:.1f}' for each in seconds)} |\n")


@pytest.fixture
async def drill(deployment, tmp_path, operator):
    """A federation whose first rounds have a model; devices go on until the test ends."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(asked(deployment.database_url, tmp_path, FEDERATION))
        made = Drill(deployment, api, tmp_path, operator)
        start(deployment)
        await deployment.serves()
        devices = [asyncio.create_task(contribute(one)) for one in deployment.devices]
        await deployment.rounds_reach(2)
        await made.is_well()
        made.devices = devices
        yield made
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


async def test_the_federator_is_killed(drill):
    """And started again: then it is said who leads now."""
    who = await holder(drill.deployment)
    drill.deployment.federator.kill()
    await drill.finds("federator killed", Reason.FEDERATOR_STOPPED, who)
    start(drill.deployment)
    await drill.is_well()


async def test_the_federator_hangs(drill):
    """Stopped by a signal, it goes on as if nothing had been."""
    who = await holder(drill.deployment)
    drill.deployment.federator.send_signal(signal.SIGSTOP)
    await drill.finds("federator hangs", Reason.FEDERATOR_STOPPED, who)
    drill.deployment.federator.send_signal(signal.SIGCONT)
    await drill.is_well()


async def test_the_broker_is_killed(drill, mosquitto_server):
    """By its address."""
    await asyncio.to_thread(mosquitto_server.kill)
    await drill.finds("broker killed", Reason.BROKER_UNREACHABLE, mosquitto_server.url)
    await asyncio.to_thread(mosquitto_server.start)
    await drill.is_well()


async def test_the_database_is_killed(drill, postgres_server):
    """Nobody can say more than that."""
    await asyncio.to_thread(postgres_server.kill)
    try:
        await drill.finds("database killed", Reason.DATABASE_UNREACHABLE)
    finally:
        await asyncio.to_thread(postgres_server.start)
    await drill.is_well()


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
    await drill.finds(name, reason, str(tmp_path / "keys"))


async def test_the_federators_clock_is_an_hour_ahead(drill, tmp_path):
    """Against the database's."""
    drill.deployment.federator.kill()
    program = tmp_path / "ahead.py"
    program.write_text(HOUR_AHEAD + MAIN)
    start(drill.deployment, program=program)

    async def leads() -> bool:
        return drill.deployment.is_alive and "clock_differs" in {what for what, _ in (await drill.of_api())[1]}

    began = time.monotonic()  # clock: measures
    await until(leads)
    await drill.finds("clock +1 h", Reason.CLOCK_DIFFERS, await holder(drill.deployment), began)


async def test_two_federators_take_over_from_each_other(drill):
    """The older one ends, and who leads now is named."""
    first = drill.deployment.federator
    start(drill.deployment)
    await until(lambda: first.poll() is not None)
    await drill.finds("two federators", Reason.LEADER_CHANGED, await holder(drill.deployment))


async def test_a_device_floods(drill):
    """With messages that nobody can read."""
    name, topics = client_name(0), Topics(FEDERATION)
    async with connected(drill.deployment.broker_url, f"{name}-flood") as link:
        for _ in range(10):
            await link.publish_at_most_once([(topics.client(name, ClientTopic.UPDATES), b"\x93nothing")] * 2_000)
        await drill.finds("flood of 20,000", Reason.MESSAGES_REFUSED, name)


async def test_a_device_is_revoked(drill):
    """By an order of the operator."""
    name = client_name(3)
    done = await drill.operator("device", "revoke", name, "--broker", drill.deployment.broker_url)
    assert done.returncode == 0, done.stderr
    await drill.finds("device revoked", Reason.DEVICE_REVOKED, name)


async def test_a_restore_brings_a_forgotten_client_back(drill):
    """Its data key is gone, as an erasure left it; the database has it by name, and its device is off."""
    name = client_name(2)
    drill.devices[2].cancel()
    drill.deployment.federator.kill()
    drill.deployment.database.keys.destroy(FEDERATION, name)
    start(drill.deployment, failpoints="")
    await drill.finds("restore", Reason.KEY_MISSING, name)


async def test_a_client_is_forgotten(drill):
    """Until a model without it is in service, the one in service has learned from it."""
    name = client_name(1)
    done = await drill.operator("erasure", "request", name, "--broker", drill.deployment.broker_url)
    assert done.returncode == 0, done.stderr
    await drill.finds("client forgotten", Reason.MODEL_HAS_ERASED)


async def test_the_tables_are_of_another_version(drill):
    """As in an upgrade of which one half was made."""
    drill.deployment.federator.kill()
    await downgrade(drill.deployment.database, "0001")
    await drill.finds("upgrade half made", Reason.SCHEMA_DIFFERS)


async def test_too_few_devices_are_left(drill):
    """Three of four are revoked, and a round needs two."""
    done = [
        await drill.operator("device", "revoke", client_name(i), "--broker", drill.deployment.broker_url)
        for i in range(3)
    ]
    assert all(each.returncode == 0 for each in done)
    await drill.finds("too few devices", Reason.TOO_FEW_DEVICES)
