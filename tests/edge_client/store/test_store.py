"""The device's memory: what was acknowledged is there, and no interaction is in two places."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge_client.store.store import DeviceStore, PendingUpdate
from foltr.errors import DataError

REPOSITORY = Path(__file__).parents[3]
FEATURES = np.arange(6, dtype=np.float32).reshape(3, 2)
RANKING = np.array([2, 0], np.int64)
CLICKS = np.array([True, False])


@contextlib.contextmanager
def opened(path, *, max_interactions=100, max_kept=500):
    store = DeviceStore(
        path, client_id="device-7", federation="mail", max_interactions=max_interactions, max_kept=max_kept
    )
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "device.sqlite"


@pytest.fixture
def store(path):
    with opened(path) as store:
        yield store


def add(store, *serp_ids):
    return [store.add_interaction(serp_id, FEATURES, RANKING, CLICKS) for serp_id in serp_ids]


def waiting_ids(store):
    return [interaction.id for interaction in store.waiting_interactions(1_000)]


def serp_ids(store):
    return [row[0] for row in store.rows("SELECT serp_id FROM interactions ORDER BY id")]


# --- interactions ---------------------------------------------------------------------------------------------


def test_an_interaction_comes_back_as_it_was(path, rng):
    """Features, ranking and clicks survive to the bit, in their types, in order, across a restart."""
    shown = []
    with opened(path) as store:
        for i, n_documents in enumerate((1, 7, 40)):
            features = rng.standard_normal((n_documents, 5)).astype(np.float32)
            ranking = rng.permutation(n_documents)[:10].astype(np.int64)
            clicks = rng.random(len(ranking)) < 0.5
            shown.append((features, ranking, clicks))
            assert store.add_interaction(f"serp-{i}", features, ranking, clicks) is not None
    with opened(path) as store:
        stored = store.waiting_interactions(10)
    for interaction, expected in zip(stored, shown, strict=True):
        for array, wanted in zip(
            (interaction.features, interaction.ranking, interaction.clicks), expected, strict=True
        ):
            np.testing.assert_array_equal(array, wanted)
            assert array.dtype == wanted.dtype


def test_who_showed_a_list_is_kept(path):
    """What a variant of one model's ranker earned is not another's."""
    with opened(path) as store:
        store.add_interaction("a", FEATURES, RANKING, CLICKS, -1, 7)
        add(store, "b")
    with opened(path) as store:
        shown_by = [(item.variant, item.base_version) for item in store.waiting_interactions(10)]
    assert shown_by == [(-1, 7), (0, None)]


def test_what_a_list_was_drawn_by_is_kept(path):
    """To the bit, while it waits and once it counted; and so is that it is not known."""
    scores = np.array([0.1, -3e-9, 7.0], np.float32)
    with opened(path) as store:
        drawn = store.add_interaction("a", FEATURES, RANKING, CLICKS, scores=scores)
        (other,) = add(store, "b")
        assert drawn.scores is scores
    for spent in (False, True):
        with opened(path) as store:
            if spent:
                store.put_update(PendingUpdate("u", 1, b"bytes"), [drawn.id, other.id])
                store.remove_update("u", keep_interactions=False)
                back = [store.kept_interaction(i) for i in store.kept_ids()]
            else:
                back = store.waiting_interactions(10)
        np.testing.assert_array_equal(back[0].scores, scores)
        assert back[0].scores.dtype == np.float32
        assert back[1].scores is None


def test_what_was_refused_for_good_leaves_no_trace(store):
    """The local state of a discarded update does not become the device's own."""
    (first,) = add(store, "a")
    store.put_update(PendingUpdate("u", 1, b"bytes", b"state"), [first.id])
    store.remove_update("u", keep_interactions=False, counted=False)
    assert store.local_state() is None
    assert waiting_ids(store) == []


def test_a_randomised_response_is_sent_once(store):
    """What a variant earned is not given back with a refused update: fresh noise would tell more of it."""
    earned = store.add_interaction("a", FEATURES, RANKING, CLICKS, 1, 7)
    (plain,) = add(store, "b")
    store.put_update(PendingUpdate("u", 1, b"bytes"), [earned.id, plain.id])
    store.remove_update("u", keep_interactions=True)
    assert waiting_ids(store) == [plain.id]


def test_a_result_list_is_stored_once(store):
    """Recording it again stores nothing and says so."""
    (first,) = add(store, "a")
    assert first is not None
    assert add(store, "a") == [None]
    assert waiting_ids(store) == [first.id]


def test_the_oldest_come_first_and_no_more_than_asked(store):
    """An update of a backlog takes the oldest."""
    first, second, _ = add(store, "a", "b", "c")
    assert [interaction.id for interaction in store.waiting_interactions(2)] == [first.id, second.id]


