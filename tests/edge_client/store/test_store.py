"""The device's memory: what was acknowledged is there, and no interaction is in two places."""

import contextlib
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from support.device_stores import CLICKS, FEATURES, RANKING, add, member_store, serp_ids, waiting_ids

from foltr.core.errors import DataError
from foltr.edge_client.store.bounds import PendingUpdate, SettledRound
from foltr.edge_client.store.store import UNNUMBERED, DeviceStore, Interaction


@pytest.fixture
def store(path):
    with member_store(path) as store:
        yield store


def put(store, name, interactions, local_state=None, *, spent=False):
    """Make a pending update of interactions, as the store has them."""
    ids = [interaction.id for interaction in interactions]
    update = PendingUpdate(name, 1, store.watermark(), ids[-1], b"bytes", local_state)
    store.put_update(update, ids, spent=spent)
    return update


def count(store, name, *serp_names, local_state=None, spent=False):
    """Record lists and have them counted in one update; returns their ids."""
    update = put(store, name, add(store, *serp_names), local_state, spent=spent)
    assert store.settle(update.through, name).counted
    return list(range(update.through - len(serp_names) + 1, update.through + 1))


def test_an_interaction_comes_back_as_it_was(path, rng):
    """To the bit, in its types, in order, across a restart; and with who showed it: a model's variant, or nobody."""
    shown, shown_by = [], [(-1, 7), (0, None), (1, 8)]
    with member_store(path) as store:
        for i, n_documents in enumerate((1, 7, 40)):
            features = rng.standard_normal((n_documents, 5)).astype(np.float32)
            ranking = rng.permutation(n_documents)[:10].astype(np.int64)
            clicks = rng.random(len(ranking)) < 0.5
            shown.append((features, ranking, clicks))
            made = Interaction(UNNUMBERED, features, ranking, clicks, *shown_by[i])
            assert store.add_interaction(f"serp-{i}", made) is not None
    with member_store(path) as store:
        stored = store.waiting_interactions(10)
    assert [(item.variant, item.base_version) for item in stored] == shown_by
    for interaction, expected in zip(stored, shown, strict=True):
        for array, wanted in zip(
            (interaction.features, interaction.ranking, interaction.clicks), expected, strict=True
        ):
            np.testing.assert_array_equal(array, wanted)
            assert array.dtype == wanted.dtype
            # A kernel would be compiled once more for arrays that cannot be written to.
            assert array.flags.writeable


def test_how_a_list_was_drawn_is_kept(path):
    """To the bit, while it waits and once it counted, across restarts; and so is that it is not known."""
    reversals = np.array([0.1, 3e-9, 1.0])
    with member_store(path) as store:
        drawn = store.add_interaction("a", Interaction(UNNUMBERED, FEATURES, RANKING, CLICKS, 0, None, reversals, -0.7))
        (other,) = add(store, "b")
        assert drawn.reversals is reversals
    with member_store(path) as store:
        found = [store.waiting_interactions(10)]
        put(store, "u", [drawn, other])
        store.settle(other.id)
    with member_store(path) as store:
        found.append([store.kept_interaction(i) for i in store.kept_ids()])
        assert (store.n_waiting(), add(store, "a")) == (0, [None])
    for back in found:
        np.testing.assert_array_equal(back[0].reversals, reversals)
        assert back[0].reversals.dtype == np.float64
        assert back[0].log_probability == -0.7
        assert (back[1].id, back[1].reversals, back[1].log_probability) == (other.id, None, None)
        np.testing.assert_array_equal(back[1].features, FEATURES)


def test_the_oldest_that_waits_makes_room(path):
    """Not what an update holds until its receipt, and not for a list that is recorded again."""
    with member_store(path, max_interactions=3) as store:
        put(store, "u", add(store, "a", "b"))
        add(store, "c", "d", "e")
        assert serp_ids(store) == ["a", "b", "e"]
        assert add(store, "a", "e") == [None, None]
        assert serp_ids(store) == ["a", "b", "e"]


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


def test_an_update_takes_nothing_that_counts_or_is_gone(store):
    """An update of other interactions than those that wait, or that begins elsewhere, is refused."""
    (first,) = count(store, "u", "a")
    second, third = add(store, "b", "c")
    wrong = (
        (PendingUpdate("v", 2, 1, second.id, b"again"), [first, second.id]),
        (PendingUpdate("v", 2, 1, third.id, b"a gap"), [third.id]),
        (PendingUpdate("v", 2, 0, second.id, b"too early"), [second.id]),
        (PendingUpdate("v", 2, 2, third.id, b"too late"), [second.id, third.id]),
    )
    for update, ids in wrong:
        with pytest.raises(DataError):
            store.put_update(update, ids)
    assert store.pending_update() is None
    assert waiting_ids(store) == [second.id, third.id]
    pending = put(store, "v", [second])
    with pytest.raises((sqlite3.IntegrityError, DataError)):
        put(store, "w", [third])
    assert (store.pending_update(), waiting_ids(store)) == (pending, [third.id]), "there is one pending update"


