"""The device against real brokers: each click counts once, whatever is lost, late, repeated or killed.

The federator is played by the test. The learner adds a document's features to the weights and each interaction has a
feature of its own, so that an update tells which interactions are in it, and how often.
"""

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from servers import free_port

from broker.address import BrokerAddress
from broker.link import MqttLink
from edge_client.client import EdgeClient
from edge_client.store import DeviceStore
from foltr.codec import decode, encode
from foltr.errors import DataError, SettingsError, UnavailableError
from foltr.messages import (
    Join,
    LinearRankerSpec,
    MembershipReceipt,
    ModelAnnouncement,
    ModelUpdate,
    PdgdTraining,
    ReceiptCode,
    RoundAnnouncement,
    Status,
    UpdateReceipt,
    pack_vector,
    payload_digest,
    unpack_vector,
)
from foltr.topics import ClientTopic, Topics

REPOSITORY = Path(__file__).parents[2]
TOPICS = Topics("mail")
N_FEATURES = 16
WITHIN_S = 5.0
# Long enough for a message that should not come to arrive on a loopback.
QUIET_S = 0.15


class Federator:
    """A federator played by hand: hears everything, says what it is told to, and takes every join."""

    def __init__(self, url, *, takes_joins=True):
        self._heard = {topic: asyncio.Queue() for topic in ClientTopic}
        self._takes_joins = takes_joins
        self._tasks = set()
        self.link = MqttLink(
            BrokerAddress.parse(url),
            client_id="federator",
            subscriptions=TOPICS.from_all_clients(),
            on_message=self._hear,
            persistent=False,
        )

    async def __aenter__(self):
        await self.link.__aenter__()
        await self.link.wait_connected(WITHIN_S)
        return self

    async def __aexit__(self, *_):
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.link.__aexit__()

    def _hear(self, message):
        client_id, topic = TOPICS.parse(message.topic)
        self._heard[topic].put_nowait(message.payload)
        if topic is ClientTopic.JOIN and self._takes_joins:
            task = asyncio.create_task(self.membership(client_id, ReceiptCode.JOINED))
            self._tasks.add(task)

    async def next(self, topic):
        async with asyncio.timeout(WITHIN_S):
            return await self._heard[ClientTopic(topic)].get()

    async def update(self):
        return decode(await self.next("updates"), ModelUpdate)

    async def nothing_on(self, topic):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await self._heard[ClientTopic(topic)].get()
                pytest.fail(f"something came on {topic}")

    async def membership(self, client_id, code):
        receipt = MembershipReceipt(federation="mail", client_id=client_id, code=code)
        await self.link.publish(TOPICS.client(client_id, ClientTopic.INBOX), encode(receipt))

    async def receipt(self, update, code, *, named=True, **more):
        receipt = UpdateReceipt(
            federation="mail",
            client_id=update.client_id,
            update_id=update.update_id if named else None,
            payload_digest=None if named else payload_digest(encode(update)),
            code=code,
            **more,
        )
        await self.link.publish(TOPICS.client(update.client_id, ClientTopic.INBOX), encode(receipt))

    async def announce(self, number, *, is_open=True, base=0, min_interactions=2, max_interactions=10):
        """Announce model ``base``, all zeros, and round ``number`` on it."""
        await self.link.publish(TOPICS.model, encode(model(base)), retain=True)
        announced = RoundAnnouncement(
            federation="mail",
            round=number,
            open=is_open,
            base_version=base,
            opened_at=0.0,
            closes_at=1.0,
            training=PdgdTraining(min_interactions=min_interactions, max_interactions=max_interactions),
        )
        await self.link.publish(TOPICS.round, encode(announced), retain=True)


def model(version=0, n_features=N_FEATURES):
    return ModelAnnouncement(
        federation="mail",
        version=version,
        ranker=LinearRankerSpec(n_features=n_features),
        weights=pack_vector([0.0] * n_features),
    )


def adding_learner(weights, interaction, training):  # noqa: ARG001 (the signature is the learner's)
    return weights + interaction.features[0]


def device(url, store=":memory:", client_id="device-7", **options):
    options.setdefault("learner", adding_learner)
    return EdgeClient(url, federation="mail", client_id=client_id, store=store, seed=1, **options)


