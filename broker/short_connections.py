"""A short connection, for commands and the HTTP API."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, MqttLink
from foltr.core.errors import UnavailableError

T = TypeVar("T")

_CONNECT_S = 3.0
# Retained messages arrive at once or not at all.
_QUIET_S = 0.5
# Another command of the same user ends a connection; after so many in a row the command gives up.
_TRIES, _LONGEST_PAUSE_S = 3, 1.0


@asynccontextmanager
async def short_connection(
    address: BrokerAddress,
    client_id: str,
    heard: Sequence[str],
    on_message: Callable[[InboundMessage], None],
    within_s: float,
) -> AsyncIterator[MqttLink]:
    """Connect within so many seconds, and subscribe; leaves no session at the broker.

    Args:
        client_id: the user's name, if the broker has users; ends another connection of that name.
        heard: what to subscribe to.

    Raises:
        UnavailableError: the broker cannot be reached, or does not let this user in; it is tried once.
    """
    link = MqttLink(
        address,
        client_id=client_id,
        subscriptions=list(heard),
        on_message=on_message,
        persistent=False,
        timeout_s=within_s,
        give_up_after_s=0.0,
    )
    async with link:
        await link.wait_connected(within_s)
        yield link


async def read_retained(address: BrokerAddress, filters: Sequence[str]) -> dict[str, InboundMessage]:
    """Return what a broker retains, by topic. Raises UnavailableError if it cannot be reached."""
    heard: dict[str, InboundMessage] = {}

    def take(message: InboundMessage) -> None:
        heard[message.topic] = message

    client_id = address.username or f"foltr-why-{secrets.token_hex(8)}"
    async with short_connection(address, client_id, filters, take, _CONNECT_S):
        await asyncio.sleep(_QUIET_S)
    return heard


async def retry_taken_over(visit: Callable[[], Awaitable[T]], lost: type[UnavailableError] = UnavailableError) -> T:
    """Visit the broker, again if another command of the same user ended the connection.

    Raises:
        UnavailableError: no try succeeded, or the first failed in another way than ``lost``.
    """
    for _ in range(_TRIES - 1):
        try:
            return await visit()
        except lost:
            await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311 (keeps two commands apart)
    return await visit()
