"""Requests go to the helper that they name, signed, and one that is lost keeps nothing else from being sent."""

import asyncio

from support.secure_cohorts import SecureFederation
from support.waiting import PATIENCE_S

from foltr.core.errors import UnavailableError
from foltr.core.protocol.codec import Signer, open_envelope
from foltr.core.protocol.helper_messages import CheckRequest
from foltr.core.protocol.signing import EpochSequence
from foltr.core.protocol.topics import Topics
from foltr.federator.publishing.announcements import ReceiptSender


class Link:
    """Loses the first message."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.n = 0
        self.lost, self.all_sent = asyncio.Event(), asyncio.Event()

    async def publish_at_most_once(self, messages) -> None:
        self.n += 1
        if self.n == 1:
            self.lost.set()
            raise UnavailableError("not connected")
        self.sent += messages
        if len(self.sent) == 2:
            self.all_sent.set()


async def test_a_request_is_signed_for_its_helper_and_a_lost_one_is_left_to_be_repeated():
    """The federator repeats what is not answered, so nobody waits for the broker here."""
    federation, link, topics = SecureFederation(), Link(), Topics("mail")
    sequence = EpochSequence()
    sequence.begin(1)
    sender = ReceiptSender(link, topics, Signer(federation.federator, sequence))
    made = [federation.contribute(client) for client in federation.clients(2)]
    requests = [federation.check(made, helper) for helper in ("north", "south", "north")]
    task = asyncio.create_task(sender.run())
    sender.send(requests[:1])
    await asyncio.wait_for(link.lost.wait(), PATIENCE_S)
    sender.send(requests[1:])
    await asyncio.wait_for(link.all_sent.wait(), PATIENCE_S)
    task.cancel()
    assert [topic for topic, _ in link.sent] == [topics.helper_requests("south"), topics.helper_requests("north")]
    for request, (topic, payload) in zip(requests[1:], link.sent, strict=True):
        envelope = open_envelope(payload)
        assert envelope.is_signed_by(federation.federator.public, topic)
        assert envelope.read(CheckRequest) == request
