"""A federator's publications: retained announcements, and receipts.

Both may be lost on the way without harm. Announcements are kept here until the broker has them, and are published again
after every reconnection, because a broker may have lost what it retained. A device that misses a receipt resends its
update and is answered ``duplicate``.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import structlog

from foltr.broker.link import MqttLink
from foltr.core.errors import UnavailableError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.methods.registry import n_auxiliary
from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement, Selection
from foltr.core.protocol.chunks import chunk_of, manifest_of, needs_chunks
from foltr.core.protocol.codec import Signer
from foltr.core.protocol.evaluations import EvaluationRequest
from foltr.core.protocol.helper_messages import CheckRequest, OpenRequest
from foltr.core.protocol.orders import OrderAnswer
from foltr.core.protocol.paces import Pace
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.federator.deciding.decisions import Receipt
from foltr.federator.deciding.state import FederationState
from foltr.federator.plan import FederationPlan
from foltr.federator.publishing.answer_numbers import AnswerNumbers
from foltr.federator.publishing.delivery import publish_on_change, wait_while
from foltr.federator.round import Round
from foltr.storage.records import ModelRow

log = structlog.get_logger(__name__)

Sendable = Receipt | CheckRequest | OpenRequest
"""Answers, and requests to helpers. If one is lost, it will be asked for again."""
_MAX_WAITING_RECEIPTS = 100_000
# How many unrequested notices wait at once; further ones are made when these are sent.
_NOTICES_AT_ONCE = 256
# If the broker takes nothing for so many rounds the oldest notices are dropped: every answer has the watermark too.
_MAX_NOTICED_ROUNDS = 8
# How many are written at once; then other tasks of the event loop run.
_RECEIPTS_AT_ONCE = 32


def model_announcement(plan: FederationPlan, model: ModelRow) -> ModelAnnouncement:
    """Make the announcement of a stored model, the newest or the anchor."""
    return ModelAnnouncement(
        federation=plan.federation,
        version=model.version,
        ranker=plan.ranker,
        n_auxiliary=n_auxiliary(plan.training, plan.ranker),
        weights=model.weights,
        schema_hash=plan.schema_hash,
    )


def round_announcement(state: FederationState, shown: Round, *, is_open: bool) -> RoundAnnouncement:
    """Make the announcement of a round.

    Args:
        is_open: whether it takes updates. A closed one is the last if no round is open.
    """
    selection = shown.selection
    return RoundAnnouncement(
        federation=state.federation,
        round=shown.number,
        open=is_open,
        last=not is_open and state.round is None,
        base_version=shown.base_version,
        base_hash=state.model_hashes[shown.base_version],
        withdraws_below=state.oldest_base,
        opened_at=shown.opened_at,
        closes_at=shown.closes_at,
        training=state.plan.training,
        selection=None
        if selection is None
        else Selection(
            first_seed=state.selection_seed,
            cutoff=selection.cutoff,
            n_selected=selection.n_selected,
            n_eligible=selection.n_eligible,
        ),
        secure=None if shown.terms is None else shown.terms.announced,
        schema_hash=state.plan.schema_hash,
    )


def pace_announcement(state: FederationState) -> Pace | None:
    """Make the announcement of how often devices visit; None if they stay connected."""
    return None if state.pace is None else Pace(federation=state.federation, period_s=state.pace.period_s)


class _Announced(NamedTuple):
    model: ModelAnnouncement
    anchor: ModelAnnouncement | None
    pace: Pace | None
    evaluation: EvaluationRequest | None
    round: RoundAnnouncement


class Announcer:
    """Keeps the retained topics of model, anchor, evaluation, pace and round equal to the last announcement."""

    def __init__(
        self,
        link: MqttLink,
        topics: Topics,
        signer: Signer,
        on_model_published: Callable[[int], None],
    ) -> None:
        self._link = link
        self._topics = topics
        self._signer = signer
        self._on_model_published = on_model_published
        self._evaluation: EvaluationRequest | None = None
        self._model: ModelAnnouncement | None = None
        self._anchor: ModelAnnouncement | None = None
        self._pace: Pace | None = None
        self._round: RoundAnnouncement | None = None
        self._published: _Announced | None = None
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()

    def announce(
        self,
        model: ModelAnnouncement,
        round_: RoundAnnouncement,
        anchor: ModelAnnouncement | None = None,
        pace: Pace | None = None,
        evaluation: EvaluationRequest | None = None,
    ) -> None:
        self._model, self._round, self._anchor, self._pace = model, round_, anchor, pace
        self._evaluation = evaluation
        self._settled.clear()
        self._changed.set()

    def announce_again(self) -> None:
        """Publish everything again: the connection, perhaps the broker, is new."""
        self._published = None
        self._settled.clear()
        self._changed.set()

    async def wait_settled(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s``; return whether the broker has every announcement."""
        if self._model is None:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        await publish_on_change(self._link, self._changed, self._publish, "announcement_delayed")

    async def _publish(self) -> None:
        if self._model is None or self._round is None:
            return
        announced = _Announced(self._model, self._anchor, self._pace, self._evaluation, self._round)
        model, anchor, pace, evaluation, round_ = announced
        topics, before = self._topics, self._published
        is_new_model = before is None or model is not before.model
        said: list[_RetainedMessage] = []
        if is_new_model:
            # The model goes first: a device that sees a round should find its base model already there.
            payload = await self._whole_or_manifest(model, topics.model, topics.model_chunk)
            said.append(_RetainedMessage(topics.model, payload, Failpoint.MODEL_ANNOUNCED))
        if before is None or anchor != before.anchor:
            said += self._no_anchor(model) if anchor is None else [await self._anchor_message(anchor)]
        if evaluation is not None and (before is None or evaluation != before.evaluation):
            said.append(_RetainedMessage(topics.evaluation, self._signer.sign(evaluation, topics.evaluation)))
        if pace is not None and (before is None or pace != before.pace):
            # Before the round, whose epoch it needs.
            said.append(_RetainedMessage(topics.pace, self._signer.sign(pace, topics.pace)))
        if before is None or round_ is not before.round:
            said.append(
                _RetainedMessage(topics.round, self._signer.sign(round_, topics.round), Failpoint.ROUND_ANNOUNCED)
            )
        await self._link.publish_in_order(_each_of(said), retain=True)
        self._published = announced
        if is_new_model:
            self._on_model_published(model.version)
        if announced == (self._model, self._anchor, self._pace, self._evaluation, self._round):
            self._settled.set()

    async def _anchor_message(self, anchor: ModelAnnouncement) -> "_RetainedMessage":
        topic = self._topics.anchor
        return _RetainedMessage(topic, await self._whole_or_manifest(anchor, topic, self._topics.anchor_chunk))

    def _no_anchor(self, model: ModelAnnouncement) -> "list[_RetainedMessage]":
        """Clear an earlier anchor: it may contain a client that was erased since.

        All models of the federation have the same number of chunks.
        """
        cleared = [_RetainedMessage(self._topics.anchor, b"")]
        payload = self._signer.sign(model, self._topics.anchor)
        if needs_chunks(payload):
            n_chunks = manifest_of(payload, self._topics.federation).n_chunks
            cleared += [_RetainedMessage(self._topics.anchor_chunk(index), b"") for index in range(n_chunks)]
        return cleared

    async def _whole_or_manifest(
        self, model: ModelAnnouncement, topic: str, chunk_topic: Callable[[int], str]
    ) -> bytes:
        """Return a model's announcement; publish the chunks first if it is too large for one message.

        The manifest goes last, so that its readers find the chunks. Its sequence number gives the order, so the model's
        can be its version. Then its bytes and their digest are the same in every announcement, also after a restart,
        and a device that has it does not fetch it again.
        """
        payload = self._signer.sign(model, topic)
        if not needs_chunks(payload):
            return payload
        payload = self._signer.sign(model, topic, sequence=model.version)
        manifest = manifest_of(payload, self._topics.federation)
        for index in range(manifest.n_chunks):
            chunk = self._signer.sign(chunk_of(manifest, payload, index), chunk_topic(index))
            await self._link.publish(chunk_topic(index), chunk, retain=True)
        return self._signer.sign(manifest, topic)


