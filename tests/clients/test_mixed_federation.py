"""Browsers and Python devices in one federation, over one broker: each click counts once, whoever dies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from clients.browser_devices import BrowserDevice, build
from integration.peers import DIM, FEDERATION, Operator, served
from sqlalchemy import select
from support.databases import migrated_sqlite, open_migrated
from support.servers import free_port
from support.waiting import PATIENCE_S, until

from foltr.broker.embedded import embedded_broker
from foltr.core.learning.interaction import Interaction
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.fpdgd import FPDGD
from foltr.core.protocol.explorations import SamplingExploration
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining
from foltr.edge_client.client import EdgeClient
from foltr.federator.pace import PacePolicy
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.storage.bodies import is_body_of
from foltr.storage.body_tables import update_bodies
from foltr.storage.database import Database
from foltr.storage.models import list_models
from foltr.storage.queries import count_rejections, list_clients
from foltr.storage.tables import clients, updates

PYTHONS = tuple(f"python-{i}" for i in range(10))
BROWSERS = tuple(f"browser-{i}" for i in range(5))
N_SEARCHES = 15
KILLS = 2
OFFLINE_S = 0.5
TRAINING = PdgdTraining(min_interactions=1, max_interactions=3, exploration=SamplingExploration())


@dataclass(frozen=True)
class StoredUpdate:
    """An update that counts: the interactions above ``after`` up to ``through``, ``n`` of them, and what it says."""

    after: int
    through: int
    n: int
    base_version: int
    delta: np.ndarray


class Scene:
    """A federation with the embedded broker, which also speaks WebSockets, and its devices."""

    def __init__(self, harness: Path, folder: Path, database: Database, addresses: dict[str, str]) -> None:
        self.database = database
        self.operator = Operator()
        self.mqtt = addresses["mqtt"]
        self.browsers: dict[str, BrowserDevice] = {}
        for name in BROWSERS:
            credentials = self.operator.enrol(name, self.mqtt)
            searching = {"n_features": DIM, "pause_ms": 40, "searches": N_SEARCHES}
            web_socket = addresses["webSocket"]
            device = BrowserDevice(harness, folder, credentials, credentials.key, web_socket, **searching)
            self.browsers[name] = device

    def python(self, name: str) -> EdgeClient:
        return EdgeClient(self.operator.enrol(name, self.mqtt), store=":memory:")

    async def updates_of(self, client_id: str) -> list[StoredUpdate]:
        """Return the stored updates of a client that count, in order."""
        of_client = select(clients.c.id).where(clients.c.client_id == client_id).scalar_subquery()
        columns = (updates.c.covers_after, updates.c.covers_through, updates.c.n_interactions, updates.c.base_version)
        counts = (updates.c.client == of_client, updates.c.covers_after.is_not(None))
        with_bodies = select(*columns, update_bodies.c.body).join_from(updates, update_bodies, is_body_of())
        statement = with_bodies.where(*counts).order_by(updates.c.covers_after)
        async with self.database.reading() as connection:
            rows = (await connection.execute(statement)).all()
        return [StoredUpdate(*map(int, row[:4]), unpack_vector(row[4])) for row in rows]

    async def watermarks(self) -> dict[str, int]:
        return {row.client_id: row.counted_through for row in await list_clients(self.database, FEDERATION)}

    async def wait_counted(self, *names: str) -> None:
        """Wait until all that these devices said they have recorded counts."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                watermarks = await self.watermarks()
                at_least = dict.fromkeys(PYTHONS, N_SEARCHES)
                at_least |= {name: device.n_recorded for name, device in self.browsers.items()}
                if all(watermarks.get(name, 0) >= at_least[name] for name in names):
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def scene(tmp_path: Path, policy: RoundPolicy, pace: PacePolicy | None = None) -> AsyncIterator[Scene]:
    harness = build(tmp_path)
    async with AsyncExitStack() as ends:
        web = free_port()
        address = ends.enter_context(embedded_broker(websocket_port=web))
        addresses = {"mqtt": str(address), "webSocket": f"ws://{address.host}:{web}"}
        database = await ends.enter_async_context(await open_migrated(migrated_sqlite(tmp_path / "foltr.sqlite")))
        made = Scene(harness, tmp_path, database, addresses)
        for device in made.browsers.values():
            ends.push_async_callback(device.kill)
        plan = FederationPlan(FEDERATION, DIM, policy, TRAINING, enrolment_key=made.operator.key.public, pace=pace)
        await ends.enter_async_context(served(made.mqtt, database, plan, made.operator.federator_key))
        yield made


