"""What a device sends and believes: sessions in order, its update under the key of today. No network."""

import shutil

import numpy as np
import pytest
from support.device_stores import disk_is_full, stored
from support.device_under_policy import FEDERATOR, OPERATOR, identity
from support.federator_by_hand import model
from support.made_updates import made_update

from foltr.broker.link import InboundMessage
from foltr.core.errors import DataError, MessageError
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.enrolment import issue_federator_key
from foltr.core.protocol.fields import payload_digest
from foltr.core.protocol.membership import Join, Leave, Status
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode
from foltr.core.protocol.roster import FederatorKey
from foltr.core.protocol.signing import SESSION_STEPS, EpochSequence, SigningKey, key_to_text
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import ModelUpdate
from foltr.edge_client.session import Session
from foltr.edge_client.store.bounds import PendingUpdate
from foltr.edge_client.store.store import UNNUMBERED, Interaction
from foltr.edge_client.trust import Trust

TOPICS = Topics("mail")
STATUS, UPDATES = TOPICS.client("device-7", ClientTopic.STATUS), TOPICS.client("device-7", ClientTopic.UPDATES)
UPDATE = made_update()
HELLO = Join(federation="mail", client_id="device-7", sdk_version="1")


def killed_now(path, copy):
    """The store that a device finds which is killed now; another file, as the one at ``path`` stays open."""
    for name in ("", "-wal"):
        shutil.copy(f"{path}{name}", f"{copy}{name}")
    return stored(copy)


def session(store, credentials=None):
    return Session("mail", "device-7", Trust(credentials, store), store)


def announced(sequence, version=0, key=FEDERATOR):
    return InboundMessage(TOPICS.model, encode(model(version, 1), TOPICS.model, sequence, key), retained=False)


def sequences_of_a_session(device, n=3):
    """(sequence numbers sent, that of the last will)."""
    will = open_envelope(device.begin().payload).sequence
    return [open_envelope(device.sign(HELLO, ClientTopic.JOIN)).sequence for _ in range(n)], will


def test_sessions_rise_over_restarts_whatever_the_clock_says(store, monkeypatch):
    """A last will, which a broker may publish late, is in between; in 1970 and on a full disk as well."""
    device, newest = session(store), 0
    for is_restarted in (False, False, True):
        device = session(store) if is_restarted else device
        sent, will = sequences_of_a_session(device)
        assert newest < sent[0] < sent[1] < sent[2] < will
        newest = will
        monkeypatch.setattr("foltr.core.protocol.signing.time.time_ns", lambda: 0)
    monkeypatch.setattr(store, "put_session", disk_is_full)
    sent, _ = sequences_of_a_session(session(store))
    assert newest < sent[0]


def test_a_lost_store_is_made_up_for_by_the_federator(store, monkeypatch):
    """Store and clock lost: the device goes on above what the federator has seen, now and after a restart."""
    newest = 10**6 * SESSION_STEPS + 17
    monkeypatch.setattr("foltr.core.protocol.signing.time.time_ns", lambda: 0)
    device = session(store)
    sent, _ = sequences_of_a_session(device)
    assert sent[-1] < newest
    device.begin_above(newest)
    assert newest < open_envelope(device.sign(HELLO, ClientTopic.JOIN)).sequence
    sent, _ = sequences_of_a_session(session(store))
    assert newest < sent[0]


def test_a_client_that_was_forgotten_leaves_no_trace_of_its_sessions(store):
    """Its last will clears its status, and its store does not say when it was there."""
    device = session(store, identity())
    store.forget()
    will = device.begin()
    assert (will.topic, will.payload) == (STATUS, b"")
    assert store.newest_session() == 0


def answer_to(payload):
    digest = None if payload is None else payload_digest(payload)
    return MembershipReceipt(federation="mail", client_id="device-7", code=ReceiptCode.LEFT, payload_digest=digest)


