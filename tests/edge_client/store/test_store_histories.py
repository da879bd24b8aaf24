"""A device's memory after any history of uses and answers, and after kill -9 in the middle of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.device_stores import add, member_store, serp_ids, waiting_ids

from foltr.edge_client.store.bounds import PendingUpdate
from foltr.edge_client.store.store import DeviceStore

REPOSITORY = Path(__file__).parents[3]


class AnyUse(RuleBasedStateMachine):
    """Any sequence of uses and answers: what an interaction is follows from its number and its schema alone."""

    @initialize(max_kept=st.sampled_from([0, 2, 500]))
    def start(self, max_kept):
        self.max_kept = max_kept
        self.store = DeviceStore(
            ":memory:", client_id="device-7", federation="mail", max_interactions=10_000, max_kept=max_kept
        )
        self.n_added, self.watermark, self.floor = 0, 0, 0
        self.store.settle(0)
        self.there: list[int] = []
        self.schema_of: dict[int, bytes | None] = {}
        self.pending: PendingUpdate | None = None
        self.began = [0]  # where each update that counts began, the newest last

    def waiting(self):
        last = max(self.watermark, self.floor, self.pending.through if self.pending else 0)
        return [i for i in self.mine() if i > last]

    def mine(self):
        return [i for i in self.there if self.schema_of[i] == self.store.schema_hash]

    @rule(schema_hash=st.sampled_from([None, b"1" * 32, b"2" * 32]))
    def declare(self, schema_hash):
        self.store.schema_hash = schema_hash

    @rule()
    def record(self):
        (interaction,) = add(self.store, f"serp-{self.n_added}")
        self.n_added += 1
        self.there.append(interaction.id)
        self.schema_of[interaction.id] = self.store.schema_hash

    @precondition(lambda self: self.pending is None and self.waiting())
    @rule(n=st.integers(1, 4), spent=st.booleans())
    def contribute(self, n, spent):
        ids = self.waiting()[:n]
        self.pending = PendingUpdate("u", 1, self.watermark, ids[-1], b"bytes")
        self.store.put_update(self.pending, ids, spent=spent)
        passed_over = {i for i in self.there if max(self.watermark, self.floor) < i < ids[-1]} - set(ids)
        self.there = [i for i in self.there if i not in passed_over]
        self.floor = ids[-1] if spent else self.floor

    @precondition(lambda self: self.pending is not None)
    @rule(counted=st.booleans(), is_about=st.booleans())
    def answer(self, counted, is_about):
        watermark = self.pending.through if counted else self.watermark
        if counted:
            self.began.append(self.pending.after)
        self._settle(watermark, "u" if is_about else None)

    @rule(n=st.integers(1, 3))
    def start_over(self, n):
        """A round that was abandoned, or a database that was restored."""
        began = self.watermark
        for _ in range(min(n, len(self.began) - 1)):
            began = self.began.pop()
        self._settle(min(self.watermark, began), None)

    def _settle(self, watermark, answered):
        settled = self.store.settle(watermark, answered)
        counted = self.pending is not None and watermark >= self.pending.through
        assert settled.counted == counted
        assert settled.given_up == (self.pending is not None and not counted and answered is not None)
        if settled.counted or settled.given_up:
            self.pending = None
        if settled.changed:
            self.watermark = watermark
            held_from = self.pending.after if self.pending else float("inf")
            self.there = [i for i in self.there if i > self.floor or i > held_from]
            counting = [i for i in self.there if i <= watermark]
            gone = set(counting[: max(0, len(counting) - self.max_kept)])
            self.there = [i for i in self.there if i not in gone]

    @invariant()
    def each_is_in_its_place(self):
        assert self.store.watermark() == self.watermark
        assert waiting_ids(self.store) == self.waiting()
        assert self.store.n_waiting() == len(self.waiting())
        assert self.store.kept_ids() == [i for i in self.mine() if i <= self.watermark]
        assert self.store.pending_update() == self.pending
        assert [row[0] for row in self.store.rows("SELECT id FROM interactions ORDER BY id")] == self.there

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()


AnyUse.TestCase.settings = settings(stateful_step_count=20, derandomize=True)
TestAnyUse = AnyUse.TestCase
WRITER = """
import sys
import numpy as np
from foltr.edge_client.store.bounds import PendingUpdate
from foltr.edge_client.store.store import UNNUMBERED, DeviceStore, Interaction

store = DeviceStore(
    sys.argv[1], client_id="device-7", federation="mail", max_interactions=1_000_000, max_kept=1_000_000
)
start = int(sys.argv[2])
if store.watermark() is None:
    store.settle(0)
features = np.zeros((50, 40), np.float32)
waiting = []
for i in range(start, start + 1_000_000):
    shown = Interaction(UNNUMBERED, features, np.arange(10), np.zeros(10, np.bool_))
    interaction = store.add_interaction(f"serp-{i}", shown)
    print("recorded", f"serp-{i}", flush=True)
    waiting.append(interaction.id)
    if len(waiting) >= 5:
        watermark = store.watermark()
        store.put_update(PendingUpdate(f"update-{i}", i, watermark, waiting[-1], b"x" * 5_000), waiting)
        print("put", f"update-{i}", flush=True)
        counts = i % 2 == 1
        store.settle(waiting[-1] if counts else watermark, f"update-{i}")
        print("counted" if counts else "kept", f"update-{i}", waiting[-1], flush=True)
        if counts:
            waiting.clear()
"""


def test_what_was_acknowledged_survives_a_kill(path):
    """SIGKILL in the middle of writing, several times: what was acknowledged is there, in place by the watermark."""
    recorded, start = [], 0
    for run in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(start)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
        ) as process:
            lines = [process.stdout.readline() for _ in range(40 + 7 * run)]
            time.sleep(0.01 * run)
            os.kill(process.pid, signal.SIGKILL)
            lines += process.stdout.readlines()
        assert process.returncode == -signal.SIGKILL
        last, watermark = "", 0
        for line in lines:
            if not line.endswith("\n"):
                break
            last, *names = line.split()
            if last == "recorded":
                recorded.append(names[0])
            elif last == "counted":
                watermark = int(names[1])
        start += 1_000_000
        with member_store(path, max_interactions=1_000_000, max_kept=1_000_000) as store:
            stored = serp_ids(store)
            assert set(recorded) <= set(stored)
            # The write after the last acknowledged one may have happened too.
            assert len(set(stored) - set(recorded)) <= 1
            pending = store.pending_update()
            assert store.watermark() == watermark or (last == "put" and store.watermark() > watermark)
            assert store.rows("PRAGMA integrity_check") == [("ok",)]
            if pending is not None:
                assert (pending.payload, pending.after) == (b"x" * 5_000, store.watermark())
                store.settle(pending.after, pending.update_id)
            assert store.kept_ids() == [i for i in range(1, store.watermark() + 1) if i <= len(stored)]
            store.settle(store.watermark() + store.n_waiting())  # what waits, counts: the next run begins with nothing
            assert store.n_waiting() == 0
            recorded = serp_ids(store)