def test_a_federation_that_lost_updates_is_told_from_one_that_took_one_back(store):
    """By one update the watermark goes back as rounds are abandoned; further only as databases are restored."""
    count(store, "u", "a")
    put(store, "v", add(store, "b"))
    assert store.settle(2, "v", SettledRound(7, 9.0)).counted
    assert not store.settle(1).lost
    assert (store.settle(2).lost, store.settled_round()) == (False, SettledRound(7, 9.0))
    assert (store.settle(0).lost, store.settled_round()) == (True, SettledRound()), "its rounds have other numbers"
    assert not store.settle(0).lost
    assert waiting_ids(store) == [1, 2]


def test_a_new_store_numbers_above_what_counted_before_it(path):
    """The disk was lost and the name was not: what was recorded meanwhile counted nowhere, and is renumbered."""
    with contextlib.closing(DeviceStore(path, client_id="device-7", federation="mail", max_interactions=9)) as store:
        add(store, "a", "b", "c")
        assert (store.watermark(), waiting_ids(store), store.kept_ids()) == (None, [1, 2, 3], [])
        settled = store.settle(2)
        assert (settled.watermark_before, settled.lost, settled.taken_back) == (None, False, False)
        assert (waiting_ids(store), serp_ids(store)) == ([3, 4, 5], ["a", "b", "c"])
        assert add(store, "d")[0].id == 6
        assert put(store, "u", store.waiting_interactions(9)).after == 2
    empty = DeviceStore(":memory:", client_id="device-7", federation="mail", max_interactions=9)
    with contextlib.closing(empty):
        empty.settle(7)
        assert add(empty, "a")[0].id == 8


def test_a_store_that_was_set_back_goes_on_above_the_mark(store):
    """Its numbers up to the watermark were used after the copy was made: they count, and are not given again."""
    count(store, "u", "a")
    add(store, "b")
    assert store.settle(9).taken_back is False
    assert (waiting_ids(store), store.kept_ids()) == ([], [1, 2])
    assert add(store, "c")[0].id == 10


@pytest.mark.parametrize("lie", [2**47 + 1, 2**48])
def test_a_mark_that_no_device_can_have_reached_changes_nothing(path, lie):
    """Above it there would soon be no number left that a message holds, for the store's whole life."""
    with contextlib.closing(DeviceStore(path, client_id="device-7", federation="mail", max_interactions=9)) as store:
        with pytest.raises(DataError, match="more than any device has"):
            store.settle(lie)
        assert store.watermark() is None
        store.settle(0)
        put(store, "u", add(store, "a"))
        with pytest.raises(DataError, match="more than any device has"):
            store.settle(lie, "u")
        assert (store.watermark(), store.pending_update().update_id, add(store, "b")[0].id) == (0, "u", 2)


def test_a_store_that_was_lied_to_goes_on_with_the_numbers_that_it_has_reached(store):
    """The highest watermark that is believed leaves as many numbers above it; what counts up there is believed, too."""
    store.settle(2**47)
    (interaction,) = add(store, "a")
    store.settle(3)  # its federator is honest again
    put(store, "u", [interaction])
    assert store.settle(2**47 + 1).counted
    assert store.settle(2**47 + 1, "v").changed is False


@pytest.mark.parametrize(("watermark", "left"), [(1, b"first"), (2, b"second"), (0, None)])
def test_local_state_goes_with_the_mark(path, watermark, left):
    """What counts stays learned; what does not, or counts no more, will be learned again, from the state before."""
    with member_store(path) as store:
        count(store, "u", "a", local_state=b"first")
        pending = put(store, "v", add(store, "b"), b"second")
        store.replace_payload("v", b"signed again")
        assert store.pending_update() == replace(pending, payload=b"signed again")
        assert store.local_state() == b"second"
    with member_store(path) as store:
        assert store.local_state() == b"second"
        store.settle(watermark, "v")
        assert store.local_state() == left
    with member_store(path) as store:
        assert store.local_state() == left


def test_the_newest_states_are_kept(store):
    """A few: who goes back further begins anew."""
    for number in range(1, 7):
        count(store, f"u{number}", f"serp {number}", local_state=bytes([number]))
    assert [store.settle(watermark) and store.local_state() for watermark in (6, 3, 2)] == [b"\6", b"\3", None]


@pytest.mark.parametrize("max_kept", [0, 1, 3])
def test_the_newest_are_kept(path, max_kept):
    """As many as asked for, also of one update that holds more; fewer from the next start on if fewer are asked for."""
    with member_store(path, max_kept=max_kept) as store:
        ids = count(store, "u", "a", "b") + count(store, "v", "c", "d", "e", "f")
        assert store.kept_ids() == ids[len(ids) - max_kept :]
    with member_store(path, max_kept=1) as store:
        assert store.kept_ids() == ids[len(ids) - min(max_kept, 1) :]
    with member_store(path, max_kept=0) as store:
        assert store.kept_ids() == []


def test_a_device_seed_is_drawn_once(path, tmp_path):
    """The same after a restart, another in another store, and it fits a signed 64-bit integer."""
    with member_store(path) as store:
        seed = store.device_seed()
    with member_store(path) as store:
        assert store.device_seed() == seed
    with member_store(tmp_path / "other") as other:
        assert 0 <= other.device_seed() != seed
        assert max(other.device_seed(), seed) < 2**63