@pytest.mark.parametrize(
    ("message", "topic"),
    [(HELLO, ClientTopic.JOIN), (Leave(federation="mail", client_id="device-7"), ClientTopic.LEAVE)],
    ids=["join", "leave"],
)
def test_receipts_of_other_sessions_are_told_apart(store, message, topic):
    """The newest joins and leaves of this session may be answered; of the session before, or of nobody, none."""
    device = session(store)
    device.begin()
    before = device.sign(message, topic)
    device.begin()
    said = [device.sign(message, topic) for _ in range(100)]
    unasked = device.sign(device.status(online=True), ClientTopic.STATUS)
    assert [device.is_of_this_session(answer_to(payload)) for payload in said] == [False] * 84 + [True] * 16
    assert not any(device.is_of_this_session(answer_to(payload)) for payload in (before, unasked, None))
    device.begin_above(0)
    assert not any(device.is_of_this_session(answer_to(payload)) for payload in said)


def test_a_device_of_the_same_name_is_told_apart(path, tmp_path, monkeypatch):
    """Enrolled anew, with another store, in the same millisecond: its joins have the same sequence numbers."""
    monkeypatch.setattr("foltr.core.protocol.signing.time.time_ns", lambda: 10**18)
    with stored(path) as store, stored(tmp_path / "other") as other:
        devices = session(store, identity()), session(other, identity(serial=2))
        joins = [device.sign(HELLO, ClientTopic.JOIN) for device in devices]
        assert open_envelope(joins[0]).sequence == open_envelope(joins[1]).sequence
        taken = [[device.is_of_this_session(answer_to(join)) for join in joins] for device in devices]
        assert taken == [[True, False], [False, True]]


def test_everything_a_device_with_credentials_sends_is_signed(store):
    """For the topic it goes to, the last will too."""
    credentials = identity()
    device = session(store, credentials)
    will = device.begin()
    assert will.topic == STATUS
    assert not open_envelope(will.payload).read(Status).online
    assert open_envelope(will.payload).is_signed_by(credentials.key.public, STATUS)
    update = open_envelope(device.sign(UPDATE, ClientTopic.UPDATES))
    assert update.is_signed_by(credentials.key.public, UPDATES)
    assert not update.is_signed_by(credentials.key.public, STATUS)


@pytest.mark.parametrize("key", [None, SigningKey.generate()], ids=["unsigned", "another key"])
def test_only_the_federator_is_believed(store, key):
    """By a device with credentials; one without believes anyone."""
    with pytest.raises(MessageError, match="bad_signature"):
        session(store, identity()).open(announced(1, key=key))
    with pytest.raises(MessageError, match="bad_signature"):
        session(store, identity()).open_reassembled(announced(1, key=key).payload, TOPICS.model)
    moved = InboundMessage(TOPICS.round, announced(1).payload, retained=False)
    with pytest.raises(MessageError, match="bad_signature"):
        session(store, identity()).open(moved)
    assert session(store).open(announced(1, key=key)).read(ModelAnnouncement) == model(0, 1)


@pytest.mark.parametrize("topic", [TOPICS.model, TOPICS.round, TOPICS.unlearning_round])
def test_what_was_heard_is_the_oldest_that_is_believed(store, topic):
    """An older one is refused, the same again is not; also in a new connection, and after a restart of the device."""

    def said(sequence):
        return InboundMessage(topic, encode(model(0, 1), topic, sequence, FEDERATOR), retained=False)

    device = session(store, identity())
    device.begin()
    assert device.open(said(7)).sequence == 7
    assert device.open(said(7)).sequence == 7
    with pytest.raises(MessageError, match="replayed"):
        device.open(said(6))
    assert device.open(said(8)).sequence == 8
    device.begin()
    for again in (device, session(store, identity())):
        with pytest.raises(MessageError, match="replayed"):
            again.open(said(7))
        assert again.open(said(8)).sequence == 8


