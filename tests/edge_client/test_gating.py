"""A device keeps its gate with the lists that it judged by, and uses what the lists of all clients credit."""

import sqlite3

import numpy as np
import pytest
from support.device_stores import stored
from support.device_under_policy import identity
from support.federator_by_hand import N_FEATURES, TOPICS, Federator, device, in_round
from support.waiting import PATIENCE_S, until

from foltr.core.errors import DataError
from foltr.core.learning.credits import OPENS_AT, Credits
from foltr.core.learning.gate import Gate, ShownCount, Source
from foltr.core.protocol.evaluations import EvaluationRequest
from foltr.core.protocol.explorations import read_exploration
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client import gating
from foltr.edge_client.events import GateChanged
from foltr.edge_client.gating import DeviceGate
from foltr.edge_client.options import Ranking
from foltr.edge_client.recording import store_list
from foltr.edge_client.search_ranker import SearchRanker
from foltr.edge_client.serps import make_serp, read_candidates
from foltr.edge_client.store.recent_lists import RecentList
from foltr.edge_client.store.store import DeviceStore

N_LISTS = 30
SWAPS = PdgdTraining(min_interactions=1000, max_interactions=1000)
TRAINING = PdgdTraining(min_interactions=N_LISTS, max_interactions=N_LISTS)
# In the application's order; the model likes the last one best.
DOCUMENTS = np.eye(4, N_FEATURES, dtype=np.float32)[::-1]
BETTER = Credits(25.0, 40.0)


def liking(weights, interaction, training):  # noqa: ARG001 (the signature is the learner's)
    liked = np.zeros_like(weights)
    liked[:3] = [3.0, 2.0, 1.0]
    return liked


def search(client, n, liked):
    for _ in range(n):
        serp = client.rank(DOCUMENTS, 4)
        client.record_clicks(serp, np.flatnonzero(np.isin(serp.ranking, liked))[:1].tolist())


@pytest.fixture
def store(tmp_path):
    with_path = tmp_path / "device.sqlite"

    def open_store():
        return DeviceStore(with_path, client_id="device-7", federation="mail", max_interactions=100)

    return open_store


async def test_lists_come_from_the_model_once_clicks_say_that_it_is_better(mqtt_broker, path):
    """And as long as they do; what was decided, and by what, outlives a restart."""
    heard = []
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path, learner=liking, on_event=heard.append) as client:
            await federator.announce(1, training=SWAPS)
            await client.next_round()
            search(client, 1, [0])
            assert client.rank(DOCUMENTS, 4, exploration="none").ranking.tolist() == [0, 1, 2, 3]
            search(client, 300, [3])
            assert client.gate.is_open
            assert [event for event in heard if isinstance(event, GateChanged)] == [GateChanged(True)]
            assert client.rank(DOCUMENTS, 4, exploration="none").ranking.tolist() == [3, 2, 1, 0]
            assert client.gate.count(Source.BASE).lists + client.gate.count(Source.INTERLEAVED).lists > 10
            before = client.gate
        async with device(mqtt_broker, path, learner=liking) as client:
            assert client.gate == before
            await client.next_round()
            search(client, 40, [])
            assert not client.gate.is_open


def test_a_list_is_judged_by_once(store):
    """Recording it again changes neither the store nor the gate."""
    opened = store()
    gate = DeviceGate(opened, "device-7", 1)
    candidates = read_candidates(DOCUMENTS, None)
    serp = make_serp(candidates, 4, None, np.random.default_rng(1), exploration=read_exploration("none"))
    clicks = np.array([True, False, False, False])
    for _ in range(2):
        judged, within = gate.prepare_update(serp, clicks)
        if store_list(opened, RecentList(serp, None), clicks, within, judged=judged) is not None:
            gate.apply_update(judged)
    assert gate.gate.count(Source.BASE).lists == opened.gate().count(Source.BASE).lists == 1
    opened.close()
    again = store()
    assert again.gate() == gate.gate
    again.forget()
    assert again.gate() == Gate()
    again.close()


async def test_without_a_gate_every_list_is_the_models(mqtt_broker):
    """As in the papers, for experiments; nothing is counted then."""
    async with in_round(mqtt_broker, learner=liking, gate=False, announces={"training": SWAPS}) as (_, client):
        search(client, 20, [0])
        assert client.rank(DOCUMENTS, 4).source == "model"
        assert client.gate == Gate()


