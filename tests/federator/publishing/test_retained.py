"""Topics that the broker is to retain something on, or nothing: published until it has them."""

import asyncio

from support.federator_without_network import TOPICS
from support.waiting import PATIENCE_S

from foltr.broker.link import InboundMessage
from foltr.core.protocol.codec import Signer
from foltr.core.protocol.signing import EpochSequence
from foltr.federator.publishing.retained import MAX_WAITING, DroppedRetained, RetainedTopics


class Link:
    """A link that takes every message."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes, bool]] = []

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.published.append((topic, payload, retain))


async def test_what_others_retained_is_cleared_once_and_within_bounds():
    """A crowd that retains under ever new names costs no memory; what is left is heard of at the next connection."""
    link = Link()
    retained = RetainedTopics(link, Signer(None, EpochSequence()))
    for number in range(2 * MAX_WAITING):
        retained.clear_foreign(f"topic/{number}")
        retained.clear_foreign(f"topic/{number}")
    running = asyncio.create_task(retained.run())
    await retained.wait_settled(PATIENCE_S)
    running.cancel()
    assert sorted(link.published) == sorted((f"topic/{number}", b"", True) for number in range(MAX_WAITING))


def test_so_many_names_are_remembered_and_no_more(monkeypatch):
    """Anybody may use any name where a broker lets him."""
    monkeypatch.setattr("foltr.federator.publishing.retained.MOST_NAMES", 2)
    turned_away = DroppedRetained(TOPICS)
    for i in range(3):
        turned_away.note(InboundMessage(f"foltr/v1/mail/clients/client-{i}/status", b"a will", retained=True))
    turned_away.note(InboundMessage("foltr/v1/mail/clients/client-0/updates", b"an update", retained=True))
    assert turned_away.drain() == {"client-0", "client-1"}
    assert not turned_away.drain()
