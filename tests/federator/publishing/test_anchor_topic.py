"""The anchor is retained beside the newest model: before the round, again after a reconnection, and cleared."""

import asyncio

import pytest
from support.federator_by_hand import announced, round_on
from support.waiting import PATIENCE_S

from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement
from foltr.core.protocol.codec import Signer, open_envelope
from foltr.core.protocol.evaluations import EvaluationRequest
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES
from foltr.core.protocol.signing import EpochSequence, SigningKey, epoch_and_number
from foltr.core.protocol.topics import Topics
from foltr.core.protocol.updates import Manifest
from foltr.federator.publishing.announcements import Announcer

TOPICS = Topics("mail")
KEY = SigningKey(b"federator" + bytes(23))


class Link:
    """A link that takes every message."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        assert retain
        self.published.append((topic, payload))

    async def publish_in_order(self, messages, *, retain: bool = False) -> None:
        assert retain
        self.published.extend(messages)

    def take(self) -> list[tuple[str, bytes]]:
        taken, self.published = self.published, []
        return taken


def model(version: int, d: int = 2) -> ModelAnnouncement:
    return announced(version, [0.0] * d)


def opened(number: int) -> RoundAnnouncement:
    return round_on(number, number, closes_at=60.0)


@pytest.fixture
async def announcing():
    link, sequence = Link(), EpochSequence()
    sequence.begin(1)
    announcer = Announcer(link, TOPICS, Signer(KEY, sequence), lambda _: None)
    running = asyncio.create_task(announcer.run())
    yield announcer, link
    running.cancel()


async def topics_of(announcer: Announcer, link: Link) -> list[str]:
    assert await announcer.wait_settled(PATIENCE_S)
    return [topic for topic, _ in link.take()]


async def test_it_goes_between_the_model_and_the_round(announcing):
    """Who sees a round finds both models there; the same anchor is published once, another at once."""
    announcer, link = announcing
    announcer.announce(model(3), opened(3), model(1))
    assert await topics_of(announcer, link) == [TOPICS.model, TOPICS.anchor, TOPICS.round]
    announcer.announce(model(4), opened(4), model(1))
    assert await topics_of(announcer, link) == [TOPICS.model, TOPICS.round]
    announcer.announce(model(5), opened(5), model(4))
    assert await announcer.wait_settled(PATIENCE_S)
    published = dict(link.take())
    envelope = open_envelope(published[TOPICS.anchor])
    assert envelope.is_signed_by(KEY.public, TOPICS.anchor)
    assert envelope.read(ModelAnnouncement) == model(4)


async def test_who_asks_for_evaluations_says_so_before_the_first_round(announcing):
    """Under the epoch of its rounds; again with other credits, and over a new connection."""
    announcer, link = announcing
    asked = EvaluationRequest(federation="mail")
    announcer.announce(model(3), opened(3), model(1), evaluation=asked)
    assert await announcer.wait_settled(PATIENCE_S)
    published = link.take()
    assert [topic for topic, _ in published] == [TOPICS.model, TOPICS.anchor, TOPICS.evaluation, TOPICS.round]
    request, round_ = (open_envelope(payload) for _, payload in published[-2:])
    assert (request.read(EvaluationRequest), request.is_signed_by(KEY.public, TOPICS.evaluation)) == (asked, True)
    assert epoch_and_number(request.sequence)[0] == epoch_and_number(round_.sequence)[0]
    announcer.announce(model(4), opened(4), model(1), evaluation=asked)
    assert await topics_of(announcer, link) == [TOPICS.model, TOPICS.round]
    learned = asked.model_copy(update={"credit_total": 1.0, "credit_squares": 1.0})
    announcer.announce(model(5), opened(5), model(1), evaluation=learned)
    assert await topics_of(announcer, link) == [TOPICS.model, TOPICS.evaluation, TOPICS.round]
    announcer.announce_again()
    assert await topics_of(announcer, link) == [TOPICS.model, TOPICS.anchor, TOPICS.evaluation, TOPICS.round]


async def test_without_one_what_is_retained_is_cleared(announcing):
    """At the first announcement, as an earlier federator may have left it, and once it is no anchor any more."""
    announcer, link = announcing
    announcer.announce(model(3), opened(3))
    assert await announcer.wait_settled(PATIENCE_S)
    assert (TOPICS.anchor, b"") in link.take()
    announcer.announce(model(4), opened(4))
    assert TOPICS.anchor not in await topics_of(announcer, link)
    announcer.announce(model(5), opened(5), model(3))
    await topics_of(announcer, link)
    announcer.announce(model(5), opened(5))
    assert await announcer.wait_settled(PATIENCE_S)
    assert (TOPICS.anchor, b"") in link.take()


async def test_a_large_one_goes_in_chunks_and_they_are_cleared_with_it(announcing):
    """Of its own topics; nothing that an erased client is in is left at the broker."""
    announcer, link = announcing
    d = MAX_MESSAGE_BYTES // 4 + 1000
    newest, first = model(3, d), opened(3)
    announcer.announce(newest, first, model(1, d))
    assert await announcer.wait_settled(PATIENCE_S)
    published = dict(link.take())
    n_chunks = open_envelope(published[TOPICS.anchor]).read(Manifest).n_chunks
    assert n_chunks > 1
    chunks = [TOPICS.anchor_chunk(index) for index in range(n_chunks)]
    assert set(chunks) < published.keys()
    announcer.announce(newest, first)
    assert await announcer.wait_settled(PATIENCE_S)
    assert link.take() == [(topic, b"") for topic in (TOPICS.anchor, *chunks)]
