"""The federator's heartbeat: regular signs that it is online, and, from the broker, the sign that it is gone."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import structlog

from foltr.broker.link import LastWill, MqttLink
from foltr.core.errors import UnavailableError, first_cause
from foltr.core.protocol.codec import Signer
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.signing import BeatSequence, SigningKey
from foltr.core.protocol.topics import Topics
from foltr.core.version import __version__
from foltr.federator.clock import Clock
from foltr.storage.errors import WriterFencedError

log = structlog.get_logger(__name__)

# The broker reports a federator that dies: at once if its machine goes on, else within 1.5 keepalives. Beats cover one
# that hangs, or has lost its database; each goes to every device.
INTERVAL_S = 30.0
_GOODBYE_S = 2.0


class Heartbeat:
    """Tells devices that their federator is online. Used around the serving, it says goodbye at its end.

    Args:
        require_writer: raises WriterFencedError if another federator has claimed the federation since, and
            UnavailableError while that is unknown: neither may look alive.
        on_beat: called after each beat that the broker took.
    """

    def __init__(
        self,
        link: MqttLink,
        topics: Topics,
        key: SigningKey | None,
        clock: Clock,
        require_writer: Callable[[], Awaitable[None]],
        interval_s: float = INTERVAL_S,
        on_beat: Callable[[], None] | None = None,
    ) -> None:
        self._link = link
        self._topics = topics
        self._clock = clock
        self._require_writer = require_writer
        self._interval_s = interval_s
        self._on_beat = on_beat
        self._sequence = BeatSequence()
        self._signer = Signer(key, self._sequence)
        self._has_claim = False
        self._due = asyncio.Event()

    def begin(self, epoch: int) -> None:
        """Use the claim ``epoch`` from the next connection on."""
        self._sequence.begin(epoch)
        self._has_claim = True

    def last_will(self) -> LastWill | None:
        """Begin a connection; return the message for its loss, or None before the first claim."""
        if not self._has_claim:
            return None
        self._sequence.begin_connection()
        return LastWill(self._topics.federator_status, self._signed(online=False, sequence=self._sequence.last_will()))

    def beat_now(self) -> None:
        """Beat at once: the connection, perhaps the broker, is new."""
        self._due.set()

    async def run(self) -> None:
        """Beat for ever. Raises WriterFencedError once another federator has taken over."""
        while True:
            self._due.clear()
            await self.beat()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._due.wait()

    async def beat(self) -> None:
        """Beat once, if possible. Raises WriterFencedError once another federator has taken over."""
        try:
            await self._require_writer()
            await self._publish(online=True)
        except UnavailableError as error:
            log.debug("heartbeat_missed", cause=str(error))
            return
        if self._on_beat is not None:
            self._on_beat()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        cause = first_cause(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(cause, WriterFencedError):
            return  # the successor is online
        with contextlib.suppress(UnavailableError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await self._publish(online=False)

    async def _publish(self, *, online: bool) -> None:
        await self._link.publish(self._topics.federator_status, self._signed(online=online), retain=True)

    def _signed(self, *, online: bool, sequence: int | None = None) -> bytes:
        status = FederatorStatus(
            federation=self._topics.federation,
            online=online,
            at=self._clock.now(),
            interval_s=self._interval_s,
            software_version=__version__,
        )
        return self._signer.sign(status, self._topics.federator_status, sequence)
