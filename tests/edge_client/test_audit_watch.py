"""A device remembers what was published of the log of erasures, and says so when that was cut."""

from contextlib import closing

import pytest

from foltr.core.errors import DataError
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import encode
from foltr.edge_client.audit_watch import AuditWatch, stored_heads
from foltr.edge_client.events import AuditLogCut
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.store.store_file import Kept

TOPIC = "foltr/v1/mail/audit-head"


def head(seq: int, watermark: int = 0, federation: str = "mail") -> AuditHead:
    return AuditHead(federation=federation, seq=seq, hash=bytes([seq, watermark]) * 16, at=1_000.0 + seq)


class Listener:
    """A watch on a store, and what it told."""

    def __init__(self, store, *, remembers=True):
        self.told = []
        self.watch = AuditWatch("mail", "device-7", store, self.told.append, remembers=remembers)
        self.watch.restore()

    def hear(self, *heads):
        for number, one in enumerate(heads, start=1):
            self.watch.receive(one, encode(one, TOPIC, number))
        return [(cut.before, cut.after) for cut in self.told]


def opened(path):
    return DeviceStore(path, client_id="device-7", federation="mail", max_interactions=10)


@pytest.fixture
def store():
    with closing(opened(":memory:")) as store:
        yield store


def test_a_log_that_grows_is_no_news(store):
    """However many entries were missed; and a head that comes again is the same."""
    listener = Listener(store)
    assert listener.hear(head(0), head(2), head(2), head(9)) == []
    assert (listener.watch.cut, listener.watch.remarks) == (None, ())


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (head(3), "the log ending with entry 3"),
        (head(0), "the log ending with entry 0"),
        (head(5, watermark=1), "another one in its place"),
    ],
    ids=["cut", "emptied", "made anew"],
)
def test_a_log_that_was_cut_is_said_once(store, later, words):
    """To the observer, and as a remark with what to do about it."""
    listener = Listener(store)
    assert listener.hear(head(5), later, later) == [(5, later.seq)]
    (remark,) = listener.watch.remarks
    assert f"published entry 5 of its log of erasures (1970-01-01 00:16 UTC), and later {words}" in remark
    assert "ask the operator" in remark


def test_a_log_that_grows_again_was_cut_all_the_same(store):
    """And a second cut is seen as the first was."""
    listener = Listener(store)
    assert listener.hear(head(5), head(3), head(7)) == [(5, 3)]
    assert listener.watch.cut is not None
    assert listener.hear(head(6)) == [(5, 3), (7, 6)]
    assert (listener.watch.cut.before, listener.watch.cut.after) == (7, 6)


def test_it_is_known_after_a_restart(tmp_path):
    """What was heard, and what contradicts it, with both signed messages as evidence."""
    path = tmp_path / "store.sqlite"
    with closing(opened(path)) as store:
        Listener(store).hear(head(5))
    with closing(opened(path)) as store:
        listener = Listener(store)
        assert listener.watch.cut is None
        assert listener.hear(head(3), head(8)) == [(5, 3)]
    with closing(opened(path)) as store:
        listener = Listener(store)
        assert isinstance(listener.watch.cut, AuditLogCut)
        assert listener.told == []
        assert stored_heads(store) == [encode(head(8), TOPIC, 2), encode(head(5), TOPIC, 1), encode(head(3), TOPIC, 1)]


def test_a_store_that_is_full_costs_only_the_memory(store, monkeypatch):
    """The device has heard it, and says what it sees."""
    listener = Listener(store)

    def full(*_):
        raise DataError("device store: the disk is full")

    monkeypatch.setattr(store, "keep", full)
    assert listener.hear(head(5), head(3)) == [(5, 3)]


def test_a_stored_head_of_other_software_is_passed_over(store):
    """What comes is taken as the first."""
    store.keep({Kept.AUDIT_HEAD: b"no envelope"})
    listener = Listener(store)
    assert listener.hear(head(2)) == []
    assert stored_heads(store) == [encode(head(2), TOPIC, 1)]


def test_other_federations_and_unsigned_ones_do_not_count(store):
    """Anybody may have said anything there."""
    assert Listener(store).hear(head(5), head(3, federation="web")) == []
    assert Listener(store, remembers=False).hear(head(5), head(3)) == []


def test_who_was_forgotten_remembers_nothing(store):
    """Nor what is still published."""
    listener = Listener(store)
    listener.hear(head(5), head(3))
    listener.watch.forget()
    store.forget()
    listener.hear(head(9), head(2))
    assert (listener.watch.cut, stored_heads(store)) == (None, [])