def see(client, *numbers):
    """Record one interaction for each number, told apart by the feature that is 1."""
    serps = []
    for number in numbers:
        features = np.zeros((3, N_FEATURES), np.float32)
        features[:, number] = 1.0
        serps.append(client.rank(features))
        client.record_clicks(serps[-1], [0])
    return serps


def content(update):
    """Which interactions an update holds: the number of each, as often as it counts."""
    counts = unpack_vector(update.body.values)
    assert update.n_interactions == counts.sum()
    return [number for number, n in enumerate(counts) for _ in range(round(n))]


async def until(condition):
    """Wait until ``condition()``; there is no event to wait for inside the device."""
    for _ in range(round(WITHIN_S / 0.005)):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it did not come true")


@pytest.fixture
def resend_fast(monkeypatch):
    """Five seconds between two sendings are too long for a test."""
    monkeypatch.setattr("edge_client.participation.FIRST_RESEND_S", 0.05)
    monkeypatch.setattr("edge_client.participation.RESEND_LIMIT_S", 0.1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "device.sqlite"


@pytest.fixture
def nowhere():
    """A broker that is not there."""
    return f"mqtt://127.0.0.1:{free_port()}"


# --- one update, once -----------------------------------------------------------------------------------------


async def test_an_update_says_what_was_learned(mqtt_broker):
    """Who, for which round, on which model, from how many interactions; sent as soon as there are enough."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(4, base=3, min_interactions=3)
        await client.next_round()
        see(client, 1, 5)
        await federator.nothing_on("updates")
        see(client, 9)
        update = await federator.update()
        assert (update.federation, update.client_id) == ("mail", "device-7")
        assert (update.round, update.base_version) == (4, 3)
        assert content(update) == [1, 5, 9]


@pytest.mark.usefixtures("resend_fast")
async def test_the_same_bytes_are_resent_until_receipted(mqtt_broker):
    """Nothing but the receipt ends it, and after it the update is not sent again."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        copies = [await federator.next("updates") for _ in range(4)]
        assert len(set(copies)) == 1
        await federator.receipt(decode(copies[0], ModelUpdate), ReceiptCode.ACCEPTED)
        assert await client.wait_settled(WITHIN_S)
        while not federator._heard[ClientTopic.UPDATES].empty():
            assert await federator.next("updates") == copies[0]
        await federator.nothing_on("updates")
        assert client.receipts == {"accepted": 1}


async def test_an_unsent_update_survives_a_restart(mqtt_broker, path):
    """Stopped before the receipt and started again, the device sends the same update_id and the same bytes."""
    async with Federator(mqtt_broker) as federator:
        await federator.announce(1)
        async with device(mqtt_broker, path) as client:
            await client.next_round()
            see(client, 1, 2, 3)
            first = await federator.next("updates")
        async with device(mqtt_broker, path) as client:
            assert await federator.next("updates") == first
            await federator.receipt(decode(first, ModelUpdate), ReceiptCode.DUPLICATE)
            assert await client.wait_settled(WITHIN_S)
            assert client.n_waiting == 1
        async with device(mqtt_broker, path):
            await federator.nothing_on("updates")


async def test_an_accepted_update_spends_its_interactions(mqtt_broker):
    """The next round's update holds what came after, and nothing twice."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        await federator.receipt(await federator.update(), ReceiptCode.ACCEPTED)
        assert await client.wait_settled(WITHIN_S)
        see(client, 3, 4)
        await federator.nothing_on("updates")
        await federator.announce(2, base=1)
        assert content(await federator.update()) == [3, 4]


@pytest.mark.parametrize("code", ["late", "stale", "already_contributed", "unknown_round"])
async def test_an_update_that_does_not_count_gives_its_interactions_back(mqtt_broker, code):
    """They are in the next round's update, trained on the next model, with those that came since."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        update = await federator.update()
        see(client, 3)
        await federator.receipt(update, ReceiptCode(code))
        assert await client.wait_settled(WITHIN_S)
        assert client.n_waiting == 3
        await federator.nothing_on("updates")
        await federator.announce(2, base=1)
        second = await federator.update()
        assert content(second) == [1, 2, 3]
        assert (second.round, second.base_version) == (2, 1)
        assert second.update_id != update.update_id


async def test_late_news_of_a_round_that_went_on(mqtt_broker):
    """The next round opens before the receipt of the last one arrives: the update is not forgotten, nor doubled."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        first = await federator.update()
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        see(client, 3, 4)
        await federator.nothing_on("updates")
        await federator.receipt(first, ReceiptCode.ACCEPTED)
        assert content(await federator.update()) == [3, 4]


async def test_a_receipt_twice_settles_once(mqtt_broker):
    """The second copy must not settle the update that came after."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        first = await federator.update()
        await federator.receipt(first, ReceiptCode.ACCEPTED)
        await client.wait_settled(WITHIN_S)
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        see(client, 3, 4)
        second = await federator.update()
        await federator.receipt(first, ReceiptCode.LATE)
        await until(lambda: client.receipts.get("late") == 1)
        assert not await client.wait_settled(0.05)
        await federator.receipt(second, ReceiptCode.ACCEPTED)
        assert await client.wait_settled(WITHIN_S)
        assert client.n_waiting == 0


async def test_an_unknown_client_joins_and_sends_the_same_update(mqtt_broker):
    """The federator lost its members: one more join, and not one interaction lost."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        first = await federator.next("updates")
        await federator.next("join")
        await federator.receipt(decode(first, ModelUpdate), ReceiptCode.UNKNOWN_CLIENT)
        await federator.next("join")
        assert await federator.next("updates") == first


async def test_busy_is_asked_again(mqtt_broker):
    """After the pause the federator named, the same update."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        first = await federator.next("updates")
        await federator.receipt(decode(first, ModelUpdate), ReceiptCode.BUSY, named=False, retry_after_s=0.2)
        assert await federator.next("updates") == first


async def test_a_refused_update_does_not_stop_the_device(mqtt_broker):
    """What can never count is dropped with its interactions; the next round is like any other."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        await federator.receipt(await federator.update(), ReceiptCode.NOT_FINITE)
        assert await client.wait_settled(WITHIN_S)
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        see(client, 3, 4)
        assert content(await federator.update()) == [3, 4]


async def test_an_update_for_a_newer_federator_is_made_again(mqtt_broker):
    """A federator of another version cannot read the update and so cannot name it; its clicks stay."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        await federator.receipt(await federator.update(), ReceiptCode.UNSUPPORTED_VERSION, named=False)
        assert await client.wait_settled(WITHIN_S)
        await federator.announce(2)
        assert content(await federator.update()) == [1, 2]


async def test_a_backlog_goes_out_in_parts(mqtt_broker):
    """No more than ``max_interactions`` in one update, the oldest first, the rest in the rounds that follow."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        see(client, *range(7))
        for number, expected in ((1, [0, 1, 2]), (2, [3, 4, 5])):
            await federator.announce(number, base=number, min_interactions=2, max_interactions=3)
            update = await federator.update()
            assert content(update) == expected
            await federator.receipt(update, ReceiptCode.ACCEPTED)
            assert await client.wait_settled(WITHIN_S)
        await federator.announce(3, base=3, min_interactions=2, max_interactions=3)
        await federator.nothing_on("updates")
        see(client, 7)
        assert content(await federator.update()) == [6, 7]


async def test_an_update_holds_all_that_was_seen_up_to_the_maximum(mqtt_broker):
    """Between the minimum and the maximum everything that waits goes in."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        see(client, 1, 2, 3)
        await federator.announce(1, min_interactions=2, max_interactions=10)
        assert content(await federator.update()) == [1, 2, 3]


# --- recording ------------------------------------------------------------------------------------------------


async def test_a_list_recorded_twice_counts_once(mqtt_broker):
    """Before its update, while the update is on its way, and after it was accepted."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        (serp,) = see(client, 1)
        client.record_clicks(serp, [1])
        assert client.n_waiting == 1
        see(client, 2)
        update = await federator.update()
        assert content(update) == [1, 2]
        client.record_clicks(serp, [0])
        await federator.receipt(update, ReceiptCode.ACCEPTED)
        assert await client.wait_settled(WITHIN_S)
        client.record_clicks(serp, [0])
        assert client.n_waiting == 0
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        see(client, 3)
        await federator.nothing_on("updates")
        see(client, 4)
        assert content(await federator.update()) == [3, 4]


async def test_no_click_is_an_interaction_too(mqtt_broker):
    """The user saw the list and wanted none of it."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1, min_interactions=1)
        await client.next_round()
        client.record_clicks(client.rank(np.eye(3, N_FEATURES)), [])
        assert (await federator.update()).n_interactions == 1


async def test_clicks_recorded_offline_are_contributed_once(mqtt_broker, nowhere, path):
    """No broker at all, a restart in between: the first round that opens gets them, and no later one does."""
    async with device(nowhere, path) as client:
        see(client, 1, 2, 3)
        assert client.n_waiting == 3
        with pytest.raises(UnavailableError):
            await client.wait_connected(0.05)
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path) as client:
        await federator.announce(1)
        update = await federator.update()
        assert content(update) == [1, 2, 3]
        await federator.receipt(update, ReceiptCode.ACCEPTED)
        assert await client.wait_settled(WITHIN_S)
        await federator.announce(2, base=1)
        await federator.nothing_on("updates")


