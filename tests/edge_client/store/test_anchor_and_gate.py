"""A device's store: what is known of one anchor at a time and of no withdrawn one; and a gate, by its changes."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from foltr.core.learning.comparison import Comparison
from foltr.core.learning.gate import FadingMean, Gate, ShownCount, Source
from foltr.edge_client.store.gate_rows import read_gate, write_gate
from foltr.edge_client.store.knowledge import write_comparison
from foltr.edge_client.store.schema import SCHEMA

FIRST, SAME_VERSION, SECOND = (3, b"a" * 16), (3, b"b" * 16), (4, b"a" * 16)
KNOWN = Comparison(2.5, 1.5, -1.25, 0.5, -0.125, 0.0625)


def know(store, key, comparison=KNOWN):
    with store.transaction() as cursor:
        write_comparison(cursor, key, comparison)


def test_what_is_written_is_read(store):
    """To the bit, and of the newest list only; nothing is known at first, nor once a policy ends votes."""
    assert (store.anchor(), store.comparison(FIRST)) == (None, Comparison())
    store.put_anchor(FIRST, b"announcement")
    know(store, FIRST, Comparison(1.0))
    know(store, FIRST)
    assert (store.anchor(), store.comparison(FIRST)) == (b"announcement", KNOWN)
    store.put_policy(b"signed")
    assert (store.anchor(), store.comparison(FIRST)) == (None, Comparison())


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


def drawn_gate(before: Gate, rng: np.random.Generator) -> Gate:
    """Change some of a gate: an evidence, a source's count, or whether it is open."""
    mean = FadingMean(*(float(number) for number in rng.random(4)))
    source = Source(rng.choice(list(Source)))
    counts = {**before.counts, source: ShownCount(int(rng.integers(5, 9)), 4, float(rng.random()))}
    changes = [{"credits": mean}, {"of_base": mean, "counts": counts}, {"of_model": mean}, {"counts": counts}]
    kept = {"credits": before.credits, "of_base": before.of_base, "of_model": before.of_model, "counts": before.counts}
    return Gate(bool(rng.random() < 0.5), **{**kept, **changes[rng.integers(4)]})


def test_a_gate_that_is_written_by_its_changes_is_read_whole():
    """Rows stay where nothing has changed, and after each writing the gate in the store is the newest one."""
    rng = np.random.default_rng(3)
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(SCHEMA)
        newest, written = Gate(), None
        for _ in range(40):
            newest = drawn_gate(newest, rng)
            changed_before = database.total_changes
            write_gate(database.cursor(), newest, written)
            assert written is None or database.total_changes - changed_before < 7
            written = newest
            assert read_gate(database) == newest
