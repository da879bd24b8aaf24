"""A helper is known to be gone by its own signed word or its last will, and by nobody else's."""

import pytest
from support.secure_cohorts import FEDERATION, HelperPair, SecureFederation

from foltr.core.protocol.codec import encode
from foltr.core.protocol.helper_messages import HelperRefusal, HelperRefusalCode, HelperStatus
from foltr.core.protocol.signing import SessionSequence, SigningKey
from foltr.core.protocol.topics import Topics
from foltr.federator.summing.helper_statuses import HelperStatuses

TOPICS = Topics(FEDERATION)


@pytest.fixture
def federation() -> SecureFederation:
    return SecureFederation()


@pytest.fixture
def statuses(federation) -> HelperStatuses:
    return HelperStatuses(TOPICS, lambda: federation.policy)


def said(helper: HelperPair, sequence: int, *, online: bool, key: SigningKey | None = None) -> bytes:
    status = HelperStatus(federation=FEDERATION, helper=helper.name, online=online)
    return encode(status, TOPICS.helper_status(helper.name), sequence, key or helper.signing_key)


def test_a_helper_that_left_is_named_until_it_is_back(federation, statuses):
    """One that has said nothing, such as an older one, is not held to be gone."""
    south = federation.helpers[1]
    assert statuses.offline == []
    sequence = SessionSequence()
    sequence.begin_session()
    statuses.receive(said(south, sequence.next(), online=True))
    statuses.receive(said(south, sequence.last_will(), online=False))
    assert statuses.offline == ["south"]
    sequence.begin_session()
    statuses.receive(said(south, sequence.next(), online=True))
    assert statuses.offline == []


def test_a_late_last_will_does_not_hide_a_helper_that_is_back(federation, statuses):
    """Of the connection before it; nor does a clock that was set back hide one whose status comes now."""
    south = federation.helpers[1]
    statuses.receive(said(south, 2_000, online=True))
    statuses.receive(said(south, 1_999, online=False))
    assert statuses.offline == []
    statuses.receive(said(south, 2_999, online=False))
    statuses.receive(said(south, 1_000, online=True))
    assert statuses.offline == []


def test_only_the_helpers_of_the_policy_count_and_only_what_they_signed(federation, statuses):
    """On a broker without access control anybody may write there."""
    south = federation.helpers[1]
    statuses.receive(said(south, 1, online=False, key=SigningKey.generate()))
    statuses.receive(said(HelperPair("west"), 1, online=False))
    statuses.receive(b"\x93nothing")
    assert statuses.offline == []


def test_a_status_that_comes_before_its_policy_counts_under_it(federation):
    """The broker retains the status of a helper and says it once; the policy that names the helper may come later."""
    south, known = federation.helpers[1], []
    statuses = HelperStatuses(TOPICS, lambda: known[-1] if known else None)
    statuses.receive(said(south, 1, online=False))
    assert statuses.offline == []
    known.append(federation.policy)
    assert statuses.offline == ["south"]
    replaced = HelperPair("south")
    statuses.receive(said(replaced, 2, online=False))
    statuses.receive(said(south, 3, online=True))
    assert statuses.offline == []
    known.append(federation.issue(version=2, helpers=[federation.helpers[0].public, replaced.public]))
    assert statuses.offline == ["south"]


def test_a_helper_that_answers_is_back(federation, statuses):
    """Its older version announces no status; the retained one of the newer version is repeated at each connection."""
    south = federation.helpers[1]
    gone = said(south, 1, online=False)
    statuses.receive(gone)
    refusal = HelperRefusal(**federation.about("south"), digest=bytes(32), code=HelperRefusalCode.ROUND_OVER)
    for key, on in ((SigningKey.generate(), "south"), (south.signing_key, "north")):
        statuses.receive_answer(encode(refusal, TOPICS.helper_answers(on), 2, key))
    statuses.receive_answer(b"\x93nothing")
    assert statuses.offline == ["south"]
    statuses.receive_answer(encode(refusal, TOPICS.helper_answers("south"), 2, south.signing_key))
    statuses.receive(gone)
    assert statuses.offline == []
    statuses.receive(said(south, 2, online=False))
    assert statuses.offline == ["south"]