def test_the_number_of_interactions_is_bounded(path):
    """The oldest waiting one makes room."""
    with opened(path, max_interactions=3) as store:
        add(store, "a", "b", "c", "d", "e")
        assert serp_ids(store) == ["c", "d", "e"]


def test_room_is_not_made_in_the_pending_update(path):
    """What an update holds stays until its receipt; what waits beside it makes room."""
    with opened(path, max_interactions=3) as store:
        held = add(store, "a", "b")
        store.put_update(PendingUpdate("u", 1, b"bytes"), [interaction.id for interaction in held])
        add(store, "c", "d", "e")
        assert serp_ids(store) == ["a", "b", "e"]


def test_a_list_recorded_twice_makes_no_room(path):
    """On a full device a repeated record neither drops another list nor replaces itself under a new id."""
    with opened(path, max_interactions=2) as store:
        first, _ = add(store, "a", "b")
        add(store, "b")
        assert serp_ids(store) == ["a", "b"]
        assert add(store, "a") == [None]
        assert waiting_ids(store)[0] == first.id


def test_an_id_is_never_used_again(store):
    """The agent remembers by id what it has learned: a new interaction under an old id would be taken for learned."""
    (first,) = add(store, "a")
    store.put_update(PendingUpdate("u", 1, b"bytes"), [first.id])
    store.remove_update("u", keep_interactions=False)
    (second,) = add(store, "b")
    assert second.id > first.id


def test_discarded_interactions_are_gone(store):
    """What no ranker can use takes no room."""
    first, second = add(store, "a", "b")
    store.discard_interactions([first.id])
    assert waiting_ids(store) == [second.id]


def test_writing_again_after_the_disk_was_full(store):
    """A failed write loses itself only: once there is room, the next one succeeds."""
    add(store, "a")
    ((n_pages,),) = store.rows("PRAGMA page_count")
    store.rows(f"PRAGMA max_page_count = {n_pages}")
    with pytest.raises(DataError, match="full"):
        add(store, *(f"too-much-{i}" for i in range(1_000)))
    store.rows("PRAGMA max_page_count = 100000")
    n_stored = store.n_waiting()
    assert add(store, "b")[0] is not None
    assert store.n_waiting() == n_stored + 1
    assert serp_ids(store)[0] == "a"


# --- the unsent update ----------------------------------------------------------------------------------------


def test_the_pending_update_survives_to_the_byte(path):
    """After a restart the same update_id and the same bytes are sent, and its interactions stay held."""
    payload = bytes(range(256)) * 40
    with opened(path) as store:
        held = add(store, "a", "b")
        add(store, "c")
        store.put_update(PendingUpdate("u", 9, payload), [interaction.id for interaction in held])
    with opened(path) as store:
        assert store.pending_update() == PendingUpdate("u", 9, payload)
        assert isinstance(store.pending_update().payload, bytes)
        assert store.n_waiting() == 1


@pytest.mark.parametrize(("keep", "left"), [(True, ["a", "b", "c"]), (False, ["c"])])
def test_a_receipt_spends_the_interactions_or_gives_them_back(path, keep, left):
    """Either way the update is gone, and both happen together, also on disk."""
    with opened(path) as store:
        first, second, third = add(store, "a", "b", "c")
        store.put_update(PendingUpdate("u", 1, b"bytes"), [first.id, second.id])
        assert waiting_ids(store) == [third.id]
        store.remove_update("u", keep_interactions=keep)
    with opened(path) as store:
        assert store.pending_update() is None
        assert serp_ids(store) == left
        assert store.n_waiting() == len(left)


def test_removing_another_update_changes_nothing(store):
    """A receipt for an update we no longer have must not touch the one we have."""
    (held,) = add(store, "a")
    pending = PendingUpdate("u", 1, b"bytes")
    store.put_update(pending, [held.id])
    for keep in (True, False):
        store.remove_update("other", keep_interactions=keep)
        assert store.pending_update() == pending
        assert waiting_ids(store) == []


def test_there_is_one_pending_update(store):
    """A second one is refused as a whole: it takes no interaction."""
    first, second = add(store, "a", "b")
    store.put_update(PendingUpdate("u", 1, b"bytes"), [first.id])
    with pytest.raises((sqlite3.IntegrityError, DataError)):
        store.put_update(PendingUpdate("v", 2, b"other"), [second.id])
    assert store.pending_update() == PendingUpdate("u", 1, b"bytes")
    assert waiting_ids(store) == [second.id]


def test_an_update_takes_nothing_that_is_spent_or_gone(store):
    """An update that claims interactions which are not waiting would count them twice: it is refused."""
    first, second = add(store, "a", "b")
    store.put_update(PendingUpdate("u", 1, b"bytes"), [first.id])
    store.remove_update("u", keep_interactions=False)
    with pytest.raises(DataError):
        store.put_update(PendingUpdate("v", 2, b"again"), [first.id, second.id])
    assert store.pending_update() is None
    assert waiting_ids(store) == [second.id]


