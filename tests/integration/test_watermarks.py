"""Each click counts once where features meet: settings, quarantine, upgrades, pacing, restored databases.

Real processes, a real broker, both databases. Device i learns its k-th click as a power of two of its own. So which
clicks count, and in which round, is told twice: by the ranges of interactions that the database has of each update,
and by the bits of the models' weights. (`test_lineage` has the restored database whose devices never left.)
"""

import asyncio
from contextlib import AsyncExitStack

import msgpack
import numpy as np
import pytest
from integration.clicker import learn
from integration.deployment import DIM, FEDERATION, Deployment, client_name, died_by_sigkill, on
from integration.recorder import Recorder
from sqlalchemy import select
from support.backups import back_up, restore
from support.waiting import PATIENCE_S, until

from foltr.core.aggregation.mean import staleness_weight
from foltr.core.failpoints import Failpoint
from foltr.core.operator.credentials import read_credentials
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.fields import SCHEMA_VERSION, payload_digest, unpack_vector
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import ModelUpdate
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment
from foltr.federator.round import RoundPolicy
from foltr.storage.models import list_models
from foltr.storage.queries import list_contributions, list_rounds
from foltr.storage.tables import clients, updates

pytestmark = [on("postgresql"), pytest.mark.usefixtures("patient_devices")]

TOPICS = Topics(FEDERATION)
MANY = 1_000
# float32 counts exactly up to 2^24: the clicks of the second device begin in the middle.
CLICKS_EACH = 11


