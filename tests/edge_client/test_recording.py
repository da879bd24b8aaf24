"""Clicks on a list are recorded by its id and add up, until an update has it; each counts once, everywhere."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from support.device_under_policy import identity
from support.federator_by_hand import N_FEATURES, Federator, content, device, in_round, see
from support.waiting import PATIENCE_S, until

from foltr.core.errors import DataError
from foltr.core.learning.gate import Source
from foltr.core.protocol.receipts import ReceiptCode
from foltr.edge_client.search_ranker import SearchRanker
from foltr.edge_client.store.store import DeviceStore

DOCUMENTS = np.eye(4, N_FEATURES, dtype=np.float32)
PLAIN = {"exploration": "none"}


def recorded(store):
    """What the store holds: the clicks of each interaction, by its number."""
    return {one.id: np.flatnonzero(one.clicks).tolist() for one in store.waiting_interactions(100)}


def test_an_id_is_enough_also_after_a_restart(path):
    """For a ranker without a federation, too; the list is known by plain values."""
    with SearchRanker(store=path) as ranker:
        shown = ranker.rank(DOCUMENTS, **PLAIN).to_dict()
        assert shown["ranking"] == [0, 1, 2, 3]
        ranker.record_clicks(ranker.rank(DOCUMENTS).serp_id, [1])
        ranker.record_clicks(ranker.rank(DOCUMENTS[:0]).serp_id, [])
    with SearchRanker(store=path) as ranker:
        ranker.record_clicks(shown["serp_id"], [0])
        ranker.record_clicks(shown["serp_id"], [2])
        for wrong in ([4], ["0"]):
            with pytest.raises(DataError, match="clicked"):
                ranker.record_clicks(shown["serp_id"], wrong)
        with pytest.raises(DataError, match="no list"):
            ranker.record_clicks("another", [0])
        assert recorded(ranker.store) == {1: [1], 3: [0, 2]}
        assert ranker.gate.count(Source.BASE) == (2, 2, 1.5)
    with (
        SearchRanker(store=path, n_features=5) as ranker,
        pytest.raises(DataError, match="application set n_features=5"),
    ):
        ranker.record_clicks(shown["serp_id"], [0])


async def test_clicks_add_up_until_an_update_has_the_list(mqtt_broker):
    """Each once in what is learned and in the gate; then more of them are too late, and a repetition is not."""
    async with in_round(mqtt_broker) as (federator, client):
        serp = client.rank(DOCUMENTS, **PLAIN)
        for clicked in ([], [2], [2], [0], [0, 2], []):
            client.record_clicks(serp.serp_id, clicked)
        assert list(recorded(client.store).values()) == [[0, 2]]
        assert client.gate.count(Source.BASE) == (1, 1, 1.0)
        assert client.n_waiting == 1
        see(client, 2)
        update = await federator.update()
        # The learner adds a list's first document: the first list, though it was learned three times, and the second.
        assert content(update) == [0, 2]
        assert update.n_interactions == 2
        for clicked in ([0, 2], [], [2]):
            assert client.record_clicks(serp, clicked)
        assert not client.record_clicks(serp.serp_id, [1])
        await federator.accept(update, client)
        assert not client.record_clicks(serp.serp_id, [1])
        assert client.gate.count(Source.BASE).lists == 2
        assert client.n_waiting == 0


@pytest.mark.parametrize("is_lost", [False, True], ids=["it came late", "the federation has lost it"])
async def test_an_update_that_does_not_count_opens_its_lists_again(mqtt_broker, is_lost):
    """They wait again with the clicks that came before, and take more; not as long as it counts."""
    async with in_round(mqtt_broker) as (federator, client):
        first, _ = *see(client, 1), *see(client, 2)
        update = await federator.update()
        if is_lost:
            await federator.accept(update, client)
            assert not client.record_clicks(first.serp_id, [2])
            federator.watermarks.clear()
            await federator.membership("device-7", ReceiptCode.JOINED)
        else:
            await federator.receipt(update, ReceiptCode.LATE)
        await until(lambda: client.n_waiting == 2)
        client.record_clicks(first.serp_id, [2])
        await federator.announce(2, base=1)
        assert content(await federator.update()) == [1, 2]
        assert clicks_of(client.store) == [[0], [0, 2]]


def clicks_of(store):
    """The clicks of all interactions, also of those that count."""
    rows = store.rows("SELECT clicks FROM interactions ORDER BY id")
    return [np.flatnonzero(np.frombuffer(row[0], "u1")).tolist() for row in rows]


async def test_a_click_while_its_list_goes_into_an_update_is_in_it_or_refused(mqtt_broker, path, monkeypatch):
    """An update that was learned without the click is not stored: it would leave out a click that is on disk."""
    async with Federator(mqtt_broker) as federator:
        await federator.announce(1, min_interactions=1)
        async with device(mqtt_broker, path) as client:
            await client.next_round(timeout_s=PATIENCE_S)
            serp = client.rank(DOCUMENTS, **PLAIN)
            put_update, late = DeviceStore.put_update, []

            def put_late(store, *args, **more):
                if not late:
                    late.append(serp.serp_id)
                    client.record_clicks(serp.serp_id, [3])
                put_update(store, *args, **more)

            monkeypatch.setattr(DeviceStore, "put_update", put_late)
            client.record_clicks(serp.serp_id, [1])
            update = await federator.update()
            assert (content(update), update.n_interactions, update.through) == ([0], 1, 2)
            await federator.accept(update, client)
            assert clicks_of(client.store) == [[1, 3]]
            await federator.nothing_on("updates")


async def test_a_list_waits_for_more_clicks_before_an_update_takes_it(mqtt_broker, path, clock):
    """A user who comes back after minutes is heard; the state says what an update waits for; later clicks are lost."""
    async with in_round(mqtt_broker, path, click_window_s=240.0) as (federator, client):
        first, _ = *see(client, 1), *see(client, 2)
        clock.passes(200.0)
        assert client.record_clicks(first.serp_id, [2])
        assert (client.state.n_missing, client.state.n_open, client.n_waiting) == (0, 2, 2)
        assert "2 lists wait 240 s for more clicks" in client.state.remarks
        clock.passes(100.0)
        client.agent.wake.set()
        await until(lambda: client.weights[2] == 1, "the second list, which no longer waits, is not learned")
        await federator.nothing_on("updates")
        clock.passes(200.0)
        client.agent.wake.set()
        update = await federator.update()
        assert (content(update), clicks_of(client.store)) == ([1, 2], [[0], [0, 2]])
        assert not client.record_clicks(first.serp_id, [1])
        assert (client.state.n_missing, client.state.n_open) == (2, 0)
        assert "2 more lists make an update" in client.state.remarks
    assert (client.state.n_missing, client.state.n_open) == (None, 0)


def test_whose_order_a_list_showed_is_stored_with_its_clicks(path):
    """A model of zeros imitates the application's lists, and no others."""
    with SearchRanker(store=path) as ranker:
        for source in Source:
            serp = replace(ranker.rank(DOCUMENTS, **PLAIN), serp_id=f"of {source}", source=source)
            ranker.store.recent.remember(serp)
            ranker.record_clicks(serp, [0])
        assert [one.source for one in ranker.store.waiting_interactions(10)] == list(Source)


