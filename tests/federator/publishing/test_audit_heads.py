"""The head of the audit log: published after each entry and at each start, which holds it against the one before."""

import pytest
from sqlalchemy import text

from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.membership import Forget
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.publishing.audit_heads import head_of
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.audit_log import find_audit_entry
from foltr.storage.queries import list_events

TOPIC = "foltr/v1/mail/audit-head"
POLICY = RoundPolicy(3, 3, 0.0, 60.0)
NAMES = ("alice", "bob", "carol")


@pytest.fixture
async def served(serve, unsigned):
    """An actor with three members."""
    served = await serve(POLICY)
    await served.join([unsigned(name) for name in NAMES])
    return served


async def forget(served, device) -> AuditHead:
    """Have a client forgotten; what is published afterwards."""
    served.receive(device, ClientTopic.FORGET, Forget(federation="mail", client_id=device.client_id))
    await served.turn()
    return served.retained.topics[TOPIC]


async def differences(served) -> list[str]:
    return [event.detail for event in await list_events(served.db, "mail") if event.kind == "audit_log_differs"]


async def test_an_empty_log_has_a_head(served):
    """So that nobody can say that there never was an entry."""
    assert served.retained.topics[TOPIC] == AuditHead(federation="mail", seq=0, hash=bytes(32), at=0.0)


async def test_each_entry_is_published_as_it_is_stored(served, unsigned):
    """By number, hash and time."""
    first = await forget(served, unsigned("carol"))
    assert first == head_of("mail", await find_audit_entry(served.db, "mail"))
    assert (first.seq, first.at) == (2, served.clock.at)  # erased, and done
    second = await forget(served, unsigned("bob"))
    assert (second.seq, second.hash) != (first.seq, first.hash)
    assert second == head_of("mail", await find_audit_entry(served.db, "mail"))


async def test_a_start_publishes_it_again(served, serve, unsigned):
    """A log that is as it was, or has grown since its head was published, is no news."""
    first = await forget(served, unsigned("carol"))
    head = await forget(served, unsigned("bob"))
    again = await serve(POLICY)
    for published in (first, head):
        await again.actor.start(0, published)
        assert again.retained.topics[TOPIC] == head
    assert await differences(again) == []


@pytest.mark.parametrize(
    ("tampering", "found"),
    [
        ("DELETE FROM audit_log WHERE seq = 4", "the log ends with entry 3"),
        ("DELETE FROM audit_log", "the log ends with entry 0"),
        ("UPDATE audit_log SET hash = previous_hash WHERE seq = 4", "another entry is in its place"),
    ],
)
async def test_a_start_on_a_log_that_was_cut_says_so(served, serve, unsigned, tampering: str, found: str):
    """In the log at error level and in the table of events; what is there is published all the same."""
    await forget(served, unsigned("carol"))
    head = await forget(served, unsigned("bob"))
    assert head.seq == 4
    async with served.db.transaction() as connection:
        await connection.execute(text(tampering))
    again = await serve(POLICY)
    await again.actor.start(0, head)
    assert await differences(again) == [f"entry 4 of 1970-01-01T00:16:40+00:00 was published, but {found}"]
    assert again.retained.topics[TOPIC] == head_of("mail", await find_audit_entry(served.db, "mail"))
