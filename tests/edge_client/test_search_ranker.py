"""A ranker for applications without an event loop: what its threads may do, offline first, and how it ends."""

import asyncio
import contextlib
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.device_options import grouped
from support.device_under_policy import FEDERATOR, identity
from support.federator_by_hand import N_FEATURES, TOPICS, Federator
from support.waiting import PATIENCE_S, wait_until

from foltr.core.errors import DataError, SettingsError, UsageError
from foltr.core.operator.credentials import write_credentials
from foltr.core.protocol.evaluations import Evaluation, EvaluationRequest
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.core.protocol.topics import ClientTopic
from foltr.edge_client.events import Connected, ModelInUse, UpdateAnswered
from foltr.edge_client.forgetting import ForgetResult
from foltr.edge_client.options import Experiment, Privacy
from foltr.edge_client.search_ranker import SearchRanker
from foltr.edge_client.store.interaction_rows import insert_interaction
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.training.working_model import WorkingModel

DOCUMENTS = np.eye(5, N_FEATURES, dtype=np.float32)


def click(ranker, *numbers):
    """Record a click on the best of three alike for each number, told apart by the feature that is 1."""
    for number in numbers:
        features = np.zeros((3, N_FEATURES), np.float32)
        features[:, number] = 1.0
        ranker.record_clicks(ranker.rank(features), [0])


def stored(path):
    return contextlib.closing(DeviceStore(path, client_id=None, federation=None, max_interactions=1000))


def test_without_credentials_it_keeps_the_order_and_the_clicks(path):
    """Search as it was, and nothing lost for later; the store is nobody's."""
    with SearchRanker(store=path) as ranker:
        serp = ranker.rank(DOCUMENTS, k=3, exploration="none")
        assert serp.ranking.tolist() == [0, 1, 2]
        ranker.record_clicks(serp, [1])
        ranker.record_clicks(serp, [1])
        assert (ranker.n_waiting, ranker.model_version, ranker.weights, ranker.client_id) == (1, None, None, None)
        assert (ranker.receipts, ranker.quarantined, ranker.forgotten, ranker.counted_through) == (
            {},
            False,
            False,
            None,
        )
        assert str(ranker.state) == "not enrolled: lists are in the application's order; clicks are kept in the store"
        assert ranker.scores(DOCUMENTS).tolist() == [0.0] * 5
        with pytest.raises(DataError, match="outside the list"):
            ranker.record_clicks(serp, [3])
        for wait in (ranker.wait_connected, ranker.wait_settled, ranker.leave):
            with pytest.raises(UsageError, match="not enrolled: give credentials"):
                wait()
    with stored(path) as store:
        assert (store.owner, store.n_waiting()) == (None, 1)


def test_who_was_never_enrolled_is_forgotten_here(path):
    """There is no federation to ask: what was recorded is gone, and the next clicks begin anew."""
    with SearchRanker(store=path) as ranker:
        click(ranker, 1, 2)
        assert ranker.forget_me() == ForgetResult("forgotten")
        assert ranker.n_waiting == 0
        click(ranker, 3)
        assert ranker.n_waiting == 1


async def test_clicks_from_before_the_credentials_count(mqtt_broker, path, tmp_path):
    """Recorded by a ranker that was nobody's, enrolled in the middle, by a file: its store is that client's then."""
    write_credentials(tmp_path / "device-7.json", identity(broker=mqtt_broker))

    def begin():
        ranker = SearchRanker(store=path)
        click(ranker, 1)
        ranker.enrol(tmp_path / "device-7.json")
        click(ranker, 2)
        return ranker

    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        await federator.announce(1, min_interactions=2)
        ranker = await asyncio.to_thread(begin)
        update = await federator.update()
        assert (update.client_id, update.n_interactions, update.after, update.through) == ("device-7", 2, 0, 2)
        await federator.receipt(update, ReceiptCode.ACCEPTED)
        assert await asyncio.to_thread(ranker.wait_settled, PATIENCE_S)
        assert (ranker.receipts, ranker.n_updates_counted, ranker.counted_through) == ({"accepted": 1}, 1, 2)
        ranker.enrol(tmp_path / "device-7.json")
        with pytest.raises(UsageError, match="enrolled already, as device-7 of 'mail'"):
            ranker.enrol(identity(broker=mqtt_broker, name="device-8"))
        await asyncio.to_thread(ranker.close)
    with stored(path) as store:
        assert store.owner == ("mail", "device-7")


