"""Several processes share a device: each ranks and records, and takes over when the owner dies."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.device_stores import stored
from support.device_under_policy import FEDERATOR, identity
from support.federator_by_hand import N_FEATURES, Federator, model
from support.waiting import PATIENCE_S, until, wait_until

from foltr import Privacy, SearchRanker
from foltr.core.errors import DataError, SettingsError, UnavailableError, UsageError
from foltr.core.file_locks import StoreInUseError
from foltr.core.learning.gate import Source
from foltr.core.operator.credentials import write_credentials
from foltr.core.protocol.codec import encode
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.edge_client.store.store import DeviceStore

DOCUMENTS = np.eye(5, N_FEATURES)

WORKER = f"""
import json, os, sys
import numpy as np
from foltr import Experiment, SearchRanker
from foltr.edge_client.store.click_window import ClickWindow

ClickWindow.length_s = property(lambda _: 0.0, lambda *_: None)  # the terms stay those of the test's own rankers
ranker = SearchRanker(sys.argv[2] or None, store=sys.argv[1], experiment=Experiment(seed=1))
DOCUMENTS = np.eye(5, {N_FEATURES})
print(os.getpid(), flush=True)
for line in sys.stdin:
    name, *args = json.loads(line)
    try:
        if name == "rank":
            answer = ranker.rank(DOCUMENTS).to_dict()
        elif name == "owns":
            answer = ranker._shared.is_here
        else:
            value = getattr(ranker, name)
            answer = str(value(*args) if callable(value) else value)
    except Exception as error:
        answer = f"{{type(error).__name__}}: {{error}}"
    print(json.dumps(answer), flush=True)
