"""A device's outbox sends what is due; what cannot be sent now, or gets no answer, is due again later."""

import asyncio
import time
from collections.abc import Callable, Sequence

from foltr.broker.link import MqttLink
from foltr.core.errors import UnavailableError
from foltr.core.logs import get_logger
from foltr.core.protocol.chunks import needs_chunks
from foltr.core.protocol.fields import Message
from foltr.core.protocol.membership import Join
from foltr.core.protocol.receipts import UpdateReceipt
from foltr.core.protocol.topics import ClientTopic
from foltr.core.version import __version__
from foltr.edge_client.messaging.transfer import WINDOW, ChunkedModel, ChunkedUpdate
from foltr.edge_client.participation import Outgoing, Participation
from foltr.edge_client.session import Session
from foltr.edge_client.store.bounds import PendingUpdate
from foltr.edge_client.training.relearning import Relearning

log = get_logger(__name__)


class Outbox:
    """Publishes for one device.

    Args:
        chunks: subscriptions for the models that may come in chunks.
        enrolment: the operator's signed statement for the join.
    """

    def __init__(
        self,
        link: MqttLink,
        session: Session,
        participation: Participation,
        chunks: Sequence["ChunkSubscription"],
        enrolment: bytes | None,
    ) -> None:
        self._link = link
        self._session = session
        self._participation = participation
        self._chunks = chunks
        self._enrolment = enrolment
        self._update: ChunkedUpdate | None = None

    def begin_connection(self) -> None:
        """Begin a connection, which has only the link's subscriptions."""
        for one in self._chunks:
            one.begin_connection()

    def as_about_update(self, receipt: UpdateReceipt) -> UpdateReceipt:
        """Return a receipt for an offer as one for the update that was offered."""
        return receipt if self._update is None else self._update.as_about_update(receipt)

    async def publish(self, topic: ClientTopic, message: Message, *, retain: bool = False) -> None:
        """Sign and publish a message. Raises UnavailableError if the broker does not take it."""
        await self._link.publish(self._session.topic(topic), self._session.sign(message, topic), retain=retain)

    async def clear(self, topic: ClientTopic) -> None:
        """Remove what the broker retains on one of this device's topics. Raises UnavailableError as `publish` does."""
        await self._link.publish(self._session.topic(topic), b"", retain=True)

    async def send_due(self) -> None:
        """Send what is due now; if the broker is unreachable, later."""
        if self._participation.pending is None:
            self._update = None  # free the memory: it may be large
        for outgoing in self._participation.due(time.monotonic()):
            try:
                await self._send(outgoing)
            except UnavailableError as error:
                log.debug("resend_scheduled", what=str(outgoing), cause=str(error))
        try:
            for one in self._chunks:
                await one.follow()
        except UnavailableError as error:
            log.debug("model_chunks_not_requested", cause=str(error))  # the next connection announces it again

    async def send_relearned(self, relearning: Relearning) -> None:
        """Send the answer to a step of an unlearning job, if one is due; if that fails, it stays due."""
        answer = relearning.due
        if answer is None or self._participation.left:
            return
        try:
            await self.publish(ClientTopic.UNLEARNING, answer)
        except UnavailableError as error:
            log.debug("resend_scheduled", what=answer.kind_name, cause=str(error))
        else:
            relearning.mark_sent(answer)

    def next_due_at(self) -> float:
        """Return when `send_due` will next have something to do, if nothing arrives before."""
        return min(self._participation.next_due_at(), *(one.gives_up_at() for one in self._chunks))

    @property
    def is_fetching(self) -> bool:
        """Whether parts of a model are on their way."""
        return any(one.gives_up_at() != float("inf") for one in self._chunks)

    async def _send(self, outgoing: Outgoing) -> None:
        pending = self._participation.pending
        if outgoing is Outgoing.JOIN:
            join = Join(
                federation=self._session.federation,
                client_id=self._session.client_id,
                sdk_version=__version__,
                enrolment=self._enrolment,
            )
            await self.publish(ClientTopic.JOIN, join)
        elif pending is None:
            return
        elif not needs_chunks(pending.payload):
            await self._link.publish(self._session.topic(ClientTopic.UPDATES), pending.payload)
        elif outgoing is Outgoing.UPDATE:
            await self._link.publish(self._session.topic(ClientTopic.CHUNKS), self._in_parts(pending).offer)
        else:
            await self._send_chunks(self._in_parts(pending), self._participation.pop_missing())

    async def _send_chunks(self, update: ChunkedUpdate, missing: Sequence[int]) -> None:
        """Send some of the missing chunks, and if not all, ask what is still missing."""
        missing, topic = update.existing(missing), self._session.topic(ClientTopic.CHUNKS)
        sending = (self._link.publish(topic, update.chunk(index)) for index in missing[:WINDOW])
        failures = [done for done in await asyncio.gather(*sending, return_exceptions=True) if done is not None]
        if failures:
            raise failures[0]
        if len(missing) > WINDOW:
            await self._link.publish(topic, update.offer)

    def _in_parts(self, pending: PendingUpdate) -> ChunkedUpdate:
        if self._update is None or self._update.update_id != pending.update_id:
            session = self._session
            self._update = ChunkedUpdate(
                pending, session.federation, session.client_id, lambda part: session.sign(part, ClientTopic.CHUNKS)
            )
        return self._update


class ChunkSubscription:
    """The subscription to the chunks of a model that a device lacks, until they arrive or it gives up.

    Args:
        topic_of: the topic of a chunk, by its index.
    """

    def __init__(self, link: MqttLink, in_parts: ChunkedModel, topic_of: Callable[[int], str]) -> None:
        self._link = link
        self._in_parts = in_parts
        self._topic_of = topic_of
        self._subscribed: list[int] = []

    def begin_connection(self) -> None:
        """Begin a connection, which has only the link's subscriptions."""
        self._subscribed = []

    def gives_up_at(self) -> float:
        """Return when `follow` will next have something to do, if nothing arrives before; infinity: never."""
        return self._in_parts.gives_up_at()

    async def follow(self) -> None:
        """Subscribe to exactly the chunks that a new model lacks. UnavailableError if the broker is away."""
        self._in_parts.give_up(time.monotonic())
        wanted = self._in_parts.to_subscribe
        if self._subscribed and (wanted is not None or not self._in_parts.collecting):
            # First unsubscribe: not every broker delivers retained messages again to an existing subscriber.
            unwanted, self._subscribed = self._subscribed, []
            await self._link.unsubscribe(self._topics(unwanted))
        if wanted is not None and wanted is self._in_parts.to_subscribe:
            self._in_parts.to_subscribe = None
            self._subscribed = wanted
            await self._link.subscribe(self._topics(wanted))

    def _topics(self, indices: Sequence[int]) -> list[str]:
        return [self._topic_of(index) for index in indices]


async def is_set_within(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait up to ``timeout_s`` for an event, or not at all if that is 0 or less; return whether it is set."""
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            await event.wait()
    except TimeoutError:
        pass
    return event.is_set()
