"""A federator's memory: its threads share one heap, unless whoever runs it says otherwise."""

import os
import sys

import pytest
from support.completed_process import completed
from support.databases import migrated_sqlite

HEAPS = """
import ctypes, threading
from foltr.cli.federator import share_one_heap
{call}
barrier = threading.Barrier(4)
def take():
    taken = bytes(100_000)
    barrier.wait()
threads = [threading.Thread(target=take) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
ctypes.CDLL(None).malloc_stats()
"""


# It ends, as it finds no broker, and its thread for the database was there.
FEDERATOR = """
import contextlib, ctypes, sys
from foltr.cli.main import main
sys.argv = ["foltr", "federator", "run", "--allow-unsigned", "--federation", "a"]
sys.argv += ["--features", "2", "--broker", "mqtt://127.0.0.1:1", "--db", "sqlite:///" + {file!r}]
with contextlib.suppress(SystemExit):
    main()
ctypes.CDLL(None).malloc_stats()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems share heaps in their own way")


def n_heaps(code, **environment):
    process = completed([sys.executable, "-c", code], env={**os.environ, **environment}, check=True)
    return process.stderr.count("Arena ")


def test_a_federator_has_one_heap(tmp_path):
    """Its threads for the database and for reading updates take from it what its event loop does."""
    file = str(tmp_path / "a.sqlite")
    migrated_sqlite(tmp_path / "a.sqlite")
    assert n_heaps(FEDERATOR.format(file=file), FOLTR_GIVE_UP_AFTER_S="0.2") == 1


@pytest.mark.nightly
def test_threads_share_one_heap_unless_the_environment_says_otherwise():
    """Without it each of four that want memory at the same moment may have its own."""
    assert n_heaps(HEAPS.format(call="pass")) > 1
    assert n_heaps(HEAPS.format(call="assert share_one_heap()")) == 1
    assert n_heaps(HEAPS.format(call="assert not share_one_heap()"), MALLOC_ARENA_MAX="3") == 3
