"""Each click counts once, by stored ranges and by the bits of the weights, where features and restores meet."""

import asyncio

import msgpack
import numpy as np
import pytest
from integration.clicker import learn
from integration.deployment import DIM, FEDERATION, Deployment, client_name, died_by_sigkill, on
from integration.oracle import contribute
from integration.recorder import Recorder
from sqlalchemy import select, update
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
from foltr.storage.federations import get_federation
from foltr.storage.models import list_models
from foltr.storage.queries import list_contributions, list_rounds
from foltr.storage.tables import federations, updates

pytestmark = [on("postgresql"), pytest.mark.usefixtures("patient_devices")]

TOPICS = Topics(FEDERATION)
UPDATES, JOIN, INBOX = (
    TOPICS.client(client_name(0), topic) for topic in (ClientTopic.UPDATES, ClientTopic.JOIN, ClientTopic.INBOX)
)
MANY = 1_000
N_CLIENTS = 1


class Scene:
    """A deployment, its device, who listens to it, and how many clicks it has recorded: the k-th is interaction k."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.recorder = Recorder(deployment.broker_url, UPDATES, JOIN, INBOX)
        self.n_clicks = 0
        access = deployment.devices[0]
        self.device = EdgeClient(access, store=":memory:", experiment=Experiment(learner=learn, seed=0))

    def click(self, n: int = 1) -> None:
        for _ in range(n):
            features = np.full((1, DIM), 2.0**self.n_clicks, np.float32)
            self.device.record_clicks(self.device.rank(features), [0])
            self.n_clicks += 1

    @property
    def updates(self) -> list[bytes]:
        """What the device has sent, the oldest first, each once."""
        return list(dict.fromkeys(self.recorder.heard.get(UPDATES, [])))

    def answers(self, payload: bytes) -> list[UpdateReceipt]:
        """What the federator has answered to an update, by its id or, where none was read, its bytes."""
        heard = self.recorder.heard.get(INBOX, [])
        envelopes = [open_envelope(said) for said in heard if msgpack.unpackb(said)["v"] == SCHEMA_VERSION]
        receipts = [envelope.read(UpdateReceipt) for envelope in envelopes if envelope.kind == UpdateReceipt.kind_name]
        update_id, digest = id_of(payload), payload_digest(payload)
        return [receipt for receipt in receipts if receipt.update_id == update_id or receipt.payload_digest == digest]

    async def say_again(self, payload: bytes) -> None:
        await self.recorder.say_again(UPDATES, payload, retain=False)

    async def say_again_and_hear(self, payload: bytes) -> ReceiptCode:
        """Publish the recorded bytes of an update once more; the federator's answer."""
        n_before = len(self.answers(payload))
        await self.say_again(payload)
        return (await self.next_answer(payload, n_before)).code

    async def next_answer(self, payload: bytes, n_before: int) -> UpdateReceipt:
        """The first answer to an update after so many others."""
        await until(lambda: len(self.answers(payload)) > n_before, "the copy was not answered")
        return self.answers(payload)[n_before]

    async def first_update(self) -> bytes:
        await until(lambda: self.updates, "the device sent no update")
        return self.updates[0]

    async def counted(self) -> list[tuple[int, int]]:
        """Which click counts in which round, from the ranges of the updates: (round, click)."""
        counting = select(updates.c.round, updates.c.covers_after, updates.c.covers_through).where(
            updates.c.federation == FEDERATION, updates.c.covers_after.is_not(None)
        )
        async with self.deployment.database.reading() as connection:
            rows = (await connection.execute(counting)).all()
        return sorted((number, click) for number, after, through in rows for click in range(after, through))

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
        recorded = list(range(self.n_clicks))

        async def complete() -> bool:
            return {click for _, click in await self.in_models()} == set(recorded)

        try:
            await until(complete, "not every click is in a model")
        finally:
            # Also where one is missing: where it is twice says more.
            assert sorted(click for _, click in await self.counted()) == recorded
        assert await self.in_models() == await self.counted()

    async def serve_and_join(self, *options: str) -> None:
        """A federator, and a device that knows its watermark."""
        self.deployment.start_federator(MANY, *options)
        await self.device.next_round(timeout_s=PATIENCE_S)
        await until(lambda: self.device.counted_through is not None, "it has not joined")

    async def lose_the_receipt(self, *options: str) -> None:
        """Have the waiting update stored by a federator that dies after the commit and before the receipt."""
        for at_pass in range(1, 6):
            self.deployment.start_federator(MANY, *options, failpoints=f"{Failpoint.BATCH_COMMITTED}=kill@{at_pass}")
            assert died_by_sigkill(await self.deployment.exit_code()), self.deployment.said()
            if await self.counted():
                return
        raise AssertionError("no batch stored the update")


@pytest.fixture
async def scene(deployment):
    """A federation whose device and recorder are connected; nobody serves yet."""
    made = Scene(deployment)
    async with made.recorder.listening(), made.device:
        yield made


def id_of(payload: bytes) -> str:
    return open_envelope(payload).read(ModelUpdate).update_id


async def test_a_receipt_is_lost_and_then_updates_are_to_be_smaller(scene):
    """The stored update has more interactions than any may have now: it is `stale`, and its clicks count once."""
    device = scene.device
    await scene.serve_and_join("--interactions", "3")
    await scene.deployment.kill_federator()
    scene.click(3)
    update = await scene.first_update()
    await scene.lose_the_receipt("--interactions", "3")
    assert (device.receipts, device.counted_through) == ({}, 0)
    assert not await device.wait_settled(0.01)
    scene.deployment.start_federator(MANY, "--interactions", "1")
    assert not (await device.wait_settled(PATIENCE_S)).is_pending
    assert (device.counted_through, device.n_waiting, device.n_updates_counted) == (3, 0, 1)
    assert await scene.say_again_and_hear(update) is ReceiptCode.STALE
    scene.click(2)
    await scene.all_count_once()
    assert await scene.say_again_and_hear(update) is ReceiptCode.STALE
    await scene.all_count_once()


