"""A ranker and the life of processes: killed, forked, ended without a word; each in a process of its own."""

import contextlib
import sys

import pytest
from support.completed_process import completed
from support.device_under_policy import identity
from support.federator_by_hand import N_FEATURES, model

from foltr.core.extras import MODULES
from foltr.core.operator.credentials import write_credentials
from foltr.core.protocol.codec import encode
from foltr.edge_client.store.store import DeviceStore

BEGIN = f"""
import os, signal, sys, threading, time
import numpy as np
from foltr import Experiment, SearchRanker

DOCUMENTS = np.eye(5, {N_FEATURES})
ranker = SearchRanker(sys.argv[1] or None, store=sys.argv[2], experiment=Experiment(seed=1))

def click():
    serp = ranker.rank(DOCUMENTS)
    ranker.record_clicks(serp, [0])
    return serp
"""


@pytest.fixture(params=["enrolled", pytest.param("", marks=pytest.mark.nightly)])
def credentials(request, tmp_path, nowhere):
    return str(enrolled(tmp_path, nowhere)) if request.param else ""


def enrolled(folder, broker_url):
    file = folder / "device-7.json"
    write_credentials(file, identity(broker=broker_url))
    return file


def run(code, *arguments):
    return completed([sys.executable, "-c", BEGIN + code, *map(str, arguments)])


def stored(path):
    store = DeviceStore(path, client_id=None, federation=None, max_interactions=1000)
    with contextlib.closing(store):
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
        return [serp_id for (serp_id,) in store.rows("SELECT serp_id FROM interactions ORDER BY id")]


FIRST = """
before = set(sys.modules)
serp = ranker.rank(np.random.default_rng(1).random((100, 16)))
ranker.record_clicks(serp, [1])
assert ranker.scores(DOCUMENTS).shape == (5,)
time.sleep(0.2)  # it may learn
print(serp.model_version, "numba" in sys.modules, [name for name in set(sys.modules) - before if "foltr." in name])
"""


def test_the_first_list_waits_for_nothing_that_has_to_be_loaded(nowhere, path, tmp_path):
    """With a model from the last start, in a fresh process, whether numba is installed or not: nothing is loaded."""
    file = enrolled(tmp_path, nowhere)
    with contextlib.closing(DeviceStore(path, client_id="device-7", federation="mail", max_interactions=1000)) as store:
        store.put_model(encode(model(3)))
    done = run(FIRST, file, path)
    assert (done.returncode, done.stdout) == (0, "3 False []\n"), done.stderr


OF_EXTRAS = [module for modules in MODULES.values() for module in modules]
NARROW = f"""
import sys

sys.modules |= dict.fromkeys({OF_EXTRAS})  # an import of one fails
import numpy as np
from foltr import SearchRanker


def loaded():
    return {{name for name, module in sys.modules.items() if module is not None}}


ranker = SearchRanker(sys.argv[1] or None, store=sys.argv[2])
before = loaded()
ranker.record_clicks(ranker.rank(7.0 * np.eye(5, {N_FEATURES})), [0])
print(*before)
print(*(name for name in loaded() - before if name.startswith(("foltr.", "numpy.", "pydantic"))))
"""
FOR_OTHERS = {"foltr.core.protocol.orders", "foltr.core.aggregation.adaptive"}
FOR_CLIENTS = {"asyncio", "aiomqtt", "paho", "nacl", "msgpack", "foltr.edge_client.agent"}


@pytest.mark.parametrize(("is_enrolled", "n_most", "others"), [(True, 610, FOR_OTHERS), (False, 412, FOR_CLIENTS)])
def test_a_device_needs_no_extra_and_few_modules(nowhere, path, tmp_path, is_enrolled, n_most, others):
    """It starts, ranks, warns and records without them; nothing is loaded by the first list or click."""
    file = str(enrolled(tmp_path, nowhere)) if is_enrolled else ""
    done = completed([sys.executable, "-c", NARROW, file, str(path)])
    assert done.returncode == 0, done.stderr
    assert "features_out_of_range" in done.stderr
    loaded, late = (set(line.split()) for line in done.stdout.splitlines())
    assert loaded.isdisjoint(others)
    assert not late
    # Python with NumPy and pydantic has 322, SQLite and the like add 12; asyncio, aiomqtt, PyNaCl and msgpack 91.
    assert len(loaded) <= n_most


def test_a_list_outlives_kill_9_and_a_click_on_it_counts_once(credentials, path):
    """Shown by one process, clicked in the next, which is killed too, and clicked again in a third."""
    done = run(
        """
serp = ranker.rank(DOCUMENTS)
while not ranker.store.rows("SELECT 1 FROM recent_lists"):
    time.sleep(0.01)
print(serp.serp_id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""",
        credentials,
        path,
    )
    assert done.returncode == -9, done.stderr
    serp_id = done.stdout.strip()
    for position in (3, 1):
        code = f"ranker.record_clicks({serp_id!r}, [{position}]); os.kill(os.getpid(), signal.SIGKILL)"
        done = run(code, credentials, path)
        assert done.returncode == -9, done.stderr
    assert stored(path) == [serp_id]
    with contextlib.closing(DeviceStore(path, client_id=None, federation=None, max_interactions=1000)) as store:
        (interaction,) = store.waiting_interactions(10)
    assert interaction.clicks.tolist() == [False, True, False, True, False]


def test_a_process_ends_without_a_word(credentials, path):
    """Nobody closed the ranker: it ends at once, quietly, and the next start has what was recorded."""
    done = run("click(); print('recorded')", credentials, path)
    assert (done.returncode, done.stdout) == (0, "recorded\n"), done.stderr
    # The broker is away, and that is all there is to say.
    assert all("broker_unreachable" in line for line in done.stderr.splitlines()), done.stderr
    assert len(stored(path)) == 1


def test_a_fork_uses_the_ranker_of_its_parent(credentials, path):
    """Its end harms neither the store nor the parent, as of a forking server; when that is killed, it takes over."""
    done = run(
        """
first = click()
parent = os.getpid()
for end in (os._exit, sys.exit, None):
    if os.fork() == 0:
        serp = click()
        ranker.record_clicks(first, [len(serp.ranking) - 1])
        if end is not None:
            end(7)
        os.kill(parent, signal.SIGKILL)
        print(click().serp_id in [id for (id,) in ranker.store.rows("SELECT serp_id FROM interactions")], flush=True)
        sys.exit()
    if end is not None:
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        click()
time.sleep(600)  # clock: stand-in
""",
        credentials,
        path,
    )
    assert (done.returncode, done.stdout) == (-9, "True\n"), done.stderr
    assert len(stored(path)) == 7


def test_a_fork_of_a_ranker_without_a_file_is_closed(credentials, path):
    """Nobody else can have what is only in memory; a fork may make its own ranker with a store of its own."""
    done = run(
        f"""
if os.fork() == 0:
    assert ranker.rank(DOCUMENTS, k=3).ranking.tolist() == [0, 1, 2]
    print(ranker.state.status, flush=True)
    try:
        click()
    except Exception as error:
        print(type(error).__name__, flush=True)
    with SearchRanker(store={str(path)!r}) as own:
        own.record_clicks(own.rank(DOCUMENTS), [1])
        assert own.n_waiting == 1
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
click()
""",
        credentials,
        ":memory:",
    )
    assert (done.returncode, done.stdout) == (0, "closed\nUsageError\n"), done.stderr
    assert len(stored(path)) == 1
