"""A gate in a device's store: writing what has changed is as good as writing all of it."""

import sqlite3
from contextlib import closing

import numpy as np

from foltr.core.learning.gate import FadingMean, Gate, ShownCount, Source
from foltr.edge_client.store.gate_rows import read_gate, write_gate
from foltr.edge_client.store.schema import SCHEMA


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
