"""What a device sees of its federator: whether it is there, and whether its log of erasures was cut."""

import pytest
from support.device_stores import disk_is_full, stored

from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import encode
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.edge_client.audit_watch import AuditWatch, stored_heads
from foltr.edge_client.events import AuditLogCut
from foltr.edge_client.federator_watch import FederatorWatch
from foltr.edge_client.store.store_file import MetaKey


def beat(*, online=True, federation="mail", at=1e9):
    return FederatorStatus(federation=federation, online=online, at=at, interval_s=30.0, software_version="1")


@pytest.fixture
def watch():
    return FederatorWatch("mail", "device-7")


def test_nothing_is_known_before_something_is_heard(watch):
    """Neither at the start nor over a new connection: the broker may be another one."""
    assert watch.online(0.0) is None
    assert watch.absence(0.0) == "the broker has no message of the federator of 'mail'"
    watch.receive(beat(), 5.0)
    watch.begin_connection()
    assert watch.online(6.0) is None
    assert watch.absence(8.0) == "the broker has no message of the federator of 'mail', last heard 3 s ago"


def test_a_beat_holds_until_three_are_missing(watch):
    """By the device's own monotonic clock, not by the beat's; one may be late, and one lost with a connection."""
    watch.receive(beat(federation="photos"), 0.0)
    assert watch.online(0.0) is None
    for at, now in ((1e9, 100.0), (0.0, 200.0), (9e10, 300.0)):
        watch.receive(beat(at=at), now)
        assert watch.online(now + 89.9)
        assert watch.absence(now + 89.9) is None
    assert watch.online(390.0) is False
    assert watch.absence(390.0) == "the federator of 'mail' has been silent for 90 s"


def test_a_last_will_is_believed_at_once(watch):
    """And taken back by the next beat."""
    watch.receive(beat(), 100.0)
    watch.receive(beat(online=False), 110.0)
    assert watch.online(110.0) is False
    assert watch.absence(112.0) == "the federator of 'mail' is away, last heard 12 s ago"
    watch.receive(beat(), 120.0)
    assert watch.online(120.0)


def test_it_is_logged_once_that_it_is_away_or_back(watch, caplog):
    """However often somebody looks, and however it came to be known."""
    caplog.set_level("INFO", logger="foltr.edge_client.federator_watch")
    watch.receive(beat(), 0.0)
    for now in (80.0, 90.0, 91.0):
        watch.check(now)
    watch.receive(beat(online=False), 92.0)
    watch.receive(beat(), 93.0)
    watch.receive(beat(), 94.0)
    said = [record.getMessage().split()[0] for record in caplog.records]
    assert said == ["federator_away", "federator_back"]


TOPIC = "foltr/v1/mail/audit-head"


def head(seq: int, watermark: int = 0, federation: str = "mail") -> AuditHead:
    return AuditHead(federation=federation, seq=seq, hash=bytes([seq, watermark]) * 16, at=1_000.0 + seq)


class Listener:
    def __init__(self, store, *, remembers=True):
        self.told = []
        self.watch = AuditWatch("mail", "device-7", store, self.told.append, remembers=remembers)
        self.watch.restore()

    def hear(self, *heads):
        for number, one in enumerate(heads, start=1):
            self.watch.receive(one, encode(one, TOPIC, number))
        return [(cut.before, cut.after) for cut in self.told]


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (head(3), "the log ending with entry 3"),
        (head(0), "the log ending with entry 0"),
        (head(5, watermark=1), "another one in its place"),
    ],
    ids=["cut", "emptied", "made again"],
)
def test_a_log_that_was_cut_is_said_once(store, later, words):
    """To the observer, and as a remark with what to do about it."""
    listener = Listener(store)
    assert listener.hear(head(5), later, later) == [(5, later.seq)]
    (remark,) = listener.watch.remarks
    assert f"published entry 5 of its log of erasures (1970-01-01 00:16 UTC), and later {words}" in remark
    assert "ask the operator" in remark


def test_a_log_that_grows_again_was_cut_all_the_same(store):
    """Growing is no news, however many entries were missed; and a second cut is seen as the first was."""
    listener = Listener(store)
    assert listener.hear(head(0), head(2), head(2), head(5)) == []
    assert (listener.watch.cut, listener.watch.remarks) == (None, ())
    assert listener.hear(head(3), head(7)) == [(5, 3)]
    assert listener.watch.cut is not None
    assert listener.hear(head(6)) == [(5, 3), (7, 6)]
    assert (listener.watch.cut.before, listener.watch.cut.after) == (7, 6)


def test_it_is_known_after_a_restart(tmp_path):
    """What was heard, and what contradicts it, with both signed messages as evidence."""
    path = tmp_path / "store.sqlite"
    with stored(path) as store:
        Listener(store).hear(head(5))
    with stored(path) as store:
        listener = Listener(store)
        assert listener.watch.cut is None
        assert listener.hear(head(3), head(8)) == [(5, 3)]
    with stored(path) as store:
        listener = Listener(store)
        assert isinstance(listener.watch.cut, AuditLogCut)
        assert listener.told == []
        assert stored_heads(store) == [encode(head(8), TOPIC, 2), encode(head(5), TOPIC, 1), encode(head(3), TOPIC, 1)]


def test_a_store_that_is_full_or_of_other_software_costs_only_the_memory(store, monkeypatch):
    """What is stored there is passed over; the device says what it sees all the same."""
    store.set_meta({MetaKey.AUDIT_HEAD: b"no envelope"})
    listener = Listener(store)
    assert listener.hear(head(2)) == []
    assert stored_heads(store) == [encode(head(2), TOPIC, 1)]
    monkeypatch.setattr(store, "set_meta", disk_is_full)
    assert listener.hear(head(5), head(3)) == [(5, 3)]


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