async def test_an_outage_in_between_loses_nothing(mosquitto_server):
    """The broker is killed and comes back empty: the device says hello and sends what was not receipted."""
    async with device(mosquitto_server.url) as client:
        async with Federator(mosquitto_server.url) as federator:
            await federator.announce(1)
            await client.next_round()
            see(client, 1)
        mosquitto_server.kill()
        await until(lambda: not client._link.connected)
        see(client, 2)
        assert client.n_waiting == 0, "it is in an update already, for the round the device knows of"
        mosquitto_server.start()
        async with Federator(mosquitto_server.url) as federator:
            assert content(await federator.update()) == [1, 2]


async def test_the_application_may_reuse_its_buffer(mqtt_broker):
    """What was shown is what is learned from, also if the features were overwritten before the click."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1, min_interactions=1)
        await client.next_round()
        features = np.zeros((1, N_FEATURES), np.float32)
        features[0, 3] = 1.0
        serp = client.rank(features)
        features[:] = 7.0
        client.record_clicks(serp, [0])
        assert content(await federator.update()) == [3]


@pytest.mark.parametrize("clicked", [[-1], [3], [0, 99], [2**70]])
async def test_a_click_outside_the_list_is_an_error(nowhere, clicked):
    """And nothing is recorded: the application can correct itself and record the list."""
    async with device(nowhere) as client:
        serp = client.rank(np.eye(3, N_FEATURES))
        with pytest.raises(DataError, match="outside the list"):
            client.record_clicks(serp, clicked)
        assert client.n_waiting == 0
        client.record_clicks(serp, [2, 0, 0])
        assert client.n_waiting == 1


async def test_a_device_that_may_keep_fewer_than_an_update_needs(mqtt_broker):
    """The application is not made to pay with an error for a setting that does not fit the federation's."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, max_interactions=3) as client:
        await federator.announce(1, min_interactions=5)
        await client.next_round()
        see(client, *range(8))
        assert client.n_waiting == 3