async def test_an_upgrade_with_a_lost_receipt_gives_nothing_back_that_counted(scene, tmp_path):
    """Whoever answers `unsupported_version`, in this version or another: the update stays, and counts once."""
    device = scene.device
    await scene.serve_and_join()
    await scene.deployment.kill_federator()
    scene.click()
    update = await scene.first_update()
    await scene.lose_the_receipt()
    federator = read_credentials(tmp_path / "operator" / "federator.json", "federator").key
    newest = open_envelope(scene.recorder.heard[INBOX][-1]).sequence
    who = {"federation": FEDERATION, "client_id": client_name(0), "detail": "schema version 1; this side has version 2"}
    unsupported, join = ReceiptCode.UNSUPPORTED_VERSION, scene.recorder.heard[JOIN][-1]
    answers = (
        UpdateReceipt(**who, update_id=None, payload_digest=payload_digest(update), code=unsupported),
        UpdateReceipt(**who, update_id=id_of(update), payload_digest=payload_digest(update), code=unsupported),
        MembershipReceipt(**who, payload_digest=payload_digest(join), code=unsupported),
    )
    for step, answer in enumerate(answers, start=1):
        payload = encode(answer, INBOX, newest + step, federator)
        await scene.recorder.say_again(INBOX, of_another_version(payload), retain=False)
        await scene.recorder.say_again(INBOX, payload, retain=False)
    await until(lambda: device.receipts == {"unsupported_version": 2}, "the device did not hear it")
    await asyncio.sleep(0.5)  # clock: silence
    assert not await device.wait_settled(0.01)
    assert (device.counted_through, device.n_waiting, scene.updates) == (0, 0, [update])
    scene.click()  # while nobody can take it
    scene.deployment.start_federator(MANY)
    assert not (await device.wait_settled(PATIENCE_S)).is_pending
    await scene.all_count_once()
    assert device.n_updates_counted == 2
    # The real federator answers a device of another version; this device ignores that answer.
    await scene.say_again(of_another_version(update))
    await until(lambda: device.receipts.get("unsupported_version") == 3, "the version was not refused")
    scene.click()
    await scene.all_count_once()
    assert await scene.say_again_and_hear(update) is ReceiptCode.DUPLICATE


async def test_after_another_pacing_and_a_restored_database_a_copy_counts_beside_nothing(scene):
    """Buffered rounds would take old updates; the retrained one or its copy counts, whichever comes first."""
    device = scene.device
    buffered = {"FOLTR_PACING": "buffered", "FOLTR_STALENESS_LIMIT": "10"}
    await scene.serve_and_join()
    for n in range(4):
        if n == 2:
            backup = await back_up(scene.deployment.database)
        scene.click()
        await scene.all_count_once()
        assert not (await device.wait_settled(PATIENCE_S)).is_pending
    recorded = scene.updates
    assert len(recorded) == 4
    await scene.deployment.kill_federator()
    scene.deployment.start_federator(MANY, **buffered)
    assert [await scene.say_again_and_hear(payload) for payload in recorded] == [ReceiptCode.DUPLICATE] * 4
    scene.click()
    await scene.all_count_once()
    await scene.deployment.kill_federator()
    await restore(scene.deployment.database, backup)
    # A copy waits for the federator before the device hears of it, so it comes before what is learned again.
    await scene.say_again(recorded[2])
    n_before = len(scene.answers(recorded[2]))
    scene.deployment.start_federator(MANY, **buffered)
    answer = await scene.next_answer(recorded[2], n_before)
    assert (answer.code, answer.counted_through) == (ReceiptCode.ACCEPTED, 3)
    await scene.all_count_once()
    # The last one was learned again first: its copy overlaps.
    codes = [await scene.say_again_and_hear(payload) for payload in recorded]
    assert codes[:3] == [ReceiptCode.DUPLICATE] * 3
    assert codes[3] in (ReceiptCode.OVERLAPS, ReceiptCode.BUSY)
    scene.click()
    await scene.all_count_once()
    assert {row.pacing for row in await list_rounds(scene.deployment.database, FEDERATION)} == {"deadline", "buffered"}


async def test_a_restored_database_is_believed_although_a_clock_had_run_ahead(deployment, tmp_path):
    """The broker and the device still have what was announced under the claim that the database has lost."""
    device, store = deployment.devices[0], str(tmp_path / "device.sqlite")
    async with asyncio.timeout(PATIENCE_S):
        deployment.start_federator(1000)
        assert await contribute(device, store=store, n_wanted=1) == 1
        backup = await back_up(deployment.database)
        await deployment.kill_federator()
        # As if the clock of the second one had shown the year 2096.
        async with deployment.database.transaction() as connection:
            await connection.execute(update(federations).values(writer_epoch=4_000_000_000))
        deployment.start_federator(1000)
        assert await contribute(device, store=store, n_wanted=1) == 1
        await deployment.kill_federator()
        await restore(deployment.database, backup)
        deployment.start_federator(1000)
        assert await contribute(device, store=store, n_wanted=1) == 1
    stored = await get_federation(deployment.database, FEDERATION)
    assert stored is not None
    assert stored.writer_epoch == 4_000_000_002


def of_another_version(payload: bytes) -> bytes:
    """The envelope of a message with the version after this one; what a signature covers is the same."""
    return bytes(msgpack.packb({**msgpack.unpackb(payload), "v": SCHEMA_VERSION + 1}))