async def search(client: EdgeClient) -> None:
    rng = np.random.default_rng(7)
    for _ in range(N_SEARCHES):
        features = rng.random((8, DIM), np.float32)
        serp = client.rank(features)
        client.record_clicks(serp, np.flatnonzero(features[serp.ranking, 0] > 0.6).tolist())
        await asyncio.sleep(0.05)


async def die_and_live_on(device: BrowserDevice) -> None:
    """Search; die in the middle, again and again, and go on after a while with what is on the disk."""
    await device.start()
    for life in range(1, KILLS + 1):
        await device.wait_said("recorded", 5 * life)
        await device.kill()
        await asyncio.sleep(OFFLINE_S)
        await device.start()
    await device.wait_said("searched")


def learned_in_python(base: np.ndarray, lists: list[dict[str, Any]]) -> np.ndarray:
    """Return what a Python device sends of these lists."""
    device = FPDGD.device(TRAINING, LinearRankerSpec(n_features=DIM), base, 1, DeviceContext(1))
    rng = np.random.default_rng(0)
    for each in lists:
        features = np.array(each["features"], np.float32).reshape(-1, DIM)
        ranking, clicks = np.array(each["ranking"]), np.array(each["clicks"], np.bool_)
        reversals = np.array(each["reversals"])
        device.learn(Interaction(each["id"], features, ranking, clicks, reversals=reversals), rng)
    return unpack_vector(device.body(rng).model_dump()["values"])


async def test_each_click_counts_once_although_browsers_die(tmp_path):
    """What a browser had on its disk when it died counts once, when it is open again; so does all else.

    And what each of its updates says is what a Python device learns from the same lists and the same model.
    """
    policy = RoundPolicy(1, len(PYTHONS) + len(BROWSERS), 0.3, 20)
    async with scene(tmp_path, policy) as made, AsyncExitStack() as ends:
        pythons = [await ends.enter_async_context(made.python(name)) for name in PYTHONS]
        async with asyncio.TaskGroup() as group:
            for client in pythons:
                group.create_task(search(client))
            for device in made.browsers.values():
                group.create_task(die_and_live_on(device))
        await made.wait_counted(*PYTHONS, *BROWSERS)
        for device in made.browsers.values():
            await device.tell_to_end()
        watermarks = await made.watermarks()
        models = {row.version: unpack_vector(row.weights) for row in await list_models(made.database, FEDERATION)}
        for name in (*PYTHONS, *BROWSERS):
            stored = await made.updates_of(name)
            assert [one.after for one in stored] == [0, *(one.through for one in stored[:-1])]
            assert stored[-1].through == sum(one.n for one in stored) == watermarks[name]
        for name, device in made.browsers.items():
            # A list may be on the disk of a process that died before it could say so.
            assert device.n_recorded <= watermarks[name] <= device.n_recorded + KILLS
            (ended,) = device.all_said("ended")
            assert (ended["state"]["countedThrough"], ended["state"]["nWaiting"]) == (watermarks[name], 0)
            for one in await made.updates_of(name):
                lists = [each for each in ended["interactions"] if one.after < each["id"] <= one.through]
                expected = learned_in_python(models[one.base_version], lists)
                np.testing.assert_allclose(one.delta, expected, rtol=0, atol=1e-6)
        # Whoever was dead when its round ended is late; a receipt that is late has an update sent again.
        assert set(await count_rejections(made.database, FEDERATION)) <= {"late", "stale", "duplicate"}


async def test_browsers_that_come_by_in_turns_count_each_click_once(tmp_path):
    """Where the federator steers a pace: killed in a visit or between two, they come again when they had drawn it."""
    names = BROWSERS[:2]
    async with scene(tmp_path, RoundPolicy(1, 2, 0, 4), PacePolicy(2, 1.0, 3600.0)) as made:
        devices = [made.browsers[name] for name in names]
        await asyncio.gather(*map(die_and_live_on, devices))
        await made.wait_counted(*names)
        for device in devices:
            await device.tell_to_end()
        watermarks = await made.watermarks()
        for name, device in zip(names, devices, strict=True):
            stored = await made.updates_of(name)
            assert [one.after for one in stored] == [0, *(one.through for one in stored[:-1])]
            assert stored[-1].through == sum(one.n for one in stored) == watermarks[name]
            assert device.n_recorded <= watermarks[name] <= device.n_recorded + KILLS
            assert "periodic_visits_started" in {line["name"] for line in device.all_said("log")}

        async def all_gone() -> bool:
            return not any(row.online for row in await list_clients(made.database, FEDERATION))

        await until(all_gone, "the federation does not hear that they have gone")