CHANGES = {
    "a click": lambda store: store.add_interaction(
        "a", Interaction(UNNUMBERED, np.ones((1, 1), np.float32), np.array([0], np.int64), np.array([True]))
    ),
    "an answer": lambda store: store.settle((store.watermark() or 0) + 1),
    "a model": lambda store: store.put_model(b"model"),
    "a session": lambda store: store.put_session(7),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_heard_is_stored_with_the_next_change(store, path, tmp_path, change):
    """So with all that follows from it: a device that is killed afterwards refuses what is older."""
    device = session(store, identity())
    for sequence in (7, 8):
        device.open(announced(sequence))
        CHANGES[change](store)
        store.rows("DELETE FROM interactions")
    with killed_now(path, tmp_path / "after") as again:
        with pytest.raises(MessageError, match="replayed"):
            session(again, identity()).open(announced(7))
        assert session(again, identity()).open(announced(8)).sequence == 8


def test_what_was_heard_is_stored_with_the_next_change_that_can_be(store, path, tmp_path):
    """One that fails takes nothing with it, and a device that is killed then has not heard it."""
    device = session(store, identity())
    device.open(announced(7))
    with pytest.raises(DataError, match="say no"), store.transaction() as cursor:
        cursor.execute('SELECT * FROM "say no"')
    with killed_now(path, tmp_path / "before") as again:
        assert session(again, identity()).open(announced(6)).sequence == 6
    with pytest.raises(MessageError, match="replayed"):
        session(store, identity()).open(announced(6))
    store.put_session(1)
    with killed_now(path, tmp_path / "after") as again, pytest.raises(MessageError, match="replayed"):
        session(again, identity()).open(announced(6))


def test_an_older_answer_is_refused_with_both_places(store):
    """It names two epochs, or within one two messages."""
    inbox = TOPICS.client("device-7", ClientTopic.INBOX)
    sequence = EpochSequence()
    receipt = MembershipReceipt(federation="mail", client_id="device-7", code=ReceiptCode.JOINED)

    def answer(epoch):
        sequence.begin(epoch)
        payloads = [encode(receipt, inbox, sequence.next(), FEDERATOR) for _ in range(2)]
        return [InboundMessage(inbox, payload, retained=False) for payload in payloads]

    (old, _), (first, second) = answer(1_700_000_000), answer(1_800_000_000)
    device = session(store, identity())
    device.open(second)
    with pytest.raises(MessageError, match="of epoch 1700000000; 1800000000 was heard already"):
        device.open(old)
    with pytest.raises(MessageError, match="message 1 of epoch 1800000000; 2 was heard already"):
        device.open(first)


def test_what_was_heard_is_stored_when_the_device_is_switched_off(path):
    """Whether anything followed from it or not."""
    with stored(path) as store:
        session(store, identity()).open(announced(7))
    with stored(path) as store, pytest.raises(MessageError, match="replayed"):
        session(store, identity()).open(announced(6))


def test_what_nobody_signed_is_not_remembered(store):
    """Or anybody could say something of the far future, after which nothing would be believed for ever."""
    unsigned = InboundMessage(TOPICS.model, encode(model(0, 1), TOPICS.model, 2**63 - 1), retained=False)
    device = session(store)
    device.open(unsigned)
    device.begin()
    assert device.open(InboundMessage(TOPICS.model, encode(model(0, 1), TOPICS.model, 1), retained=False)).sequence == 1


def pending(store, payload):
    made = store.add_interaction(
        "serp", Interaction(UNNUMBERED, np.eye(1, dtype=np.float32), np.array([0]), np.array([True]))
    )
    store.settle(0)
    store.put_update(PendingUpdate(UPDATE.update_id, UPDATE.round, 0, made.id, payload), [made.id])
    return payload


@pytest.mark.parametrize("before", [identity(), None], ids=["another key", "unsigned"])
def test_an_update_is_signed_again_after_an_enrolment(store, before):
    """Another key, or the first one, the same update; and stored so, for the next restart."""
    pending(store, session(store, before).sign(UPDATE, ClientTopic.UPDATES))
    renewed = identity(serial=2)
    again = session(store, renewed).signed_pending_update()
    envelope = open_envelope(again.payload)
    assert envelope.is_signed_by(renewed.key.public, UPDATES)
    assert envelope.read(ModelUpdate) == UPDATE
    # The federator may have answered these bytes by their digest, so they stay as long as the key does.
    assert store.pending_update() == session(store, renewed).signed_pending_update() == again


@pytest.mark.parametrize("payload", [b"\x81\xa1v\x02", b"junk"], ids=["schema version 2", "junk"])
@pytest.mark.parametrize("credentials", [None, identity()], ids=["unsigned", "signed"])
def test_an_update_of_other_software_is_made_again(store, payload, credentials):
    """It cannot be signed, nor would anyone understand it: it goes, its clicks stay."""
    pending(store, payload)
    assert session(store, credentials).signed_pending_update() is None
    assert store.pending_update() is None
    assert store.n_waiting() == 1


def statement(sequence, key, operator=OPERATOR):
    stated = FederatorKey(federation="mail", sequence=sequence, old_key=FEDERATOR.public, new_key=key.public)
    return issue_federator_key(operator, stated)


def believes(device, key, sequence=1):
    try:
        device.open(announced(sequence, key=key))
    except MessageError:
        return False
    return True


def test_a_device_believes_the_newest_key_that_the_operator_states(store):
    """And no older one from then on, whoever has it: not after a restart, nor when its statement is replayed."""
    first, second = SigningKey.generate(), SigningKey.generate()
    device = session(store, identity())
    for sequence, key in ((1, first), (2, second)):
        device.trust.receive_federator_key(statement(sequence, key))
    for again in (device, session(store, identity())):
        with pytest.raises(MessageError, match="replayed"):
            again.trust.receive_federator_key(statement(1, first))
        assert [believes(again, key) for key in (FEDERATOR, first, second)] == [False, False, True]


def test_a_stolen_key_leaves_nothing_that_the_next_one_is_measured_by(store, path, tmp_path):
    """The thief may have said the last number that there is; what the new key says begins anew, and rises."""
    device, key = session(store, identity()), SigningKey.generate()
    assert believes(device, FEDERATOR, 2**63 - 1)
    store.put_session(1)
    device.trust.receive_federator_key(statement(1, key))
    assert believes(device, key, 7)
    store.put_session(2)
    with killed_now(path, tmp_path / "after") as stored:
        for again in (device, session(stored, identity())):
            assert [believes(again, key, sequence) for sequence in (6, 8)] == [False, True]


def test_nor_that_the_key_of_new_credentials_is_measured_by(store):
    """Enrolled anew, a device hears of no statement, and goes on with its store."""
    assert believes(session(store, identity()), FEDERATOR, 2**63 - 1)
    store.put_session(1)
    key = SigningKey.generate()
    newer = {"federator_key": key_to_text(key.public), "federator_key_sequence": 1}
    credentials = identity(serial=2).model_copy(update=newer)
    device = session(store, credentials)
    assert [believes(device, key, sequence) for sequence in (7, 6, 7)] == [True, False, True]


@pytest.mark.parametrize("operator", [FEDERATOR, SigningKey.generate()], ids=["the federator", "a stranger"])
def test_only_the_operator_states_a_key(store, operator):
    """Whoever has stolen the federator's key cannot keep it in use, nor bring in another one."""
    device = session(store, identity())
    with pytest.raises(MessageError, match="bad_signature"):
        device.trust.receive_federator_key(statement(1, SigningKey.generate(), operator))
    assert believes(device, FEDERATOR)


def test_credentials_written_since_are_not_taken_back(store):
    """A device enrolled after a rotation believes its key, and no statement from before."""
    old, key = SigningKey.generate(), SigningKey.generate()
    session(store, identity()).trust.receive_federator_key(statement(1, old))
    credentials = identity().model_copy(update={"federator_key": key_to_text(key.public), "federator_key_sequence": 2})
    device = session(store, credentials)
    with pytest.raises(MessageError, match="replayed"):
        device.trust.receive_federator_key(statement(1, old))
    assert [believes(device, one) for one in (old, key)] == [False, True]


def test_a_key_that_cannot_be_stored_is_believed_all_the_same(store, monkeypatch):
    """A full disk does not leave a device with a key that was stolen; the broker has the statement, too."""
    device, key = session(store, identity()), SigningKey.generate()
    monkeypatch.setattr(store, "set_meta", disk_is_full)
    device.trust.receive_federator_key(statement(1, key))
    assert [believes(device, one) for one in (FEDERATOR, key)] == [False, True]
