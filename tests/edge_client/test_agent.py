"""The agent of a device, given its turns by hand: what it sends when, over a link that only notes it down."""

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.broker_links import NotedLink
from support.device_stores import stored
from support.federator_by_hand import N_FEATURES, TOPICS, adding_learner, model, round_on

from foltr.broker.link import InboundMessage
from foltr.core.protocol.codec import decode, encode
from foltr.core.protocol.fields import payload_digest
from foltr.core.protocol.membership import Status
from foltr.core.protocol.paces import Pace
from foltr.core.protocol.receipts import ErasureNotice, MembershipReceipt, ReceiptCode
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.agent import Agent
from foltr.edge_client.options import DeviceOptions, Experiment

INBOX, JOIN, STATUS, UPDATES = (
    TOPICS.client("device-7", topic)
    for topic in (ClientTopic.INBOX, ClientTopic.JOIN, ClientTopic.STATUS, ClientTopic.UPDATES)
)


@pytest.fixture
def link():
    return NotedLink()


@pytest.fixture
def agent(link, path):
    with stored(path) as store:
        yield Agent(
            link, store, DeviceOptions("mail", "device-7", experiment=Experiment(seed=1, learner=adding_learner))
        )


def hear(agent, topic, message):
    agent.receive(InboundMessage(topic, encode(message, topic), retained=False))


def hear_of_joining(agent, join):
    fields = {"federation": "mail", "client_id": "device-7", "counted_through": 0}
    hear(agent, INBOX, MembershipReceipt(**fields, code=ReceiptCode.JOINED, payload_digest=payload_digest(join)))


ROUND = round_on(1, 3, training=PdgdTraining(min_interactions=2, max_interactions=2))


def see(agent, *numbers):
    for number in numbers:
        agent.record_clicks(agent.rank(np.eye(1, N_FEATURES, number), k=1), [0])


async def test_without_a_connection_nothing_is_due(agent, link):
    """And what was due is sent over the next one."""
    link.connected = False
    await agent.turn()
    assert agent.next_due_at() == float("inf")
    link.connected = True
    assert agent.next_due_at() < float("inf")
    await agent.turn()
    assert [topic for topic, *_ in link.taken()] == [JOIN]


async def test_whatever_happens_asks_for_a_turn(agent, link):
    """A message, also one that cannot be read, which is said in the log; and an update that is made."""
    for payload in (encode(model(3), TOPICS.model), b"\xc1"):
        agent.wake.clear()
        with capture_logs() as logs:
            agent.receive(InboundMessage(TOPICS.model, payload, retained=False))
        assert agent.wake.is_set()
    assert [line["event"] for line in logs] == ["message_refused"]
    hear(agent, TOPICS.round, ROUND)
    await agent.turn()
    ((_, join, _),) = link.taken()
    hear_of_joining(agent, join)
    agent.wake.clear()
    see(agent, 4)
    assert not agent.wake.is_set()
    see(agent, 9)
    assert agent.wake.is_set()


async def test_a_goodbye_is_said_by_who_is_a_client(agent, link):
    """Who was forgotten clears what it has at the broker, and tells nobody that it was there."""
    await agent.say_goodbye()
    ((topic, payload, retain),) = link.taken()
    assert (topic, decode(payload, Status).online, retain) == (STATUS, False, True)
    hear(agent, INBOX, ErasureNotice(federation="mail", client_id="device-7", code=ReceiptCode.FORGETTING))
    assert agent.forgotten
    await agent.say_goodbye()
    assert sorted(link.taken()) == sorted(
        (TOPICS.client("device-7", topic), b"", True) for topic in (ClientTopic.FORGET, ClientTopic.STATUS)
    )
    await agent.begin_connection()
    assert link.taken() == []


async def test_who_goes_in_its_first_visit_leaves_nothing_said_of_being_there(agent, link):
    """It said that it is online before it heard of the pace, and a goodbye has no last will."""
    agent.begin_session()
    await agent.begin_connection()
    hear(agent, TOPICS.pace, Pace(federation="mail", period_s=60.0))
    hear(agent, TOPICS.round, ROUND)
    await agent.turn()
    assert agent.visits.period_s == 60.0
    link.taken()
    await agent.say_goodbye()
    assert link.taken() == [(STATUS, b"", True)]
    agent.begin_session()
    await agent.say_goodbye()
    assert link.taken() == []


async def test_what_cannot_be_learned_ends_no_turn(agent, link, monkeypatch):
    """A device that fails at the clicks that waited for kernels says so, and sends what is due all the same."""

    def fail():
        raise ValueError("a store that cannot be read")

    monkeypatch.setattr(agent.trainer, "learn_when_loaded", fail)
    with capture_logs() as logs:
        await agent.turn()
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["pending_clicks_not_learned"]
    assert [topic for topic, *_ in link.taken()] == [JOIN]
