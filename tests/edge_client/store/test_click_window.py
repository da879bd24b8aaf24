"""A list waits for more clicks, and what it waits for is the same after a restart, a join or an erasure."""

import contextlib
import math
import sqlite3

import numpy as np
from support.device_stores import stored

from foltr.core.learning.gate import Source
from foltr.edge_client.store.click_window import ClickWindow
from foltr.edge_client.store.schema import SCHEMA_VERSION
from foltr.edge_client.store.store import UNNUMBERED, Interaction

FEATURES = np.ones((3, 2), np.float32)


def add(store, serp_id, clicks=(True, False), *, replaces=False, source=Source.BASE):
    shown = Interaction(UNNUMBERED, FEATURES, np.array([2, 0]), np.array(clicks), source=source)
    return store.add_interaction(serp_id, shown, replaces=replaces)


def test_the_oldest_end_first_and_no_wait_is_longer_than_the_window(clock):
    """A clock that was set back ends it: else a list would wait for as long as the clock was wrong."""
    window = ClickWindow(clock)
    window.length_s = 60.0
    assert (window.first(), window.ends_in_s(), window.n_ended()) == (None, math.inf, 0)
    for number in (4, 5, 7):
        window.add(number, window.now())
        clock.passes(25.0)
    assert (window.first(), window.ends_in_s(), window.n_ended()) == (5, 10.0, 1)
    clock.passes(-3600.0)
    assert (window.first(), window.ends_in_s(), window.n_ended()) == (None, math.inf, 3)


def test_without_a_window_nothing_waits_or_is_kept(clock):
    """A server that records for months without a federation does not grow by it."""
    window = ClickWindow(clock)
    window.begin([(1, window.now())])
    assert (window.first(), window.n_ended()) == (None, 0)
    window.add(2, window.now())
    window.length_s = 60.0
    assert (window.first(), window.n_ended()) == (None, 0)


def test_a_list_is_not_learned_before_its_window_ends_and_a_click_begins_it_again(path, clock):
    """Lists of other users go on; what waits is counted with what may be learned."""
    with stored(path) as store:
        store.wait_for_clicks(60.0)
        store.settle(0)
        for serp_id in "abc":
            add(store, serp_id)
            clock.passes(20.0)
        assert (store.waiting_ids(10), store.n_waiting(), store.n_open()) == ([1], 3, 2)
        assert [one.id for one in store.waiting_interactions(10)] == [1]
        assert add(store, "b", (True, True), replaces=True).id == 4
        clock.passes(40.0)
        assert (store.waiting_ids(10), store.n_open()) == ([1, 3], 1)
        clock.passes(20.0)
        assert (store.waiting_ids(10), store.n_open()) == ([1, 3, 4], 0)


def test_a_restart_does_not_begin_the_window_again(path, clock):
    """It goes on while the device is off; a join that gives other numbers changes nothing of it."""
    with stored(path) as store:
        store.wait_for_clicks(60.0)
        add(store, "a")
        clock.passes(50.0)
        add(store, "b")
    with stored(path) as store:
        store.wait_for_clicks(60.0)
        assert store.waiting_ids(10) == []
        store.settle(7)
        assert (store.waiting_ids(10), store.n_open()) == ([], 2)
        clock.passes(15.0)
        assert (store.waiting_ids(10), store.n_open()) == ([8], 1)
    clock.passes(86400.0)
    with stored(path) as store:
        store.wait_for_clicks(60.0)
        assert store.waiting_ids(10) == [8, 9]


def test_who_is_forgotten_waits_for_nothing(path, clock):
    """Neither in the file nor in memory is left when somebody searched."""
    with stored(path) as store:
        store.wait_for_clicks(60.0)
        add(store, "a")
        store.forget()
        assert (store.click_window.ends_in_s(), add(store, "b")) == (math.inf, None)
    assert str(int(clock())).encode() not in path.read_bytes()


def test_a_store_of_the_version_before_is_upgraded(path):
    """Its lists wait for no clicks, credit nothing and count as the application's; a second start changes nothing."""
    with stored(path) as store:
        add(store, "a")
        add(store, "b", source=Source.MODEL)
    with contextlib.closing(sqlite3.connect(path)) as db:
        for column in ("source", "recorded_at", "credit"):
            db.execute(f"ALTER TABLE interactions DROP COLUMN {column}")
        db.execute("PRAGMA user_version = 1")
    for _ in range(2):
        with stored(path) as store:
            store.wait_for_clicks(60.0)
            assert [one.source for one in store.waiting_interactions(10)] == [Source.BASE] * 2
            add(store, "c", source=Source.MODEL)
            assert (len(store.waiting_ids(10)), store.n_waiting()) == (2, 3)
            assert store.rows("PRAGMA user_version") == [(SCHEMA_VERSION,)]