async def test_lists_from_before_the_credentials_are_in_the_evaluation(mqtt_broker, path):
    """With the other lists of their update; if the application says no, nothing of them is kept."""

    def begin():
        ranker = SearchRanker(store=path)
        ranker.record_clicks(ranker.rank(DOCUMENTS, exploration="none"), [3])
        ranker.enrol(identity(broker=mqtt_broker))
        ranker.record_clicks(ranker.rank(DOCUMENTS, exploration="none"), [1])
        return ranker

    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        await federator.say(TOPICS.evaluation, EvaluationRequest(federation="mail"), retain=True)
        await federator.announce(1, min_interactions=2)
        ranker = await asyncio.to_thread(begin)
        mean = (1 / 4 + 1 / 2) / 2
        assert (await federator.update()).evaluation == Evaluation(clicked=1.0, reward=mean, base_reward=mean)
        await asyncio.to_thread(ranker.close)
    with SearchRanker(store=":memory:", privacy=Privacy(evaluation=False)) as ranker:
        click(ranker, 1)
        assert ranker.store.earned(0, 1) == []


async def test_a_long_time_offline_keeps_the_newest_clicks(mqtt_broker, nowhere, path):
    """More than may wait: search and recording go on, the oldest make room, and what is left is in one update."""
    with SearchRanker(identity(broker=nowhere), store=path, privacy=Privacy(max_interactions=6)) as ranker:
        with capture_logs() as logged:
            click(ranker, *range(10))
        assert [line["event"] for line in logged].count("interactions_dropped") == 1
        assert (ranker.n_waiting, ranker.state.n_dropped) == (6, 4)
        assert "4 lists were dropped: too many waited" in ranker.state.remarks
    with stored(path) as store:
        numbers = [interaction.id for interaction in store.waiting_interactions(100)]
    assert numbers == [5, 6, 7, 8, 9, 10]
    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        await federator.announce(1, min_interactions=6)
        with SearchRanker(identity(broker=mqtt_broker), store=path, privacy=Privacy(max_interactions=6)) as ranker:
            update = await federator.update()
            assert (update.n_interactions, update.after, update.through) == (6, 0, 10)
            await federator.receipt(update, ReceiptCode.ACCEPTED)
            assert await asyncio.to_thread(ranker.wait_settled, PATIENCE_S)
            assert ranker.n_waiting == 0


def test_a_store_of_somebody_is_never_taken_over(nowhere, path):
    """Neither at a start nor by `enrol`; the ranker that is refused leaves it free for its owner."""
    with SearchRanker(identity(broker=nowhere), store=path) as ranker:
        click(ranker, 1)
    with pytest.raises(SettingsError, match="belongs to mail/device-7, not to mail/device-8"):
        SearchRanker(identity(broker=nowhere, name="device-8"), store=path)
    with SearchRanker(store=path) as ranker:
        with pytest.raises(SettingsError, match="belongs to mail/device-7, not to mail/device-8"):
            ranker.enrol(identity(broker=nowhere, name="device-8"))
        with pytest.raises(UsageError, match="not enrolled"):
            ranker.forget_me()
        click(ranker, 2)
        assert ranker.blocker is None
        ranker.enrol(identity(broker=nowhere))
        assert (ranker.client_id, ranker.n_waiting) == ("device-7", 2)
        wait_until(lambda: ranker.blocker is not None and ranker.blocker.kind == "broker_away")
        assert "foltr broker run" in ranker.blocker.message
    assert ranker.blocker is None


