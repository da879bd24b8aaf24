"""How commands reach the broker: from a credentials file or an address, and once for a single message."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.cli.output import errors
from foltr.errors import UnavailableError
from foltr.operator.credentials import BrokerAccess

if TYPE_CHECKING:
    from broker.address import BrokerAddress
    from broker.broker_records import BrokerRecord
    from broker.link import InboundMessage
    from foltr.operator.authority import Authority

DEFAULT_OPERATOR_FOLDER = Path("foltr-operator")
OperatorFolder = Annotated[
    Path,
    typer.Option("--operator", help="The operator's folder: the enrolment key and what was signed with it"),
]
_TIMEOUT_S = 5.0


def access_to(url: str) -> BrokerAccess:
    """How to reach the broker at ``url``, with the user and the password in fields of their own."""
    from broker.address import BrokerAddress

    address = BrokerAddress.parse(url)
    return BrokerAccess(broker_url=str(address), username=address.username, password=address.password)


def redirect(access: BrokerAccess, url: str | None) -> BrokerAccess:
    """``access`` at another address, if there is one; a user in ``url`` takes the place of the one there was."""
    from broker.address import BrokerAddress

    if url is None:
        return access
    given = access_to(url).model_dump(exclude_none=True)
    other = access.model_copy(update={"username": None, "password": None} if "username" in given else {})
    other = other.model_copy(update=given)
    BrokerAddress.of(other)  # refuses certificates for an address without TLS
    return other


def broker_record(folder: Path) -> "BrokerRecord | None":
    """The broker that was configured together with this operator's folder, if one was."""
    from broker.broker_records import RECORD_NAME, read_record

    return read_record(folder) if (folder / RECORD_NAME).exists() else None


def service_access(folder: Path) -> tuple[BrokerAccess, BrokerAccess]:
    """How the federator and the operator reach the broker that was configured with this folder."""
    from broker.broker_records import read_credentials

    federator, operator = (
        BrokerAccess(**asdict(read_credentials(folder / f"{service}.broker.json")))
        for service in ("federator", "operator")
    )
    return federator, operator


@contextmanager
def open_authority(folder: Path, federation: str | None = None) -> Iterator["Authority"]:
    """An operator's folder whose services know the broker that was configured with it, before or since."""
    from foltr.operator.authority import open_authority

    with open_authority(folder, federation) as authority:
        if broker_record(folder) is not None:
            federator, operator = service_access(folder)
            authority.refresh_access(federator=federator, operator=operator)
        yield authority


def publish_once(access: BrokerAccess, client_id: str, topic: str, payload: bytes, *, retain: bool = False) -> None:
    """Publish one message and see it delivered.

    A broker acknowledges a message that its access list forbids, so only a message that comes back was published.

    Args:
        client_id: the name of the session; its user must be allowed to read ``topic``, too.

    Raises:
        UnavailableError: no connection, no acknowledgement or no delivery, each within seconds.
    """
    from broker.address import BrokerAddress

    with errors.status("waiting for the broker"):
        asyncio.run(_publish_once(BrokerAddress.of(access), client_id, topic, payload, retain=retain))


async def _publish_once(address: "BrokerAddress", client_id: str, topic: str, payload: bytes, *, retain: bool) -> None:
    from broker.link import MqttLink

    back = asyncio.Event()

    def received(message: "InboundMessage") -> None:
        # Also where these very bytes were retained before: then they already are where they belong.
        if message.payload == payload:
            back.set()

    link = MqttLink(
        address,
        client_id=client_id,
        subscriptions=[topic],
        on_message=received,
        persistent=False,
        timeout_s=_TIMEOUT_S,
        give_up_after_s=0.0,
    )
    async with link:
        await link.wait_connected(_TIMEOUT_S)
        await link.publish(topic, payload, retain=retain)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await back.wait()
        except TimeoutError as error:
            raise UnavailableError(
                f"MQTT broker {address}: it took a message for {topic} and did not deliver it; "
                "is this user allowed to write there?"
            ) from error
