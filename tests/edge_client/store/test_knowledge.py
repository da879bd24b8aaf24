"""The anchor in a device's store, and what is known of it: of one anchor at a time, and of no withdrawn one."""

import contextlib

import pytest

from foltr.core.learning.comparison import Comparison
from foltr.edge_client.store.knowledge import write_comparison
from foltr.edge_client.store.store import DeviceStore

FIRST, SAME_VERSION, SECOND = (3, b"a" * 16), (3, b"b" * 16), (4, b"a" * 16)
KNOWN = Comparison(2.5, 1.5, -1.25, 0.5, -0.125, 0.0625)


@pytest.fixture
def store(tmp_path):
    opened = DeviceStore(tmp_path / "s", client_id="device-7", federation="mail", max_interactions=10)
    with contextlib.closing(opened):
        yield opened


def know(store, key, comparison=KNOWN):
    with store.transaction() as cursor:
        write_comparison(cursor, key, comparison)


def test_what_is_written_is_read(store):
    """To the bit, and of the newest list only; nothing is known at first."""
    assert (store.anchor(), store.comparison(FIRST)) == (None, Comparison())
    store.put_anchor(FIRST, b"announcement")
    know(store, FIRST, Comparison(1.0))
    know(store, FIRST)
    assert (store.anchor(), store.comparison(FIRST)) == (b"announcement", KNOWN)


@pytest.mark.parametrize("other", [SAME_VERSION, SECOND])
def test_what_is_known_is_of_one_anchor(store, other):
    """Another version, or other weights under its number, begins anew; and so does the first one that comes again."""
    store.put_anchor(FIRST, b"first")
    know(store, FIRST)
    store.put_anchor(FIRST, b"first again")
    assert store.comparison(FIRST) == KNOWN
    assert store.comparison(other) == Comparison()
    store.put_anchor(other, b"other")
    store.put_anchor(FIRST, b"first")
    assert store.comparison(FIRST) == store.comparison(other) == Comparison()


def test_a_withdrawal_drops_what_is_below_it(store):
    """In its own transaction, the anchor and what was written of it, and leaves a newer one."""
    store.put_anchor(FIRST, b"first")
    know(store, FIRST)
    store.put_withdrawal(3, removes_model=False)
    assert (store.anchor(), store.comparison(FIRST)) == (b"first", KNOWN)
    store.put_withdrawal(4, removes_model=False)
    assert (store.anchor(), store.comparison(FIRST)) == (None, Comparison())


def test_all_of_it_can_be_dropped(store):
    """Where nobody votes any more."""
    store.put_anchor(FIRST, b"first")
    know(store, FIRST)
    store.drop_anchor()
    assert (store.anchor(), store.comparison(FIRST)) == (None, Comparison())