# --- ranking --------------------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")
ROW = [0.0] * N_FEATURES


@pytest.mark.parametrize(
    "features",
    [
        pytest.param([ROW[:-1]], id="a feature too few"),
        pytest.param([[*ROW, 0.0]], id="a feature too many"),
        pytest.param([[*ROW[:-1], NAN]], id="NaN"),
        pytest.param([[*ROW[:-1], INF]], id="infinity"),
        pytest.param([[*ROW[:-1], 1e300]], id="too large for float32"),
        pytest.param([], id="no documents"),
        pytest.param([[], []], id="no features"),
        pytest.param(ROW, id="one dimension"),
        pytest.param([[ROW]], id="three dimensions"),
        pytest.param([ROW, ROW[:-1]], id="ragged"),
        pytest.param([["x"] * N_FEATURES], id="text"),
        pytest.param([[1j] * N_FEATURES], id="complex"),
        pytest.param([[10**400] * N_FEATURES], id="too large for any float"),
        pytest.param(None, id="nothing"),
        pytest.param(3.0, id="a number"),
    ],
)
async def test_features_that_cannot_be_ranked_are_a_data_error(nowhere, path, features):
    """The error is foltr's own and says what was expected; no warning, no other exception."""
    with contextlib.closing(DeviceStore(path, client_id="device-7", federation="mail", max_interactions=10)) as store:
        store.put_model(encode(model()))
    async with device(nowhere, path) as client:
        with pytest.raises(DataError, match="features"):
            client.rank(features)


@pytest.mark.parametrize("k", [0, -1])
async def test_a_list_has_at_least_one_place(nowhere, k):
    """An empty list is nothing to show and nothing to learn from."""
    async with device(nowhere) as client:
        with pytest.raises(DataError):
            client.rank(np.eye(3, N_FEATURES), k=k)