def test_what_is_wrong_is_told_before_the_store_is_opened(path):
    """So the next try, with what is right, has it."""
    without_file, of_type = {"credentials": "nowhere.json"}, {"credentials": {"signing_key": "secret"}}
    for wrong in (
        without_file,
        of_type,
        {"n_features": 0},
        {"n_features": 2.5},
        {"schema": 3},
        {"exploration": 3},
        {"exploration": "greedy"},
        {"seed": -1},
        {"keep_interactions": -1},
        {"click_window_s": 86401.0},
        {"click_window_s": float("nan")},
        {"propensities": [2.0]},
        {"propensities": ["x"]},
    ):
        with pytest.raises((SettingsError, DataError)) as caught:
            pytest.fail(f"{wrong}: {SearchRanker(**grouped(**wrong), store=path)}")
        assert "secret" not in str(caught.value)
        assert not path.exists()
    with pytest.raises(SettingsError, match="store: expected the path of a file, got int"):
        SearchRanker(store=3)
    for wrong in ({"ranking": "x"}, {"privacy": None}, {"experiment": 3}):
        with pytest.raises(SettingsError, match=f"{next(iter(wrong))}: expected "):
            SearchRanker(**wrong, store=path)


def test_the_width_is_checked_from_the_first_list_on(path):
    """And not when a model comes, with all clicks of a wrong width recorded by then."""
    with SearchRanker(store=path, n_features=N_FEATURES) as ranker:
        for use in (ranker.rank, ranker.scores):
            with pytest.raises(DataError, match="3 columns, but this application set n_features=16"):
                use(np.eye(3))
        assert len(ranker.rank(DOCUMENTS).ranking) == 5


async def test_threads_rank_and_record_while_models_come(mqtt_broker, path):
    """Every click is in exactly one update that counts, or still waits; no list is of two models at once."""
    n_threads, each = 4, 30
    wrong = []

    def search(name):
        rng = np.random.default_rng(name)
        for _ in range(each):
            features = rng.random((20, N_FEATURES), np.float32)
            serp = ranker.rank(features, k=10)
            if len(set(serp.ranking.tolist())) != 10:
                wrong.append(serp)
            ranker.record_clicks(serp, [int(rng.integers(10))])

    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        await federator.announce(1, min_interactions=5, max_interactions=50)
        options = {"store": path, "experiment": Experiment(seed=3)}
        ranker = await asyncio.to_thread(SearchRanker, identity(broker=mqtt_broker), **options)
        await asyncio.to_thread(ranker.wait_connected, PATIENCE_S)
        with ThreadPoolExecutor(n_threads) as pool:
            searching = [asyncio.get_running_loop().run_in_executor(pool, search, i) for i in range(n_threads)]
            counted, number = 0, 1
            while counted <= n_threads * each - 5:
                update = await federator.update()
                assert update.after == counted
                counted = update.through
                await federator.receipt(update, ReceiptCode.ACCEPTED)
                number += 1
                await federator.announce(number, base=number - 1, min_interactions=5, max_interactions=50)
            await asyncio.gather(*searching)
        assert not wrong
        assert ranker.n_waiting == n_threads * each - counted
        await asyncio.to_thread(ranker.close)


async def test_nobody_waits_for_learning(mqtt_broker, path, monkeypatch):
    """Neither who ranks nor who records: the click is on disk, and learned when it is its turn."""
    may_learn, learning = threading.Event(), threading.Event()
    learn = WorkingModel.learn

    def slowly(*args):
        learning.set()
        assert may_learn.wait(PATIENCE_S)
        learn(*args)

    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        await federator.announce(1, min_interactions=3)
        ranker = await asyncio.to_thread(SearchRanker, identity(broker=mqtt_broker), store=path)
        await asyncio.to_thread(wait_until, lambda: ranker.model_version is not None)
        monkeypatch.setattr(WorkingModel, "learn", slowly)
        serps = [ranker.rank(DOCUMENTS) for _ in range(3)]
        ranker.record_clicks(serps[0], [0])
        assert await asyncio.to_thread(learning.wait, PATIENCE_S)
        for serp in serps[1:]:
            ranker.record_clicks(serp, [0])
        assert ranker.n_waiting == 3
        assert ranker.rank(DOCUMENTS).model_version == 0
        may_learn.set()
        assert (await federator.update()).n_interactions == 3
        await asyncio.to_thread(ranker.close)


