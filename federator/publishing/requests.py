"""Sends requests to helpers, one after the other, without making the actor wait. Whoever asks repeats a lost one."""

import asyncio
from collections import deque
from collections.abc import Sequence

import structlog

from foltr.broker.link import MqttLink
from foltr.core.errors import UnavailableError
from foltr.core.protocol.codec import Signer
from foltr.core.protocol.helper_messages import CheckRequest, OpenRequest
from foltr.core.protocol.topics import Topics

log = structlog.get_logger(__name__)

Request = CheckRequest | OpenRequest
# Where the broker takes nothing the oldest go: they are repeated, and may have been answered by then.
_MAX_WAITING = 256


class RequestSender:
    """Requests on their way to helpers."""

    def __init__(self, link: MqttLink, topics: Topics, signer: Signer) -> None:
        self._link = link
        self._topics = topics
        self._signer = signer
        self._waiting: deque[Request] = deque(maxlen=_MAX_WAITING)
        self._some = asyncio.Event()

    def send(self, requests: Sequence[Request]) -> None:
        self._waiting.extend(requests)
        if self._waiting:
            self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                await self._send(self._waiting.popleft())

    async def _send(self, request: Request) -> None:
        topic = self._topics.helper_requests(request.helper)
        try:
            await self._link.publish_at_most_once([(topic, self._signer.sign(request, topic))])
        except UnavailableError:
            log.debug("request_lost", topic=topic, round=request.round)
