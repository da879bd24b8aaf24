"""Sends a request to forget a client, reads the answers, and reports the erasure's progress."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage
from foltr.broker.short_connections import retry_taken_over, short_connection
from foltr.core.erasure.states import ForgetState
from foltr.core.errors import DataError, MessageError, UnavailableError
from foltr.core.operator.credentials import BrokerAccess, Credentials
from foltr.core.operator.followed_keys import follow_retained, key_topics
from foltr.core.protocol.announcements import UnlearningProgress
from foltr.core.protocol.codec import Envelope, open_envelope
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.core.protocol.states import JobState
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.edge_client.forgetting import refusal_in_words

_ANSWER_S = 3.0
_CONNECT_S = 5.0
# Pause between two visits to the broker during unlearning. It doubles each time.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
# How often to check for progress to report.
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class SignedErasureRequest:
    """A signed request to forget a client, and how to deliver it.

    Attributes:
        session: the MQTT client id to connect with.
        credentials: they name the federator whose notices are trusted.
        key_file: a credentials file with the federator's key.
        named_by: describes where the credentials came from.
        retained: whether the broker retains the request. True for a device's request, False for an order.
        number: of the order, if it is one.
    """

    federation: str
    client_id: str
    topic: str
    payload: bytes
    access: BrokerAccess
    session: str
    credentials: Credentials
    key_file: Path
    named_by: str
    retained: bool
    number: int = 0


class ErasureAnswers:
    """Collects the answers to a request over several visits to the broker."""

    def __init__(self, wish: SignedErasureRequest) -> None:
        self._topics = Topics(wish.federation)
        self._given = self._believed = wish.credentials
        self._retained: dict[str, bytes] = {}
        # Why the federator's newest key may not be trusted.
        self._blocker: str | None = None
        self._named_by = wish.named_by
        # The log event of a federator that refuses without answering. To it a device's request is an ordinary message.
        self._refused_as = "message_refused" if wish.retained else "order_refused"
        self._notices: asyncio.Queue[ErasureNotice] = asyncio.Queue()
        self._newest: ErasureNotice | None = None
        # What this visit heard, and what is reported: a visit that has just begun has heard nothing yet.
        self._heard: UnlearningProgress | None = None
        self._progress: UnlearningProgress | None = None
        self._is_sent = False
        self._unanswered = False
        self._round: InboundMessage | None = None

    @property
    def answered(self) -> bool:
        """Whether the federator has answered at least once."""
        return self._newest is not None

    def begin(self) -> None:
        """Start a visit. Messages retained at the last one may have been cleared since."""
        self._heard = None
        while not self._notices.empty():
            self._notices.get_nowait()

    def sent(self) -> None:
        """Record that the broker has the request."""
        self._is_sent = True

    def received(self, message: InboundMessage) -> None:
        """Handle a message. Only messages signed by the federator count; the rest is ignored."""
        if message.topic in key_topics(self._topics.federation):
            self._take_key(message)
            return
        if message.topic == self._topics.round:
            self._round = message
            return
        try:
            envelope = open_envelope(message.payload)
            if not self._is_believed(envelope, message.topic):
                return
            if envelope.kind == ErasureNotice.kind_name:
                self._notices.put_nowait(envelope.read(ErasureNotice))
            elif envelope.kind == UnlearningProgress.kind_name:
                self._heard = envelope.read(UnlearningProgress)
        except MessageError:
            return

    def _take_key(self, message: InboundMessage) -> None:
        if not message.payload:
            return  # published by foltr doctor
        # Retained messages arrive in any order, so each time all of them are evaluated again.
        self._retained[message.topic] = message.payload
        succession, statement = (self._retained.get(topic) for topic in key_topics(self._topics.federation))
        heard = follow_retained(self._given, succession, statement)
        self._believed, self._blocker = heard.credentials, heard.blocker

    def _is_believed(self, envelope: Envelope, topic: str) -> bool:
        return envelope.is_signed_by(self._believed.federator_public_key, topic)

    @property
    def federator_key(self) -> bytes:
        """The federator's newest known public key."""
        return self._believed.federator_public_key

    @property
    def _other_federator(self) -> bool:
        """Whether the announced round is unsigned or signed by an untrusted key."""
        if self._round is None:
            return False
        try:
            return not self._is_believed(open_envelope(self._round.payload), self._topics.round)
        except MessageError:
            return False

    async def notice(self, timeout_s: float) -> ErasureNotice | None:
        """Return the notice that the client is forgotten, None without one. Raises DataError for a refusal."""
        try:
            async with asyncio.timeout(timeout_s):
                notice = self._newest = await self._notices.get()
        except TimeoutError:
            return None
        finally:
            self._progress, self._unanswered = self._heard, self._newest is None
        if notice.code is ReceiptCode.FORGOTTEN:
            return notice
        if notice.code not in (ReceiptCode.ERASING, ReceiptCode.FORGETTING):
            raise DataError(refusal_in_words(notice))
        return None

    @property
    def forget_state(self) -> ForgetState:
        """The progress as a single code."""
        if self._newest is not None:
            return ForgetState(self._newest.code.value)
        return ForgetState.SENT if self._is_sent else ForgetState.ASKED

    def state(self) -> str:
        """Describe the progress and, if needed, where to look. The text has no final full stop."""
        if self._newest is None:
            return self._silence()
        due = f"; {self._newest.detail}" if self._newest.detail else ""
        if self.forget_state is ForgetState.ERASING:
            return f"{ForgetState.ERASING}: {ForgetState.ERASING.meaning}{due}"
        return f"{self._progress_in_words()}{due}"

    def _progress_in_words(self) -> str:
        progress = self._progress
        if progress is None or progress.state is JobState.DONE:
            return (
                "its data is erased; the model without it is not made yet: the federation gathers requests, for a "
                "day by default (unlearn_every_s, unlearn_after); if nothing must be learned again, the model goes "
                "into service when the open round ends; it may wait for an order: foltr erasure list"
            )
        step = f"step {progress.step} of {progress.n_steps}" if progress.n_steps else "with nothing to learn again"
        told = f"its data is erased; unlearning job {progress.job} is {progress.state}, {step}"
        if progress.state is JobState.PAUSED:
            because = f": {progress.detail}" if progress.detail else ""
            return (
                f"{told}{because}; it goes on when devices that keep interactions are online; see: foltr erasure list"
            )
        if progress.step == progress.n_steps:
            return (
                f"{told}; the model goes into service when the open round ends; an operator can hasten that with "
                "`foltr rounds deadline`"
            )
        return told

    def _silence(self) -> str:
        """Describe possible causes while the federator has not answered."""
        if not self._is_sent:
            return "waiting for the broker"
        if not self._unanswered:
            return "sent; waiting for the federator's answer"
        told = (
            f"the federator has not answered; check that it runs, and read its log: it says {self._refused_as} and "
            f"why, e.g. that {self._named_by} is not this federation's"
        )
        if self._other_federator:
            told += f"; the round announced at this broker is not signed by the federator that {self._named_by} names"
        return told if self._blocker is None else f"{told}; {self._blocker}"