async def test_the_application_may_reuse_its_buffer(mqtt_broker):
    """What was shown is what is learned from, also if the features were overwritten before the click."""
    async with in_round(mqtt_broker, announces={"min_interactions": 1}) as (federator, client):
        features = np.eye(1, N_FEATURES, 3, dtype=np.float32)
        serp = client.rank(features)
        features[:] = 7.0
        client.record_clicks(serp, [0])
        assert content(await federator.update()) == [3]


async def test_the_end_of_a_window_wakes_the_device(mqtt_broker):
    """Nobody has to search again for an update to be made."""
    async with in_round(mqtt_broker, click_window_s=1.0) as (federator, client):
        see(client, 1, 2)
        assert content(await federator.update()) == [1, 2]


async def test_who_is_forgotten_while_lists_wait_records_nothing(mqtt_broker, path, clock):
    """The end of a window finds nothing to learn, and sends nothing."""
    async with in_round(mqtt_broker, path, click_window_s=240.0) as (federator, client):
        serp = see(client, 1, 2)[0]
        client.agent._be_forgotten()  # noqa: SLF001 (as by a notice)
        clock.passes(300.0)
        client.agent.wake.set()
        assert not client.record_clicks(serp.serp_id, [1])
        assert (client.n_waiting, client.state.n_open) == (0, 0)
        await federator.nothing_on("updates")


async def test_lists_are_saved_soon_after_they_were_shown(mqtt_broker, path):
    """So a process that is killed loses the lists of a second at most, and no click."""
    async with device(mqtt_broker, path) as client:
        client.rank(DOCUMENTS)
        await until(lambda: client.store.rows("SELECT count(*) FROM recent_lists") == [(1,)])


def test_threads_that_click_on_one_list_lose_no_click(path):
    """Each click that was taken is in the one interaction, and in no other."""
    with SearchRanker(store=path) as ranker, ThreadPoolExecutor(4) as pool:
        shown = [ranker.rank(DOCUMENTS, **PLAIN).serp_id for _ in range(10)]
        clicks = [(serp_id, position) for serp_id in shown for position in (0, 1, 3)]
        list(pool.map(lambda click: ranker.record_clicks(click[0], [click[1]]), clicks))
        assert list(recorded(ranker.store).values()) == [[0, 1, 3]] * 10
        assert ranker.gate.count(Source.BASE) == (10, 10, 10.0)


async def test_a_list_from_before_the_credentials_gets_clicks_afterwards(nowhere, path):
    """Shown and clicked by a ranker that was nobody's, clicked again by a client, with the gate's count of it."""
    with SearchRanker(store=path) as ranker:
        serp_id = ranker.rank(DOCUMENTS, **PLAIN).serp_id
        ranker.record_clicks(serp_id, [3])
        await asyncio.to_thread(ranker.enrol, identity(broker=nowhere))
        ranker.record_clicks(serp_id, [1])
        assert list(recorded(ranker.store).values()) == [[1, 3]]
        assert ranker.gate.count(Source.BASE) == (1, 1, 0.5)
    with SearchRanker(store=path) as ranker:
        assert ranker.gate.count(Source.BASE) == (1, 1, 0.5)
