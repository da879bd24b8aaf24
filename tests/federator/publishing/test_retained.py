"""Topics that the broker is to retain something on, or nothing: published until it has them."""

import asyncio

from support.waiting import PATIENCE_S

from foltr.core.protocol.codec import Signer
from foltr.core.protocol.signing import EpochSequence
from foltr.federator.publishing.retained import MAX_WAITING, RetainedTopics


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