class Scene:
    """A deployment, its devices and who listens to all that they say.

    Attributes:
        n_clicks: how many clicks each device has recorded: the k-th one is its interaction k.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        names = [client_name(i) for i in range(deployment.n_clients)]
        self.topics_of_updates = [TOPICS.client(name, ClientTopic.UPDATES) for name in names]
        self.inboxes = [TOPICS.client(name, ClientTopic.INBOX) for name in names]
        self.topics_of_joins = [TOPICS.client(name, ClientTopic.JOIN) for name in names]
        heard = (*self.topics_of_updates, *self.topics_of_joins, *self.inboxes, TOPICS.operator)
        self.recorder = Recorder(deployment.broker_url, *heard)
        self.n_clicks = [0] * deployment.n_clients
        self.devices: list[EdgeClient] = []

    def click(self, i: int, n: int = 1) -> None:
        for _ in range(n):
            power = CLICKS_EACH * i + self.n_clicks[i]
            device = self.devices[i]
            device.record_clicks(device.rank(np.full((1, DIM), 2.0**power, np.float32)), [0])
            self.n_clicks[i] += 1

    def updates_of(self, i: int) -> list[bytes]:
        """The updates that device i has sent, the oldest first, each once."""
        return list(dict.fromkeys(self.recorder.heard.get(self.topics_of_updates[i], [])))

    def answers(self, i: int, payload: bytes) -> list[UpdateReceipt]:
        """What the federator has answered to an update of device i, by its id or, where none was read, its bytes."""
        heard = self.recorder.heard.get(self.inboxes[i], [])
        envelopes = [open_envelope(said) for said in heard if msgpack.unpackb(said)["v"] == SCHEMA_VERSION]
        receipts = [envelope.read(UpdateReceipt) for envelope in envelopes if envelope.kind == UpdateReceipt.kind_name]
        update_id, digest = id_of(payload), payload_digest(payload)
        return [receipt for receipt in receipts if receipt.update_id == update_id or receipt.payload_digest == digest]

    async def say_again(self, i: int, payload: bytes) -> None:
        await self.recorder.say_again(self.topics_of_updates[i], payload, retain=False)

    async def say_again_and_hear(self, i: int, payload: bytes) -> ReceiptCode:
        """Publish the recorded bytes of an update once more; the federator's answer."""
        n_before = len(self.answers(i, payload))
        await self.say_again(i, payload)
        return (await self.next_answers(i, payload, n_before))[0].code

    async def next_answers(self, i: int, payload: bytes, n_before: int, n: int = 1) -> list[UpdateReceipt]:
        """The first answers to an update after so many others."""
        await until(lambda: len(self.answers(i, payload)) >= n_before + n, "the copy was not answered")
        return self.answers(i, payload)[n_before : n_before + n]

    async def next_update(self, i: int, n_before: int) -> bytes:
        """The first update of device i after so many others."""
        await until(lambda: len(self.updates_of(i)) > n_before, f"device {i} sent no update")
        return self.updates_of(i)[n_before]

    async def counted(self) -> list[tuple[int, int]]:
        """Which click, as a power of two, counts in which round: from the ranges of the updates; (round, click)."""
        counting = (
            select(clients.c.client_id, updates.c.round, updates.c.covers_after, updates.c.covers_through)
            .join(clients, clients.c.id == updates.c.client)
            .where(updates.c.federation == FEDERATION, updates.c.covers_after.is_not(None))
        )
        async with self.deployment.database.reading() as connection:
            rows = (await connection.execute(counting)).all()
        return sorted(
            (number, CLICKS_EACH * int(name.removeprefix("oracle-")) + interaction - 1)
            for name, number, after, through in rows
            for interaction in range(after + 1, through + 1)
        )

    async def in_models(self) -> list[tuple[int, int]]:
        """The same from the weights of the models that the rounds have made."""
        rounds = await list_rounds(self.deployment.database, FEDERATION, limit=10_000)
        models = await list_models(self.deployment.database, FEDERATION, limit=10_000)
        contributions = await list_contributions(self.deployment.database, FEDERATION, limit=10_000)
        weights = {model.version: float(unpack_vector(model.weights)[0]) for model in models}
        found = []
        for row in rounds:
            if row.state == "completed":
                # The mean over updates of as many interactions each, on one base.
                (base,) = {item.base_version for item in contributions if item.round == row.round}
                weight = staleness_weight(row.base_version - base, RoundPolicy.staleness_exponent)
                added = (weights[row.model_version] - weights[row.base_version]) * row.n_updates / weight
                assert added == pytest.approx(round(added), abs=1e-3), f"round {row.round} added {added}"
                found += [(row.round, k) for k in range(24) if round(added) >> k & 1]
        return sorted(found)

    async def all_count_once(self) -> None:
        """Wait until every click is in a model: it is in one, and in the range of one update, and they agree."""
        recorded = sorted(CLICKS_EACH * i + k for i, n in enumerate(self.n_clicks) for k in range(n))

        async def complete() -> bool:
            return {click for _, click in await self.in_models()} == set(recorded)

        try:
            await until(complete, "not every click is in a model")
        finally:
            # Also where one is missing: where it is twice says more.
            assert sorted(click for _, click in await self.counted()) == recorded
        assert await self.in_models() == await self.counted()

    async def kill_federator(self) -> None:
        self.deployment.federator.kill()
        await self.deployment.exit_code()

    async def lose_the_receipt(self, *options: str) -> None:
        """Have the waiting update stored by a federator that dies after the commit and before the receipt."""
        n_before = len(await self.counted())
        for at_pass in range(1, 6):
            self.deployment.start_federator(MANY, *options, failpoints=f"{Failpoint.BATCH_COMMITTED}=kill@{at_pass}")
            assert died_by_sigkill(await self.deployment.exit_code()), self.deployment.said()
            if len(await self.counted()) > n_before:
                return
        raise AssertionError("no batch stored the update")


@pytest.fixture
def n_devices():
    return 1


@pytest.fixture
async def scene(mosquitto_server, migrated_url, tmp_path, n_devices):
    """A federation whose devices and recorder are connected; nobody serves yet."""
    async with AsyncExitStack() as stack:
        deployment = await stack.enter_async_context(
            Deployment(tmp_path, mosquitto_server.url, migrated_url, n_devices)
        )
        made = Scene(deployment)
        await stack.enter_async_context(made.recorder.listening())
        for i, credentials in enumerate(deployment.devices):
            client = EdgeClient(credentials, store=":memory:", experiment=Experiment(learner=learn, seed=i))
            made.devices.append(await stack.enter_async_context(client))
        yield made


