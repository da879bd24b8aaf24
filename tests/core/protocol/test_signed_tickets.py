"""What names a ticket to those who draw challenges for its norm proof."""

import hashlib

from foltr.core.protocol.signed_tickets import issue_ticket, open_ticket, resign_ticket, ticket_hash, ticket_name
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.tickets import Ticket

FIELDS = {
    "federation": "mail",
    "client_id": "device-7",
    "round": 4,
    "cohort": 2,
    "policy_hash": bytes(range(32)),
    "update_id": "0123456789abcdef" * 2,
    "participation": 3,
    "digest": bytes(range(32, 64)),
    "seals": [bytes([number]) * 80 for number in (1, 2, 3)],
}


def test_another_ticket_has_another_challenge():
    """Each field, and a letter that moves to the next name. Signed again it has the same: a second would tell more."""
    for field, value in [
        ("federation", "mails"),
        ("client_id", "device-8"),
        ("round", 5),
        ("cohort", 3),
        ("policy_hash", bytes(32)),
        ("update_id", "f" * 32),
        ("participation", 4),
        ("digest", bytes(32)),
    ]:
        assert ticket_name(Ticket(**FIELDS)) != ticket_name(Ticket(**FIELDS | {field: value})), (field, value)
    names = [("mail", "device-7"), ("maild", "evice-7"), ("mai", "ldevice-7")]
    tickets = [Ticket(**FIELDS | {"federation": first, "client_id": second}) for first, second in names]
    assert len({ticket_name(ticket) for ticket in tickets}) == 3
    old, new = SigningKey.generate(), SigningKey.generate()
    signed = issue_ticket(old, Ticket(**FIELDS))
    again = resign_ticket(new, signed)
    assert ticket_hash(signed) != ticket_hash(again)
    assert ticket_name(open_ticket(signed).ticket) == ticket_name(open_ticket(again).ticket)


def test_the_bytes_that_are_hashed_are_those_of_the_documentation():
    """Numbers are of eight bytes, least first, and names have their length in front."""
    written = (
        b"foltr ticket\n"
        + bytes(range(32))
        + b"\x04mail\x08device-7"
        + b"".join(bytes([number]) + bytes(7) for number in (4, 2, 3))
        + bytes.fromhex("0123456789abcdef" * 2)
        + bytes(range(32, 64))
    )
    assert ticket_name(Ticket(**FIELDS)) == hashlib.sha256(written).digest()
