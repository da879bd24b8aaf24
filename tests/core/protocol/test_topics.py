"""Topics: what is written where, and that nothing else is taken for it."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.core.errors import SettingsError
from foltr.core.protocol.fields import NAME_PATTERN
from foltr.core.protocol.topics import ClientTopic, Topics, check_name

TOPICS = Topics("mail")
names = st.from_regex(NAME_PATTERN, fullmatch=True)
SAID = ("join", "leave", "status", "updates", "chunks", "forget", "unlearning")


def test_the_topics_are_spelled_as_documented():
    """Other software and an ACL rely on it; a federator hears all clients but no inbox."""
    retained = [TOPICS.model, TOPICS.anchor, TOPICS.evaluation, TOPICS.round, TOPICS.roster, TOPICS.federator_key]
    retained += [TOPICS.audit_head, TOPICS.federator_status, TOPICS.policy, TOPICS.schema]
    names = "model anchor evaluation round roster federator-key audit-head federator-status policy schema"
    assert retained == [f"foltr/v1/mail/{name}" for name in names.split()]
    chunks = [TOPICS.model_chunk(12), TOPICS.anchor_chunk(12), TOPICS.roster_chunk(12)]
    assert chunks == [f"foltr/v1/mail/{name}/chunks/12" for name in ("model", "anchor", "roster")]
    all_chunks = [TOPICS.model_chunks, TOPICS.anchor_chunks, TOPICS.roster_chunks]
    assert all_chunks == [f"foltr/v1/mail/{name}/chunks/+" for name in ("model", "anchor", "roster")]
    assert TOPICS.operator == "foltr/v1/mail/operator"
    assert TOPICS.operator_answers == "foltr/v1/mail/operator/answers"
    of_helper = [TOPICS.helper_requests("north"), TOPICS.helper_answers("north"), TOPICS.helper_status("north")]
    assert of_helper == [f"foltr/v1/mail/helpers/north/{name}" for name in ("requests", "answers", "status")]
    assert TOPICS.is_helper_status(TOPICS.helper_status("north"))
    assert not TOPICS.is_helper_status(TOPICS.helper_answers("north"))
    assert not TOPICS.is_helper_status(TOPICS.client("north", ClientTopic.STATUS))
    assert TOPICS.enrolment("device-7") == "foltr/v1/mail/enrolment/device-7"
    assert [TOPICS.client("device-7", topic) for topic in ClientTopic] == [
        f"foltr/v1/mail/clients/device-7/{name}" for name in (*SAID, "inbox")
    ]
    assert TOPICS.from_all_clients() == tuple(f"foltr/v1/mail/clients/+/{name}" for name in SAID)


@settings(derandomize=True)
@given(names, names, st.sampled_from(ClientTopic))
def test_parse_undoes_client(federation, client_id, topic):
    topics = Topics(federation)
    assert topics.parse(topics.client(client_id, topic)) == (client_id, topic)


@settings(derandomize=True)
@given(names, names)
def test_what_all_may_read_is_no_clients_topic(federation, client_id):
    """Model, round, roster, orders and enrolments are signed for topics that no client may write to."""
    topics = Topics(federation)
    models = [topics.model, topics.model_chunk(0), topics.anchor, topics.anchor_chunk(0)]
    shared = [*models, topics.round, topics.roster, topics.schema, topics.operator]
    own = [topics.client(client_id, topic) for topic in ClientTopic]
    every = [*shared, topics.enrolment(client_id), *own]
    assert len(set(every)) == len(every)
    assert [topic for topic in every if topics.parse(topic)] == own


@settings(derandomize=True)
@given(st.text(max_size=40))
def test_parse_never_raises(text):
    for topic in (text, f"foltr/v1/mail/clients/{text}", f"foltr/v1/mail/clients/device-7/{text}"):
        parsed = TOPICS.parse(topic)
        assert parsed is None or TOPICS.client(*parsed) == topic


def test_a_foreign_topic_is_nobodys():
    """Only the exact topics of this federation have an owner, with names of 64 letters at most."""
    for topic in [
        "clients//updates",
        "clients/device-7",
        "clients/device-7/updates/",
        "clients/device-7/updates/more",
        "clients/device-7/Updates",
        "clients/-x/updates",
        "clients/device-7\n/updates",
    ]:
        assert TOPICS.parse(f"foltr/v1/mail/{topic}") is None, topic
    for root in ["foltr/v1/mail2", "foltr/v2/mail", "/foltr/v1/mail"]:
        assert TOPICS.parse(f"{root}/clients/device-7/updates") is None, root
    for topic in ClientTopic:
        assert TOPICS.parse(TOPICS.client("a" * 64, topic)) == ("a" * 64, topic), topic
        assert TOPICS.parse(TOPICS.client("a" * 65, topic)) is None, topic


def test_nothing_is_kept_of_topics_that_are_longer_than_any():
    """Strangers may invent thousands of 64 KB each; a wrong name names its setting."""
    tracemalloc.start()
    try:
        for i in range(100):
            TOPICS.parse(f"foltr/v1/mail/clients/{i:x>60000}/updates")
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
    for name in ["", "a/b", "+", "#", "-a", "a\n", "a" * 65, "é"]:
        with pytest.raises(SettingsError, match=r"^client_id: "):
            check_name("client_id", name)
    for level in ["till-1", "@token.", "@token.0123", f"@token.{'AB' * 8}", "@token.../x", "head"]:
        assert TOPICS.token_of(f"{TOPICS.root}/tokens/{level}/request") is None, level
    assert TOPICS.token_of(TOPICS.enrolment_request("0123456789abcdef")) == "0123456789abcdef"
    assert TOPICS.token_of(TOPICS.enrolment_answer("0123456789abcdef")) is None
