"""Enrolment: what an operator signed holds for that client, federation and purpose, and for nothing else."""

import itertools

import pytest

from foltr.core.errors import MessageError
from foltr.core.protocol import orders
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.enrolment import (
    issue_enrolment,
    issue_federator_key,
    issue_roster,
    read_enrolment,
    read_federator_key,
    read_roster,
)
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES
from foltr.core.protocol.membership import Enrolment, Join
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.roster import FederatorKey, Revocation, Roster
from foltr.core.protocol.signed_orders import digest_of, issue_order, issue_question, number_of, read_answer, read_order
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics

OPERATOR = SigningKey(bytes(range(32)))
OTHER = SigningKey(bytes(32))
DEVICE = SigningKey(bytes(range(1, 33)))
OWN = Enrolment(federation="mail", client_id="device-7", public_key=DEVICE.public, serial=12, issued_at=1000.5)
ENROLMENT = issue_enrolment(OPERATOR, "mail", "device-7", DEVICE.public, 12, 1000.5)
NOBODY = {"through": 0, "revoked": [], "salt": bytes(32), "forgotten": []}
REVOKED = Roster(
    federation="mail",
    version=3,
    through=7,
    revoked=[Revocation(client_id="device-8", void_below=12), Revocation(client_id="device-9", void_below=5)],
    salt=bytes(32),
    forgotten=[bytes(16)],
)
ROSTER = issue_roster(OPERATOR, REVOKED)
DEADLINE = issue_order(OPERATOR, orders.SetDeadline(federation="mail", round=4, max_time_s=90.5), 17).payload
NEW_KEY = FederatorKey(federation="mail", sequence=2, old_key=OTHER.public, new_key=DEVICE.public)
STATEMENT = issue_federator_key(OPERATOR, NEW_KEY)
QUARANTINE = orders.QuarantineClient(federation="mail", client_id="device-7", reason="it flips signs")
LIFT = orders.LiftQuarantine(federation="mail", client_id="device-7")


def refusal(read, *arguments):
    with pytest.raises(MessageError) as caught:
        read(*arguments)
    return ReceiptCode(caught.value.code)


def test_an_enrolment_is_read_back():
    """Also the longest, with names of 64 letters and the highest serial, fits into a join."""
    assert read_enrolment(ENROLMENT, OPERATOR.public, "mail", "device-7") == OWN
    Join(federation="mail", client_id="device-7", sdk_version="1", enrolment=ENROLMENT)
    longest = issue_enrolment(OPERATOR, "f" * 64, "c" * 64, DEVICE.public, 2**31 - 1, 1e11)
    Join(federation="f" * 64, client_id="c" * 64, sdk_version="s" * 64, enrolment=longest)


def test_an_enrolment_is_nobody_elses():
    """A copied enrolment enrols no other client, and an operator's word counts in its own federation only."""
    for payload, key, federation, client_id in [
        (ENROLMENT, OTHER, "mail", "device-7"),
        (ENROLMENT, OPERATOR, "post", "device-7"),
        (ENROLMENT, OPERATOR, "mail", "device-8"),
        # Unsigned, signed with the device's own key, and signed for one client but naming another.
        (encode(OWN), OPERATOR, "mail", "device-7"),
        (encode(OWN, Topics("mail").enrolment("device-7"), 1, DEVICE), OPERATOR, "mail", "device-7"),
        (encode(OWN, Topics("mail").enrolment("device-8"), 1, OPERATOR), OPERATOR, "mail", "device-8"),
    ]:
        assert refusal(read_enrolment, payload, key.public, federation, client_id) is ReceiptCode.NOT_ENROLLED


def test_every_changed_byte_voids_an_enrolment():
    for i in range(len(ENROLMENT)):
        changed = bytearray(ENROLMENT)
        changed[i] ^= 1
        refusal(read_enrolment, bytes(changed), OPERATOR.public, "mail", "device-7")
    for payload in [b"", b"junk", ENROLMENT[:-1]]:
        assert refusal(read_enrolment, payload, OPERATOR.public, "mail", "device-7") is ReceiptCode.MALFORMED, payload


