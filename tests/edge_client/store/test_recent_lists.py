"""The lists shown lately: kept bit for bit, bounded in number and age, and nobody else's."""

import contextlib
import dataclasses

import numpy as np
import pytest

from foltr.core.errors import DataError
from foltr.core.learning.gate import Source
from foltr.edge_client.serp import Serp
from foltr.edge_client.store import recent_lists
from foltr.edge_client.store.store import DeviceStore


def opened(path, client_id=None, **options):
    federation = client_id and "mail"
    store = DeviceStore(path, client_id=client_id, federation=federation, max_interactions=10, **options)
    return contextlib.closing(store)


def listed(serp_id, n_documents=3, **more):
    ranking = np.arange(n_documents)[::-1].copy()
    features = np.full((n_documents, 2 if n_documents else 0), 0.25, np.float32)
    return Serp(serp_id, ranking, 7, features, np.array([0.5, 0.0]), -0.7, 1, **more)


def test_a_list_comes_back_as_it_was_shown(path):
    """Every field, from the file of a store that was closed; also a list without documents."""
    lists = [
        listed(
            "a", source=Source.INTERLEAVED, to_credit=np.array([1, 0, -1], np.int8), base_positions=np.array([2, 0, 1])
        ),
        listed("b"),
        listed("none", 0),
    ]
    with opened(path) as store:
        for serp in lists:
            store.recent.remember(serp)
    with opened(path) as store:
        for serp in lists:
            found = store.recent.find(serp.serp_id)
            assert found.before is None
            for field in dataclasses.fields(Serp):
                np.testing.assert_array_equal(getattr(found.serp, field.name), getattr(serp, field.name), field.name)


def test_only_the_newest_are_kept_and_for_a_day(path, monkeypatch):
    """By number and by age; the message says so."""
    with opened(path, max_recent=2) as store:
        for serp_id in "abc":
            store.recent.remember(listed(serp_id))
            store.recent.save()
        with pytest.raises(DataError, match="more than a day or 2 lists ago"):
            store.recent.find("a")
        assert store.recent.find("b").serp.serp_id == "b"
        now = recent_lists.time.time() + 25 * 3600
        monkeypatch.setattr(recent_lists.time, "time", lambda: now)
        store.recent.remember(held := listed("d"))
        store.recent.save()
        for serp_id in "bc":
            with pytest.raises(DataError, match="no list"):
                store.recent.find(serp_id)
        assert store.recent.find("d").serp.serp_id == "d"
        for serp_id in "ef":
            store.recent.remember(listed(serp_id))
            store.recent.save()
        assert store.recent.find(held).serp is held, "the application holds it"
        with pytest.raises(DataError, match="no list"):
            store.recent.find("d")


def test_what_waits_to_be_saved_is_bounded_and_asks_once(path):
    """However fast lists are shown: one piece of work at a time, and as many lists as are kept."""
    asked = []
    with opened(path, max_recent=3) as store:
        store.recent.schedule = asked.append
        for i in range(10):
            store.recent.remember(listed(f"{i}"))
        assert len(asked) == 1
        asked[0]()
        assert [row[0] for row in store.rows("SELECT serp_id FROM recent_lists")] == ["7", "8", "9"]
        store.recent.remember(listed("next"))
        assert len(asked) == 2
    asked[1]()  # too late: closing has saved it
    with opened(path) as store:
        assert store.recent.find("next").serp.serp_id == "next"


def test_a_list_of_another_ranker_is_refused(path):
    """By its id and as an object; so is anything that is no list, and a list of other features."""
    with opened(path) as store:
        for strange in ("unknown", listed("another's")):
            with pytest.raises(DataError, match="never stored"):
                store.recent.find(strange)
        for nothing in (None, 7, b"id"):
            with pytest.raises(DataError, match="expected what `rank` returned, or its serp_id"):
                store.recent.find(nothing)
        store.recent.remember(listed("a"))
        store.recent.n_features = 5
        with pytest.raises(DataError, match="2 features, but this application set n_features=5"):
            store.recent.find("a")
    with opened(path) as store:
        store.schema_hash = b"\1" * 32
        with pytest.raises(DataError, match="features of another schema"):
            store.recent.find("a")


def test_a_forgotten_client_keeps_no_list(path):
    """Neither in the file nor in memory."""
    with opened(path, "device-7") as store:
        store.recent.remember(listed("saved"))
        store.recent.save()
        store.recent.remember(listed("not yet"))
        store.forget()
        for serp_id in ("saved", "not yet"):
            with pytest.raises(DataError, match="no list"):
                store.recent.find(serp_id)
        store.recent.remember(listed("shown by a thread that did not know yet"))
        store.recent.save()
        assert store.rows("SELECT * FROM recent_lists") == []


def test_a_store_from_before_there_was_this_table_gets_it(path):
    """An application that is updated keeps its clicks."""
    with opened(path) as store, store.transaction() as cursor:
        cursor.execute("DROP TABLE recent_lists")
    with opened(path) as store:
        store.recent.remember(listed("a"))
        store.recent.save()
        assert store.recent.find("a").serp.serp_id == "a"