async def send(
    wish: SignedErasureRequest, answers: ErasureAnswers, timeout_s: float, on_progress: Callable[[str], None]
) -> tuple[ErasureNotice, bytes]:
    """Publish the request repeatedly until the client is forgotten.

    A broker with user accounts allows one session per user: connecting as the client disconnects the device, and as the
    operator another command. Each visit is therefore short, so the other session can reconnect in between.

    Args:
        on_progress: called every second with a description of the progress.

    Returns:
        the notice that the client is forgotten, and the federator's public key.

    Raises:
        UnavailableError: no broker, or not forgotten in time.
        FoltrError: the federator refuses.
    """
    telling = asyncio.create_task(_tell(answers, on_progress))
    try:
        async with asyncio.timeout(timeout_s):
            pause_s = _FIRST_PAUSE_S
            notice = await retry_taken_over(lambda: _visit(wish, answers))
            while notice is None:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                # The broker has the request. From here on a broker that is away for a while is no reason to give up.
                with contextlib.suppress(UnavailableError):
                    notice = await _visit(wish, answers)
            return notice, answers.federator_key
    except TimeoutError as error:
        next_step = "" if wish.retained else ". Ask again with --wait"
        if answers.answered and next_step:
            next_step = ". The request stands; ask again with --wait"
        raise UnavailableError(
            f"{wish.client_id} is not forgotten after {timeout_s:g} s: {answers.state()}{next_step}"
        ) from error
    finally:
        telling.cancel()


async def state_of(wish: SignedErasureRequest) -> ForgetState:
    """Return how far the ordered erasure is, from the federation's messages or else the order's answer."""
    answers = ErasureAnswers(wish)
    with contextlib.suppress(UnavailableError):
        await _visit(wish, answers)
    return answers.forget_state if answers.answered else ForgetState.ERASING


async def _tell(answers: ErasureAnswers, on_progress: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        on_progress(answers.state())


async def _visit(wish: SignedErasureRequest, answers: ErasureAnswers) -> ErasureNotice | None:
    """Publish the request once, and listen briefly for the federator's answers.

    Returns:
        the notice that the client is forgotten, if it came.
    """
    topics = Topics(wish.federation)
    inbox = topics.client(wish.client_id, ClientTopic.INBOX)
    heard = [*key_topics(wish.federation), inbox, topics.round, f"{topics.root}/unlearning/+"]
    address = BrokerAddress.of(wish.access)
    answers.begin()
    async with short_connection(address, wish.session, heard, answers.received, _CONNECT_S) as link:
        await link.publish(wish.topic, wish.payload, retain=wish.retained)
        answers.sent()
        return await answers.notice(_ANSWER_S)
