"""Browsers and Python devices in one federation, over one broker: each click counts once, whoever dies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from clients.browser_devices import BrowserDevice, NodeProcess, build
from databases import migrated_sqlite, open_migrated
from integration.peers import DIM, FEDERATION, Operator, served
from sqlalchemy import select

from edge_client.client import EdgeClient
from federator.plan import FederationPlan
from federator.round import RoundPolicy
from foltr.protocol.trainings import PdgdTraining
from storage.database import Database
from storage.queries import count_rejections, list_clients
from storage.tables import clients, updates

pytestmark = pytest.mark.slow

PYTHONS, BROWSERS = ("python-1", "python-2", "python-3"), ("browser-1", "browser-2")
N_SEARCHES = 40
KILLS = 4
COUNTED_WITHIN_S = 60


class Scene:
    """A federation with a broker that speaks WebSockets, and who takes part in it."""

    def __init__(self, harness: Path, folder: Path, database: Database, addresses: dict[str, str]) -> None:
        self.database = database
        self.operator = Operator()
        self.mqtt = addresses["mqtt"]
        self.browsers = []
        for name in BROWSERS:
            credentials = self.operator.enrol(name, self.mqtt)
            searching = {"n_features": DIM, "pause_ms": 40, "searches": N_SEARCHES}
            web_socket = addresses["webSocket"]
            browser = BrowserDevice(harness, folder, credentials, credentials.key, web_socket, **searching)
            self.browsers.append(browser)

    def python(self, name: str) -> EdgeClient:
        return EdgeClient(credentials=self.operator.enrol(name, self.mqtt), store=":memory:")

    async def ranges(self, client_id: str) -> list[tuple[int, int, int]]:
        """Return of each stored update of a client that counts: after, through, and how many interactions."""
        of_client = select(clients.c.id).where(clients.c.client_id == client_id).scalar_subquery()
        columns = (updates.c.covers_after, updates.c.covers_through, updates.c.n_interactions)
        statement = select(*columns).where(updates.c.client == of_client, updates.c.covers_after.is_not(None))
        async with self.database.reading() as connection:
            return sorted((int(a), int(b), int(n)) for a, b, n in await connection.execute(statement))

    async def marks(self) -> dict[str, int]:
        return {row.client_id: row.counted_through for row in await list_clients(self.database, FEDERATION)}


@asynccontextmanager
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    harness = build(tmp_path)
    broker = NodeProcess(harness / "broker.js")
    await broker.start()
    async with AsyncExitStack() as ends:
        ends.push_async_callback(broker.kill)
        addresses = await broker.first_line()
        database = await ends.enter_async_context(await open_migrated(migrated_sqlite(tmp_path / "foltr.sqlite")))
        made = Scene(harness, tmp_path, database, addresses)
        for browser in made.browsers:
            ends.push_async_callback(browser.kill)
        policy = RoundPolicy(1, len(PYTHONS) + len(BROWSERS), 0.3, 20)
        training = PdgdTraining(min_interactions=1, max_interactions=3)
        plan = FederationPlan(FEDERATION, DIM, policy, training, enrolment_key=made.operator.key.public)
        await ends.enter_async_context(served(made.mqtt, database, plan, made.operator.federator_key, timeout_s=140))
        yield made


async def search(client: EdgeClient) -> None:
    rng = np.random.default_rng(7)
    for _ in range(N_SEARCHES):
        features = rng.random((8, DIM), np.float32)
        serp = client.rank(features)
        client.record_clicks(serp, np.flatnonzero(features[serp.ranking, 0] > 0.6).tolist())
        await asyncio.sleep(0.05)


async def die_and_live_on(browser: BrowserDevice) -> None:
    """Search; die in the middle, again and again, and go on with what is on the disk."""
    await browser.start()
    for life in range(1, KILLS + 1):
        await browser.wait_said("recorded", 5 * life)
        await browser.kill()
        await browser.start()
    await browser.wait_said("searched")


@pytest.mark.timeout(180)
async def test_each_click_counts_once_although_browsers_die(tmp_path):
    """What a browser had on its disk when it died counts once, when it is open again; so does all else."""
    async with scene(tmp_path) as made, AsyncExitStack() as ends:
        pythons = [await ends.enter_async_context(made.python(name)) for name in PYTHONS]
        async with asyncio.TaskGroup() as group:
            for client in pythons:
                group.create_task(search(client))
            for browser in made.browsers:
                group.create_task(die_and_live_on(browser))

        async def all_counted() -> bool:
            marks = await made.marks()
            return all(marks[name] >= N_SEARCHES for name in PYTHONS) and all(
                marks[name] >= browser.n_recorded for name, browser in zip(BROWSERS, made.browsers, strict=True)
            )

        async with asyncio.timeout(COUNTED_WITHIN_S):
            while not await all_counted():  # noqa: ASYNC110 (the database tells nobody)
                await asyncio.sleep(0.1)
        for browser in made.browsers:
            await browser.tell_to_end()
        marks = await made.marks()
        for name, browser in zip(BROWSERS, made.browsers, strict=True):
            # A list may be on the disk of a process that died before it could say so.
            assert browser.n_recorded <= marks[name] <= browser.n_recorded + KILLS
            (ended,) = browser.all_said("ended")
            assert (ended["state"]["countedThrough"], ended["state"]["nWaiting"]) == (marks[name], 0)
        for name in (*PYTHONS, *BROWSERS):
            ranges = await made.ranges(name)
            assert [after for after, _, _ in ranges] == [0, *(through for _, through, _ in ranges[:-1])]
            assert ranges[-1][1] == sum(n for _, _, n in ranges) == marks[name]
        # Whoever was dead when its round ended is late.
        assert set(await count_rejections(made.database, FEDERATION)) <= {"late", "stale"}