"""


class Worker:
    def __init__(self, path, credentials=""):
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), str(credentials)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = threading.Lock()
        self.pid = int(self._process.stdout.readline())

    def __call__(self, name, *args):
        """What the ranker answers; ConnectionError if the process was killed."""
        with self._lock:
            try:
                print(json.dumps([name, *args]), file=self._process.stdin, flush=True)
                answer = self._process.stdout.readline()
            except (OSError, ValueError) as error:
                raise ConnectionError from error
        if not answer:
            raise ConnectionError
        return json.loads(answer)

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def end(self):
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


@pytest.fixture
def start(path):
    """Start workers on one store; they are ended after the test."""
    workers = []

    def start_one(credentials=""):
        workers.append(Worker(path, credentials))
        return workers[-1]

    yield start_one
    for worker in workers:
        worker.end()


@pytest.fixture
def credentials(tmp_path, nowhere):
    file = tmp_path / "device-7.json"
    write_credentials(file, identity(broker=nowhere))
    return file


def clicks_in(path):
    """What is stored: each list with its clicked positions; each list was counted once."""
    with contextlib.closing(DeviceStore(path, client_id=None, federation=None, max_interactions=10_000)) as store:
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
        rows = store.rows("SELECT serp_id, clicks FROM interactions")
        assert sum(count.lists for count in store.gate().counts.values()) == len(rows)
    return {serp_id: np.flatnonzero(np.frombuffer(clicks, "u1")).tolist() for serp_id, clicks in rows}


def test_no_click_is_lost_and_none_counts_twice_whoever_is_killed(start, path):
    """Four workers under load; owners and others die by SIGKILL, and others are started. Callers try again."""
    workers, wanted, lock = [start() for _ in range(4)], {}, threading.Lock()

    def asked(rng, *request):
        while True:
            with lock:
                worker = workers[rng.integers(4)]
            with contextlib.suppress(ConnectionError):
                answer = worker(*request)
                assert "Error" not in str(answer), answer
                return answer

    def search(seed):
        rng = np.random.default_rng(seed)
        serp_id = asked(rng, "rank")["serp_id"]
        positions = sorted(rng.choice(5, rng.integers(4), replace=False).tolist())
        for clicked in [[position] for position in positions] or [[]]:
            asked(rng, "record_clicks", serp_id, clicked)
        wanted[serp_id] = positions

    with ThreadPoolExecutor(4) as pool:
        for n_done in range(25, 200, 25):
            pool.map(search, range(n_done, n_done + 25))
            wait_until(lambda n=n_done: len(wanted) >= n - 12)
            owners = [worker for worker in workers if owns(worker)]
            victim = (owners or workers)[0] if n_done % 2 else workers[-1]
            victim.kill()
            with lock:
                workers[workers.index(victim)] = start()
    for worker in workers:
        worker.end()
    assert clicks_in(path) == wanted
    assert len(wanted) == 175


def owns(worker):
    with contextlib.suppress(ConnectionError):
        return worker("owns")
    return False


def test_another_process_takes_over_without_being_asked(start, path, credentials):
    """The owner is killed: another one has the model, the gate and the credentials, and connects for all."""
    with stored(path) as store:
        store.put_model(encode(model(3)))
    first, *others = start(credentials), start(credentials), start()
    assert [worker("model_version") for worker in others] == ["3", "3"]
    serp_id = first("rank")["serp_id"]
    first.kill()
    wait_until(lambda: sum(worker("owns") for worker in others) == 1)
    for worker in others:
        assert worker("client_id") == "device-7"
        assert worker("model_version") == "3"
        assert worker("record_clicks", serp_id, [2]) == "True"
        assert worker("n_waiting") == "1"


async def test_clicks_of_all_processes_are_in_one_update_and_count_once(mqtt_broker, start, tmp_path):
    """The owner is killed while its update waits for a receipt: its successor sends the same one."""
    file = tmp_path / "device-7.json"
    write_credentials(file, identity(broker=mqtt_broker))
    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        await federator.announce(1, min_interactions=2)
        first, second = await asyncio.to_thread(start, file), await asyncio.to_thread(start, file)
        for worker in (first, second):
            serp_id = (await asyncio.to_thread(worker, "rank"))["serp_id"]
            await asyncio.to_thread(worker, "record_clicks", serp_id, [1])
        update = await federator.update()
        assert update.n_interactions == 2
        await asyncio.to_thread(first.kill)
        again = await federator.update()
        while again.update_id == update.update_id and not await asyncio.to_thread(second, "owns"):
            again = await federator.update()
        assert (again.update_id, again.n_interactions) == (update.update_id, 2)
        await federator.receipt(again, ReceiptCode.ACCEPTED)
        await until(lambda: asyncio.to_thread(lambda: "accepted" in second("receipts")))
        assert await asyncio.to_thread(second, "n_waiting") == "0"


def test_credentials_given_to_one_process_are_all_processes(start, credentials):
    """Enrolled by those that do not own the store, at once; and known to one that takes over."""
    first, second, third = start(), start(), start()
    assert second("enrol", str(credentials)) == "None"
    assert third("enrol", str(credentials)) == "None"
    first.kill()
    wait_until(lambda: second("owns") or third("owns"))
    assert [worker("client_id") for worker in (second, third, start(credentials))] == ["device-7"] * 3


def test_forgetting_holds_for_all_processes(start, path):
    """Asked in one: no list from before can be clicked in any, and nothing of them is in the file."""
    first, second = start(), start()
    serp_id, other_id = first("rank")["serp_id"], second("rank")["serp_id"]
    second("record_clicks", serp_id, [1])
    assert "forgotten" in second("forget_me")
    for worker in (first, second):
        assert "no list" in worker("record_clicks", serp_id, [2])
        assert "no list" in worker("record_clicks", other_id, [2])
        assert worker("n_waiting") == "0"
    first.kill()
    wait_until(lambda: second("owns"))
    assert "no list" in second("record_clicks", other_id, [2])
    assert clicks_in_all_files(path, serp_id, other_id) == 0


def clicks_in_all_files(path, *serp_ids):
    files = [file for file in path.parent.iterdir() if file.is_file()]
    return sum(serp_id.encode() in file.read_bytes() for file in files for serp_id in serp_ids)


def test_a_search_goes_on_while_the_owner_hangs(start, path, monkeypatch):
    """In the application's order; what was shown then can be clicked once the owner answers, also elsewhere."""
    monkeypatch.setattr("foltr.edge_client.workers.shared_device._RANK_S", 0.05)
    monkeypatch.setattr("foltr.edge_client.workers.shared_device._ANSWER_S", 0.05)
    owner, other = start(), start()
    with SearchRanker(store=path) as ranker:
        owner.signal(signal.SIGSTOP)
        shown = [ranker.rank(DOCUMENTS) for _ in range(3)]
        assert all(serp.source is Source.BASE and serp.ranking.tolist() == [0, 1, 2, 3, 4] for serp in shown)
        assert ranker.state.status == "without the process that owns the store"
        with pytest.raises(UnavailableError, match="if it hangs, end it, and another takes over"):
            ranker.record_clicks(shown[0], [1])
        monkeypatch.undo()
        owner.signal(signal.SIGCONT)
        ranker.record_clicks(shown[0], [1])
        assert other("record_clicks", shown[1].serp_id, [2]) == "True"
    for worker in (owner, other):
        worker.end()
    assert clicks_in(path) == {shown[0].serp_id: [1], shown[1].serp_id: [2]}