# --- local state ----------------------------------------------------------------------------------------------


def contribute(store, name, local_state):
    (interaction,) = add(store, f"serp of {name}")
    store.put_update(PendingUpdate(name, 1, b"bytes", local_state), [interaction.id])


def test_local_state_is_that_of_the_pending_update(path):
    """Also after a restart, and when the update is signed anew."""
    with opened(path) as store:
        assert store.local_state() is None
        contribute(store, "u", b"personal")
        assert store.local_state() == b"personal"
    with opened(path) as store:
        store.replace_payload("u", b"other bytes")
        assert store.local_state() == b"personal"
        assert store.pending_update() == PendingUpdate("u", 1, b"other bytes", b"personal")


@pytest.mark.parametrize(("keep", "left"), [(True, b"first"), (False, b"second")])
def test_local_state_goes_with_the_interactions(path, keep, left):
    """Spent, they stay learned; given back, they will be learned again, from the state before."""
    with opened(path) as store:
        contribute(store, "u", b"first")
        store.remove_update("u", keep_interactions=False)
        contribute(store, "v", b"second")
        store.remove_update("v", keep_interactions=keep)
        assert store.local_state() == left
    with opened(path) as store:
        assert store.local_state() == left


def test_an_update_without_local_state_leaves_it(store):
    """A method that keeps nothing says nothing of what another has kept."""
    contribute(store, "u", b"personal")
    store.remove_update("u", keep_interactions=False)
    contribute(store, "v", None)
    assert store.local_state() == b"personal"
    store.remove_update("v", keep_interactions=False)
    assert store.local_state() == b"personal"


def test_another_updates_receipt_keeps_no_local_state(store):
    """As it spends no interactions either."""
    contribute(store, "u", b"personal")
    store.remove_update("other", keep_interactions=False)
    store.remove_update("u", keep_interactions=True)
    assert store.local_state() is None


class AnyUse(RuleBasedStateMachine):
    """Any sequence of uses and restarts: an interaction is waiting, held or spent, and spent once."""

    @initialize()
    def start(self):
        self.store = DeviceStore(":memory:", client_id="device-7", federation="mail", max_interactions=10_000)
        self.n_added = 0
        self.waiting: list[int] = []
        self.held: list[int] = []
        self.spent: set[int] = set()

    @rule()
    def record(self):
        (interaction,) = add(self.store, f"serp-{self.n_added}")
        self.n_added += 1
        self.waiting.append(interaction.id)

    @precondition(lambda self: not self.held and self.waiting)
    @rule(n=st.integers(1, 4))
    def contribute(self, n):
        self.held, self.waiting = self.waiting[:n], self.waiting[n:]
        self.store.put_update(PendingUpdate("u", 1, b"bytes"), self.held)

    @precondition(lambda self: self.held)
    @rule(counted=st.booleans())
    def receipt(self, counted):
        self.store.remove_update("u", keep_interactions=not counted)
        if counted:
            self.spent |= set(self.held)
        else:
            self.waiting = sorted(self.waiting + self.held)
        self.held = []

    @invariant()
    def each_is_in_one_place(self):
        assert waiting_ids(self.store) == self.waiting
        rows = self.store.rows("SELECT id FROM interactions WHERE update_id IS NOT NULL ORDER BY id")
        assert [row[0] for row in rows] == self.held
        assert (self.store.pending_update() is not None) == bool(self.held)

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()


AnyUse.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None, derandomize=True)
TestAnyUse = AnyUse.TestCase


# --- what is kept of spent interactions -----------------------------------------------------------------------


def spend(store, *names, keep_interactions=False, counted=True):
    """One update with these, which gets its receipt."""
    ids = [interaction.id for interaction in add(store, *names)]
    store.put_update(PendingUpdate("u", 1, b"bytes"), ids)
    store.remove_update("u", keep_interactions=keep_interactions, counted=counted)
    return ids


def test_what_counted_is_kept_as_it_was(path):
    """To the bit, under its own number, across a restart; it waits no more and is in no update again."""
    with opened(path) as store:
        ids = spend(store, "a", "b")
        assert (store.kept_ids(), store.n_waiting()) == (ids, 0)
    with opened(path) as store:
        kept = store.kept_interaction(ids[1])
        assert (kept.id, kept.variant) == (ids[1], 0)
        for array, wanted in ((kept.features, FEATURES), (kept.ranking, RANKING), (kept.clicks, CLICKS)):
            np.testing.assert_array_equal(array, wanted)
            assert array.dtype == wanted.dtype
        with pytest.raises(DataError):
            store.put_update(PendingUpdate("v", 2, b"again"), ids)