class _RetainedMessage(NamedTuple):
    """A retained message, and at which failpoint a test kills the process once it is sent."""

    topic: str
    payload: bytes
    then: Failpoint | None = None


def _each_of(said: Iterable[_RetainedMessage]) -> Iterator[tuple[str, bytes]]:
    for topic, payload, then in said:
        yield topic, payload
        if then is not None:
            failpoint(then)


class ReceiptSender:
    """Sends receipts, and requests to helpers, in order of decision, many at once, without making the actor wait.

    Unrequested notices are sent beside them, a page at a time: they may go to a whole federation at once.

    Args:
        numbers: numbers each when it is queued; None: the signer numbers it when it is signed.
    """

    def __init__(self, link: MqttLink, topics: Topics, signer: Signer, numbers: AnswerNumbers | None = None) -> None:
        self._numbers = numbers
        self._link = link
        self._topics = topics
        self._signer = signer
        self._waiting: deque[tuple[Sendable, int | None]] = deque(maxlen=_MAX_WAITING_RECEIPTS)
        self._notices: deque[Iterator[Receipt]] = deque(maxlen=_MAX_NOTICED_ROUNDS)
        self._some = asyncio.Event()
        self._n_sending = 0
        self._all_sent = asyncio.Event()

    def send(self, receipts: Iterable[Sendable]) -> None:
        numbers = self._numbers
        self._waiting.extend((receipt, None if numbers is None else numbers.next()) for receipt in receipts)
        if self._waiting:
            self._some.set()

    def notify(self, notices: Iterator[Receipt]) -> None:
        """Send notices when few answers wait; each is made, from the state of that moment, only shortly before."""
        self._notices.append(notices)
        self._some.set()

    def number_notices(self) -> None:
        """Make and number all notices now: later decisions get higher numbers."""
        while self._notices:
            self.send(self._notices.popleft())

    async def wait_sent(self, timeout_s: float) -> None:
        """Wait, up to ``timeout_s``, until everything is sent."""
        await wait_while(self._is_busy, self._all_sent, timeout_s)

    def _is_busy(self) -> bool:
        return bool(self._waiting or self._notices or self._n_sending)

    def _note_all_sent(self) -> None:
        if not self._is_busy():
            self._all_sent.set()

    def _take_notices(self) -> None:
        while self._notices and len(self._waiting) < _NOTICES_AT_ONCE:
            page = list(islice(self._notices[0], _NOTICES_AT_ONCE - len(self._waiting)))
            self.send(page)
            if not page:
                self._notices.popleft()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            self._take_notices()
            if self._waiting:
                await self._send_some()
            else:
                self._some.clear()
            self._note_all_sent()

    async def _send_some(self) -> None:
        receipts = [self._waiting.popleft() for _ in range(min(_RECEIPTS_AT_ONCE, len(self._waiting)))]
        self._n_sending = len(receipts)
        try:
            await self._link.publish_at_most_once([self._signed(*receipt) for receipt in receipts])
            for _ in receipts:
                failpoint(Failpoint.RECEIPT_SENT)
        except UnavailableError as error:
            log.debug("receipts_not_sent", n=len(receipts), cause=str(error))
        finally:
            self._n_sending = 0

    def _signed(self, receipt: Sendable, sequence: int | None) -> tuple[str, bytes]:
        topic = self._topic_of(receipt)
        return topic, self._signer.sign(receipt, topic, sequence)

    def _topic_of(self, receipt: Sendable) -> str:
        if isinstance(receipt, CheckRequest | OpenRequest):
            return self._topics.helper_requests(receipt.helper)
        if isinstance(receipt, OrderAnswer):
            return self._topics.operator_answers
        return self._topics.client(receipt.client_id, ClientTopic.INBOX)
