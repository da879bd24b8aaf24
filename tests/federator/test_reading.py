"""From bytes on a topic to something to decide about: nothing raises, and the topic's owner is answered."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.link import InboundMessage
from federator.reading import MembershipAsked, Refused, UpdateOffered, read_message
from federator.round import Offer
from foltr.codec import encode
from foltr.messages import DenseDelta, Join, Leave, ModelUpdate, ReceiptCode, Status, pack_vector
from foltr.topics import ClientTopic, Topics

TOPICS = Topics("mail")
UPDATE_ID = "0123456789abcdef" * 2
N_FEATURES = 3


def read(topic, payload, client="device-7"):
    name = TOPICS.client(client, topic)
    return read_message(TOPICS, N_FEATURES, 100_000, InboundMessage(name, payload, retained=False))


def update(values=(1.0, 2.0, 3.0), **fields):
    described = {
        "federation": "mail",
        "client_id": "device-7",
        "update_id": UPDATE_ID,
        "round": 4,
        "base_version": 3,
        "n_interactions": 5,
        "body": DenseDelta(dim=len(values), values=pack_vector(values)),
    }
    return encode(ModelUpdate(**{**described, **fields}))


def test_an_update_is_offered_as_sent():
    """Who, which, for which round, on which model, and the values to the byte."""
    assert read(ClientTopic.UPDATES, update()) == UpdateOffered(
        Offer("device-7", UPDATE_ID, 4, 3), n_interactions=5, values=pack_vector([1.0, 2.0, 3.0])
    )


@pytest.mark.parametrize(
    ("topic", "message", "expected"),
    [
        ("join", Join(federation="mail", client_id="device-7", sdk_version="1"), ("joined", "1")),
        ("leave", Leave(federation="mail", client_id="device-7"), ("left", None)),
        ("status", Status(federation="mail", client_id="device-7", online=True), ("online", None)),
        ("status", Status(federation="mail", client_id="device-7", online=False), ("offline", None)),
    ],
)
def test_membership(topic, message, expected):
    """A join, a leave and a status say what they say."""
    kind, sdk_version = expected
    asked = read(ClientTopic(topic), encode(message))
    assert (asked.client_id, asked.kind, asked.sdk_version) == ("device-7", kind, sdk_version)
    assert isinstance(asked, MembershipAsked)


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        pytest.param(update(federation="other"), "wrong_federation", id="another federation"),
        pytest.param(update(client_id="device-8"), "client_mismatch", id="another client's name"),
        pytest.param(update((1.0, 2.0)), "wrong_shape", id="too few values"),
        pytest.param(update((1.0, 2.0, 3.0, 4.0)), "wrong_shape", id="too many values"),
        pytest.param(update((1.0, np.nan, 3.0)), "not_finite", id="NaN"),
        pytest.param(update((1.0, np.inf, 3.0)), "not_finite", id="infinity"),
        pytest.param(update((1.0, 2.0, -np.inf)), "not_finite", id="minus infinity"),
        pytest.param(update((np.nan,) * 4), "wrong_shape", id="the shape comes first"),
        pytest.param(update((np.nan,) * 3, client_id="device-8"), "client_mismatch", id="the sender comes first"),
    ],
)
def test_an_update_that_was_read_is_refused_by_its_id(payload, code):
    """The owner of the topic is told, and which of its updates it was."""
    refused = read(ClientTopic.UPDATES, payload)
    assert isinstance(refused, Refused)
    assert (refused.client_id, refused.topic, refused.code) == ("device-7", ClientTopic.UPDATES, code)
    assert (refused.update_id, refused.round) == (UPDATE_ID, 4)


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        pytest.param(b"", "malformed", id="empty"),
        pytest.param(b"\xc1", "malformed", id="not msgpack"),
        pytest.param(update()[:-1], "malformed", id="truncated"),
        pytest.param(encode(Leave(federation="mail", client_id="device-7")), "malformed", id="a leave"),
        pytest.param(update().replace(b"\xa1v\x01", b"\xa1v\x02"), "unsupported_version", id="newer"),
        pytest.param(bytes(300_000), "too_large", id="too large"),
    ],
)
@pytest.mark.parametrize("topic", [ClientTopic.UPDATES, ClientTopic.JOIN])
def test_what_cannot_be_read_is_refused_to_the_owner_of_the_topic(topic, payload, code):
    """Nobody else is answered, and no update_id is made up."""
    refused = read(topic, payload)
    assert isinstance(refused, Refused)
    assert (refused.client_id, refused.topic, refused.code) == ("device-7", topic, code)
    assert (refused.update_id, refused.round) == (None, None)


@pytest.mark.parametrize(
    ("topic", "kind"), [(ClientTopic.JOIN, Join), (ClientTopic.LEAVE, Leave), (ClientTopic.STATUS, Status)]
)
@pytest.mark.parametrize(
    ("federation", "client", "code"),
    [("other", "device-7", "wrong_federation"), ("mail", "device-8", "client_mismatch")],
)
def test_nobody_speaks_for_another(topic, kind, federation, client, code):
    """A join, leave or status in another's name has no effect on that other, not even a receipt."""
    more = {"sdk_version": "1"} if kind is Join else {"online": True} if kind is Status else {}
    refused = read(topic, encode(kind(federation=federation, client_id=client, **more)))
    assert isinstance(refused, Refused)
    assert (refused.client_id, refused.code) == ("device-7", ReceiptCode(code))


def test_a_cleared_status_asks_for_nothing():
    """A device that left clears its retained status with an empty message."""
    assert read(ClientTopic.STATUS, b"") is None


@pytest.mark.parametrize("topic", ["foltr/v1/mail/model", "foltr/v1/other/clients/device-7/join", "x", ""])
def test_a_foreign_topic_asks_for_nothing(topic):
    """There is nobody to answer."""
    assert read_message(TOPICS, N_FEATURES, 100_000, InboundMessage(topic, update(), retained=False)) is None


def test_an_inbox_asks_for_nothing():
    """The federator's own receipts are not for the federator."""
    assert read(ClientTopic.INBOX, b"\xc1") is None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(ClientTopic), st.binary(max_size=80), st.integers(0, 200))
def test_no_bytes_raise(topic, noise, at):
    """Noise, alone or inside a valid update, is refused or ignored; the federator goes on."""
    for payload in (noise, update()[:at] + noise, update()[:at] + noise + update()[at:]):
        assert isinstance(read(topic, payload), UpdateOffered | MembershipAsked | Refused | None)