def id_of(payload: bytes) -> str:
    return open_envelope(payload).read(ModelUpdate).update_id


async def serve_and_join(scene: Scene, *options: str) -> None:
    """A federator, and devices that know their watermarks."""
    scene.deployment.start_federator(MANY, *options)
    for device in scene.devices:
        await device.next_round(timeout_s=PATIENCE_S)
    await until(lambda: all(device.counted_through is not None for device in scene.devices), "nobody joined")


async def test_a_receipt_is_lost_and_then_updates_are_to_be_smaller(scene):
    """The stored update has more interactions than any may have now: it is `stale`, and its clicks count once."""
    (device,) = scene.devices
    await serve_and_join(scene, "--interactions", "3")
    await scene.kill_federator()
    scene.click(0, 3)
    update = await scene.next_update(0, 0)
    await scene.lose_the_receipt("--interactions", "3")
    assert (device.receipts, device.counted_through) == ({}, 0)
    assert not await device.wait_settled(0.01)

    scene.deployment.start_federator(MANY, "--interactions", "1")
    assert not (await device.wait_settled(PATIENCE_S)).is_pending
    assert (device.counted_through, device.n_waiting, device.n_updates_counted) == (3, 0, 1)
    assert await scene.say_again_and_hear(0, update) is ReceiptCode.STALE
    scene.click(0, 2)
    await scene.all_count_once()
    assert await scene.say_again_and_hear(0, update) is ReceiptCode.STALE
    await scene.all_count_once()


@pytest.mark.parametrize("n_devices", [2])
async def test_an_update_its_pardon_and_a_copy_of_it_wait_for_the_federator(scene, operator):
    """It is refused, the client is let out, and the copy is decided on: of it and what is learned anew one counts."""
    device, other = scene.devices
    await serve_and_join(scene)
    # An update that is in the open round, and is withdrawn from it.
    scene.click(0)
    withdrawn = await scene.next_update(0, 0)
    assert not (await device.wait_settled(PATIENCE_S)).is_pending
    assert device.counted_through == 1
    done = await operator("device", "quarantine", client_name(0), "--reason", "a test")
    assert done.returncode == 0, done.stderr
    await until(lambda: TOPICS.operator in scene.recorder.heard, "no order was sent")
    await until(lambda: (device.counted_through, device.quarantined) == (0, True), "the device was not told")
    assert await scene.counted() == []
    assert await scene.say_again_and_hear(0, withdrawn) is ReceiptCode.QUARANTINED

    await scene.kill_federator()
    await scene.say_again(0, withdrawn)
    lifting = asyncio.create_task(operator("device", "quarantine", client_name(0), "--lift"))
    n_orders = len(scene.recorder.heard[TOPICS.operator])
    await until(lambda: len(scene.recorder.heard[TOPICS.operator]) > n_orders, "no order was sent")
    await scene.say_again(0, withdrawn)
    n_answers = len(scene.answers(0, withdrawn))
    scene.deployment.start_federator(MANY)
    done = await lifting
    assert done.returncode == 0, done.stderr
    answers = await scene.next_answers(0, withdrawn, n_answers, 2)
    told = [(answer.code, answer.counted_through) for answer in answers]
    assert told == [(ReceiptCode.QUARANTINED, 0), (ReceiptCode.ACCEPTED, 1)]
    await until(lambda: device.counted_through == 1, "the device was not told")

    scene.click(1)
    await scene.all_count_once()
    # The one as well as the other, again, and in the rounds that follow.
    assert await scene.say_again_and_hear(0, withdrawn) is ReceiptCode.DUPLICATE
    scene.click(0)
    scene.click(1)
    await scene.all_count_once()
    assert other.receipts == {"accepted": 2}