async def test_ranking_needs_no_network(nowhere):
    """Before the first model every order is as good as another; the list is full and has no document twice."""
    async with device(nowhere) as client:
        serp = client.rank(np.eye(30, N_FEATURES))
        assert serp.model_version is None
        assert len(set(serp.ranking.tolist())) == 10
        assert len(client.rank(np.eye(30, N_FEATURES), k=25).ranking) == 25
        assert len(client.rank(np.eye(4, N_FEATURES)).ranking) == 4


async def test_the_newest_model_survives_a_restart(mqtt_broker, nowhere, path):
    """A device that wakes up offline ranks with the last model it heard of."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path) as client:
        await federator.announce(5, base=4)
        await client.next_round()
        assert client.model_version == 4
    async with device(nowhere, path) as client:
        assert client.model_version == 4
        assert client.rank([ROW]).model_version == 4


async def test_the_best_come_first_without_exploration(mqtt_broker):
    """What was learned on the device shows in its own rankings at once."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, explore=False) as client:
        await federator.announce(1, min_interactions=5)
        await client.next_round()
        see(client, 2, 2, 3)
        assert client.rank(np.eye(5, N_FEATURES)).ranking.tolist() == [2, 3, 0, 1, 4]


async def test_interactions_of_another_ranker_are_set_aside(mqtt_broker, nowhere, path):
    """Recorded before the number of features was known and found wrong, they do not block those that fit."""
    async with device(nowhere, path) as client:
        for _ in range(3):
            client.record_clicks(client.rank(np.eye(2, 3)), [0])
        see(client, 1, 2)
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path):
        await federator.announce(1, min_interactions=2, max_interactions=2)
        await federator.announce(2, min_interactions=2, max_interactions=2)
        assert content(await federator.update()) == [1, 2]


async def test_an_interaction_that_cannot_be_learned_does_not_block_the_others(mqtt_broker):
    """Finite features can still be too large for the learner: that list is lost, the device is not."""

    def picky_learner(weights, interaction, training):
        if interaction.features[0, 0] == 1.0:
            raise DataError("scores must be finite numbers to rank by")
        return adding_learner(weights, interaction, training)

    async with Federator(mqtt_broker) as federator, device(mqtt_broker, learner=picky_learner) as client:
        see(client, 1, 0, 2)
        await federator.announce(1)
        assert content(await federator.update()) == [1, 2]


async def test_large_features_do_not_end_a_device(mqtt_broker):
    """As above with the real learner: such a list may be refused or lost, and the next ones still count."""
    from edge_client.training import pdgd_learner

    async with Federator(mqtt_broker) as federator, device(mqtt_broker, learner=pdgd_learner) as client:
        for scale in (3e38, 3e38, 1.0, 1.0):
            with contextlib.suppress(DataError):
                client.record_clicks(client.rank(np.eye(3, N_FEATURES) * scale), [1])
        await federator.announce(1)
        assert np.isfinite(unpack_vector((await federator.update()).body.values)).all()


# --- rounds and settling --------------------------------------------------------------------------------------


async def test_the_next_round_is_one_with_its_model(mqtt_broker):
    """Open, newer than the last, and its base model at hand."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(3, base=2)
        assert (await client.next_round()).round == 3
        waiting = asyncio.create_task(client.next_round(after=3, timeout_s=WITHIN_S))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await federator.announce(4, base=3)
        assert (await waiting).round == 4
        assert client.model_version == 3


async def test_a_closed_round_is_the_end_for_those_who_took_part(mqtt_broker):
    """Whoever saw the last round is told that it is over; a newcomer waits for what may come."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(3, is_open=False)
        await until(lambda: client.model_version == 0)
        assert not (await client.next_round(after=3)).open
        with pytest.raises(UnavailableError, match="no round after 0"):
            await client.next_round(after=0, timeout_s=0.1)


async def test_waiting_for_a_round_ends(nowhere):
    """With what to do in the message."""
    async with device(nowhere) as client:
        with pytest.raises(UnavailableError, match=r"no round after 7 within 0\.05 s.*foltr federator run"):
            await client.next_round(after=7, timeout_s=0.05)


