"""Whom to believe as the operator once its enrolment key was rotated: the newest key, and what it says still counts."""

import pytest

from foltr.core.errors import MessageError
from foltr.core.protocol.enrolment import issue_enrolment, issue_federator_key, read_enrolment, read_federator_key
from foltr.core.protocol.operator_keys import (
    OperatorKeys,
    document_digest,
    enrolment_digest,
    follow_succession,
    issue_kept_enrolments,
    issue_link,
    issue_succession,
    read_kept_enrolments,
)
from foltr.core.protocol.roster import FederatorKey
from foltr.core.protocol.signing import SigningKey

FIRST, SECOND, THIRD, THIEF = (SigningKey(bytes([i]) * 32) for i in range(1, 5))
LINKS = [issue_link(FIRST, "mail", 1, SECOND.public), issue_link(SECOND, "mail", 2, THIRD.public)]
STATEMENT = FederatorKey(federation="mail", sequence=1, old_key=bytes(32), new_key=bytes(32))
SIGNED = issue_federator_key(FIRST, STATEMENT)


def test_a_reader_follows_from_whichever_key_it_knows():
    """Who has the first key only cannot go on from the second; an older chain is no way back."""
    for known in [FIRST, SECOND, THIRD]:
        succession = issue_succession(THIRD, "mail", LINKS, [document_digest(SIGNED)])
        keys = follow_succession(succession, known.public, "mail")
        assert keys == OperatorKeys(THIRD.public, (FIRST.public, SECOND.public), frozenset({document_digest(SIGNED)}))
    for succession in [
        issue_succession(THIEF, "mail", [issue_link(FIRST, "mail", 1, THIEF.public)], []),  # does not know of SECOND
        issue_succession(THIEF, "mail", [LINKS[0], issue_link(FIRST, "mail", 2, THIEF.public)], []),
        issue_succession(THIEF, "mail", [LINKS[0], issue_link(THIEF, "mail", 2, THIRD.public)], []),
        issue_succession(THIEF, "mail", LINKS, []),  # the whole is not signed by the newest key
        issue_succession(SECOND, "mail", LINKS[1:] + LINKS[:1], []),
        issue_succession(SECOND, "other", [issue_link(FIRST, "other", 1, SECOND.public)], []),
        LINKS[0],
        b"nonsense",
    ]:
        with pytest.raises(MessageError):
            follow_succession(succession, SECOND.public, "mail")
    with pytest.raises(MessageError):
        follow_succession(issue_succession(SECOND, "mail", LINKS[:1], []), THIRD.public, "mail")


def test_a_document_of_a_former_key_counts_where_it_is_kept():
    """And another of the same key does not, until it comes from the reader's own storage."""
    keys = OperatorKeys(SECOND.public, (FIRST.public,), frozenset({document_digest(SIGNED)}))
    assert read_federator_key(SIGNED, keys, "mail") == STATEMENT
    other = issue_federator_key(FIRST, STATEMENT.model_copy(update={"sequence": 2}))
    with pytest.raises(MessageError):
        read_federator_key(other, keys, "mail")
    assert read_federator_key(other, keys.stored(), "mail").sequence == 2
    forged = issue_federator_key(THIEF, STATEMENT)
    with pytest.raises(MessageError):
        read_federator_key(forged, OperatorKeys(SECOND.public, (FIRST.public,)).stored(), "mail")


def test_an_enrolment_of_a_former_key_counts_where_it_is_kept():
    """By whose it is, its key and its serial: a thief of the former key can make none that is on the list."""
    signed = issue_enrolment(FIRST, "mail", "device-1", bytes(32), 5, 0.0)
    kept = enrolment_digest(read_enrolment(signed, FIRST.public, "mail", "device-1"))
    keys = OperatorKeys(SECOND.public, (FIRST.public,))
    for key in (FIRST, THIEF):
        with pytest.raises(MessageError):
            read_kept_enrolments(issue_kept_enrolments(key, "mail", 1, [kept]), keys, "mail")
    keys = keys.keeping(read_kept_enrolments(issue_kept_enrolments(SECOND, "mail", 1, [kept]), keys, "mail"))
    assert read_enrolment(signed, keys, "mail", "device-1").serial == 5
    others = [(THIEF.public, 5, "device-1"), (bytes(32), 6, "device-1"), (bytes(32), 5, "device-2")]
    forged = [(name, issue_enrolment(FIRST, "mail", name, key, serial, 0.0)) for key, serial, name in others]
    forged.append(("device-1", issue_enrolment(FIRST, "mail", "device-1", bytes(32), 5, 0.0, secure=True)))
    for client_id, other in forged:
        with pytest.raises(MessageError, match="not one of this client"):
            read_enrolment(other, keys, "mail", client_id)
    # On the list, and signed by nobody who ever was the operator.
    with pytest.raises(MessageError):
        read_enrolment(issue_enrolment(THIEF, "mail", "device-1", bytes(32), 5, 0.0), keys, "mail", "device-1")