def test_ranking_does_not_wait_for_the_store(path, monkeypatch):
    """A disk may be slow: others search on while a click is written."""
    writing, may_write = threading.Event(), threading.Event()

    def slowly(*args):
        writing.set()
        assert may_write.wait(PATIENCE_S)
        return insert_interaction(*args)

    monkeypatch.setattr("foltr.edge_client.store.store.insert_interaction", slowly)
    with SearchRanker(store=path) as ranker, ThreadPoolExecutor(1) as pool:
        recording = pool.submit(click, ranker, 1)
        assert writing.wait(PATIENCE_S)
        assert len(ranker.rank(DOCUMENTS).ranking) == 5
        assert not recording.done()
        may_write.set()
        recording.result(PATIENCE_S)
        assert ranker.n_waiting == 1


async def test_what_an_observer_does_harms_nobody(mqtt_broker, path):
    """It is told in the ranker's own thread, where it cannot wait for that thread; it may close the ranker."""
    heard, errors = [], []

    def observe(event):
        heard.append((event, threading.current_thread().name))
        try:
            ranker.wait_settled(1.0)
        except UsageError as error:
            errors.append(str(error))
        if isinstance(event, UpdateAnswered):
            ranker.close()
        raise ValueError("of the application")

    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        with capture_logs():
            ranker = SearchRanker(store=path, on_event=observe)
            click(ranker, 1)
            await asyncio.to_thread(ranker.enrol, identity(broker=mqtt_broker))
            await asyncio.to_thread(ranker.wait_connected, PATIENCE_S)
            await federator.announce(1, min_interactions=1)
            await federator.receipt(await federator.update(), ReceiptCode.ACCEPTED)
            await asyncio.to_thread(wait_until, lambda: ranker.state.status == "closed")
    assert heard == [(event, "foltr-device-7") for event in (Connected(), ModelInUse(0), UpdateAnswered("accepted"))]
    assert all("an observer cannot wait" in error for error in errors)
    await asyncio.to_thread(wait_until, lambda: _is_free(path))


def _is_free(path):
    try:
        with stored(path):
            return True
    except DataError:
        return False


@pytest.mark.parametrize("enrolled", [False, True])
def test_a_closed_ranker_ranks_on_and_records_nothing(nowhere, path, enrolled):
    """Search never breaks; a click that cannot be kept is an error that says what to do."""
    credentials = identity(broker=nowhere)
    ranker = SearchRanker(credentials if enrolled else None, store=path)
    serp = ranker.rank(DOCUMENTS)
    ranker.close()
    ranker.close()
    assert ranker.rank(DOCUMENTS, k=3).ranking.tolist() == [0, 1, 2]
    assert str(ranker.state) == "closed: lists are in the application's order"
    for use in (lambda: ranker.record_clicks(serp, [0]), lambda: ranker.enrol(credentials), ranker.forget_me):
        with pytest.raises(UsageError, match="it is closed: construct another one"):
            use()
    with stored(path) as store:
        assert store.n_waiting() == 0


def test_a_ranker_that_nobody_has_any_more_is_closed(nowhere, path):
    """Its thread ends, and its store is free."""
    ranker = SearchRanker(identity(broker=nowhere, name="let-go"), store=path)
    click(ranker, 1)
    del ranker
    gc.collect()
    wait_until(lambda: not any(thread.name == "foltr-let-go" for thread in threading.enumerate()))
    with stored(path) as store:
        assert store.n_waiting() == 1


