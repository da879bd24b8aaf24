"""One message, published as a command would, or as somebody else."""

import asyncio

from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.core.operator.credentials import BrokerAccess


def publish_once(access: BrokerAccess, client_id: str, topic: str, payload: bytes, *, retain: bool = False) -> bool:
    """Publish a message; returns whether the broker has delivered it, which it does not where the user may not."""
    return asyncio.run(_publish(access, client_id, topic, payload, retain=retain))


async def _publish(access: BrokerAccess, client_id: str, topic: str, payload: bytes, *, retain: bool) -> bool:
    back = asyncio.Event()
    link = MqttLink(
        BrokerAddress.of(access),
        client_id=client_id,
        subscriptions=[topic],
        on_message=lambda message: back.set() if message.payload == payload else None,
        persistent=False,
    )
    async with link:
        await link.wait_connected(PATIENCE_S)
        await link.publish(topic, payload, retain=retain)
        try:
            async with asyncio.timeout(2.0):  # clock: silence
                await back.wait()
        except TimeoutError:
            return False
    return True