def test_a_roster_is_read_back():
    """It may outgrow other messages; so is the federator's new key."""
    assert read_federator_key(STATEMENT, OPERATOR.public, "mail") == NEW_KEY
    assert open_envelope(STATEMENT).sequence == 2
    assert read_roster(ROSTER, OPERATOR.public, "mail") == REVOKED
    assert open_envelope(ROSTER).sequence == 3
    revoked = [Revocation(client_id=f"device-{i:06d}", void_below=i + 2) for i in range(10_000)]
    large = issue_roster(OPERATOR, REVOKED.model_copy(update={"revoked": revoked}))
    assert len(large) > MAX_MESSAGE_BYTES
    assert len(read_roster(large, OPERATOR.public, "mail").revoked) == 10_000


def test_an_order_is_read_back_with_its_number():
    """The number says what it follows; its digest is of the very bytes; a question has none."""
    for order in (orders.SetDeadline(federation="mail", round=4, max_time_s=90.5), QUARANTINE, LIFT):
        signed = issue_order(OPERATOR, order, 18)
        assert read_order(signed.payload, OPERATOR.public, "mail") == signed
        assert (signed.number, number_of(signed.payload), signed.digest) == (18, 18, digest_of(signed.payload))
    assert number_of(b"junk") is None
    for number in (0, orders.ORDER_LIMIT + 1):
        payload = encode(LIFT, Topics("mail").operator, number, OPERATOR)
        assert refusal(read_order, payload, OPERATOR.public, "mail") is ReceiptCode.MALFORMED
    question = issue_question(OPERATOR, "mail", b"c" * 16)
    assert read_order(question, OPERATOR.public, "mail") == orders.AskNewest(federation="mail", challenge=b"c" * 16)


def test_an_answer_is_the_federators():
    """Signed with one of the keys that are believed, for its own topic, in its own federation."""
    answer = orders.OrderAnswer(federation="mail", number=1, digest=bytes(32), reply=orders.OrderReply.OBEYED, newest=1)
    signed = encode(answer, Topics("mail").operator_answers, 9, DEVICE)
    assert read_answer(signed, "mail", OTHER.public, DEVICE.public) == answer
    assert refusal(read_answer, signed, "mail", OTHER.public) is ReceiptCode.BAD_SIGNATURE
    moved = encode(answer, Topics("mail").operator, 9, DEVICE)
    assert refusal(read_answer, moved, "mail", DEVICE.public) is ReceiptCode.BAD_SIGNATURE
    elsewhere = encode(answer.model_copy(update={"federation": "post"}), Topics("mail").operator_answers, 9, DEVICE)
    assert refusal(read_answer, elsewhere, "mail", DEVICE.public) is ReceiptCode.WRONG_FEDERATION


def test_no_statement_passes_for_another():
    """What the enrolment key signed for one purpose is refused for every other, and nobody else signs any."""
    for payload in (ROSTER, DEADLINE, STATEMENT):
        assert refusal(read_enrolment, payload, OPERATOR.public, "mail", "device-7") is ReceiptCode.NOT_ENROLLED
    readers = [(read_roster, ROSTER), (read_order, DEADLINE), (read_federator_key, STATEMENT), (None, ENROLMENT)]
    for (read, own), (_, other) in itertools.product(readers[:3], readers):
        if own is not other:
            assert refusal(read, other, OPERATOR.public, "mail") is ReceiptCode.BAD_SIGNATURE
    for read, payload in [(read_roster, ROSTER), (read_order, DEADLINE), (read_federator_key, STATEMENT)]:
        assert refusal(read, payload, OTHER.public, "mail") is ReceiptCode.BAD_SIGNATURE, (read, payload)
        assert refusal(read, payload, OPERATOR.public, "post") is ReceiptCode.BAD_SIGNATURE, (read, payload)
        for junk in (b"", b"junk", payload[:-1]):
            assert refusal(read, junk, OPERATOR.public, "mail") is ReceiptCode.MALFORMED, (read, payload)


def test_a_statement_that_names_another_federation_is_refused():
    for read, message, topic in [
        (read_roster, Roster(federation="post", version=1, **NOBODY), "roster"),
        (read_federator_key, NEW_KEY.model_copy(update={"federation": "post"}), "federator-key"),
        (read_order, orders.SetDeadline(federation="post", round=1, max_time_s=1.0), "operator"),
        (read_order, LIFT.model_copy(update={"federation": "post"}), "operator"),
    ]:
        signed = encode(message, f"foltr/v1/mail/{topic}", 1, OPERATOR)
        assert refusal(read, signed, OPERATOR.public, "mail") is ReceiptCode.WRONG_FEDERATION, (read, message, topic)
