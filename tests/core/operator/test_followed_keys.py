"""A command follows the operator's and the federator's keys from those in its file, by what a broker retains."""

from foltr.core.operator.credentials import BrokerAccess, device_identity
from foltr.core.operator.followed_keys import follow_retained, key_topics
from foltr.core.protocol.enrolment import issue_federator_key
from foltr.core.protocol.operator_keys import document_digest, issue_link, issue_succession
from foltr.core.protocol.roster import FederatorKey
from foltr.core.protocol.signing import SigningKey, key_to_text

FIRST, SECOND, THIRD, FEDERATOR, NEXT = (SigningKey(bytes([i] * 32)) for i in range(5))
OLD = device_identity(FIRST, FEDERATOR.public, "mail", "device-1", 1, BrokerAccess(broker_url="mqtt://broker"))
LINKS = [issue_link(FIRST, "mail", 1, SECOND.public), issue_link(SECOND, "mail", 2, THIRD.public)]
SUCCESSION = issue_succession(THIRD, "mail", LINKS, [])


def stated(by: SigningKey) -> bytes:
    return issue_federator_key(
        by, FederatorKey(federation="mail", sequence=1, old_key=FEDERATOR.public, new_key=NEXT.public)
    )


def test_the_newest_keys_are_believed_over_two_rotations():
    """The federator's where the newest enrolment key states it, a former key's statement only if it is kept."""
    found = follow_retained(OLD, SUCCESSION, stated(THIRD))
    assert found.blocker is None
    assert found.credentials.enrolment_public_key == THIRD.public
    assert found.credentials.federator_public_key == NEXT.public
    newer = OLD.model_copy(update={"federator_key": key_to_text(NEXT.public), "federator_key_sequence": 2})
    assert follow_retained(newer, None, stated(FIRST)).blocker is None
    assert key_topics("mail") == ["foltr/v1/mail/operator-key", "foltr/v1/mail/federator-key"]
    statement = stated(FIRST)
    assert follow_retained(OLD, SUCCESSION, statement).credentials.federator_public_key == FEDERATOR.public
    kept = issue_succession(THIRD, "mail", LINKS, [document_digest(statement)])
    assert follow_retained(OLD, kept, statement).credentials.federator_public_key == NEXT.public


def test_where_nothing_is_retained_the_file_counts():
    """If another key states the federator's, it says what to do; somebody else's succession changes nothing."""
    assert follow_retained(OLD, None, None).credentials is OLD
    assert follow_retained(OLD, b"", b"").blocker is None
    silent = follow_retained(OLD, None, stated(THIRD))
    assert silent.credentials is OLD
    assert "foltr broker config --force" in silent.blocker
    assert "foltr operator publish" in silent.blocker
    thief = SigningKey.generate()
    forged = issue_succession(thief, "mail", [issue_link(thief, "mail", 1, SECOND.public)], [])
    for succession in (forged, b"junk"):
        found = follow_retained(OLD, succession, stated(FIRST))
        assert found.credentials.enrolment_public_key == FIRST.public
        assert found.credentials.federator_public_key == NEXT.public
        assert "foltr device enrol NAME --replace" in found.blocker