def test_processes_with_other_arguments_are_refused_by_name(start, path, monkeypatch):
    """Once the time is over in which a server that is restarted may still have processes of before."""
    monkeypatch.setattr("foltr.edge_client.workers.shared_device._JOIN_S", 0.1)
    owner = start()
    with pytest.raises(SettingsError, match=rf"n_features: 4, but the process {owner.pid}, .* has None"):
        SearchRanker(store=path, n_features=4)
    with pytest.raises(SettingsError, match=r"privacy: .*keep_interactions=3"):
        SearchRanker(store=path, privacy=Privacy(keep_interactions=3))
    owner.end()
    with SearchRanker(store=path, n_features=4) as ranker:
        assert ranker.n_waiting == 0


def test_a_store_that_is_not_shared_is_refused(path, monkeypatch):
    """An EdgeClient has it, or its path is too long for a socket."""
    monkeypatch.setattr("foltr.edge_client.workers.shared_device._JOIN_S", 0.1)
    with (
        contextlib.closing(DeviceStore(path, client_id=None, federation=None, max_interactions=10)),
        pytest.raises(StoreInUseError, match="has it open"),
    ):
        SearchRanker(store=path)
    long = path.with_name("a" * 120)
    with SearchRanker(store=long), pytest.raises(StoreInUseError, match="has it open"):
        SearchRanker(store=long)


def test_what_the_owner_raises_is_raised_in_every_process(start, path):
    """As in a single process; a mistake in a call is raised at once."""
    start()
    with SearchRanker(store=path) as ranker:
        serp = ranker.rank(DOCUMENTS)
        with pytest.raises(DataError, match="position 7 is outside the list"):
            ranker.record_clicks(serp, [7])
        with pytest.raises(DataError, match="features: row 0"):
            ranker.rank([[np.nan]])
        with pytest.raises(UsageError, match="not enrolled"):
            ranker.wait_settled(0.0)
        with pytest.raises(UsageError, match="another process owns the store"):
            _ = ranker.store
        with pytest.raises(TypeError, match="missing"):
            ranker.record_clicks(serp)
        ranker.record_clicks(serp, (position for position in (0, 2)))
        assert (ranker.n_waiting, ranker.report().n_clicked) == (1, 1)
    assert ranker.rank(DOCUMENTS).ranking.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(UsageError, match="it is closed"):
        ranker.record_clicks(serp, [1])


def test_rows_and_clicks_of_any_kind_reach_the_owner(path):
    """Also those that cannot be pickled, in every argument."""
    schema = FeatureSchema(name="any", version=1, features=[Feature(name="x", scaling="ratio")])
    rows = [defaultdict(lambda: 0.0, x=0.1), defaultdict(lambda: 0.0, x=0.2)]
    with SearchRanker(store=path, schema=schema), SearchRanker(store=path, schema=schema) as other:
        serp = other.rank(features=rows, base={"one": 1.0, "two": 2.0}.values(), exploration="none")
        assert serp.ranking.tolist() == [1, 0]
        other.record_clicks(serp.serp_id, clicked=(position for position in (0,)))
        other.record_clicks(serp.serp_id, {1: "opened"}.keys())
        assert (other.scores(rows).tolist(), other.n_waiting, other.report().n_clicked) == ([0.0, 0.0], 1, 1)


def test_an_owner_that_closes_hands_over(start, path):
    """While others search and click: as a server that restarts its workers one by one."""
    with capture_logs() as logs:
        owner, ranker = start(), SearchRanker(store=path)
        serp = ranker.rank(DOCUMENTS)
        ending = threading.Thread(target=owner.end)
        ending.start()
        ranker.record_clicks(serp, [1])
        ending.join(PATIENCE_S)
        wait_until(lambda: "store_taken_over" in [line["event"] for line in logs])
        ranker.record_clicks(serp.serp_id, [2])
        ranker.close()
    assert clicks_in(path) == {serp.serp_id: [1, 2]}
    assert not path.with_name(f"{path.name}.socket").exists()
