from dataclasses import replace

import msgpack
import numpy as np
import pytest

from foltr.core.aggregation.client_records import (
    SKETCH_LENGTH,
    ClientRecords,
    has_all_records,
    join_records,
    split_records,
    suspects_of,
    with_progress_of,
)
from foltr.core.errors import DataError


def recorded(dim: int, names: tuple[str, ...]) -> ClientRecords:
    records = ClientRecords.empty(dim)
    own = records.for_clients(names)
    own["alignment"] = np.arange(len(names), dtype=np.float64)
    own["drift"] = 1.5
    return records.after(names, own, np.arange(dim, dtype=np.float32), undecided=True)


def test_bytes_hold_all_there_is() -> None:
    """A federator goes on from exactly what the one before knew; bytes of another program say what to do instead."""
    for dim in [1, 46, SKETCH_LENGTH + 72]:
        before = recorded(dim, ("b", "a"))
        after = ClientRecords.from_bytes(before.to_bytes(), dim)
        assert after.client_ids == before.client_ids == ("a", "b"), dim
        assert after.clients.tobytes() == before.clients.tobytes(), dim
        assert after.progress.tolist() == before.progress.tolist(), dim
        assert (after.n_rounds, after.undecided) == (1, True), dim
        assert after.to_bytes() == before.to_bytes(), dim
        assert after.for_clients(("a",))["alignment"].tolist() == [1.0], dim
    for stored in [b"", b"nonsense", recorded(3, ("a",)).to_bytes(), b"\x81\xa6format\x02"]:
        with pytest.raises(DataError, match="choose another aggregation"):
            ClientRecords.from_bytes(stored, 4)


def test_a_copy_or_a_new_state_can_be_changed_without_the_record() -> None:
    """Judging a round changes nothing that was known before it is over."""
    records = recorded(3, ("a",))
    records.for_clients(("a",))["alignment"] = 99.0
    assert records.clients["alignment"].tolist() == [0.0]
    before = recorded(3, ("a", "b", "c"))
    after = before.after(("b",), before.for_clients(("b",)), before.progress, undecided=False)
    own = after.for_clients(("c", "a"))
    own["alignment"] = (7.0, 8.0)
    after.put(("c", "a"), own)
    assert after.clients["alignment"].tolist() == [8.0, 1.0, 7.0]
    assert before.clients["alignment"].tolist() == [0.0, 1.0, 2.0]


def test_clients_absent_for_a_thousand_rounds_are_forgotten() -> None:
    records = recorded(2, ("gone", "stays"))
    for _ in range(1000):
        records = records.after(("stays",), records.for_clients(("stays",)), records.progress, undecided=False)
    assert records.client_ids == ("stays",)


def test_records_taken_apart_are_the_same_together() -> None:
    """To the byte; what is of all names nobody; suspects are those under suspicion, if that can be read."""
    stored = recorded(3, ("stays", "gone")).to_bytes()
    shared, each = split_records(stored)
    assert join_records(shared, each) == stored
    assert sorted(each) == ["gone", "stays"]
    assert b"gone" not in shared + b"".join(each.values())
    assert has_all_records(shared, each)
    assert not has_all_records(shared, {"stays": each["stays"]})
    left = ClientRecords.from_bytes(join_records(shared, {"stays": each["stays"]}), 3)
    assert left.client_ids == ("stays",)
    assert left.clients.tobytes() == ClientRecords.from_bytes(stored, 3).for_clients(("stays",)).tobytes()
    assert (left.progress.tolist(), left.n_rounds, left.undecided) == ([0.0, 1.0, 2.0], 1, True)
    shared, each = split_records(ClientRecords.empty(3).to_bytes())
    assert (each, join_records(shared, {})) == ({}, ClientRecords.empty(3).to_bytes())
    names = ("a", "b", "c")
    for dim in (3, SKETCH_LENGTH + 72):
        records = recorded(dim, names)
        records.clients["n_suspected"] = (0, 7, 1)
        assert suspects_of(records.to_bytes()) == {"b", "c"}
    unknown = msgpack.packb(msgpack.unpackb(records.to_bytes()) | {"format": 99})
    assert suspects_of(unknown) == suspects_of(None) == set()


def test_another_path_changes_the_progress_alone() -> None:
    """Of clients and of the time it is the same to the byte; a path of other updates is none."""
    stored, path = (
        recorded(3, ("a", "b")),
        replace(ClientRecords.empty(3), progress=np.array([4.0, 5.0, 6.0], np.float32)),
    )
    moved = ClientRecords.from_bytes(with_progress_of(stored.to_bytes(), path.to_bytes()), 3)
    assert moved.progress.tolist() == [4.0, 5.0, 6.0]
    assert replace(moved, progress=stored.progress).to_bytes() == stored.to_bytes()
    for none_yet in (None, ClientRecords.empty(2).to_bytes()):
        begun = ClientRecords.from_bytes(with_progress_of(stored.to_bytes(), none_yet), 3)
        assert begun.progress.tolist() == [0.0] * 3
        assert begun.clients.tobytes() == stored.clients.tobytes()