async def test_giving_up_on_the_broker_ends_the_wait_for_a_round(nowhere):
    """No round can come any more, so nobody waits for the rest of the time; ranking goes on."""
    async with device(nowhere, give_up_after_s=0.2) as client:
        with pytest.raises(UnavailableError, match="gave up"):
            async with asyncio.timeout(WITHIN_S):
                await client.next_round(timeout_s=60)
        assert len(see(client, 1)) == 1


async def test_nothing_pending_is_settled(nowhere):
    """And what is pending without a receipt is not, after the time given."""
    async with device(nowhere) as client:
        assert await client.wait_settled(0.0)


async def test_settling_ends(mqtt_broker):
    """False, not an error and not a wait without end, where no receipt comes."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        await federator.update()
        assert not await client.wait_settled(0.1)


# --- membership and presence ----------------------------------------------------------------------------------


async def test_a_device_says_hello_and_goodbye(mqtt_broker):
    """Online once connected, a join with the version of its software, offline when it ends."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker):
            assert decode(await federator.next("status"), Status).online
            assert decode(await federator.next("join"), Join).client_id == "device-7"
        assert not decode(await federator.next("status"), Status).online
        await federator.nothing_on("join")


@pytest.mark.usefixtures("resend_fast")
async def test_no_update_before_the_join_is_answered(mqtt_broker):
    """An unanswered join is repeated; the update goes out with the answer."""
    async with Federator(mqtt_broker, takes_joins=False) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        for _ in range(3):
            await federator.next("join")
        await federator.nothing_on("updates")
        await federator.membership("device-7", ReceiptCode.JOINED)
        assert content(await federator.update()) == [1, 2]


async def status_retained(url):
    """The retained status a newcomer sees; None if there is none."""
    seen, done = [], asyncio.Event()

    def hear(message):
        if message.topic == "end":
            done.set()
        else:
            seen.append(decode(message.payload, Status))

    link = MqttLink(
        BrokerAddress.parse(url),
        client_id="newcomer",
        subscriptions=[TOPICS.client("device-7", ClientTopic.STATUS), "end"],
        on_message=hear,
        persistent=False,
    )
    async with link, asyncio.timeout(WITHIN_S):
        await link.wait_connected(WITHIN_S)
        await link.publish("end", b"")
        await done.wait()
    return seen[0].online if seen else None


async def test_the_status_is_retained(mqtt_broker):
    """Whoever comes later sees whether the device is there."""
    async with device(mqtt_broker) as client:
        await client.wait_connected(WITHIN_S)
        async with Federator(mqtt_broker) as federator:
            await federator.next("status")
        assert await status_retained(mqtt_broker) is True
    assert await status_retained(mqtt_broker) is False


async def test_leaving_clears_the_status(mqtt_broker):
    """Nothing about a device that left stays with the broker, also after its process has ended."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker) as client:
            await federator.next("join")
            await client.leave()
            await federator.next("leave")
            assert await status_retained(mqtt_broker) is None
        assert await status_retained(mqtt_broker) is None


async def test_a_device_that_left_contributes_no_more(mqtt_broker):
    """No join, no update: neither in a round that opens later nor when the federator says that it is unknown."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        await federator.next("join")
        see(client, 1, 2)
        update = await federator.update()
        await client.leave()
        await federator.membership("device-7", ReceiptCode.LEFT)
        await federator.receipt(update, ReceiptCode.UNKNOWN_CLIENT)
        await federator.announce(2, base=1)
        see(client, 3, 4)
        await federator.nothing_on("join")
        await federator.nothing_on("updates")


async def test_a_device_that_left_stays_away_when_the_connection_comes_back(mosquitto_server):
    """A broker's restart is no reason to join again."""
    async with device(mosquitto_server.url) as client:
        await client.wait_connected(WITHIN_S)
        await client.leave()
        mosquitto_server.stop()
        mosquitto_server.start()
        async with Federator(mosquitto_server.url) as federator:
            await client.wait_connected(WITHIN_S)
            await federator.nothing_on("join")


async def test_leaving_needs_the_broker(nowhere):
    """The application is told that it has not left."""
    async with device(nowhere) as client:
        with pytest.raises(UnavailableError):
            await client.leave()


