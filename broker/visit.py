"""A connection for a moment, as commands and the HTTP API make one: to say something, and perhaps to hear an answer."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from broker.address import BrokerAddress
from broker.link import InboundMessage, MqttLink


@asynccontextmanager
async def visiting(
    address: BrokerAddress,
    client_id: str,
    heard: Sequence[str],
    on_message: Callable[[InboundMessage], None],
    within_s: float,
) -> AsyncIterator[MqttLink]:
    """Connect within so many seconds, and subscribe; no session is left at the broker.

    Args:
        client_id: where the broker has users, the user's name: whoever is connected under it is thrown out.
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