async def test_an_upgrade_with_a_lost_receipt_gives_nothing_back_that_counted(scene, tmp_path):
    """Whoever answers `unsupported_version`, in this version or another: the update stays, and counts once."""
    (device,) = scene.devices
    await serve_and_join(scene)
    await scene.kill_federator()
    scene.click(0)
    update = await scene.next_update(0, 0)
    await scene.lose_the_receipt()
    federator = read_credentials(tmp_path / "operator" / "federator.json", "federator").key
    inbox = scene.inboxes[0]
    newest = open_envelope(scene.recorder.heard[inbox][-1]).sequence
    who = {"federation": FEDERATION, "client_id": client_name(0), "detail": "schema version 1; this side has version 2"}
    unsupported, join = ReceiptCode.UNSUPPORTED_VERSION, scene.recorder.heard[scene.topics_of_joins[0]][-1]
    answers = (
        UpdateReceipt(**who, update_id=None, payload_digest=payload_digest(update), code=unsupported),
        UpdateReceipt(**who, update_id=id_of(update), payload_digest=payload_digest(update), code=unsupported),
        MembershipReceipt(**who, payload_digest=payload_digest(join), code=unsupported),
    )
    for step, answer in enumerate(answers, start=1):
        payload = encode(answer, inbox, newest + step, federator)
        await scene.recorder.say_again(inbox, of_another_version(payload), retain=False)
        await scene.recorder.say_again(inbox, payload, retain=False)
    await until(lambda: device.receipts == {"unsupported_version": 2}, "the device did not hear it")
    await asyncio.sleep(0.5)  # clock: silence
    assert not await device.wait_settled(0.01)
    assert (device.counted_through, device.n_waiting, scene.updates_of(0)) == (0, 0, [update])
    scene.click(0)  # while nobody can take it

    scene.deployment.start_federator(MANY)
    assert not (await device.wait_settled(PATIENCE_S)).is_pending
    await scene.all_count_once()
    assert device.n_updates_counted == 2
    # The real federator answers a device of another version; this device ignores that answer.
    await scene.say_again(0, of_another_version(update))
    await until(lambda: device.receipts.get("unsupported_version") == 3, "the version was not refused")
    scene.click(0)
    await scene.all_count_once()
    assert await scene.say_again_and_hear(0, update) is ReceiptCode.DUPLICATE


async def test_after_another_pacing_and_a_restored_database_a_copy_counts_beside_nothing(scene):
    """Buffered rounds would take old updates; the retrained one or its copy counts, whichever comes first."""
    (device,) = scene.devices
    buffered = {"FOLTR_PACING": "buffered", "FOLTR_STALENESS_LIMIT": "10"}
    await serve_and_join(scene)
    for n in range(4):
        if n == 2:
            backup = await back_up(scene.deployment.database)
        scene.click(0)
        await scene.all_count_once()
        assert not (await device.wait_settled(PATIENCE_S)).is_pending
    recorded = scene.updates_of(0)
    assert len(recorded) == 4

    await scene.kill_federator()
    scene.deployment.start_federator(MANY, **buffered)
    assert [await scene.say_again_and_hear(0, payload) for payload in recorded] == [ReceiptCode.DUPLICATE] * 4
    scene.click(0)
    await scene.all_count_once()

    await scene.kill_federator()
    await restore(scene.deployment.database, backup)
    # A copy waits for the federator before the device hears of it, so it comes before what is learned again.
    await scene.say_again(0, recorded[2])
    n_before = len(scene.answers(0, recorded[2]))
    scene.deployment.start_federator(MANY, **buffered)
    (answer,) = await scene.next_answers(0, recorded[2], n_before)
    assert (answer.code, answer.counted_through) == (ReceiptCode.ACCEPTED, 3)
    await scene.all_count_once()
    # The last one was learned again first: its copy overlaps.
    codes = [await scene.say_again_and_hear(0, payload) for payload in recorded]
    assert codes[:3] == [ReceiptCode.DUPLICATE] * 3
    assert codes[3] in (ReceiptCode.OVERLAPS, ReceiptCode.BUSY)
    scene.click(0)
    await scene.all_count_once()
    assert {row.pacing for row in await list_rounds(scene.deployment.database, FEDERATION)} == {"deadline", "buffered"}


def of_another_version(payload: bytes) -> bytes:
    """The envelope of a message with the version after this one; what a signature covers is the same."""
    return bytes(msgpack.packb({**msgpack.unpackb(payload), "v": SCHEMA_VERSION + 1}))