async def test_a_list_is_stored_with_its_judgement_or_not_at_all(mqtt_broker, monkeypatch):
    """If the gate cannot be written, the list is recorded again, and counts once."""
    write_gate = gating.write_gate

    def fail(*_, **__):
        raise sqlite3.OperationalError("database or disk is full")

    async with in_round(mqtt_broker, learner=liking, announces={"training": SWAPS}) as (_, client):
        for i in range(30):
            serp = client.rank(DOCUMENTS, 4)
            if i % 2:
                monkeypatch.setattr(gating, "write_gate", fail)
                with pytest.raises(DataError, match="disk is full"):
                    client.record_clicks(serp, [1])
                monkeypatch.setattr(gating, "write_gate", write_gate)
            client.record_clicks(serp, [1])
        assert client.n_waiting == 30
        assert sum(client.gate.count(source).lists for source in Source) == 30


def test_what_the_applications_lists_brought_is_known_from_the_first_one_on(nowhere, path):
    """Before there are credentials too: the model's lists are compared with them once there are some."""

    def click_first_then_second(ranker):
        for position in (0, 1):
            serp = ranker.rank(DOCUMENTS)
            for _ in range(2):
                ranker.record_clicks(serp, [position])

    with SearchRanker(store=path) as ranker:
        click_first_then_second(ranker)
        assert ranker.gate.count(Source.BASE) == ShownCount(2, 2, 1.5)
        ranker.enrol(identity(broker=nowhere))
        click_first_then_second(ranker)
        assert ranker.gate.count(Source.BASE) == ShownCount(4, 4, 3.0)
    with SearchRanker(store=path) as ranker:
        assert ranker.gate.of_base.mean == pytest.approx(0.75, abs=0.01)
    assert ranker.gate == Gate()
    with SearchRanker(store=path.with_name("without-a-gate.sqlite"), ranking=Ranking(gate=False)) as ranker:
        click_first_then_second(ranker)
        assert ranker.gate == Gate()
    with SearchRanker(store=path.with_name("forgotten.sqlite")) as ranker:
        click_first_then_second(ranker)
        ranker.forget_me()
        assert ranker.gate == Gate()


async def tell(federator, of_all=BETTER, since=0, **more):
    total, squares = of_all
    request = EvaluationRequest(federation="mail", credits_since=since, credit_total=total, credit_squares=squares)
    await federator.say(TOPICS.evaluation, request, retain=True, **more)


async def test_an_update_says_what_its_lists_credit(mqtt_broker, path):
    """As the gate counts them; and a gate that the user's own clicks could not open yet is opened by all clients'."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path, learner=liking) as client:
        await tell(federator)
        await federator.announce(1, training=TRAINING)
        await client.next_round(timeout_s=PATIENCE_S)
        assert client.gate.shared == BETTER
        search(client, N_LISTS, [3, 0])
        own = client.gate.credits
        update = await federator.update()
        assert own.weight_squares > 0.0
        said = update.evaluation.credit_total, update.evaluation.credit_squares
        assert said == pytest.approx((own.total, own.weight_squares))
        await federator.receipt(update, ReceiptCode.ACCEPTED)
        for _ in range(400):
            if not client.gate.is_open:
                search(client, 1, [3, 0])
        assert client.gate.is_open
        assert client.gate.growth < OPENS_AT
        assert client.rank(DOCUMENTS, 4, exploration="none").source == "model"
        search(client, 40, [])
        assert not client.gate.is_open, "the own clicks close it as ever"


async def test_a_device_that_was_off_goes_by_what_is_announced_now(mqtt_broker, path):
    """Nothing of all clients is in its store; its own lists are."""
    async with Federator(mqtt_broker) as federator:
        await tell(federator)
        await federator.announce(1, training=TRAINING)
        async with device(mqtt_broker, path, learner=liking) as client:
            await client.next_round(timeout_s=PATIENCE_S)
            search(client, 10, [3, 0])
            before = client.gate
        with stored(path) as store:
            assert store.gate().shared == Credits()
            assert store.gate() == before
        await tell(federator, Credits(-5.0, 40.0))
        await federator.announce(20, training=TRAINING)
        async with device(mqtt_broker, path, learner=liking) as client:
            await until(lambda: client.gate.shared == Credits(-5.0, 40.0))
            assert client.gate.count(Source.BASE) == before.count(Source.BASE)


async def test_more_clicks_leave_a_lists_credit(mqtt_broker):
    """The gate has counted it, and the update agrees."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, learner=liking) as client:
        await tell(federator)
        await federator.announce(1, training=TRAINING)
        await client.next_round(timeout_s=PATIENCE_S)
        for _ in range(N_LISTS):
            serp = client.rank(DOCUMENTS, 4)
            for position in range(4):
                client.record_clicks(serp, [position])
            if client.agent.participation.pending is not None:
                break
        own, evaluation = client.gate.credits, (await federator.update()).evaluation
        assert evaluation.credit_squares > 0.0
        assert (evaluation.credit_total, evaluation.credit_squares) == pytest.approx((own.total, own.weight_squares))