@pytest.mark.parametrize("fate", [{"keep_interactions": True}, {"counted": False}], ids=["given back", "refused"])
def test_what_did_not_count_is_not_kept(store, fate):
    """Given back it waits; refused for good it goes."""
    spend(store, "a", **fate)
    assert store.kept_ids() == []


def test_what_a_randomised_response_was_made_of_is_not_kept(store):
    """What a variant earned is spent by being sent: nothing may be learned from it again."""
    earned = store.add_interaction("a", FEATURES, RANKING, CLICKS, 1, 7)
    (plain,) = add(store, "b")
    store.put_update(PendingUpdate("u", 1, b"bytes"), [earned.id, plain.id])
    store.remove_update("u", keep_interactions=False)
    assert store.kept_ids() == [plain.id]


@pytest.mark.parametrize("max_kept", [0, 1, 3])
def test_the_newest_are_kept(path, max_kept):
    """As many as asked for, also of one update that holds more; fewer from the next start on if fewer are asked for."""
    with opened(path, max_kept=max_kept) as store:
        ids = spend(store, "a", "b") + spend(store, "c", "d", "e", "f")
        assert store.kept_ids() == ids[len(ids) - max_kept :]
    with opened(path, max_kept=1) as store:
        assert store.kept_ids() == ids[len(ids) - min(max_kept, 1) :]
    with opened(path, max_kept=0) as store:
        assert store.kept_ids() == []


# --- the newest model, the device's own -----------------------------------------------------------------------


def test_the_newest_model_is_kept(path):
    """A device can rank before it is connected, with the last model it heard of."""
    with opened(path) as store:
        assert store.model() is None
        store.put_model(b"old")
        store.put_model(b"new\x00")
    with opened(path) as store:
        assert store.model() == b"new\x00"


def test_a_device_seed_is_drawn_once(path, tmp_path):
    """The same after a restart, another in another store, and it fits a signed 64-bit integer."""
    with opened(path) as store:
        seed = store.device_seed()
    with opened(path) as store:
        assert store.device_seed() == seed
    with opened(tmp_path / "other") as other:
        assert 0 <= other.device_seed() != seed
        assert max(other.device_seed(), seed) < 2**63


# --- kill -9 --------------------------------------------------------------------------------------------------

WRITER = """
import sys
import numpy as np
from edge_client.store.store import DeviceStore, PendingUpdate

store = DeviceStore(sys.argv[1], client_id="device-7", federation="mail", max_interactions=1_000_000)
start = int(sys.argv[2])
features = np.zeros((50, 40), np.float32)
waiting = []
for i in range(start, start + 1_000_000):
    interaction = store.add_interaction(f"serp-{i}", features, np.arange(10), np.zeros(10, np.bool_))
    print("recorded", f"serp-{i}", flush=True)
    waiting.append(interaction.id)
    if len(waiting) == 5:
        store.put_update(PendingUpdate(f"update-{i}", i, b"x" * 5_000), waiting)
        print("put", f"update-{i}", flush=True)
        store.remove_update(f"update-{i}", keep_interactions=i % 2 == 0)
        print("kept" if i % 2 == 0 else "spent", f"update-{i}", *(f"serp-{j}" for j in range(i - 4, i + 1)), flush=True)
        waiting.clear()
"""


def test_what_was_acknowledged_survives_a_kill(path):
    """SIGKILL in the middle of writing, several times: everything acknowledged is there, nothing spent comes back."""
    recorded, spent, start = [], set(), 0
    for run in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(start)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
        ) as process:
            lines = [process.stdout.readline() for _ in range(40 + 7 * run)]
            time.sleep(0.01 * run)
            os.kill(process.pid, signal.SIGKILL)
            lines += process.stdout.readlines()
        assert process.returncode == -signal.SIGKILL
        last = ""
        for line in lines:
            if not line.endswith("\n"):
                break
            last, *names = line.split()
            if last == "recorded":
                recorded.append(names[0])
            elif last == "spent":
                spent |= set(names[1:])
        start += 1_000_000
        with opened(path) as store:
            stored = serp_ids(store)
            # The write after the last acknowledged one may have happened too.
            in_doubt = 5 if last == "put" else 0
            missing = [name for name in recorded if name not in set(stored) | spent]
            assert len(missing) in {0, in_doubt}
            assert not spent & set(stored)
            assert len(set(stored) - set(recorded)) <= 1
            assert store.rows("PRAGMA integrity_check") == [("ok",)]
            pending = store.pending_update()
            held = store.rows("SELECT DISTINCT update_id FROM interactions WHERE update_id IS NOT NULL")
            assert [row[0] for row in held] == ([] if pending is None else [pending.update_id])
            if pending is not None:
                assert pending.payload == b"x" * 5_000
                store.remove_update(pending.update_id, keep_interactions=True)
            recorded = serp_ids(store)
            spent = set()