def test_closing_while_others_record_loses_no_click_that_was_taken(nowhere, path):
    """Each is on disk, or was refused; nothing in between, and no other error."""
    for _ in range(3):
        ranker = SearchRanker(identity(broker=nowhere), store=path, privacy=Privacy(max_interactions=1000))
        taken, others = [], []

        def record(ranker=ranker, taken=taken, others=others):
            while True:
                serp = ranker.rank(DOCUMENTS)
                try:
                    ranker.record_clicks(serp, [0])
                except UsageError:
                    return
                except Exception as error:  # noqa: BLE001 (whatever it is, the test shows it)
                    others.append(error)
                    return
                taken.append(serp.serp_id)

        threads = [threading.Thread(target=record) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda taken=taken: len(taken) > 3)
        ranker.close()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not others
        assert taken
        with stored(path) as store:
            kept = {serp_id for (serp_id,) in store.rows("SELECT serp_id FROM interactions")}
            assert kept >= set(taken)


async def test_no_click_outlives_an_erasure(mqtt_broker, path):
    """Threads record while the federation forgets the client: nothing of any of it is in the store afterwards."""
    stop = threading.Event()

    def record():
        while not stop.is_set():
            click(ranker, 1)

    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        await federator.announce(1, min_interactions=1000, max_interactions=1000)
        ranker = await asyncio.to_thread(SearchRanker, identity(broker=mqtt_broker), store=path)
        await asyncio.to_thread(ranker.wait_connected, PATIENCE_S)
        await federator.next("join")
        threads = [threading.Thread(target=record) for _ in range(3)]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(wait_until, lambda: ranker.n_waiting > 5)
        await federator.membership("device-7", ReceiptCode.FORGETTING)
        await asyncio.to_thread(wait_until, lambda: ranker.forgotten)
        await asyncio.sleep(0.05)
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert ranker.rank(DOCUMENTS, k=2).ranking.tolist() == [0, 1]
        state = ranker.state
        assert (ranker.n_waiting, state.status, state.remarks[0]) == (0, "forgotten", "nothing is recorded")
        before = ranker.rank(DOCUMENTS)
        await asyncio.to_thread(ranker.close)
    with SearchRanker(store=path) as ranker:  # its credentials are gone, too
        said = (ranker.forgotten, str(ranker.state).split(": ")[0], *ranker.state.remarks)
        assert said == (True, "forgotten", "nothing is recorded")
        serps = [before, *(ranker.rank(DOCUMENTS) for _ in range(20))]
        assert all(serp.ranking.tolist() == [0, 1, 2, 3, 4] for serp in serps)
        assert not any(ranker.record_clicks(shown, [1]) for serp in serps for shown in (serp, serp.serp_id))
    with stored(path) as store:
        assert (store.forgotten, store.rows("SELECT count(*) FROM interactions")) == (True, [(0,)])


async def test_a_ranker_asks_to_be_forgotten(mqtt_broker, path):
    """From a thread of the application: it gets the federation's receipt, and searches on without a trace."""
    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        await federator.announce(1, min_interactions=2)
        ranker = await asyncio.to_thread(SearchRanker, identity(broker=mqtt_broker), store=path)
        await asyncio.to_thread(ranker.wait_connected, PATIENCE_S)
        await federator.next("join")
        before = ranker.rank(DOCUMENTS)
        asking = asyncio.create_task(asyncio.to_thread(ranker.forget_me, PATIENCE_S))
        await federator.next("forget")
        notice = ErasureNotice(
            federation="mail", client_id="device-7", code=ReceiptCode.FORGOTTEN, receipt=b"a signed receipt"
        )
        await federator.say(TOPICS.client("device-7", ClientTopic.INBOX), notice)
        assert await asking == ForgetResult("forgotten", "a signed receipt")
        serp = ranker.rank(DOCUMENTS, k=3)
        assert (serp.ranking.tolist(), serp.model_version) == ([0, 1, 2], None)
        for shown in (serp, before):
            ranker.record_clicks(shown, [1])
        assert (ranker.forgotten, ranker.n_waiting, ranker.model_version) == (True, 0, None)
        await asyncio.to_thread(ranker.close)
    with stored(path) as store:
        assert store.forgotten
