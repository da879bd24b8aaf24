"""Refusals alone wait for no disk: they are answered at once, and stored with what is stored next, or soon."""

import pytest

from foltr.broker.link import InboundMessage
from foltr.core.protocol.topics import Topics
from foltr.federator.batch_writer import HELD_S
from foltr.federator.round import RoundPolicy
from foltr.storage.errors import WriterFencedError
from foltr.storage.federations import claim_federation
from foltr.storage.queries import list_events

TOPICS = Topics("mail")
TOPIC = "foltr/v1/mail/clients/alice/updates"


@pytest.fixture
async def served(serve, operator):
    """An actor with alice in it, and what it commits counted."""
    served = await serve(RoundPolicy(2, 9, 0.0, 60.0), enrolment_key=operator.key.public)
    served.alice = operator.enrol("alice")
    await served.join([served.alice])
    return served


async def junk(served, n_messages=1):
    """Refused messages, and a turn."""
    for _ in range(n_messages):
        served.actor.receive(InboundMessage(TOPIC, b"junk", retained=False))
    await served.actor.turn(served.clock.now())


async def refused(served):
    """How many rows there are of refused updates, and of how many messages."""
    rows = await list_events(served.db, "mail", kind="update_rejected")
    return len(rows), sum(row.n for row in rows)


async def test_they_are_answered_at_once_and_stored_soon(served):
    """A flood of them costs no wait for the disk each; they become one row although nothing else arrives."""
    await junk(served, 2)
    served.clock.at += HELD_S / 2
    await junk(served)
    assert (served.receipts.codes(), await refused(served)) == ({"malformed": 3}, (0, 0))
    served.clock.at += HELD_S / 2
    await served.actor.turn(served.clock.now())
    assert await refused(served) == (1, 3)


async def test_they_are_stored_with_what_is_stored_next(served):
    """In the same transaction."""
    await junk(served, 2)
    served.update(served.alice)
    await served.actor.turn(served.clock.now())
    assert await refused(served) == (1, 2)


async def test_an_orderly_stop_loses_none(served):
    """The last turns of `run` store what was held."""
    await junk(served, 2)
    served.actor.stop()
    await served.actor.run()
    assert await refused(served) == (1, 2)


async def test_who_was_fenced_answers_nothing(served):
    """Its refusals may be wrong by now: another federator decides."""
    await claim_federation(served.db, "mail", 0.0)
    with pytest.raises(WriterFencedError):
        await junk(served)
    assert served.receipts.sent == []


async def test_who_is_forgotten_is_not_named_afterwards(served, operator):
    """What is held of a stranger is stored before it is erased, and erased with the rest."""
    served.actor.receive(InboundMessage(TOPIC.replace("alice", "mallory"), b"junk", retained=False))
    await served.actor.turn(served.clock.now())
    served.actor.receive(InboundMessage(TOPICS.operator, operator.forgets("mallory").payload, retained=False))
    await served.actor.turn(served.clock.now())
    await served.actor.batches.commit_deferred()
    assert await refused(served) == (0, 0)