CRASHING = """
import asyncio, sys
import numpy as np
from edge_client.client import EdgeClient

async def main():
    async with EdgeClient(sys.argv[1], federation="mail", client_id="device-7", store=sys.argv[2]) as client:
        await client.next_round()
        for _ in range(2):
            client.record_clicks(client.rank(np.eye(3, 16)), [1])
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_killed_device_is_offline_and_sends_the_same_update_again(mqtt_broker, path):
    """SIGKILL with an update on its way: the last will tells, and the next start goes on with the same bytes."""
    async with Federator(mqtt_broker) as federator:
        await federator.announce(1)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CRASHING, mqtt_broker, str(path), cwd=REPOSITORY, stdout=subprocess.DEVNULL
        )
        assert decode(await federator.next("status"), Status).online
        first = await federator.next("updates")
        process.kill()
        await process.wait()
        assert not decode(await federator.next("status"), Status).online
        assert await status_retained(mqtt_broker) is False
        async with device(mqtt_broker, path):
            assert await federator.next("updates") == first


# --- what must not stop a device ------------------------------------------------------------------------------


async def test_nonsense_from_the_network_is_ignored(mqtt_broker):
    """Broken bytes on any topic a device hears, and messages for another federation, change nothing."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        foreign = model(9).model_copy(update={"federation": "photos"})
        inbox = TOPICS.client("device-7", ClientTopic.INBOX)
        for topic, payload in (
            (TOPICS.model, b"\xc1"),
            (TOPICS.round, b""),
            (inbox, b"\x00" * 1_000),
            (inbox, encode(model())),
            (TOPICS.model, encode(foreign)),
        ):
            await federator.link.publish(topic, payload)
        see(client, 1, 2)
        assert content(await federator.update()) == [1, 2]
        assert client.model_version == 0


async def test_a_round_of_another_federation_is_ignored(mqtt_broker):
    """As its model is: a misdirected announcement must not make updates for a round that is not there."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        announced = client._participation.round.model_copy(update={"federation": "photos", "round": 77})
        await federator.link.publish(TOPICS.round, encode(announced))
        await federator.nothing_on("updates")
        see(client, 1, 2)
        assert (await federator.update()).round == 1


async def test_a_receipt_that_cannot_be_stored_is_asked_for_again(mqtt_broker, monkeypatch):
    """The disk is full at the wrong moment: the update stays pending in memory as on disk, and is settled later."""
    monkeypatch.setattr("edge_client.participation.FIRST_RESEND_S", 0.3)
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        first = await federator.update()
        with monkeypatch.context() as full_disk:

            def fail(*_, **__):
                raise DataError("device store: database or disk is full")

            full_disk.setattr(client._store, "remove_update", fail)
            await federator.receipt(first, ReceiptCode.ACCEPTED)
            await until(lambda: client.receipts.get("accepted") == 1)
        await federator.receipt(await federator.update(), ReceiptCode.DUPLICATE)
        assert await client.wait_settled(WITHIN_S)
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        see(client, 3, 4)
        assert content(await federator.update()) == [3, 4]


async def test_clicks_that_cannot_be_stored_are_told(nowhere, monkeypatch):
    """The application gets the error and may record the same list again when there is room."""
    async with device(nowhere) as client:
        serp = client.rank(np.eye(3, N_FEATURES))
        with monkeypatch.context() as full_disk:

            def fail(*_):
                raise DataError("device store: database or disk is full")

            full_disk.setattr(client._store, "add_interaction", fail)
            with pytest.raises(DataError, match="full"):
                client.record_clicks(serp, [0])
        client.record_clicks(serp, [0])
        assert client.n_waiting == 1


async def test_a_model_that_cannot_be_stored_is_used(mqtt_broker, monkeypatch):
    """Keeping it on disk is for the next start; a full disk does not make the device sit out the round."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await client.next_round()

        def fail(*_):
            raise DataError("device store: database or disk is full")

        monkeypatch.setattr(client._store, "put_model", fail)
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        assert client.model_version == 1
        see(client, 1, 2)
        assert (await federator.update()).base_version == 1


async def test_a_store_of_another_device_is_refused(nowhere, path):
    """Two devices do not mix their clicks."""
    async with device(nowhere, path):
        pass
    with pytest.raises(SettingsError, match="one store per client"):
        device(nowhere, path, client_id="device-8")


@pytest.mark.parametrize("name", ["", "a/b", "+", "a b"])
def test_a_name_that_is_no_topic_level_is_refused(nowhere, name):
    """Before anything is opened."""
    with pytest.raises(SettingsError, match="client_id"):
        device(nowhere, client_id=name)
